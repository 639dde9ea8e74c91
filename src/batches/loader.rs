//! Batches for one update after the other, made ahead on a thread of their own.
//!
//! A step is a fixed number of rows; how it is cut into micro-batches changes neither its rows nor its masks nor its keys.

use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::sync::mpsc::SyncSender;
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;

use anyhow::Context;
use anyhow::Result;

use crate::batches::Batch;
use crate::batches::Cursor;
use crate::batches::Frame;
use crate::batches::Masking;
use crate::batches::Order;
use crate::batches::Packer;
use crate::batches::collate;
use crate::error::Problem;
use crate::shards::ShardSet;

/// Steps that are made ahead.
const STEPS_AHEAD: usize = 2;

/// How rows become steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoaderOptions {
    /// Seed of order and masks.
    pub seed: u64,
    /// Rows of a micro-batch.
    pub rows_per_micro_batch: usize,
    /// Micro-batches of a step.
    pub accumulation_steps: usize,
}

/// All that one update is computed from.
#[derive(Debug, Clone, PartialEq)]
pub struct StepBatches {
    /// The micro-batches.
    pub micro: Vec<Batch>,
    /// Where the next step starts: goes into a checkpoint.
    pub cursor_after: Cursor,
    /// Passes over the data after this step, with a fraction.
    pub epoch: f64,
    /// Rows of all micro-batches.
    pub rows: usize,
    /// Tokens of all micro-batches (special tokens included).
    pub tokens: usize,
    /// Labels of all micro-batches: what the loss is divided by.
    pub label_count: usize,
}

/// Gives the steps of a run in order. Dropping it stops its thread.
pub struct Loader {
    steps: Option<Receiver<Result<StepBatches>>>,
    thread: Option<JoinHandle<()>>,
}

impl Loader {
    /// Starts making steps from `cursor` on, in the shuffled order of the seed.
    pub fn start(shards: Arc<ShardSet>, frame: Frame, masking: Masking, options: LoaderOptions, cursor: Cursor) -> Result<Self> {
        if options.rows_per_micro_batch == 0 || options.accumulation_steps == 0 {
            return Err(Problem::usage("a step needs at least one row and one micro-batch").at("training").into());
        }
        let packer = Packer::new(shards, Order::Shuffled { seed: options.seed }, frame, cursor)?;
        let maker = Maker { packer, max_seq_length: frame.max_seq_length, masking, options };
        let (sender, steps) = sync_channel(STEPS_AHEAD);
        let thread = std::thread::Builder::new()
            .name("loader".to_string())
            .spawn(move || maker.run(&sender))
            .context("cannot start the loader thread")?;
        Ok(Self { steps: Some(steps), thread: Some(thread) })
    }

    /// The next step; waits until it is made. After an error there are no more steps.
    pub fn next_step(&mut self) -> Result<StepBatches> {
        let ended = || Problem::new("the loader has ended").hint("an earlier error stopped it");
        let steps = self.steps.as_ref().ok_or_else(ended)?;
        steps.recv().map_err(|_| ended())?
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        // Without a receiver the thread's next send fails and the thread ends.
        self.steps = None;
        if let Some(thread) = self.thread.take() {
            // A panic there has been reported on its own; there is nothing left to stop.
            let _ = thread.join();
        }
    }
}

struct Maker {
    packer: Packer,
    max_seq_length: usize,
    masking: Masking,
    options: LoaderOptions,
}

impl Maker {
    fn run(mut self, sender: &SyncSender<Result<StepBatches>>) {
        loop {
            let step = self.step();
            let is_last = step.is_err();
            if sender.send(step).is_err() || is_last {
                return;
            }
        }
    }

    fn step(&mut self) -> Result<StepBatches> {
        let mut micro = Vec::with_capacity(self.options.accumulation_steps);
        for number in 0..self.options.accumulation_steps {
            let mut batch = Batch::default();
            for place in 0..self.options.rows_per_micro_batch {
                let global_row = number * self.options.rows_per_micro_batch + place;
                let first_key = (global_row * self.max_seq_length) as u64;
                collate::add_row(&mut batch, self.packer.next_row()?, &self.masking, self.options.seed, first_key);
            }
            micro.push(batch);
        }
        Ok(StepBatches {
            cursor_after: self.packer.cursor(),
            epoch: self.packer.epoch(),
            rows: self.options.accumulation_steps * self.options.rows_per_micro_batch,
            tokens: micro.iter().map(Batch::num_tokens).sum(),
            label_count: micro.iter().map(Batch::num_labels).sum(),
            micro,
        })
    }
}
