//! Prefetches the batches of one update after the other: one thread packs, others mask.
//!
//! A step is a fixed number of rows. Its division into ranks and micro-batches, and the number of threads
//! that make it, change neither its rows nor its masks nor its keys.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use anyhow::{Context, Result};

use crate::batches::collate::{Objective, StepSettings, Unmasked};
use crate::batches::workers::{Pending, Workers};
use crate::batches::{Batch, BatchPlan, Cursor, Frame, HostMemory, Masking, Order, Packer, Staging, share};
use crate::shards::ShardSet;
use base::error::Problem;

/// Number of steps that are prefetched.
const STEPS_AHEAD: usize = 2;

/// Options for dividing rows into steps.
#[derive(Debug, Clone, PartialEq)]
pub struct LoaderOptions {
    /// Seed of the masks.
    pub seed: u64,
    /// Order of the documents.
    pub order: Order,
    /// Orders of later mixes of the sources, each with the number of steps done when it begins.
    pub later_orders: Vec<(u64, Order)>,
    /// Sizes of the steps.
    pub plan: BatchPlan,
    /// Number of steps done.
    pub first_step: u64,
    /// Total number of steps of the run.
    pub total_steps: u64,
    /// Number of steps at the beginning of the run that predict each token from those before it. Over the
    /// later ones the share to mask may change.
    pub causal_steps: u64,
    /// Number of this process, from 0.
    pub rank: usize,
    /// Number of processes, each of which processes a block of a step's micro-batches.
    pub world_size: usize,
    /// Number of threads that mask, at least 1.
    pub workers: usize,
}

impl LoaderOptions {
    /// Options of a single process that begins a run, with shuffled documents and one worker.
    pub fn new(seed: u64, plan: BatchPlan) -> Self {
        Self {
            seed,
            order: Order::Shuffled { seed },
            later_orders: Vec::new(),
            plan,
            first_step: 0,
            total_steps: 1,
            causal_steps: 0,
            rank: 0,
            world_size: 1,
            workers: 1,
        }
    }

    /// Number of the mix of sources in the step after `steps_done`.
    fn mix_at(&self, steps_done: u64) -> usize {
        self.later_orders.partition_point(|(from, _)| *from <= steps_done)
    }

    fn check(&self) -> Result<()> {
        if !self.plan.has_rows() {
            return Err(Problem::usage("a step needs at least one row and one micro-batch")
                .at("training")
                .into());
        }
        if self.rank >= self.world_size {
            return Err(Problem::new(format!("rank {} is not one of {}", self.rank, self.world_size)).into());
        }
        Ok(())
    }
}

/// All data of one update.
#[derive(Debug, Clone, PartialEq)]
pub struct StepBatches {
    /// The micro-batches of this process.
    pub micro: Vec<Batch>,
    /// Number of micro-batches of all processes; there may be fewer at the end of an epoch.
    pub micro_batches: usize,
    /// The position of the next step; saved in a checkpoint.
    pub cursor_after: Cursor,
    /// Passes over the data after this step, with a fraction.
    pub epoch: f64,
    /// Number of rows of these micro-batches.
    pub rows: usize,
    /// Number of tokens of these micro-batches, including special tokens.
    pub tokens: usize,
    /// Number of labels of these micro-batches, by which the loss is divided.
    pub label_count: usize,
}

/// Returns the steps of a run in order. Dropping it stops its threads.
pub struct Loader {
    steps: Option<Receiver<Result<Planned>>>,
    thread: Option<JoinHandle<()>>,
    staging: Arc<dyn Staging>,
}

impl Loader {
    /// Starts making steps from `cursor` on, in plain memory.
    pub fn start(
        shards: Arc<ShardSet>,
        frame: Frame,
        masking: Masking,
        options: LoaderOptions,
        cursor: Cursor,
    ) -> Result<Self> {
        Self::start_with(Arc::new(HostMemory::default()), shards, frame, masking, options, cursor)
    }

    /// As [`start`](Self::start), with arrays from `staging`.
    pub fn start_with(
        staging: Arc<dyn Staging>,
        shards: Arc<ShardSet>,
        frame: Frame,
        masking: Masking,
        options: LoaderOptions,
        cursor: Cursor,
    ) -> Result<Self> {
        options.check()?;
        let frame = Frame { max_seq_length: options.plan.at(options.first_step).max_seq_length, ..frame };
        let later = options.later_orders.iter().map(|(_, order)| order);
        let orders: Vec<Order> = [&options.order].into_iter().chain(later).cloned().collect();
        let packer = Packer::with_mixes(shards, &orders, frame, cursor)?;
        let workers = Workers::start(options.workers, masking.clone(), &staging)?;
        let step = options.first_step;
        let maker = Maker { packer, masking, workers, staging: Arc::clone(&staging), options, step };
        let (sender, steps) = sync_channel(STEPS_AHEAD);
        let thread = std::thread::Builder::new()
            .name("loader".to_string())
            .spawn(move || maker.run(&sender))
            .context("cannot start the loader thread")?;
        Ok(Self { steps: Some(steps), thread: Some(thread), staging })
    }

    /// Waits for the next step and returns it. After an error there are no more steps.
    pub fn next_step(&mut self) -> Result<StepBatches> {
        let steps = self.steps.as_ref().ok_or_else(ended)?;
        let planned = steps.recv().map_err(|_| ended())??;
        let micro = planned.micro.iter().map(Pending::wait).collect::<Result<Vec<Batch>>>();
        if micro.is_err() {
            self.steps = None;
        }
        let micro = micro?;
        Ok(StepBatches {
            cursor_after: planned.cursor_after,
            epoch: planned.epoch,
            micro_batches: planned.micro_batches,
            rows: planned.rows,
            tokens: micro.iter().map(Batch::num_tokens).sum(),
            label_count: micro.iter().map(Batch::num_labels).sum(),
            micro,
        })
    }

    /// Returns a step that was trained on; its arrays will be reused.
    pub fn give_back(&self, step: StepBatches) {
        step.micro.into_iter().for_each(|batch| self.staging.give_back(batch));
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        // Without a receiver the thread's next send fails and the thread ends.
        self.steps = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has already been reported; there is nothing left to stop.
            let _ = thread.join();
        }
    }
}

/// The error of a loader without further steps.
fn ended() -> Problem {
    Problem::new("the loader has ended").hint("an earlier error stopped it")
}

/// A step whose rows are read and may still be being masked.
struct Planned {
    micro: Vec<Pending>,
    micro_batches: usize,
    cursor_after: Cursor,
    epoch: f64,
    rows: usize,
}

struct Maker {
    packer: Packer,
    masking: Masking,
    workers: Workers,
    staging: Arc<dyn Staging>,
    options: LoaderOptions,
    step: u64,
}

impl Maker {
    fn run(mut self, sender: &SyncSender<Result<Planned>>) {
        loop {
            let step = self.step();
            let is_last = step.is_err();
            if sender.send(step).is_err() || is_last {
                return;
            }
        }
    }

    /// Returns what the next step predicts.
    fn objective(&self) -> Objective {
        let LoaderOptions { total_steps, causal_steps, .. } = self.options;
        match self.step.checked_sub(causal_steps) {
            None => Objective::Causal,
            Some(masked_steps_done) => {
                let masked_steps = total_steps.saturating_sub(causal_steps);
                Objective::Masked(self.masking.probability_at(masked_steps_done, masked_steps))
            }
        }
    }

    fn step(&mut self) -> Result<Planned> {
        let LoaderOptions { seed, rank, world_size, .. } = self.options;
        let shape = self.options.plan.at(self.step);
        let max_seq_length = shape.max_seq_length;
        let rows = shape.rows_per_micro_batch;
        let settings = StepSettings { seed, max_seq_length, objective: self.objective() };
        let own = share(shape.micro_batches, rank, world_size);
        self.packer.set_max_seq_length(max_seq_length);
        self.packer.set_mix(self.options.mix_at(self.step))?;
        self.packer.prefetch_shards()?;
        self.packer.skip_rows(own.start * rows)?;
        let mut micro = Vec::with_capacity(own.len());
        for number in own.clone() {
            let mut unmasked = Unmasked::new(self.staging.take(rows * max_seq_length), number * rows);
            for _ in 0..rows {
                unmasked.add_row(&mut self.packer)?;
            }
            micro.push(self.workers.mask(unmasked, settings)?);
        }
        self.packer.skip_rows((shape.micro_batches - own.end) * rows)?;
        self.step += 1;
        Ok(Planned {
            cursor_after: self.packer.cursor(),
            epoch: self.packer.epoch(),
            micro_batches: shape.micro_batches,
            rows: rows * own.len(),
            micro,
        })
    }
}
