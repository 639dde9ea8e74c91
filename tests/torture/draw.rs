//! Random numbers one after the other, and trials on all cores.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Result;
use mlmtrain::rng::{Purpose, Stream, hash_name};

/// Draws one number after the other from a stream of its own.
pub(crate) struct Draw {
    stream: Stream,
    index: u64,
}

impl Draw {
    /// The draws of trial `number` of a row.
    pub(crate) fn new(seed: u64, row: &str, number: usize) -> Self {
        let row = hash_name(row).wrapping_add(number as u64) & 0x00ff_ffff_ffff;
        Self { stream: Stream::new(seed, Purpose::Test, row), index: 0 }
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.index += 1;
        self.stream.below(self.index, bound.max(1) as u64) as usize
    }

    /// A time of at most `most`.
    pub(crate) fn duration(&mut self, most: Duration) -> Duration {
        Duration::from_micros(self.below(most.as_micros() as usize + 1) as u64)
    }
}

/// What `trial` gives for 0, 1, ... below `count`, in this order; as many at once as there are cores. The
/// first error ends it.
pub(crate) fn on_all_cores<T: Send>(
    count: usize,
    trial: impl Fn(usize) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let (next, found) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..cores.min(count) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::SeqCst);
                    if number >= count {
                        return;
                    }
                    let result = trial(number);
                    if result.is_err() {
                        next.store(count, Ordering::SeqCst);
                    }
                    found.lock().expect("a trial that panics ends all").push((number, result));
                }
            });
        }
    });
    let mut found = found.into_inner().expect("a trial that panics ends all");
    found.sort_by_key(|(number, _)| *number);
    found.into_iter().map(|(_, result)| result).collect()
}
