//! The interfaces between the engine and the libraries that exchange values: [`Transport`] for values on the
//! host, [`Carrier`] for tensors on GPUs; and [`Wait`], the waiting of both.
//!
//! Sums that must have the same bits over any transport are computed in `tree.rs`.

use std::ops::Range;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use bytemuck::Pod;
use candle_core::Tensor;
use half::bf16;

use crate::distributed::mark::Mark;
use ops::element::Element;

/// A type in which values are sent: f32, or bf16, its upper half.
pub(super) trait Value: Element + Pod {}

impl Value for f32 {}

impl Value for bf16 {}

/// Values as bytes, in the order of this machine.
#[cfg(any(feature = "nccl", feature = "testing", test))]
pub(super) fn bytes<V: Value>(values: &[V]) -> Vec<u8> {
    bytemuck::cast_slice(values).to_vec()
}

/// The values that [`bytes`] was given.
#[cfg(any(feature = "nccl", feature = "testing", test))]
pub(super) fn values<V: Value>(bytes: &[u8]) -> Vec<V> {
    let mut values = vec![V::zeroed(); bytes.len() / size_of::<V>()];
    bytemuck::cast_slice_mut(&mut values).copy_from_slice(bytes);
    values
}

/// Ranges of consecutive parts with these lengths.
pub(super) fn one_behind_the_other(lengths: &[usize]) -> impl Iterator<Item = Range<usize>> {
    lengths.iter().scan(0, |next, &length| {
        let start = *next;
        *next += length;
        Some(start..start + length)
    })
}

/// Exchanges values between the processes of a world. All processes make each call, in the same order, and
/// each of them from one thread, the one that made the transport.
pub(super) trait Transport {
    /// Rank of this process, from 0.
    fn rank(&self) -> usize;

    /// Number of processes.
    fn size(&self) -> usize;

    /// Sends `counts[r]` values of `own` to each process r, consecutive in rank order. Returns the values
    /// that this process receives, in rank order of their senders.
    fn all_to_all<V: Value>(
        &mut self,
        own: Vec<V>,
        counts: &[usize],
        wait: &Wait<'_>,
    ) -> Result<Vec<V>, Ended>;

    /// Returns the values of all processes in rank order; process r has `counts[r]`.
    fn all_gather<V: Value>(
        &mut self,
        own: Vec<V>,
        counts: &[usize],
        wait: &Wait<'_>,
    ) -> Result<Vec<V>, Ended>;

    /// Returns the sums over all processes, added up in whatever order the library chooses.
    fn all_reduce(&mut self, own: Vec<f32>, wait: &Wait<'_>) -> Result<Vec<f32>, Ended>;

    /// Returns the bytes of all processes in rank order; process r has `lengths[r]`.
    fn gather_bytes(&mut self, own: Vec<u8>, lengths: &[usize], wait: &Wait<'_>) -> Result<Vec<u8>, Ended>;

    /// Returns the bytes of each process in rank order. No process needs to know the lengths of the others.
    fn gather(&mut self, own: Vec<u8>, wait: &Wait<'_>) -> Result<Vec<Vec<u8>>, Ended> {
        const LENGTH_BYTES: usize = size_of::<u64>();
        let length = (own.len() as u64).to_le_bytes().to_vec();
        let lengths = self.gather_bytes(length, &vec![LENGTH_BYTES; self.size()], wait)?;
        let (lengths, _) = lengths.as_chunks::<LENGTH_BYTES>();
        let lengths: Vec<usize> = lengths.iter().map(|&bytes| u64::from_le_bytes(bytes) as usize).collect();
        let all = self.gather_bytes(own, &lengths, wait)?;
        Ok(one_behind_the_other(&lengths).map(|part| all[part].to_vec()).collect())
    }

    /// Ends all processes with this exit code, as far as the library can.
    fn abort(&mut self, code: i32);

    /// Waits until all other processes leave as well.
    fn leave(self);
}

/// Exchanges vectors between GPUs without a copy on the host. The rules for calls are those of [`Transport`].
pub(super) trait Carrier {
    /// Adds up `values`, which are f32, over all processes, in place. Starts after all work that was launched
    /// before `after`.
    fn sum(&mut self, values: &Tensor, after: &Mark, wait: &Wait<'_>) -> Result<(), Ended>;

    /// Sends part r of `own` to each process r, and writes the parts that this process receives into `given`,
    /// consecutive in rank order. Starts after all work that was launched before `after`.
    fn swap(
        &mut self,
        own: &Tensor,
        parts: &[Range<usize>],
        given: &Tensor,
        after: &Mark,
        wait: &Wait<'_>,
    ) -> Result<(), Ended>;

    /// Sends the part of each process, one of the consecutive `parts` of `whole`, to all others, in place.
    /// Starts after all work that was launched before `after`.
    fn share(
        &mut self,
        whole: &Tensor,
        parts: &[Range<usize>],
        after: &Mark,
        wait: &Wait<'_>,
    ) -> Result<(), Ended>;
}

/// Reason why an exchange failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ended {
    /// Nothing arrived for this long.
    TimedOut(Duration),
    /// This process aborts.
    Aborted,
    /// Another process has ended, or a library returned this error.
    Failed(String),
}

/// The waiting for other processes: its start, its limit and what to do meanwhile.
pub(super) struct Wait<'a> {
    since: Instant,
    timeout: Option<Duration>,
    aborting: &'a AtomicI32,
    look: &'a dyn Fn(),
}

/// Shortest time between two tests for a message. A longer one would slow steps down, a shorter one keeps a
/// core busy.
pub(super) const PAUSE: Duration = Duration::from_micros(100);

/// Longest time between two tests, for exchanges that take long: a link of 10 Gb/s carries 300 kB in this
/// time.
#[cfg(any(feature = "mpi", feature = "nccl"))]
const LONG_PAUSE: Duration = Duration::from_micros(250);

impl<'a> Wait<'a> {
    /// Starts now. `aborting` becomes non-zero when this process aborts; `look` is called at each test.
    pub(super) fn new(timeout: Option<Duration>, aborting: &'a AtomicI32, look: &'a dyn Fn()) -> Self {
        Self { since: Instant::now(), timeout, aborting, look }
    }

    /// Sleeps until the next test: a sixteenth of the time waited so far, within bounds. Returns an error if
    /// the timeout has passed or this process aborts.
    #[cfg(any(feature = "mpi", feature = "nccl"))]
    pub(super) fn pause(&self) -> Result<(), Ended> {
        self.check()?;
        std::thread::sleep((self.since.elapsed() / 16).clamp(PAUSE, LONG_PAUSE));
        Ok(())
    }

    /// Returns an error if the timeout has passed or this process aborts.
    pub(super) fn check(&self) -> Result<(), Ended> {
        (self.look)();
        if self.aborting.load(Ordering::SeqCst) != 0 {
            return Err(Ended::Aborted);
        }
        match self.timeout {
            Some(timeout) if self.since.elapsed() > timeout => Err(Ended::TimedOut(timeout)),
            _ => Ok(()),
        }
    }
}
