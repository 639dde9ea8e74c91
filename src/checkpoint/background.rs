//! A checkpoint that is written while training goes on.
//!
//! One at a time: who saves the next one waits for it, so that a slow disk holds training up instead of
//! filling memory. What is written is the owner's copy, which nothing changes any more.

use std::thread::JoinHandle;

use anyhow::Result;

use crate::checkpoint::part::Snapshot;
use crate::checkpoint::retention::Retention;
use crate::checkpoint::store::CheckpointStore;
use crate::error::Problem;

/// A save that goes on in a thread of its own.
#[derive(Debug)]
pub struct BackgroundSave {
    step: u64,
    thread: JoinHandle<Result<Vec<String>>>,
}

impl BackgroundSave {
    /// Starts [`CheckpointStore::save`].
    pub fn start(store: &CheckpointStore, snapshot: Snapshot, keep: Retention) -> Self {
        let (store, step) = (store.clone(), snapshot.step);
        Self { step, thread: std::thread::spawn(move || store.save(&snapshot, &keep)) }
    }

    /// The step that is saved.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// Whether [`Self::wait`] would not wait.
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits for its end, and says what [`CheckpointStore::save`] says.
    pub fn wait(self) -> Result<Vec<String>> {
        let broken = || Problem::new(format!("the thread that saved step {} panicked", self.step));
        self.thread.join().unwrap_or_else(|_| Err(broken().into()))
    }
}
