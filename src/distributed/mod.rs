//! How many processes train together, what they add up, and what they decide together.
//!
//! [`World`] is all that the rest of the crate sees of it. Each process has one thread that talks to the
//! others (`engine.rs`); it hands values around by MPI (`mpi.rs`) in a build with the feature `mpi`, and adds up
//! what is on GPUs by NCCL (`nccl.rs`) in one with `nccl`, which can do without MPI (`gpus.rs`). A build with neither,
//! and commands that train nothing, refuse to be one of many: every process would do the same work and write to the
//! same folder.

#[cfg_attr(
    not(any(feature = "mpi", feature = "nccl", test)),
    expect(dead_code, reason = "only MPI, NCCL and tests start one")
)]
mod engine;
mod gpus;
mod launch;
mod mark;
#[cfg(feature = "mpi")]
mod mpi;
mod narrow;
#[cfg_attr(not(feature = "nccl"), path = "no_nccl.rs")]
mod nccl;
mod network;
mod overlap;
#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) mod threads;
#[cfg_attr(
    not(any(feature = "mpi", feature = "nccl", test)),
    expect(dead_code, reason = "only MPI, NCCL and tests are one")
)]
mod transport;
mod travelling;
mod tree;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use anyhow::Result;
use candle_core::Tensor;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::config::DistributedConfig;
use crate::config::SumOrder;
use crate::config::Wire;
use crate::error::Problem;
use crate::ops::tensor::with_slice_mut;
use engine::Engine;
use engine::OnGpus;
use mark::Mark;
use travelling::Travelling;

pub use launch::AbortOnPanic;
pub use launch::MPI;
pub use launch::NCCL;
pub use launch::abort;
pub use launch::has_no_launcher;
pub use launch::leave;
pub use launch::listen;
pub use launch::local_rank;
pub use launch::named;
pub use launch::place;
pub use launch::set_preferences;
pub use launch::tell_with;
pub use overlap::Sums;
pub use tree::leaves;
pub use tree::micro_batches_per_leaf;

/// Values that are exchanged at once: enough for the network to be busy, and few beside a model.
const BUCKET_VALUES: usize = 1 << 21;

/// Buckets that are under way at a time: one is copied while another travels.
const BUCKETS_AHEAD: usize = 2;

/// What may take as long as it likes, since it depends on the text: longer than any of it.
const LONG: Duration = Duration::from_secs(30 * 24 * 3600);

/// The processes of a run.
#[derive(Debug, Clone, Copy)]
pub struct World {
    /// Number of this process, from 0.
    pub rank: usize,
    /// Number of processes.
    pub size: usize,
    /// What talks to the others, where there are any.
    pub(crate) engine: Option<&'static Engine>,
    /// How values travel.
    pub(crate) ways: Ways,
    /// Whether gradients are on GPUs, and added up there.
    pub(crate) on_gpus: bool,
}

/// How gradients travel between processes, and how often it is seen that all have the same model: keys of
/// `distributed`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ways {
    overlap: bool,
    wire: Wire,
    sum: SumOrder,
    shard_optimizer: bool,
    check_replicas_steps: u64,
}

impl Ways {
    fn of(config: &DistributedConfig) -> Self {
        let &DistributedConfig { overlap, wire, sum, shard_optimizer, check_replicas_steps, .. } = config;
        Self { overlap, wire, sum, shard_optimizer, check_replicas_steps }
    }
}

impl Default for Ways {
    fn default() -> Self {
        Self::of(&DistributedConfig::default())
    }
}

impl Default for World {
    fn default() -> Self {
        Self::ALONE
    }
}

impl World {
    /// One process.
    pub const ALONE: Self = Self {
        rank: 0,
        size: 1,
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

    /// Whether this is the process that writes what all share.
    pub fn is_first(&self) -> bool {
        self.rank == 0
    }

    /// Whether there are others.
    pub fn is_shared(&self) -> bool {
        self.engine.is_some()
    }

    /// Seconds of a processor that talking to the others has taken in this process, and those since it began.
    pub fn exchange_seconds(&self) -> Option<(f64, f64)> {
        self.engine?.seconds()
    }

    /// Messages about the exchange name this step from here on.
    pub fn at_step(&self, step: u64) {
        if let Some(engine) = self.engine {
            engine.at_step(step);
        }
    }

    /// The sums of all processes' numbers.
    pub fn sum(&self, own: Vec<usize>) -> Result<Vec<usize>> {
        if !self.is_shared() {
            return Ok(own);
        }
        let all = self.gather(&own)?;
        let len = own.len();
        Ok((0..len).map(|index| all.iter().map(|numbers| numbers[index]).sum()).collect())
    }

    /// What each process has, in their order.
    pub fn gather<T: Serialize + DeserializeOwned>(&self, own: &T) -> Result<Vec<T>> {
        self.gather_within(own, None)
    }

    fn gather_within<T: Serialize + DeserializeOwned>(
        &self,
        own: &T,
        timeout: Option<Duration>,
    ) -> Result<Vec<T>> {
        let own = serde_json::to_vec(own).context("what processes tell each other as JSON")?;
        let all = self.gather_bytes_within(own, timeout)?;
        let read = |bytes: &Vec<u8>| serde_json::from_slice(bytes).context("what another process told");
        all.iter().map(read).collect()
    }

    /// The bytes of each process, in their order, however long it takes to have them.
    pub fn gather_bytes(&self, own: Vec<u8>) -> Result<Vec<Vec<u8>>> {
        self.gather_bytes_within(own, Some(LONG))
    }

    fn gather_bytes_within(&self, own: Vec<u8>, timeout: Option<Duration>) -> Result<Vec<Vec<u8>>> {
        match self.engine {
            Some(engine) => engine.gather(own, timeout).wait(),
            None => Ok(vec![own]),
        }
    }

    /// The decision that all processes take, which is that of the first.
    pub fn agree<T: Serialize + DeserializeOwned>(&self, own: T) -> Result<T> {
        if !self.is_shared() {
            return Ok(own);
        }
        // What others have is not asked for.
        self.told_by_first(self.is_first().then_some(own))
    }

    fn told_by_first<T: Serialize + DeserializeOwned>(&self, own: Option<T>) -> Result<T> {
        // Lists, since JSON has one word for `None` and for `Some(None)`.
        let own: Vec<T> = own.into_iter().collect();
        let told = self.gather(&own)?.into_iter().flatten().next();
        told.ok_or_else(|| Problem::new("rank 0 has told nothing").into())
    }

    /// The decision of whichever process has made one, of the first of these.
    pub fn any<T: Serialize + DeserializeOwned>(&self, own: Option<T>) -> Result<Option<T>> {
        if !self.is_shared() {
            return Ok(own);
        }
        Ok(self.gather(&own)?.into_iter().flatten().next())
    }

    /// `own`, where every process has it: what one of them has broken off is broken off for all.
    pub fn all_of<T>(&self, own: Option<T>) -> Result<Option<T>> {
        let is_missing = self.any(own.is_none().then_some(true))?.is_some();
        Ok(own.filter(|_| !is_missing))
    }

    /// Goes on when all have come here, however long that takes.
    pub fn wait_for_all(&self) -> Result<()> {
        if !self.is_shared() {
            return Ok(());
        }
        self.gather_within(&(), Some(LONG)).map(drop)
    }

    /// Does `work` in the first process, and goes on in all of them when it is done.
    pub fn in_first<R>(&self, work: impl FnOnce() -> Result<R>) -> Result<Option<R>> {
        let done = self.is_first().then(work).transpose()?;
        self.wait_for_all()?;
        Ok(done)
    }

    /// What the first process says, however long it takes to say it; the others give `None`.
    pub fn from_first<T: Serialize + DeserializeOwned>(&self, own: Option<T>) -> Result<T> {
        self.wait_for_all()?;
        self.told_by_first(own)
    }

    /// Refuses to go on where processes differ in any of these, each with its name.
    pub fn require_same(&self, named: &[(&str, String)]) -> Result<()> {
        if !self.is_shared() {
            return Ok(());
        }
        let named: Vec<(String, String)> =
            named.iter().map(|(name, value)| ((*name).to_string(), value.clone())).collect();
        let all = self.gather_within(&named, Some(LONG))?;
        let first = &all[0];
        let differs = |(index, (name, value)): (usize, &(String, String))| {
            let other = |own: &&(usize, &Vec<(String, String)>)| {
                own.1.get(index).is_none_or(|(_, other)| other != value)
            };
            let ranks: Vec<(usize, _)> = all.iter().enumerate().collect();
            let ranks: Vec<String> = ranks.iter().filter(other).map(|(rank, _)| rank.to_string()).collect();
            (!ranks.is_empty()).then(|| (name.clone(), ranks))
        };
        let Some((name, ranks)) = first.iter().enumerate().find_map(differs) else { return Ok(()) };
        let which = if ranks.len() == 1 { "rank" } else { "ranks" };
        Err(Problem::usage(format!("{name} of {which} {} differs from that of rank 0", ranks.join(", ")))
            .hint("start all processes with the same program, files and command line")
            .into())
    }

    /// Sums that travel while gradients are still computed, where there are others and that is wanted.
    pub fn sums_meanwhile(&self) -> Option<Arc<Sums>> {
        let engine = self.engine.filter(|_| self.ways.overlap)?;
        Some(Arc::new(Sums::new(*self, engine)))
    }

    /// Whether it is to be seen after `step` that all processes have the same model.
    pub fn is_to_compare(&self, step: u64, is_saved: bool) -> bool {
        let every = self.ways.check_replicas_steps;
        self.is_shared() && every > 0 && (is_saved || step.is_multiple_of(every))
    }

    /// An error where the parameters of a process, of which this is the hash, are not those of most others.
    pub fn compare_replicas(&self, sha256: &str, step: u64) -> Result<()> {
        let all = self.gather(&sha256.to_string())?;
        let votes = |hash: &String| all.iter().filter(|other| *other == hash).count();
        let Some(most) = all.iter().rev().max_by_key(|hash| votes(hash)) else { return Ok(()) };
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

    /// Whether each process updates a part of the parameters, and has the state of the optimizer for it alone.
    pub fn shards_optimizer(&self) -> bool {
        self.is_shared() && self.ways.shard_optimizer
    }

    /// Whether gradients that are final are copied for the exchange while others are computed.
    pub fn copies_gradients(&self) -> bool {
        self.is_shared() && self.ways.overlap && !self.on_gpus
    }

    /// Gives this process's of the consecutive `parts` of a vector of f32 to all others, and takes theirs into it.
    pub fn share_in_place(&self, whole: &Tensor, parts: &[Range<usize>]) -> Result<()> {
        if self.on_gpus {
            return self.do_on_gpus(whole, Some(parts.to_vec()));
        }
        with_slice_mut(whole, |all| {
            let own = all[parts[self.rank].clone()].to_vec();
            self.join_parts(&own, parts, Some(all))
        })?
    }

    /// Adds up a vector of f32 over all processes; all have the same sums after it.
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

    /// Gives `own`, this process's of the consecutive `parts` of a whole, to all others, and puts all of them into
    /// `whole` where that is wanted here.
    pub fn join_parts(
        &self,
        own: &[f32],
        parts: &[Range<usize>],
        mut whole: Option<&mut [f32]>,
    ) -> Result<()> {
        let Some(engine) = self.engine else { return Ok(()) };
        let at_once = (BUCKET_VALUES / self.size).max(1);
        let rounds = parts.iter().map(Range::len).max().unwrap_or(0).div_ceil(at_once);
        // What a process gives in a round, counted from the beginning of its part.
        let piece = |rank: usize, round: usize| {
            let len = parts[rank].len();
            (round * at_once).min(len)..((round + 1) * at_once).min(len)
        };
        let (mut under_way, mut next) = (VecDeque::new(), 0);
        while next < rounds || !under_way.is_empty() {
            if next < rounds && under_way.len() < BUCKETS_AHEAD {
                let counts = (0..self.size).map(|rank| piece(rank, next).len()).collect();
                under_way.push_back((next, engine.join(own[piece(self.rank, next)].to_vec(), counts)));
                next += 1;
            } else if let Some((round, joined)) = under_way.pop_front() {
                let (joined, mut at): (Vec<f32>, usize) = (joined.wait()?, 0);
                let Some(whole) = &mut whole else { continue };
                for (rank, part) in parts.iter().enumerate() {
                    let piece = piece(rank, round);
                    whole[part.start + piece.start..part.start + piece.end]
                        .copy_from_slice(&joined[at..at + piece.len()]);
                    at += piece.len();
                }
            }
        }
        Ok(())
    }

    /// Adds up `values` over all processes, over the tree of `tree.rs`; all have the same sums after it.
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
                    engine.sum(Travelling::of(&values[range], self.ways.wire), self.ways.sum),
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
