//! Sums of gradients that travel while the backward pass still runs.
//!
//! All processes must give the same ranges in the same order, also one whose micro-batch has nothing to learn
//! from and no backward pass. So the order is agreed on: it is the one in which the first process has told of
//! its ranges in its first step, which itself waits until all are there.

use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::PoisonError;

use anyhow::Result;
use candle_core::Tensor;

use crate::distributed::BUCKET_VALUES;
use crate::distributed::BUCKETS_AHEAD;
use crate::distributed::World;
use crate::distributed::engine::Engine;
use crate::distributed::engine::OnGpus;
use crate::distributed::engine::Pending;
use crate::distributed::mark::Mark;
use crate::distributed::travelling::Travelling;
use crate::error::Problem;
use crate::ops::tensor::with_slice;
use crate::ops::tensor::with_slice_mut;

/// The sums of an update.
#[derive(Debug)]
pub struct Sums {
    world: World,
    engine: &'static Engine,
    step: Mutex<Step>,
}

#[derive(Debug, Default)]
struct Step {
    /// The ranges in the order in which they travel, which cover all values; none before it is agreed on.
    order: Vec<Range<usize>>,
    /// Those that were told of in this step.
    told: Vec<Range<usize>>,
    /// By their starts, values that are final and wait for those before them.
    waiting: BTreeMap<usize, Values>,
    /// How many have left.
    sent: usize,
    under_way: VecDeque<(Range<usize>, UnderWay)>,
}

/// Values that are final.
#[derive(Debug)]
enum Values {
    /// A copy of them.
    OnHost(Travelling),
    /// On a GPU, where they are added up.
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

    /// These values are final in this process.
    pub fn add(&self, range: Range<usize>, values: &Tensor) -> Result<()> {
        let mut step = self.step.lock().unwrap_or_else(PoisonError::into_inner);
        if step.told.contains(&range) && !step.order.is_empty() {
            return Err(Problem::new(format!("the gradients {range:?} are final twice in a step")).into());
        }
        if step.order.contains(&range) {
            step.waiting.insert(range.start, self.final_values(values)?);
        }
        step.told.push(range);
        while let Some(next) = step.order.get(step.sent).cloned()
            && let Some(values) = step.waiting.remove(&next.start)
        {
            self.send(&mut step, next, values);
        }
        Ok(())
    }

    /// Waits until all sums are in `all`, the gradients of this process.
    pub fn finish(&self, all: &Tensor) -> Result<()> {
        let mut step = self.step.lock().unwrap_or_else(PoisonError::into_inner);
        let told = std::mem::take(&mut step.told);
        if step.order.is_empty() {
            self.world.sum_in_place(all)?;
            step.order = order(&self.world.agree(told)?, all.elem_count());
            return Ok(());
        }
        let part = |range: &Range<usize>| all.narrow(0, range.start, range.len());
        while step.sent < step.order.len() || !step.under_way.is_empty() {
            if step.sent < step.order.len() && step.under_way.len() < BUCKETS_AHEAD {
                let next = step.order[step.sent].clone();
                let values = match step.waiting.remove(&next.start) {
                    Some(values) => values,
                    None => self.final_values(&part(&next)?)?,
                };
                self.send(&mut step, next, values);
                continue;
            }
            match step.under_way.pop_front() {
                Some((range, UnderWay::OnHost(sums))) => {
                    let sums = sums.wait()?;
                    with_slice_mut(&part(&range)?, |own| sums.write_to(own))?;
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
            Values::OnHost(with_slice(values, |values| Travelling::of(values, self.world.ways.wire))?)
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

/// The order of all of `len` values, of which these were told of one after the other: those that were told of
/// once, and behind them whatever lies between them.
fn order(told: &[Range<usize>], len: usize) -> Vec<Range<usize>> {
    let overlaps = |a: &Range<usize>, b: &Range<usize>| a.start < b.end && b.start < a.end;
    let is_alone = |range: &&Range<usize>| {
        range.end <= len && told.iter().filter(|other| overlaps(range, other)).count() == 1
    };
    let mut order: Vec<Range<usize>> = told.iter().filter(is_alone).cloned().collect();
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
    fn an_order_covers_all_and_sends_nothing_early_that_is_told_of_twice() {
        let all = Range { start: 0, end: 5 };
        assert_eq!(order(&[], 5), std::slice::from_ref(&all));
        assert_eq!(order(&[6..9, 2..4, 6..9, 4..5], 12), [2..4, 4..5, 0..2, 5..12]);
        let long = 2 * BUCKET_VALUES + 3;
        let split = [7..9, 0..7, 9..9 + BUCKET_VALUES, 9 + BUCKET_VALUES..long];
        assert_eq!(order(&split[..1], long), split);
    }
}
