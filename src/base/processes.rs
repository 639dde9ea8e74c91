//! The processes of a run, and their exchange of decisions, counts and bytes, but not of tensors.
//!
//! [`Processes`] needs one operation, the gathering of bytes, which a [`Link`] provides. This crate has a
//! link between threads, for tests; those between processes are in `distributed`, which also exchanges
//! tensors.

#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;

use std::fmt::Debug;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::Problem;

/// Timeout for work whose duration depends on the size of the corpus: longer than any real run needs.
const LONG: Duration = Duration::from_secs(30 * 24 * 3600);

/// Carries bytes between processes. All processes make each call, in the same order.
pub trait Link: Debug + Sync {
    /// Returns the bytes of all processes, in rank order. A `timeout` replaces the usual one where some
    /// processes have more work to do before this call than others.
    fn gather(&self, own: Vec<u8>, timeout: Option<Duration>) -> Result<Vec<Vec<u8>>>;
}

/// The processes of a run, seen from one of them.
#[derive(Debug, Clone, Copy)]
pub struct Processes {
    /// Rank of this process, from 0.
    pub rank: usize,
    /// Number of processes.
    pub size: usize,
    /// Connection to the others; `None` if this process is alone.
    link: Option<&'static dyn Link>,
}

impl Processes {
    /// One process.
    pub const ALONE: Self = Self { rank: 0, size: 1, link: None };

    /// Several processes that `link` connects.
    pub fn new(rank: usize, size: usize, link: &'static dyn Link) -> Self {
        Self { rank, size, link: Some(link) }
    }

    /// True for rank 0, which writes the files that all processes share.
    pub fn is_first(&self) -> bool {
        self.rank == 0
    }

    /// True if there are other processes.
    pub fn is_shared(&self) -> bool {
        self.link.is_some()
    }

    /// Element-wise sums of `own` over all processes.
    pub fn sum(&self, own: Vec<usize>) -> Result<Vec<usize>> {
        if !self.is_shared() {
            return Ok(own);
        }
        let all = self.gather(&own)?;
        let len = own.len();
        Ok((0..len).map(|index| all.iter().map(|numbers| numbers[index]).sum()).collect())
    }

    /// The values of all processes, in rank order.
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
        let parsed =
            all.iter().map(|bytes| serde_json::from_slice(bytes).context("what another process told"));
        parsed.collect()
    }

    /// The bytes of all processes, in rank order, without a practical limit on the time to wait.
    pub fn gather_bytes(&self, own: Vec<u8>) -> Result<Vec<Vec<u8>>> {
        self.gather_bytes_within(own, Some(LONG))
    }

    fn gather_bytes_within(&self, own: Vec<u8>, timeout: Option<Duration>) -> Result<Vec<Vec<u8>>> {
        match self.link {
            Some(link) => link.gather(own, timeout),
            None => Ok(vec![own]),
        }
    }

    /// The value of rank 0, on all processes.
    pub fn agree<T: Serialize + DeserializeOwned>(&self, own: T) -> Result<T> {
        if !self.is_shared() {
            return Ok(own);
        }
        // The values of the other ranks are not used, so they are not sent.
        self.broadcast_from_first(self.is_first().then_some(own))
    }

    fn broadcast_from_first<T: Serialize + DeserializeOwned>(&self, own: Option<T>) -> Result<T> {
        // Sent as lists, since JSON writes both `None` and `Some(None)` as `null`.
        let own: Vec<T> = own.into_iter().collect();
        let value = self.gather(&own)?.into_iter().flatten().next();
        value.ok_or_else(|| Problem::new("rank 0 has told nothing").into())
    }

    /// The value of the lowest rank that has one; `None` if no process has one.
    pub fn any<T: Serialize + DeserializeOwned>(&self, own: Option<T>) -> Result<Option<T>> {
        if !self.is_shared() {
            return Ok(own);
        }
        Ok(self.gather(&own)?.into_iter().flatten().next())
    }

    /// Returns `own` if every process has a value; `None` on all of them as soon as one has none.
    pub fn all_of<T>(&self, own: Option<T>) -> Result<Option<T>> {
        let is_missing = self.any(own.is_none().then_some(true))?.is_some();
        Ok(own.filter(|_| !is_missing))
    }

    /// Returns once all processes have called this, without a practical limit on the time to wait.
    pub fn wait_for_all(&self) -> Result<()> {
        if !self.is_shared() {
            return Ok(());
        }
        self.gather_within(&(), Some(LONG)).map(drop)
    }

    /// Runs `work` on rank 0. All processes return when it is done, rank 0 with the result.
    pub fn in_first<R>(&self, work: impl FnOnce() -> Result<R>) -> Result<Option<R>> {
        let done = self.is_first().then(work).transpose()?;
        self.wait_for_all()?;
        Ok(done)
    }

    /// The value of rank 0, on all processes, without a practical limit on the time to wait. The others pass
    /// `None`.
    pub fn from_first<T: Serialize + DeserializeOwned>(&self, own: Option<T>) -> Result<T> {
        self.wait_for_all()?;
        self.broadcast_from_first(own)
    }

    /// Returns an error if any of these named values differs between processes.
    pub fn require_same(&self, named: &[(&str, String)]) -> Result<()> {
        if !self.is_shared() {
            return Ok(());
        }
        let named: Vec<(String, String)> =
            named.iter().map(|(name, value)| ((*name).to_string(), value.clone())).collect();
        let all = self.gather_within(&named, Some(LONG))?;
        for (index, (name, value)) in all[0].iter().enumerate() {
            let ranks = ranks_that_differ(&all, index, value);
            if ranks.is_empty() {
                continue;
            }
            let which = if ranks.len() == 1 { "rank" } else { "ranks" };
            let message = format!("{name} of {which} {} differs from that of rank 0", ranks.join(", "));
            return Err(Problem::usage(message)
                .hint("start all processes with the same program, files and command line")
                .into());
        }
        Ok(())
    }

    /// The largest of the values that the processes have measured.
    pub fn slowest(&self, own: f64) -> Result<f64> {
        Ok(self.gather(&own)?.into_iter().fold(own, f64::max))
    }
}

/// The ranks whose value at `index` is not `value`.
fn ranks_that_differ(all: &[Vec<(String, String)>], index: usize, value: &str) -> Vec<String> {
    let mut ranks = Vec::new();
    for (rank, values) in all.iter().enumerate() {
        if values.get(index).is_none_or(|(_, other)| other != value) {
            ranks.push(rank.to_string());
        }
    }
    ranks
}
