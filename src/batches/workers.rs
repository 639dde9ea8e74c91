//! Threads that mask and lay out micro-batches. Each job is answered on a channel of its own, so that
//! answers can be read in the order of the jobs, whichever thread was first.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::mpsc::Receiver;
use std::sync::mpsc::SyncSender;
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;

use anyhow::Context;
use anyhow::Result;

use crate::batches::Batch;
use crate::batches::MaskBuffers;
use crate::batches::Masking;
use crate::batches::Staging;
use crate::batches::collate::StepSettings;
use crate::batches::collate::Unmasked;
use crate::error::Problem;

/// A micro-batch that is being made.
pub(super) struct Pending(Receiver<Batch>);

impl Pending {
    /// The batch; waits until it is made.
    pub(super) fn wait(&self) -> Result<Batch> {
        Ok(self.0.recv().map_err(|_| Problem::new("a loader worker stopped in the middle of a batch"))?)
    }
}

struct Job {
    rows: Unmasked,
    settings: StepSettings,
    reply: SyncSender<Batch>,
}

/// The threads. Dropping them lets them finish what was asked, and waits for that.
pub(super) struct Workers {
    jobs: Option<SyncSender<Job>>,
    threads: Vec<JoinHandle<()>>,
}

impl Workers {
    /// Starts `count` threads, at least one.
    pub(super) fn start(count: usize, masking: Masking, staging: &Arc<dyn Staging>) -> Result<Self> {
        let count = count.max(1);
        let (sender, receiver) = sync_channel(count);
        let (jobs, masking) = (Arc::new(Mutex::new(receiver)), Arc::new(masking));
        let mut workers = Self { jobs: Some(sender), threads: Vec::with_capacity(count) };
        for number in 0..count {
            let (jobs, masking, staging) = (Arc::clone(&jobs), Arc::clone(&masking), Arc::clone(staging));
            let thread = std::thread::Builder::new()
                .name(format!("loader-{number}"))
                .spawn(move || work(&jobs, &masking, staging.as_ref()))
                .context("cannot start a loader thread")?;
            workers.threads.push(thread);
        }
        Ok(workers)
    }

    /// Hands over the rows of a micro-batch; waits while all threads have enough to do.
    pub(super) fn mask(&self, rows: Unmasked, settings: StepSettings) -> Result<Pending> {
        let (reply, pending) = sync_channel(1);
        let ended = || Problem::new("the loader workers have ended");
        self.jobs.as_ref().ok_or_else(ended)?.send(Job { rows, settings, reply }).map_err(|_| ended())?;
        Ok(Pending(pending))
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.jobs = None;
        for thread in self.threads.drain(..) {
            // A panic there has been reported on its own.
            let _ = thread.join();
        }
    }
}

fn work(jobs: &Mutex<Receiver<Job>>, masking: &Masking, staging: &dyn Staging) {
    let mut buffers = MaskBuffers::default();
    loop {
        // The lock is held while waiting: the next thread waits for the lock instead of the job.
        let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(Job { rows, settings, reply }) = job else { return };
        let mut batch = rows.finish(masking, settings, &mut buffers);
        staging.made(&mut batch);
        // When the loader is being dropped, the answer is not waited for.
        let _ = reply.send(batch);
    }
}
