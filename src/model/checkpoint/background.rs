//! A checkpoint that is written in a thread during training.
//!
//! There is one save at a time: the next one waits for it, so that a slow disk slows training down instead of
//! filling the memory. The thread writes a copy that nothing changes any more.

use std::thread::JoinHandle;

use anyhow::Result;

use crate::checkpoint::part::Snapshot;
use crate::checkpoint::retention::Retention;
use crate::checkpoint::store::CheckpointStore;
use base::error::Problem;

/// A save that runs in its own thread.
#[derive(Debug)]
pub struct BackgroundSave {
    step: u64,
    thread: JoinHandle<Result<Vec<String>>>,
}

impl BackgroundSave {
    /// Starts [`CheckpointStore::save`] in a thread.
    pub fn start(store: &CheckpointStore, snapshot: Snapshot, keep: Retention) -> Self {
        let store = store.clone();
        let step = snapshot.step;
        Self { step, thread: std::thread::spawn(move || store.save(&snapshot, &keep)) }
    }

    /// The step that is being saved.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// Returns true if [`Self::wait`] would return at once.
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits for the end of the save, and returns the result of [`CheckpointStore::save`].
    pub fn wait(self) -> Result<Vec<String>> {
        let step = self.step;
        self.thread.join().unwrap_or_else(|_| {
            Err(Problem::new(format!("the thread that saved step {step} panicked")).into())
        })
    }
}
