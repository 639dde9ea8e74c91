//! Threads that mask and collate micro-batches. The result of each job is sent on its own channel, so that
//! results can be read in the order of the jobs, whichever thread is first.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use anyhow::{Context, Result};

use crate::batches::collate::{StepSettings, Unmasked};
use crate::batches::{Batch, MaskBuffers, Masking, Staging};
use base::error::Problem;

/// A micro-batch that is being made.
pub(super) struct Pending(Receiver<Batch>);

impl Pending {
    /// Waits for the batch and returns it.
    pub(super) fn wait(&self) -> Result<Batch> {
        Ok(self.0.recv().map_err(|_| Problem::new("a loader worker stopped in the middle of a batch"))?)
    }
}

struct Job {
    rows: Unmasked,
    settings: StepSettings,
    reply: SyncSender<Batch>,
}

/// The worker threads. Dropping this value waits until they have finished the submitted jobs.
pub(super) struct Workers {
    jobs: Option<SyncSender<Job>>,
    threads: Vec<JoinHandle<()>>,
}

impl Workers {
    /// Starts `count` threads, at least one.
    pub(super) fn start(count: usize, masking: Masking, staging: &Arc<dyn Staging>) -> Result<Self> {
        let count = count.max(1);
        let (sender, receiver) = sync_channel(count);
        let jobs = Arc::new(Mutex::new(receiver));
        let masking = Arc::new(masking);
        let mut workers = Self { jobs: Some(sender), threads: Vec::with_capacity(count) };
        for number in 0..count {
            let jobs = Arc::clone(&jobs);
            let masking = Arc::clone(&masking);
            let staging = Arc::clone(staging);
            let thread = std::thread::Builder::new()
                .name(format!("loader-{number}"))
                .spawn(move || work(&jobs, &masking, staging.as_ref()))
                .context("cannot start a loader thread")?;
            workers.threads.push(thread);
        }
        Ok(workers)
    }

    /// Submits the rows of a micro-batch; waits while all threads are busy.
    pub(super) fn mask(&self, rows: Unmasked, settings: StepSettings) -> Result<Pending> {
        let (reply, pending) = sync_channel(1);
        let jobs = self.jobs.as_ref().ok_or_else(ended)?;
        jobs.send(Job { rows, settings, reply }).map_err(|_| ended())?;
        Ok(Pending(pending))
    }
}

/// The error of a job that no worker can take.
fn ended() -> Problem {
    Problem::new("the loader workers have ended")
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.jobs = None;
        for thread in self.threads.drain(..) {
            // A panic of the thread has already been reported.
            let _ = thread.join();
        }
    }
}

fn work(jobs: &Mutex<Receiver<Job>>, masking: &Masking, staging: &dyn Staging) {
    let mut buffers = MaskBuffers::default();
    loop {
        // The lock is kept while waiting: the next thread waits for the lock instead of a job.
        let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(Job { rows, settings, reply }) = job else { return };
        let mut batch = rows.finish(masking, settings, &mut buffers);
        staging.made(&mut batch);
        // Nobody waits for the result if the loader is being dropped.
        let _ = reply.send(batch);
    }
}
