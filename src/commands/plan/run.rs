//! The run that a plan is for: of pretraining, or those of a fine-tuning configuration.

use std::time::{Duration, SystemTime};

use anyhow::Result;

use crate::batches::BatchPlan;
use crate::commands::plan::PlanArgs;
use crate::commands::{bench, forecast};
use crate::config::{
    DeviceChoice, FinetuneConfig, PrecisionConfig, PretrainConfig, RunSection, TrainingConfig,
};
use crate::error::Problem;
use crate::estimate::{Estimate, Fitted, Part, Rentable, Work};
use crate::families::ModelConfig;
use crate::interop::read_folder;
use crate::machine;
use crate::machine::Machine;
use crate::quantity::{format_count, parse_duration};
use crate::shards::Manifest;
use crate::tasks::finetuning_task::{Examples, FinetuningTask};
use crate::tasks::list;
use crate::tasks::list::FinetunedVisitor;
use crate::tasks::run::{Kind, Shapes, total_steps};
use crate::telemetry::{Progress, Unit};
use crate::train::{auto_batch_size, horizon};

/// The subject of a plan, with its configuration.
#[derive(Clone, Copy)]
pub(super) enum Planned<'a> {
    /// A run of pretraining.
    Pretraining(&'a PretrainConfig),
    /// The runs of all seeds of a fine-tuning configuration, one after the other.
    Finetuning(&'a FinetuneConfig, &'a forecast::Runs),
}

/// The run, or the runs, that are planned.
#[derive(Clone, Copy)]
pub(super) struct Run<'a> {
    pub(super) planned: Planned<'a>,
    pub(super) shapes: &'a Shapes,
    /// Updates of each run.
    pub(super) steps: u64,
}

/// Largest number of updates that is planned; more are a typing error.
const MOST_STEPS: u64 = 100_000_000;

/// Returns the number of updates of a run: for `--tokens`, else `training.max_steps`, else for the epochs.
/// The last needs the shards, to know the number of tokens.
pub(super) fn steps(args: &PlanArgs, config: &PretrainConfig) -> Result<u64> {
    if let Some(tokens) = args.tokens {
        let plan = BatchPlan::new(&config.training, config.data.max_seq_length);
        let mut steps = 0;
        let mut planned = 0;
        while planned < tokens && steps < MOST_STEPS {
            planned += plan.at(steps).tokens();
            steps += 1;
        }
        if planned < tokens {
            let message = format!("are more than {} updates", format_count(MOST_STEPS));
            return Err(Problem::usage(message)
                .at("--tokens")
                .hint("ask for less, or for larger updates")
                .into());
        }
        return Ok(steps);
    }
    if config.training.max_steps >= 0 {
        return Ok(config.training.max_steps as u64);
    }
    let shards = config.prepared_dir().join("shards");
    let manifest = Manifest::read(&shards).map_err(|_| {
        Problem::usage("is not given, and how long an epoch is cannot be told before there are shards")
            .at("training.max_steps")
            .hint("say how many tokens to plan (`--tokens 10B`), or run `mlmtrain prepare` first")
    })?;
    // An estimate: each row has two special tokens, and rows are assumed to be full.
    let rows = manifest.train.tokens / (config.data.max_seq_length.saturating_sub(2).max(1) as u64);
    Ok(total_steps(&config.training, rows))
}

/// Reads the model folder and the examples of a fine-tuning configuration, and returns its runs. They are not
/// fitted to a machine.
pub(super) fn finetuning_runs(config: &FinetuneConfig) -> Result<forecast::Runs> {
    struct Read<'a>(&'a FinetuneConfig);
    impl FinetunedVisitor for Read<'_> {
        type Output = Result<forecast::Runs>;

        fn visit<T: FinetuningTask>(self) -> Self::Output {
            let config = self.0;
            let folder = read_folder(&config.model)?;
            folder.check_encoder(T::HEAD)?;
            let examples = Examples::<T>::read(config)?;
            examples.require_some()?;
            let shapes = examples.kind(config, &folder).shapes()?;
            let read = examples.planned(config, &folder)?;
            let count = config.seeds.len().max(1);
            Ok(forecast::Runs::new(config.training.clone(), shapes, &read, count))
        }
    }
    list::finetuned(config.goal(), Read(config))
}

impl Run<'_> {
    pub(super) fn training(&self) -> &TrainingConfig {
        match self.planned {
            Planned::Pretraining(config) => &config.training,
            Planned::Finetuning(config, _) => &config.training,
        }
    }

    /// Section `run` of the configuration.
    pub(super) fn section(&self) -> &RunSection {
        match self.planned {
            Planned::Pretraining(config) => &config.run,
            Planned::Finetuning(config, _) => &config.run,
        }
    }

    pub(super) fn precision(&self) -> &PrecisionConfig {
        match self.planned {
            Planned::Pretraining(config) => &config.precision,
            Planned::Finetuning(config, _) => &config.precision,
        }
    }

    pub(super) fn model(&self) -> &ModelConfig {
        &self.shapes.model
    }

    /// Number of runs.
    pub(super) fn count(&self) -> usize {
        match self.planned {
            Planned::Pretraining(_) => 1,
            Planned::Finetuning(_, runs) => runs.count,
        }
    }

    /// All steps of all runs with these batch sizes.
    pub(super) fn work(&self, training: &TrainingConfig) -> Work {
        match self.planned {
            Planned::Pretraining(config) => Work::new(training, config.data.max_seq_length, self.steps),
            Planned::Finetuning(_, runs) => Work { parts: vec![runs.work(training)] },
        }
    }

    /// Returns the seconds of training that `run.budget_usd` and `run.deadline` allow a run at this price.
    pub(super) fn affordable_seconds(&self, usd_per_hour: Option<f64>) -> Result<Option<f64>, Problem> {
        let run = RunSection { usd_per_hour, ..self.section().clone() };
        horizon::limit_seconds(&run, 0.0, SystemTime::now())
    }

    /// Key `training.max_train_time` in seconds.
    pub(super) fn limit_seconds(&self) -> Option<f64> {
        let limit = self.training().max_train_time.as_deref()?;
        parse_duration(limit).ok().as_ref().map(Duration::as_secs_f64)
    }

    /// Predicts the run on a rented GPU from its data sheet.
    pub(super) fn rented(&self, gpu: &Rentable) -> Result<Estimate, String> {
        let training = self.training();
        Estimate::on_gpu(gpu, training, self.shapes, self.precision(), |training| self.work(training))
    }

    /// Measures the run like [`Self::here`], but on the CPU even if there is a GPU.
    pub(super) fn on_cpu(&self, progress: &Progress) -> Result<Result<Estimate, String>> {
        let run = RunSection { device: DeviceChoice::Cpu, ..self.section().clone() };
        let machine = match machine::set_up(&run, self.precision()) {
            Ok(machine) => machine,
            Err(why) => return Ok(Err(why.to_string())),
        };
        match self.planned {
            Planned::Pretraining(config) => {
                let config = &PretrainConfig { run, ..config.clone() };
                Run { planned: Planned::Pretraining(config), ..*self }.here(&machine, progress)
            }
            Planned::Finetuning(config, runs) => {
                let config = &FinetuneConfig { run, ..config.clone() };
                Run { planned: Planned::Finetuning(config, runs), ..*self }.here(&machine, progress)
            }
        }
    }

    /// Measures the run on this machine, a few seconds for each size of micro-batch. The inner error is the
    /// reason why the run is not possible here.
    pub(super) fn here(&self, machine: &Machine, progress: &Progress) -> Result<Result<Estimate, String>> {
        let Some(room_bytes) = auto_batch_size::room(machine) else {
            return Ok(Err("the free memory is not known".to_string()));
        };
        let fitted = Fitted::new(self.training(), self.shapes, machine.place(), room_bytes);
        let Some(fitted) = fitted else {
            return Ok(Err("does not fit, not even a row at a time".to_string()));
        };
        let work = self.work(&fitted.training);
        let measuring = progress.stage("measuring steps", Unit::Items, Some(work.parts.len() as u64));
        let mut measured = Vec::new();
        for part in &work.parts {
            let Some(seconds) = self.step_seconds(part, &fitted.training, machine)? else {
                return Ok(Err("a step ran out of memory".to_string()));
            };
            // The timed step has an update for each micro-batch; with accumulation, most have none.
            let update = if part.updates < part.micro_batches {
                let shape = batch_shape(part);
                let work = bench::StepWork::new(self.shapes, &fitted.training, shape, machine.place());
                bench::update_seconds(&work, seconds)
            } else {
                0.0
            };
            measured.push((seconds - update, update));
            measuring.advance(1);
        }
        measuring.finish("done");
        Ok(Ok(Estimate::of(fitted, machine.policy.compute, &work, &measured)))
    }

    /// Measures the seconds of a micro-batch with an update; `None` if it does not fit into memory.
    fn step_seconds(&self, part: &Part, training: &TrainingConfig, machine: &Machine) -> Result<Option<f64>> {
        let compute = machine.policy.compute_type();
        let shape = batch_shape(part);
        match self.planned {
            Planned::Pretraining(config) => {
                let on = training.gradient_checkpointing.is_on();
                bench::step_seconds(config, self.model(), shape, compute, on)
            }
            Planned::Finetuning(config, _) => {
                bench::fine_tuning_step_seconds(self.model(), training, shape, compute, config)
            }
        }
    }
}

fn batch_shape(part: &Part) -> bench::BatchShape {
    bench::BatchShape { rows: part.rows, length: part.length, is_causal: part.is_causal }
}
