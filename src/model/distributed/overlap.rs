//! Sums of gradients that are exchanged while the backward pass still runs.
//!
//! All processes must exchange the same ranges in the same order, even a process whose micro-batch has no
//! targets and no backward pass. So they agree on an order: the one in which gradients of rank 0 became final
//! in its first step. In that step all gradients are exchanged only at the end.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use anyhow::Result;
use candle_core::Tensor;

use crate::distributed::engine::{Engine, OnGpus, Pending};
use crate::distributed::mark::Mark;
use crate::distributed::travelling::Travelling;
use crate::distributed::{BUCKET_VALUES, BUCKETS_AHEAD, World};
use base::error::Problem;
use ops::tensor::{with_slice, with_slice_mut};

/// The sums of gradients of an update.
#[derive(Debug)]
pub struct Sums {
    world: World,
    engine: &'static Engine,
    step: Mutex<Step>,
}

#[derive(Debug, Default)]
struct Step {
    /// All ranges, in the order in which they are exchanged. Together they cover all values; empty until it
    /// is agreed on.
    order: Vec<Range<usize>>,
    /// Ranges that became final in this step.
    finished: Vec<Range<usize>>,
    /// Values that are final and wait for ranges earlier in the order, by the start of their range.
    waiting: BTreeMap<usize, Values>,
    /// Number of ranges of `order` that were sent in this step.
    sent: usize,
    under_way: VecDeque<(Range<usize>, UnderWay)>,
}

/// Gradients that are final.
#[derive(Debug)]
enum Values {
    /// Copy on the host.
    OnHost(Travelling),
    /// Values on a GPU, where they are added up.
    OnGpu(OnGpus),
}

#[derive(Debug)]
enum UnderWay {
    OnHost(Pending<'static, Travelling>),
    OnGpu(Pending<'static, ()>),
}

impl Sums {
    pub(super) fn new(world: World, engine: &'static Engine) -> Self {
        Self { world, engine, step: Mutex::default() }
    }

    /// Reports that the gradients in `range` are final in this process; sends them if their turn has come.
    pub fn add(&self, range: Range<usize>, values: &Tensor) -> Result<()> {
        let mut step = self.step.lock().unwrap_or_else(PoisonError::into_inner);
        if step.finished.contains(&range) && !step.order.is_empty() {
            return Err(Problem::new(format!("the gradients {range:?} are final twice in a step")).into());
        }
        if step.order.contains(&range) {
            step.waiting.insert(range.start, self.final_values(values)?);
        }
        step.finished.push(range);
        while let Some(next) = step.order.get(step.sent).cloned()
            && let Some(values) = step.waiting.remove(&next.start)
        {
            self.send(&mut step, next, values);
        }
        Ok(())
    }

    /// Sends the ranges that are left and waits until the sums of all are in `all`, the gradients of this
    /// process.
    pub fn finish(&self, all: &Tensor) -> Result<()> {
        let mut step = self.step.lock().unwrap_or_else(PoisonError::into_inner);
        let finished = std::mem::take(&mut step.finished);
        if step.order.is_empty() {
            self.world.sum_in_place(all)?;
            step.order = order(&self.world.agree(finished)?, all.elem_count());
            return Ok(());
        }
        while step.sent < step.order.len() || !step.under_way.is_empty() {
            if step.sent < step.order.len() && step.under_way.len() < BUCKETS_AHEAD {
                let next = step.order[step.sent].clone();
                let values = match step.waiting.remove(&next.start) {
                    Some(values) => values,
                    None => self.final_values(&all.narrow(0, next.start, next.len())?)?,
                };
                self.send(&mut step, next, values);
                continue;
            }
            match step.under_way.pop_front() {
                Some((range, UnderWay::OnHost(sums))) => {
                    let sums = sums.wait()?;
                    let own = all.narrow(0, range.start, range.len())?;
                    with_slice_mut(&own, |own| sums.write_to(own))?;
                }
                Some((_, UnderWay::OnGpu(sums))) => sums.wait_guarded()?,
                None => {}
            }
        }
        step.sent = 0;
        Ok(())
    }

    fn final_values(&self, values: &Tensor) -> Result<Values> {
        Ok(if self.world.on_gpus {
            Values::OnGpu(OnGpus { tensor: values.clone(), after: Mark::behind(values)?, parts: None })
        } else {
            Values::OnHost(with_slice(values, |own| Travelling::from_values(own, self.world.ways.wire))?)
        })
    }

    fn send(&self, step: &mut Step, range: Range<usize>, values: Values) {
        step.sent += 1;
        let under_way = match values {
            Values::OnHost(values) => UnderWay::OnHost(self.engine.sum(values, self.world.ways.sum)),
            Values::OnGpu(values) => UnderWay::OnGpu(self.engine.on_gpus(values, self.world.ways)),
        };
        step.under_way.push_back((range, under_way));
    }
}

/// Returns ranges that cover all of `len` values: first the `finished` ranges that overlap no other one, in
/// their order, then the gaps between them.
fn order(finished: &[Range<usize>], len: usize) -> Vec<Range<usize>> {
    let mut order = Vec::new();
    for range in finished {
        let overlapping = finished.iter().filter(|other| range.start < other.end && other.start < range.end);
        if range.end <= len && overlapping.count() == 1 {
            order.push(range.clone());
        }
    }
    let mut by_start = order.clone();
    by_start.sort_by_key(|range| range.start);
    let mut covered = 0;
    for range in by_start.into_iter().chain(std::iter::once(len..len)) {
        let mut rest = covered..range.start;
        while !rest.is_empty() {
            let end = rest.end.min(rest.start + BUCKET_VALUES);
            order.push(rest.start..end);
            rest.start = end;
        }
        covered = range.end;
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_covers_all_and_sends_nothing_early_that_is_final_twice() {
        let all = Range { start: 0, end: 5 };
        assert_eq!(order(&[], 5), std::slice::from_ref(&all));
        assert_eq!(order(&[6..9, 2..4, 6..9, 4..5], 12), [2..4, 4..5, 0..2, 5..12]);
        let long = 2 * BUCKET_VALUES + 3;
        let split = [7..9, 0..7, 9..9 + BUCKET_VALUES, 9 + BUCKET_VALUES..long];
        assert_eq!(order(&split[..1], long), split);
    }
}
