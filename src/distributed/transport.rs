//! What a transport does: ways to hand values around, and the wait for them; and what does so with values on GPUs.
//!
//! Sums that are to be the same over any transport are those of `tree.rs`.

use std::ops::Range;
use std::sync::atomic::AtomicI32;
use std::sync::atomic::Ordering;
use std::time::Duration;
use std::time::Instant;

use candle_core::Tensor;
use half::bf16;

use crate::distributed::mark::Mark;
use crate::ops::element::Element;

/// A type in which values travel: f32, or its upper half.
pub(super) trait Value: Element {}

impl Value for f32 {}

impl Value for bf16 {}

/// Values as bytes; those of two bytes are the upper halves of f32.
#[cfg(any(feature = "nccl", test))]
pub(super) fn bytes<V: Value>(values: &[V]) -> Vec<u8> {
    values.iter().flat_map(|value| value.widen().to_le_bytes()[4 - size_of::<V>()..].to_vec()).collect()
}

/// What [`bytes`] was made of.
#[cfg(any(feature = "nccl", test))]
pub(super) fn values<V: Value>(bytes: &[u8]) -> Vec<V> {
    let value = |bytes: &[u8]| {
        let mut whole = [0; 4];
        whole[4 - size_of::<V>()..].copy_from_slice(bytes);
        V::narrow(f32::from_le_bytes(whole))
    };
    bytes.chunks_exact(size_of::<V>()).map(value).collect()
}

/// Where parts of these lengths lie.
pub(super) fn one_behind_the_other(lengths: &[usize]) -> impl Iterator<Item = Range<usize>> {
    lengths.iter().scan(0, |next, &length| {
        let start = *next;
        *next += length;
        Some(start..start + length)
    })
}

/// Carries values between the processes of a world. Each call is made by all of them, in the same order, and
/// by one thread of each, the one that made the transport.
pub(super) trait Transport {
    /// Number of this process, from 0.
    fn rank(&self) -> usize;

    /// Number of processes.
    fn size(&self) -> usize;

    /// Gives `counts[r]` values of `own` to each process r, in their order; returns those that this process
    /// is given, from each process in its order.
    fn all_to_all<V: Value>(
        &mut self,
        own: Vec<V>,
        counts: &[usize],
        wait: &Wait<'_>,
    ) -> Result<Vec<V>, Ended>;

    /// The values of all processes in their order; process r has `counts[r]`.
    fn all_gather<V: Value>(
        &mut self,
        own: Vec<V>,
        counts: &[usize],
        wait: &Wait<'_>,
    ) -> Result<Vec<V>, Ended>;

    /// The sums over all processes, in an order of its own.
    fn all_reduce(&mut self, own: Vec<f32>, wait: &Wait<'_>) -> Result<Vec<f32>, Ended>;

    /// The bytes of all processes in their order; process r has `lengths[r]`.
    fn gather_bytes(&mut self, own: Vec<u8>, lengths: &[usize], wait: &Wait<'_>) -> Result<Vec<u8>, Ended>;

    /// The bytes of each process, which need not know how many those of the others are.
    fn gather(&mut self, own: Vec<u8>, wait: &Wait<'_>) -> Result<Vec<Vec<u8>>, Ended> {
        const LENGTH_BYTES: usize = size_of::<u64>();
        let length = (own.len() as u64).to_le_bytes().to_vec();
        let lengths = self.gather_bytes(length, &vec![LENGTH_BYTES; self.size()], wait)?;
        let (lengths, _) = lengths.as_chunks::<LENGTH_BYTES>();
        let lengths: Vec<usize> = lengths.iter().map(|&bytes| u64::from_le_bytes(bytes) as usize).collect();
        let all = self.gather_bytes(own, &lengths, wait)?;
        Ok(one_behind_the_other(&lengths).map(|part| all[part].to_vec()).collect())
    }

    /// Ends all processes with this exit code, as far as that is in its power.
    fn abort(&mut self, code: i32);

    /// Waits until all others leave as well.
    fn leave(self);
}

/// Carries vectors between GPUs, from where they lie to where they lie. Calls are made as those of a [`Transport`].
pub(super) trait Carrier {
    /// Adds up `values`, which are f32, over all processes, in place, behind what was launched before `after`.
    fn sum(&mut self, values: &Tensor, after: &Mark, wait: &Wait<'_>) -> Result<(), Ended>;

    /// Gives part r of `own` to each process r, and puts what each has for this one into `given`, one behind the
    /// other; likewise.
    fn swap(
        &mut self,
        own: &Tensor,
        parts: &[Range<usize>],
        given: &Tensor,
        after: &Mark,
        wait: &Wait<'_>,
    ) -> Result<(), Ended>;

    /// Gives each process's of the consecutive `parts` of `whole` to all others, in place, likewise.
    fn share(
        &mut self,
        whole: &Tensor,
        parts: &[Range<usize>],
        after: &Mark,
        wait: &Wait<'_>,
    ) -> Result<(), Ended>;
}

/// Why a transport came to no end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ended {
    /// Nothing came for this long.
    TimedOut(Duration),
    /// This process gives up.
    Aborted,
    /// Another process has gone, or a library gave an error, of which this tells.
    Failed(String),
}

/// How long is waited for the others.
pub(super) struct Wait<'a> {
    since: Instant,
    timeout: Option<Duration>,
    aborting: &'a AtomicI32,
    look: &'a dyn Fn(),
}

/// Between two looks whether a message has come. Longer ones would be felt in a step, shorter ones take a core.
pub(super) const PAUSE: Duration = Duration::from_micros(100);

/// What takes long is looked at less often: a line of 10 Gb/s brings 300 kB in this time.
#[cfg(any(feature = "mpi", feature = "nccl"))]
const LONG_PAUSE: Duration = Duration::from_micros(250);

impl<'a> Wait<'a> {
    /// From now on; `aborting` is not 0 where this process gives up, and `look` is called over and over.
    pub(super) fn new(timeout: Option<Duration>, aborting: &'a AtomicI32, look: &'a dyn Fn()) -> Self {
        Self { since: Instant::now(), timeout, aborting, look }
    }

    /// Does nothing until the next look: for a sixteenth of what was waited already, within bounds. An error where no
    /// more is to be waited.
    #[cfg(any(feature = "mpi", feature = "nccl"))]
    pub(super) fn pause(&self) -> Result<(), Ended> {
        self.check()?;
        std::thread::sleep((self.since.elapsed() / 16).clamp(PAUSE, LONG_PAUSE));
        Ok(())
    }

    /// An error where no more is to be waited.
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
