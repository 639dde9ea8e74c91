//! How several processes train together: how they find each other, and which tensors they add up.
//!
//! [`World`] is all that the rest of the crate sees of this module. It adds the exchange of tensors to
//! [`Processes`], which have no tensors, and which it links. Each process has one thread that talks to the
//! others (`engine.rs`). It exchanges values by MPI (`mpi.rs`) in a build with the feature `mpi`, and adds up
//! tensors on GPUs by NCCL (`nccl.rs`) in one with `nccl`, which also works without MPI (`gpus.rs`).
//! A build with neither feature and commands that do not train refuse to run as one of several processes:
//! every process would do the same work and write to the same folder.

#[cfg_attr(
    not(any(feature = "mpi", feature = "nccl", feature = "testing", test)),
    expect(dead_code, reason = "only MPI, NCCL and tests start one")
)]
mod engine;
mod gpus;
mod launch;
mod mark;
#[cfg(feature = "mpi")]
mod mpi;
mod narrow;
#[cfg_attr(not(feature = "nccl"), path = "distributed/no_nccl.rs")]
mod nccl;
mod network;
mod overlap;
#[cfg(test)]
mod tests;
#[cfg(any(test, feature = "testing"))]
pub mod threads;
#[cfg_attr(
    not(any(feature = "mpi", feature = "nccl", feature = "testing", test)),
    expect(dead_code, reason = "only MPI, NCCL and tests are one")
)]
mod transport;
mod travelling;
mod tree;

use std::collections::VecDeque;
use std::ops::{Deref, Range};
use std::sync::Arc;

use anyhow::Result;
use candle_core::Tensor;

use base::error::Problem;
use base::processes::Processes;
use config::{DistributedConfig, SumOrder, Wire};
use engine::{Engine, OnGpus};
use mark::Mark;
use ops::tensor::with_slice_mut;
use travelling::Travelling;

pub use launch::{
    AbortOnPanic, MPI, NCCL, abort, has_no_launcher, leave, listen, local_rank, named, place,
    set_preferences, tell_with,
};
pub use overlap::Sums;
pub use tree::{leaves, micro_batches_per_leaf};

/// Number of values exchanged at once: enough to keep the network busy, yet small compared with a model.
const BUCKET_VALUES: usize = 1 << 21;

/// Number of buckets in flight at a time: one is copied while another is sent.
const BUCKETS_AHEAD: usize = 2;

/// The processes of a run, seen from one of them, and their exchange of tensors.
#[derive(Debug, Clone, Copy)]
pub struct World {
    /// The same processes, for work without tensors. A world has their methods and fields, too.
    pub processes: Processes,
    /// Communication thread; `None` if this process is alone.
    pub(crate) engine: Option<&'static Engine>,
    /// Settings of the exchange.
    pub(crate) ways: Ways,
    /// True if gradients are on GPUs and added up there.
    pub(crate) on_gpus: bool,
}

/// Settings of the exchange of gradients between processes, and of the check that all have the same model.
/// Each field is the key of that name in `distributed`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ways {
    overlap: bool,
    wire: Wire,
    sum: SumOrder,
    shard_optimizer: bool,
    check_replicas_steps: u64,
}

impl Ways {
    fn from_config(config: &DistributedConfig) -> Self {
        let &DistributedConfig { overlap, wire, sum, shard_optimizer, check_replicas_steps, .. } = config;
        Self { overlap, wire, sum, shard_optimizer, check_replicas_steps }
    }
}

impl Default for Ways {
    fn default() -> Self {
        Self::from_config(&DistributedConfig::default())
    }
}

impl Default for World {
    fn default() -> Self {
        Self::ALONE
    }
}

impl Deref for World {
    type Target = Processes;

    fn deref(&self) -> &Processes {
        &self.processes
    }
}

impl World {
    /// A world of one process.
    pub const ALONE: Self = Self {
        processes: Processes::ALONE,
        engine: None,
        ways: Ways {
            overlap: false,
            wire: Wire::F32,
            sum: SumOrder::Tree,
            shard_optimizer: false,
            check_replicas_steps: 0,
        },
        on_gpus: false,
    };

    /// Processor seconds of the communication thread of this process, and wall-clock seconds since its start.
    pub fn exchange_seconds(&self) -> Option<(f64, f64)> {
        self.engine?.seconds()
    }

    /// Sets the step that messages about the exchange name from now on.
    pub fn at_step(&self, step: u64) {
        if let Some(engine) = self.engine {
            engine.at_step(step);
        }
    }

    /// Sums that are sent while the backward pass still runs, if there are other processes and `overlap` is
    /// set.
    pub fn sums_meanwhile(&self) -> Option<Arc<Sums>> {
        let engine = self.engine.filter(|_| self.ways.overlap)?;
        Some(Arc::new(Sums::new(*self, engine)))
    }

    /// True if `compare_replicas` is due after `step`: at every multiple of `check_replicas_steps`, and if
    /// the model is saved after it.
    pub fn is_to_compare(&self, step: u64, is_saved: bool) -> bool {
        let every = self.ways.check_replicas_steps;
        self.is_shared() && every > 0 && (is_saved || step.is_multiple_of(every))
    }

    /// Returns an error if the parameters of some process, whose hash is `sha256`, differ from those of the
    /// majority.
    pub fn compare_replicas(&self, sha256: &str, step: u64) -> Result<()> {
        let all = self.gather(&sha256.to_string())?;
        let most = all.iter().rev().max_by_key(|hash| all.iter().filter(|other| other == hash).count());
        let Some(most) = most else { return Ok(()) };
        let other = all.iter().enumerate().filter(|(_, hash)| *hash != most);
        let other: Vec<String> = other.map(|(rank, _)| rank.to_string()).collect();
        if other.is_empty() {
            return Ok(());
        }
        let which = if other.len() == 1 { "rank" } else { "ranks" };
        let message =
            format!("{which} {} of {} has other parameters after step {step}", other.join(", "), self.size);
        let hint =
            "its memory or processor made an error: go on from the last checkpoint, without that machine";
        Err(Problem::new(message).hint(hint).into())
    }

    /// True if each process updates a part of the parameters and keeps the optimizer state of that part
    /// alone.
    pub fn shards_optimizer(&self) -> bool {
        self.is_shared() && self.ways.shard_optimizer
    }

    /// True if final gradients are copied for the exchange while the backward pass computes the others.
    pub fn copies_gradients(&self) -> bool {
        self.is_shared() && self.ways.overlap && !self.on_gpus
    }

    /// All-gather in place: `whole` is a vector of f32 with consecutive `parts`, one per rank. Sends the part
    /// of this process to all others, and writes their parts into `whole`.
    pub fn share_in_place(&self, whole: &Tensor, parts: &[Range<usize>]) -> Result<()> {
        if self.on_gpus {
            return self.do_on_gpus(whole, Some(parts.to_vec()));
        }
        with_slice_mut(whole, |all| {
            let own = all[parts[self.rank].clone()].to_vec();
            self.join_parts(&own, parts, Some(all))
        })?
    }

    /// All-reduce in place: adds up a vector of f32 over all processes, which all get the same sums.
    pub fn sum_in_place(&self, values: &Tensor) -> Result<()> {
        if self.on_gpus {
            return self.do_on_gpus(values, None);
        }
        with_slice_mut(values, |values| self.sum_values(values))?
    }

    fn do_on_gpus(&self, tensor: &Tensor, parts: Option<Vec<Range<usize>>>) -> Result<()> {
        let Some(engine) = self.engine else { return Ok(()) };
        let what = OnGpus { tensor: tensor.clone(), after: Mark::behind(tensor)?, parts };
        engine.on_gpus(what, self.ways).wait_guarded()
    }

    /// All-gather of consecutive `parts` of a whole: sends `own`, the part of this process, to all others.
    /// Writes all parts into `whole` on processes that pass it.
    pub fn join_parts(
        &self,
        own: &[f32],
        parts: &[Range<usize>],
        mut whole: Option<&mut [f32]>,
    ) -> Result<()> {
        let Some(engine) = self.engine else { return Ok(()) };
        let at_once = (BUCKET_VALUES / self.size).max(1);
        let rounds = parts.iter().map(Range::len).max().unwrap_or(0).div_ceil(at_once);
        let mut under_way = VecDeque::new();
        let mut next = 0;
        while next < rounds || !under_way.is_empty() {
            if next < rounds && under_way.len() < BUCKETS_AHEAD {
                let counts = parts.iter().map(|part| round_range(part.len(), next, at_once).len()).collect();
                let piece = own[round_range(parts[self.rank].len(), next, at_once)].to_vec();
                under_way.push_back((next, engine.join(piece, counts)));
                next += 1;
            } else if let Some((round, joined)) = under_way.pop_front() {
                let joined: Vec<f32> = joined.wait()?;
                let mut offset = 0;
                let Some(whole) = &mut whole else { continue };
                for part in parts {
                    let piece = round_range(part.len(), round, at_once);
                    whole[part.start + piece.start..part.start + piece.end]
                        .copy_from_slice(&joined[offset..offset + piece.len()]);
                    offset += piece.len();
                }
            }
        }
        Ok(())
    }

    /// All-reduce: adds up `values` over all processes in the order of `tree.rs`; all get the same sums.
    pub fn sum_values(&self, values: &mut [f32]) -> Result<()> {
        let Some(engine) = self.engine else { return Ok(()) };
        let mut under_way = VecDeque::new();
        let mut next = 0;
        while next < values.len() || !under_way.is_empty() {
            if next < values.len() && under_way.len() < BUCKETS_AHEAD {
                let range = next..(next + BUCKET_VALUES).min(values.len());
                next = range.end;
                under_way.push_back((
                    range.clone(),
                    engine.sum(Travelling::from_values(&values[range], self.ways.wire), self.ways.sum),
                ));
                continue;
            }
            if let Some((range, sums)) = under_way.pop_front() {
                let range: Range<usize> = range;
                sums.wait()?.write_to(&mut values[range]);
            }
        }
        Ok(())
    }
}

/// The values of a part of length `len` that are sent in `round`, relative to the start of the part.
fn round_range(len: usize, round: usize, values_per_round: usize) -> Range<usize> {
    (round * values_per_round).min(len)..((round + 1) * values_per_round).min(len)
}
