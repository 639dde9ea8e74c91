//! The only place that knows every part: from a configuration to a trained model.
//!
//! `pretrain.rs` and `classify.rs` are the two kinds of run; what they share stands here.

pub mod batch_size;
pub mod classify;
pub mod pretrain;
pub mod results;
pub mod resume;

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use candle_core::Device;
use serde_json::Value;

use crate::config::DeviceChoice;
use crate::config::PrecisionConfig;
use crate::config::RunSection;
use crate::config::TrainingConfig;
use crate::distributed::World;
use crate::error::Problem;
use crate::fs;
use crate::interop::HubConfig;
use crate::layers::Gradients;
use crate::layers::Parameters;
use crate::ops::cuda;
use crate::ops::cuda::Unavailable;
use crate::optim::Optimizer;
use crate::precision::Hardware;
use crate::precision::Policy;
use crate::quantity;
use crate::telemetry::Progress;
use crate::tokenizer::Tokenizer;
use crate::train::StopRules;
use crate::train::signals::Signals;
use crate::train::step::Stepper;

/// What a run computes on, and in which types.
#[derive(Debug, Clone)]
pub struct Machine {
    /// Where parameters and activations are.
    pub device: Device,
    /// Number types.
    pub policy: Policy,
    /// Threads of the pool.
    pub threads: usize,
    /// Why there is no GPU, where one could have been taken.
    pub without_gpu: Option<Unavailable>,
}

impl Machine {
    /// `bf16 on the CPU, 2 threads`.
    pub fn summary(&self) -> String {
        format!(
            "{} on {}, {}",
            self.policy.compute.as_str(),
            Hardware::of(&self.device).name,
            threads_text(self.threads)
        )
    }

    /// Says what is computed on, and what should be known of it.
    pub fn announce(&self, progress: &Progress) {
        progress.note(&format!("computing in {}", self.summary()));
        if let Some(reason) = &self.without_gpu {
            progress.note(&format!("note: no GPU is used: {reason}; {}", reason.hint()));
        }
        self.policy.notes.iter().for_each(|note| progress.note(note));
        // Any other failure comes up again with the first batch.
        if let Ok(Some(false)) = cuda::locks_pages(&self.device) {
            progress.warn("no page-locked memory can be had, so copies of batches to the GPU hold up the program: look at the limits of its container and at `ulimit -l`");
        }
    }
}

/// Sets up threads, picks the device and the types; refuses to be one of several processes.
pub fn set_up(run: &RunSection, precision: &PrecisionConfig) -> Result<Machine> {
    let threads = set_up_threads(run)?;
    let (device, without_gpu) = pick_device(run.device)?;
    cuda::set_tf32(precision.tf32);
    let policy = Policy::new(precision, &Hardware::of(&device))?;
    Ok(Machine { device, policy, threads, without_gpu })
}

/// The device of a choice; with the CPU where it was left open, why it is not a GPU. Asking for a GPU that
/// cannot be used is an error.
pub fn pick_device(choice: DeviceChoice) -> Result<(Device, Option<Unavailable>)> {
    match choice {
        DeviceChoice::Cpu => Ok((Device::Cpu, None)),
        DeviceChoice::Cuda(ordinal) => match cuda::open(ordinal) {
            Ok(device) => Ok((device, None)),
            Err(reason) => {
                let problem = Problem::usage(format!("cannot compute on `{}`: {reason}", choice.name()));
                Err(problem.at("run.device").hint(reason.hint()).into())
            }
        },
        DeviceChoice::Auto => Ok(match cuda::open(0) {
            Ok(device) => (device, None),
            // A program without CUDA on a machine without a GPU is no news.
            Err(Unavailable::NotBuilt) if !fs::exists(Path::new(GPU_NODE)) => (Device::Cpu, None),
            Err(reason) => (Device::Cpu, Some(reason)),
        }),
    }
}

/// There where the machine has an NVIDIA GPU with its driver.
const GPU_NODE: &str = "/dev/nvidia0";

/// Sets up threads alone, and says how many; refuses to be one of several processes.
pub fn set_up_threads(run: &RunSection) -> Result<usize> {
    World::detect(|name| std::env::var(name).ok())?;
    use_threads(run.threads)?;
    Ok(rayon::current_num_threads())
}

/// `1 thread`, `2 threads`.
pub fn threads_text(threads: usize) -> String {
    format!("{threads} {}", if threads == 1 { "thread" } else { "threads" })
}

/// Sizes the one pool that everything computes in; 0 means one thread for each core that this process may
/// use, by its CPU affinity and its cgroup's CPU quota: rayon asks `std::thread::available_parallelism`,
/// which knows both.
pub fn use_threads(threads: usize) -> Result<()> {
    if rayon::ThreadPoolBuilder::new().num_threads(threads).build_global().is_err()
        && threads > 0
        && rayon::current_num_threads() != threads
    {
        // The pool is made once in a process; only a second run inside it can come here.
        return Err(Problem::new(format!(
            "the thread pool has {} threads already, {threads} were asked for",
            rayon::current_num_threads()
        ))
        .into());
    }
    Ok(())
}

/// Runs `f` on a thread of the pool. From outside of it every parallel loop of every op would put its caller
/// to sleep and wake a thread of the pool, and the other way round at its end: two thousand switches in a
/// step of twelve layers.
pub fn in_pool<R: Send>(f: impl FnOnce() -> R + Send) -> R {
    rayon::scope(|_| f())
}

/// Steps of a run: `max_steps`, or as many as the epochs need.
pub fn total_steps(training: &TrainingConfig, rows_per_epoch: u64) -> u64 {
    if training.max_steps > 0 {
        return training.max_steps as u64;
    }
    let rows = training.num_train_epochs * rows_per_epoch as f64;
    ((rows / rows_per_step(training) as f64).ceil() as u64).max(1)
}

/// Rows that one update is computed from.
pub fn rows_per_step(training: &TrainingConfig) -> u64 {
    training.rows_per_update() as u64
}

/// The step of a run, with fresh moments and zero gradients.
pub fn stepper(
    parameters: &Parameters,
    training: &TrainingConfig,
    policy: &Policy,
    seed: u64,
) -> Result<Stepper> {
    Ok(Stepper {
        optimizer: Optimizer::new(parameters, training)?,
        gradients: Gradients::new(parameters)?,
        max_grad_norm: training.max_grad_norm,
        seed,
        loss_scale: policy.loss_scale(),
    })
}

/// When to end early.
pub fn stop_rules(training: &TrainingConfig, signals: &Signals) -> Result<StopRules> {
    let budget = training
        .max_train_time
        .as_deref()
        .map(quantity::parse_duration)
        .transpose()
        .map_err(|e| Problem::usage(e.to_string()).at("training.max_train_time"))?;
    Ok(StopRules {
        patience: training.early_stopping_patience,
        budget_seconds: budget.as_ref().map(Duration::as_secs_f64),
        signals: signals.clone(),
    })
}

/// What makes a folder of weights a model folder: `config.json` and the files of the tokenizer.
pub fn model_files(config: &HubConfig, tokenizer: &Tokenizer) -> Vec<(String, Vec<u8>)> {
    let mut text = to_text(&config.to_json());
    text.push('\n');
    let mut files = vec![("config.json".to_string(), text.into_bytes())];
    files.extend(tokenizer.files().iter().cloned());
    files
}

/// Indented JSON.
pub fn to_text(value: &Value) -> String {
    format!("{value:#}")
}
