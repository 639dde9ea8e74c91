//! Times whole training steps on a random batch, for `mlmtrain bench`.
//!
//! A step is that of training ([`Stepper`]): forward, backward, clipping, update, dropout as configured in
//! the model. The batch is random, because the speed of a step does not depend on the token ids; reading and
//! masking belong to the loader and are not timed.

use std::sync::mpsc::sync_channel;
use std::time::Instant;

use anyhow::{Context, Result};
use candle_core::Device;
use serde::{Deserialize, Serialize};

use crate::machine::Machine;
use crate::tasks::list::PretrainedVisitor;
use crate::tasks::pretraining::Pretrained;
use crate::tasks::run::Setting;
use crate::tasks::{Supervised, Task, list};
use crate::telemetry::Progress;
use crate::train::run::stepper;
use crate::train::step::Share;
use base::error::Problem;
use base::families::ModelConfig;
use base::rng::{Purpose, Stream};
use config::{
    ComputeType, MuonConfig, OptimizerType, PrecisionConfig, PretrainConfig, PretrainTask, RtdConfig,
    TrainingConfig, WeightGradients,
};
use data::batches::Batch;
use model::layers::GradientPlaces;
use model::models::memory::{Outline, StepSizes};
use model::models::{Blueprint, Model};
use model::optim;
use model::precision;
use model::precision::{Hardware, Policy};
use ops::memory;

/// Untimed steps at the start: they allocate memory from the system.
const WARM_UP_STEPS: u64 = 2;

/// Small enough that training does not diverge during a benchmark.
const LEARNING_RATE: f64 = 1e-4;

const SEED: u64 = 1;

/// Range of the length of a segment, in tokens, in rows of several segments.
const SHORT_TOKENS: std::ops::RangeInclusive<u32> = 20..=60;

/// The training task of the timed steps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum TimedTask {
    /// Pretraining.
    Pretraining {
        /// Pretraining task; the family's own if absent.
        task: Option<PretrainTask>,
        /// Generator of replaced-token detection, used if the task has one.
        rtd: RtdConfig,
        /// Share of the tokens that carry a label.
        masked_share: f64,
    },
    /// Fine-tuning with one label a row.
    Classification {
        /// Number of classes.
        labels: usize,
    },
}

/// A model, a task and the shape of a batch to time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Case {
    /// Family and shape.
    pub model: ModelConfig,
    /// Training task.
    pub task: TimedTask,
    /// Number type of activations and matrix products.
    pub compute: ComputeType,
    /// Type of the gradients that matrix products write, where `compute` is bf16.
    pub weight_gradients: WeightGradients,
    /// Rows of a step (B).
    pub rows: usize,
    /// Tokens of a row, none of them padding.
    pub length: usize,
    /// Rows of several segments of 20 to 60 tokens each, as in packed short texts, instead of one segment a
    /// row.
    pub short_segments: bool,
    /// Gradient checkpointing: layers save their input only and compute the rest again.
    pub gradient_checkpointing: bool,
    /// The optimizer.
    pub optim: OptimizerType,
    /// Its settings, if it is Muon.
    pub muon: MuonConfig,
}

/// Measured times of the steps of a [`Case`].
#[derive(Debug, Clone, PartialEq)]
pub struct Timing {
    /// Seconds of each timed step, from the fastest to the slowest; at least one.
    pub sorted_seconds: Vec<f64>,
    /// Floating-point operations of one step.
    pub step_flops: f64,
}

impl Timing {
    /// Median of the step times.
    pub fn median_seconds(&self) -> f64 {
        self.sorted_seconds[self.sorted_seconds.len() / 2]
    }
}

impl Case {
    /// Tokens of a step (T).
    pub fn tokens(&self) -> usize {
        self.rows * self.length
    }

    /// Runs steps until at least `least_steps` (at least one) are timed and together took at least
    /// `least_seconds`. `after_step` is called after each timed step.
    pub fn time_steps(
        &self,
        device: &Device,
        least_steps: usize,
        least_seconds: f64,
        after_step: impl FnMut(),
    ) -> Result<Timing> {
        // From here on every step needs the memory that the step before it has freed.
        let _keeping = memory::keep_freed_blocks();
        let machine = Machine::alone(device, self.policy(device)?);
        let watch = Watch { case: self, machine: &machine, least_steps, least_seconds, after_step };
        match &self.task {
            TimedTask::Pretraining { task, rtd, .. } => {
                let config = self.pretraining(*task, rtd);
                list::pretrained(config.task(), OfPretraining { config: &config, watch })
            }
            TimedTask::Classification { labels } => {
                let mut model = Model::classifier(&self.model, *labels, SEED, device)?;
                model.encoder.gradient_checkpointing = self.gradient_checkpointing;
                watch.steps(&Supervised { model }.computing_in(machine.policy.compute)?)
            }
        }
    }

    fn policy(&self, device: &Device) -> Result<Policy, Problem> {
        let compute = self.compute.into();
        let weight_gradients = self.weight_gradients;
        let precision = PrecisionConfig { compute, weight_gradients, ..PrecisionConfig::default() };
        Policy::new(&precision, &Hardware::of(device))
    }

    fn pretraining(&self, task: Option<PretrainTask>, rtd: &RtdConfig) -> PretrainConfig {
        PretrainConfig { task, rtd: rtd.clone(), ..PretrainConfig::of_model(self.model.clone()) }
    }

    fn training(&self) -> TrainingConfig {
        TrainingConfig {
            optim: self.optim,
            muon: self.muon.clone(),
            weight_decay: 0.01,
            max_grad_norm: 1.0,
            gradient_checkpointing: self.gradient_checkpointing.into(),
            ..TrainingConfig::default()
        }
    }

    fn outline(&self) -> Result<Box<dyn Outline>> {
        Ok(match &self.task {
            TimedTask::Pretraining { task, rtd, .. } => {
                list::shapes(&self.pretraining(*task, rtd), &self.model)?.outline
            }
            TimedTask::Classification { labels } => Box::new(Blueprint::classifier(&self.model, *labels)),
        })
    }

    /// Bytes of a step at its peak, predicted from the shapes alone.
    pub fn predicted_bytes(&self, on_gpu: bool) -> Result<u64> {
        let step = StepSizes {
            tokens: self.tokens() as u64,
            length: self.length as u64,
            targets: self.targets() as u64,
            compute: precision::dtype(self.compute),
            gradient_checkpointing: self.gradient_checkpointing,
            on_gpu,
        };
        let outline = self.outline()?;
        let layout = outline.layout();
        let training = self.training();
        let optimizer_bytes = 4 * optim::state_values(layout, &training)
            + optim::temporary_bytes(layout, &training, step.compute);
        let is_half = self.weight_gradients == WeightGradients::Bf16 && self.compute == ComputeType::Bf16;
        let halved = if is_half { 2 * GradientPlaces::new(layout).half_len() as u64 } else { 0 };
        Ok(outline.memory(&step).total() + optimizer_bytes - halved)
    }

    /// Labels of a step.
    fn targets(&self) -> usize {
        match self.task {
            TimedTask::Pretraining { masked_share, .. } => (self.tokens() as f64 * masked_share) as usize,
            TimedTask::Classification { .. } => self.rows,
        }
    }

    /// A batch of random tokens with random labels. In pretraining exactly the masked share of the tokens,
    /// drawn at random, has labels; in classification the first token of each row has one.
    fn batch(&self) -> Batch {
        let stream = Stream::new(SEED, Purpose::Test, 0);
        let tokens = self.tokens();
        let vocab_size = self.model.encoder.vocab_size as u64;
        // The first ids are those of special tokens, except in vocabularies too small to have any.
        let first = if vocab_size > 5 { 5 } else { 0 };
        let label_positions = self.label_positions(&stream);
        let (first_label, labels) = match self.task {
            TimedTask::Pretraining { .. } => (first, vocab_size - first),
            TimedTask::Classification { labels } => (0, labels as u64),
        };
        let cu_seqlens = self.segments();
        Batch {
            ids: (0..tokens as u64)
                .map(|t| (first + stream.below(1 << 32 | t, vocab_size - first)) as u32)
                .collect(),
            token_type_ids: vec![0; tokens],
            position_ids: cu_seqlens.windows(2).flat_map(|segment| 0..segment[1] - segment[0]).collect(),
            cu_seqlens,
            token_keys: (0..tokens as u64).collect(),
            labels: label_positions
                .iter()
                .map(|&t| (first_label + stream.below(2 << 32 | u64::from(t), labels)) as u32)
                .collect(),
            label_positions,
            sample_ids: (0..self.rows as u64).collect(),
            ..Batch::default()
        }
    }

    fn label_positions(&self, stream: &Stream) -> Vec<u32> {
        if matches!(self.task, TimedTask::Classification { .. }) {
            return (0..self.rows).map(|row| (row * self.length) as u32).collect();
        }
        let mut positions: Vec<u32> = (0..self.tokens() as u32).collect();
        positions.sort_by_key(|&t| stream.words(u64::from(t))[0]);
        positions.truncate(self.targets());
        positions.sort_unstable();
        positions
    }

    /// Offsets of the segments in the batch: one segment a row, or rows cut into short ones.
    fn segments(&self) -> Vec<u32> {
        let stream = Stream::new(SEED, Purpose::Test, 1);
        let least = *SHORT_TOKENS.start();
        let most = *SHORT_TOKENS.end();
        let mut starts = vec![0];
        for row in 1..=self.rows {
            let end = (row * self.length) as u32;
            while let Some(&start) = starts.last().filter(|&&start| start < end) {
                let drawn = least + stream.below(starts.len() as u64, u64::from(most - least + 1)) as u32;
                starts.push(if self.short_segments { end.min(start + drawn) } else { end });
            }
        }
        starts
    }
}

/// Times the steps of a task.
struct Watch<'a, F> {
    case: &'a Case,
    machine: &'a Machine,
    least_steps: usize,
    least_seconds: f64,
    after_step: F,
}

/// Builds a pretraining task and times its steps.
struct OfPretraining<'a, F> {
    config: &'a PretrainConfig,
    watch: Watch<'a, F>,
}

impl<F: FnMut()> PretrainedVisitor for OfPretraining<'_, F> {
    type Output = Result<Timing>;

    fn visit<T: Pretrained>(self) -> Result<Timing> {
        let Self { config, watch } = self;
        let training = &watch.case.training();
        let progress = &Progress::detect(true);
        let setting = Setting {
            training,
            machine: watch.machine,
            seed: SEED,
            progress,
            is_beginning: true,
            is_interrupted: &|| false,
        };
        let task = T::build(config, &watch.case.model, setting)?;
        watch.steps(&task)
    }
}

impl<F: FnMut()> Watch<'_, F> {
    /// Times steps as a run executes them: for a GPU another thread prepares the batches, and the next batch
    /// is sent while the GPU computes.
    fn steps(self, task: &impl Task) -> Result<Timing> {
        let batch = self.case.batch();
        let Some(planner) = task.planner() else { return self.timed(task, batch, || Ok(None)) };
        let (sender, planned) = sync_channel(1);
        let made = batch.clone();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                loop {
                    let mut batch = made.clone();
                    planner(&mut batch);
                    if sender.send(batch).is_err() {
                        break;
                    }
                }
            });
            self.timed(task, batch, move || {
                let mut next = planned.recv().context("the thread that plans batches has ended")?;
                task.send(&mut next)?;
                Ok(Some(next))
            })
        })
    }

    /// Times the steps of `task`. `next` returns the batch of the next step, or `None` to use the same batch
    /// again.
    fn timed(
        self,
        task: &impl Task,
        mut batch: Batch,
        mut next: impl FnMut() -> Result<Option<Batch>>,
    ) -> Result<Timing> {
        let Self { case, machine, least_steps, least_seconds, mut after_step } = self;
        let mut stepper = stepper(task.parameters(), &case.training(), machine, SEED)?;
        let mut sorted_seconds = Vec::new();
        let mut step = 0;
        let mut step_flops = 0.0;
        while step < WARM_UP_STEPS
            || sorted_seconds.len() < least_steps.max(1)
            || sorted_seconds.iter().sum::<f64>() < least_seconds
        {
            step += 1;
            let start = Instant::now();
            let mut ahead = Ok(None);
            let micro = std::slice::from_ref(&batch);
            let share = Share { micro, micro_batches: 1, is_interrupted: &|| false };
            let outcome = stepper.run_share(task, share, step, LEARNING_RATE, || ahead = next())?;
            let outcome = outcome.context("a step that nothing interrupts was interrupted")?;
            step_flops = outcome.flops;
            if let Some(next) = ahead? {
                batch = next;
            }
            if step > WARM_UP_STEPS {
                sorted_seconds.push(start.elapsed().as_secs_f64());
                after_step();
            }
        }
        sorted_seconds.sort_by(f64::total_cmp);
        Ok(Timing { sorted_seconds, step_flops })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::families::named_model;

    fn case(name: &str, rows: usize, length: usize) -> Case {
        Case {
            model: named_model(name).unwrap(),
            task: masked(0.15),
            compute: ComputeType::F32,
            weight_gradients: WeightGradients::F32,
            gradient_checkpointing: false,
            optim: OptimizerType::Adamw,
            muon: MuonConfig::default(),
            rows,
            length,
            short_segments: false,
        }
    }

    fn masked(masked_share: f64) -> TimedTask {
        TimedTask::Pretraining { task: None, rtd: RtdConfig::default(), masked_share }
    }

    #[test]
    fn a_classifier_has_a_label_a_row_and_less_to_do() {
        let masked = case("tiny", 3, 16);
        let case = Case { task: TimedTask::Classification { labels: 4 }, ..masked.clone() };
        let batch = case.batch();
        assert_eq!((batch.label_positions.as_slice(), batch.ids.len()), (&[0, 16, 32][..], 48));
        assert!(batch.labels.iter().all(|&label| label < 4));
        assert!(case.predicted_bytes(false).unwrap() < masked.predicted_bytes(false).unwrap());
        for gradient_checkpointing in [false, true] {
            let case = Case { gradient_checkpointing, ..case.clone() };
            let timing = case.time_steps(&Device::Cpu, 2, 0.0, || ()).unwrap();
            assert_eq!(timing.sorted_seconds.len(), 2);
            let model = Blueprint::classifier(&case.model, 4);
            assert_eq!(timing.step_flops.to_bits(), model.flops(48.0, 16.0, 3.0).to_bits());
        }
    }

    #[test]
    fn the_batch_has_the_rows_and_exactly_the_labels_that_were_asked_for() {
        let case = case("tiny", 3, 100);
        let batch = case.batch();
        assert_eq!(batch.cu_seqlens, [0, 100, 200, 300]);
        assert_eq!((batch.num_tokens(), batch.num_labels()), (300, 45));
        assert!(batch.label_positions.windows(2).all(|pair| pair[0] < pair[1]));
        assert!(batch.ids.iter().chain(&batch.labels).all(|id| (5..8192).contains(id)));
        assert_eq!(batch.position_ids[99..102], [99, 0, 1]);
        let short = Case { short_segments: true, ..case }.batch();
        assert!(
            short.cu_seqlens.len() > 6 && [100, 200, 300].iter().all(|end| short.cu_seqlens.contains(end)),
            "{:?}",
            short.cu_seqlens
        );
        assert!(short.max_seqlen() <= 60 && short.position_ids.iter().all(|&position| position < 60));
    }

    #[test]
    fn steps_are_counted_and_sorted_and_their_operations_are_those_of_the_case() {
        let case = case("tiny", 1, 16);
        let mut calls = 0;
        let timing = case.time_steps(&Device::Cpu, 3, 0.0, || calls += 1).unwrap();
        assert_eq!((calls, timing.sorted_seconds.len()), (3, 3));
        assert!(timing.sorted_seconds.is_sorted() && timing.sorted_seconds[0] > 0.0);
        assert_eq!(timing.median_seconds().to_bits(), timing.sorted_seconds[1].to_bits());
        let model = Blueprint::masked_lm(&case.model).initialise(SEED, &Device::Cpu).unwrap();
        assert_eq!(timing.step_flops.to_bits(), model.flops(16.0, 16.0, 2.0).to_bits());
    }

    #[test]
    fn the_prediction_grows_with_everything_that_takes_memory() {
        let base = case("base", 8, 128);
        let bytes = base.predicted_bytes(false).unwrap();
        // 124 million parameters at 16 bytes are 2.0 GB.
        assert!((2_200_000_000..3_500_000_000).contains(&bytes), "{bytes}");
        for more in [
            Case { rows: 16, ..base.clone() },
            Case { length: 256, ..base.clone() },
            Case { task: masked(0.3), ..base.clone() },
            Case { model: named_model("large").unwrap(), ..base },
        ] {
            assert!(more.predicted_bytes(false).unwrap() > bytes, "{more:?}");
        }
    }
}
