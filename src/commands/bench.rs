//! `mlmtrain bench`: measures the speed of whole training steps, a row for each device, model, batch, length
//! and compute type.
//!
//! Each row is measured in a process of its own (`job.rs`), so that its peak memory is its own, and a row
//! that runs out of memory ends nothing else. `table.rs` formats the rows.

pub mod args;
mod defaults;
mod job;
mod most_rows;
mod table;

#[cfg(test)]
mod tests;

use anyhow::Result;

use crate::commands::bench::args::{BenchArgs, BenchTask};
use crate::commands::bench::defaults::{Defaults, LABELS, pretraining};
use crate::commands::bench::job::{Ended, Job, Machine, Place, Steps};
use crate::commands::bench::table::{Epoch, Measured, Outcome, Row, Table};
use crate::commands::terminal;
use crate::config::{
    ComputeType, DeviceChoice, FinetuneConfig, MuonConfig, OptimizerType, PretrainConfig, RtdConfig,
    TrainingConfig, WeightGradients,
};
use crate::error::Problem;
use crate::estimate::update_bytes;
use crate::families::ModelConfig;
use crate::ops::peak;
use crate::quantity::format_bytes;
use crate::tasks::pretraining::most_masked;
use crate::tasks::run::Shapes;
use crate::telemetry::{Progress, Unit};
use crate::train::bench::{Case, TimedTask};
use crate::{machine, optim};

pub(super) use args::some_seconds;
pub(super) use job::run as run_job;

/// Runs the subcommand.
pub fn run(args: &BenchArgs) -> Result<()> {
    let rows = rows(args)?;
    if !args.most_rows_on.is_empty() {
        return most_rows::print(&rows, &args.most_rows_on);
    }
    let progress = Progress::detect(terminal::is_quiet());
    let machines = usable_machines(args, &rows, &progress)?;
    let epoch = args.examples.map(|examples| Epoch { examples, usd_per_hour: args.usd_per_hour });
    let table = Table::new(rows.iter().map(|(model, _)| model.as_str()), epoch);
    if !args.json {
        terminal::stdout_line(&table.header())?;
    }
    let mut failed = rows.len() * (args.device.len() - machines.len());
    for (device, machine) in &machines {
        for (model, case) in &rows {
            let steps = Steps {
                case: case.clone(),
                device: *device,
                tf32: args.tf32,
                least: args.steps as usize,
                least_seconds: args.seconds,
            };
            let outcome = measure(model, &steps, args.threads, machine, &progress)?;
            match &outcome {
                Outcome::Failed(message) => {
                    failed += 1;
                    progress.warn(&format!("{}: {message}", label(model, case)));
                }
                Outcome::Done(measured) if is_above_peak(measured, machine.peak(case.compute)) => {
                    progress.warn(&format!(
                        "{}: its steps were faster than the measured peak, which cannot be right: other \
                         programs ran while the peak was measured; measure again when the machine is idle",
                        label(model, case)
                    ));
                }
                Outcome::Done(_) | Outcome::DoesNotFit(_) => {}
            }
            let row = Row { model, case, machine, outcome };
            terminal::stdout_line(&if args.json {
                row.to_json(epoch).to_string()
            } else {
                table.line(&row)
            })?;
        }
    }
    if failed == 0 {
        return Ok(());
    }
    let all = rows.len() * args.device.len();
    Err(Problem::new(format!("{failed} of {all} rows could not be measured")).into())
}

/// Measures the machine of each device. Of several devices, those that cannot be used are named and left out.
fn usable_machines(
    args: &BenchArgs,
    rows: &[(String, Case)],
    progress: &Progress,
) -> Result<Vec<(DeviceChoice, Machine)>> {
    let mut machines = Vec::new();
    for &device in &args.device {
        match measure_machine(args, device, rows, progress) {
            Ok(machine) => machines.push((device, machine)),
            Err(e) if args.device.len() > 1 => {
                progress.warn(&format!("{} is left out: {e}", device.name()));
            }
            Err(e) => return Err(e),
        }
    }
    if machines.is_empty() {
        return Err(Problem::usage("none of these devices can be used").at("--device").into());
    }
    Ok(machines)
}

/// True if steps did more operations in a second than the measured peak of the machine.
fn is_above_peak(measured: &Measured, peak: Option<f64>) -> bool {
    peak.is_some_and(|peak| measured.flops_per_second > peak)
}

/// Returns every combination of the flags, in their order, with the name of its model.
fn rows(args: &BenchArgs) -> Result<Vec<(String, Case)>> {
    let mut rows = Vec::new();
    for name in &args.model {
        let defaults = Defaults::new(name)?;
        let longest = defaults.model.max_sequence_length();
        let task = task(args, &defaults.task)?;
        for &rows_at_once in &given(&args.batch, defaults.batch) {
            for &length in &given(&args.length, defaults.length) {
                if length > longest {
                    let problem = Problem::usage(format!(
                        "rows of {length} tokens are longer than the {longest} positions of `{name}`"
                    ));
                    return Err(problem.at("--length").hint(format!("take at most {longest}")).into());
                }
                let computes =
                    if args.compute.is_empty() { vec![defaults.compute] } else { args.compute.clone() };
                rows.extend(computes.into_iter().map(|compute| {
                    let case = Case {
                        model: defaults.model.clone(),
                        task: task.clone(),
                        compute,
                        weight_gradients: defaults.weight_gradients,
                        rows: rows_at_once,
                        length,
                        short_segments: args.short,
                        gradient_checkpointing: args.gradient_checkpointing,
                        optim: defaults.optim,
                        muon: defaults.muon.clone(),
                    };
                    (name.clone(), case)
                }));
            }
        }
    }
    Ok(rows)
}

/// Returns the task of the flags, by default that of a model. Refuses flags that apply only to another task.
fn task(args: &BenchArgs, default: &TimedTask) -> Result<TimedTask> {
    let task = match (args.task, default) {
        (Some(BenchTask::Pretrain), TimedTask::Classification { .. }) => pretraining(),
        (Some(BenchTask::Classify), TimedTask::Pretraining { .. }) => {
            TimedTask::Classification { labels: LABELS }
        }
        (_, default) => default.clone(),
    };
    let (flag, message) = match (task, args.labels) {
        (TimedTask::Pretraining { .. }, Some(_)) => ("--labels", "is for `--task classify`"),
        (TimedTask::Classification { .. }, _) if args.short => {
            ("--short", "is for pretraining: a row of classification is one text")
        }
        (TimedTask::Classification { .. }, Some(labels)) => {
            return Ok(TimedTask::Classification { labels: labels as usize });
        }
        (task, None) => return Ok(task),
    };
    Err(Problem::usage(message).at(flag).hint("leave it out").into())
}

fn given(values: &[u32], default: usize) -> Vec<usize> {
    if values.is_empty() { vec![default] } else { values.iter().map(|&value| value as usize).collect() }
}

/// Measures the peaks that the rows are compared with, and reports them.
fn measure_machine(
    args: &BenchArgs,
    device: DeviceChoice,
    rows: &[(String, Case)],
    progress: &Progress,
) -> Result<Machine> {
    let computes: Vec<ComputeType> =
        ComputeType::ALL.into_iter().filter(|c| rows.iter().any(|(_, case)| case.compute == *c)).collect();
    let place = Place { device, tf32: args.tf32, computes };
    let machine = match job::start(&Job::Machine(place), args.threads, || {})? {
        Ended::Machine(machine) => machine,
        Ended::Failed(message) => return Err(Problem::usage(message).into()),
        other => {
            return Err(Problem::new(format!("the machine's peak could not be measured: {other:?}")).into());
        }
    };
    let peaks: Vec<String> = machine
        .flops_per_second
        .iter()
        .map(|(compute, flops)| {
            let by = machine.path(*compute).map(|path| format!(" by {path}")).unwrap_or_default();
            format!("{:.0} GFLOP/s in {}{by}", flops / 1e9, compute.name())
        })
        .collect();
    let peaks = if peaks.is_empty() { "no known peak".to_string() } else { peaks.join(", ") };
    progress.note(&match machine.bytes_per_second {
        Some(bytes) => {
            format!("this machine: {} threads, {peaks}, {:.1} GB/s of memory", machine.threads, bytes / 1e9)
        }
        None => format!("{}: {peaks} by its data sheet", machine.name),
    });
    machine.notes.iter().for_each(|note| progress.note(note));
    Ok(machine)
}

/// Size of a micro-batch: rows, and tokens of a row.
#[derive(Debug, Clone, Copy)]
pub(super) struct BatchShape {
    pub(super) rows: usize,
    pub(super) length: usize,
    /// True if each token is predicted from those before it.
    pub(super) is_causal: bool,
}

/// Steps with AdamW and without gradient checkpointing, of rows of one segment.
fn case(model: &ModelConfig, task: TimedTask, compute: ComputeType, shape: BatchShape) -> Case {
    Case {
        model: model.clone(),
        task,
        compute,
        weight_gradients: WeightGradients::F32,
        rows: shape.rows,
        length: shape.length,
        short_segments: false,
        gradient_checkpointing: false,
        optim: OptimizerType::Adamw,
        muon: MuonConfig::default(),
    }
}

/// Measures the training speed of a masked language model in tokens per second, with steps of `shape` for
/// about a second, in a process of its own. `None` if they do not fit into memory.
pub(super) fn tokens_per_second(
    model: &ModelConfig,
    shape: BatchShape,
    masked_share: f64,
    device: DeviceChoice,
    compute: ComputeType,
    threads: usize,
) -> Result<Option<f64>> {
    let BatchShape { rows, length, .. } = shape;
    let task = TimedTask::Pretraining { task: None, rtd: RtdConfig::default(), masked_share };
    let case = case(model, task, compute, shape);
    let steps = Steps { case, device, tf32: false, least: 3, least_seconds: 1.0 };
    Ok(seconds(steps, threads)?.map(|seconds| (rows * length) as f64 / seconds))
}

/// Measures the seconds of one micro-batch of a configuration with an update, for about three seconds in a
/// process of its own. `None` if it does not fit into memory.
pub(super) fn step_seconds(
    config: &PretrainConfig,
    model: &ModelConfig,
    shape: BatchShape,
    compute: ComputeType,
    gradient_checkpointing: bool,
) -> Result<Option<f64>> {
    let task = TimedTask::Pretraining {
        task: config.task,
        rtd: config.rtd.clone(),
        // The attention of a causal step takes at most half of this one's.
        masked_share: if shape.is_causal { 1.0 } else { most_masked(&config.mlm) },
    };
    let case = Case {
        gradient_checkpointing,
        optim: config.training.optim,
        muon: config.training.muon.clone(),
        ..case(model, task, compute, shape)
    };
    let device = config.run.device;
    let steps = Steps { case, device, tf32: config.precision.tf32, least: 3, least_seconds: 3.0 };
    seconds(steps, config.run.threads)
}

/// Measures the seconds of one micro-batch of fine-tuning with an update, for about half a second in a process
/// of its own: those of a classifier, because heads cost little. `None` if it does not fit into memory.
pub(super) fn fine_tuning_step_seconds(
    model: &ModelConfig,
    training: &TrainingConfig,
    shape: BatchShape,
    compute: ComputeType,
    config: &FinetuneConfig,
) -> Result<Option<f64>> {
    let case = Case {
        gradient_checkpointing: training.gradient_checkpointing.is_on(),
        optim: training.optim,
        muon: training.muon.clone(),
        ..case(model, TimedTask::Classification { labels: LABELS }, compute, shape)
    };
    let FinetuneConfig { run, precision, .. } = config;
    let steps = Steps { case, device: run.device, tf32: precision.tf32, least: 2, least_seconds: 0.5 };
    seconds(steps, run.threads)
}

/// The work of an update and of the micro-batch of a timed step.
pub(super) struct StepWork {
    /// Bytes that the update reads or writes.
    pub(super) update_bytes: f64,
    /// Operations of the products of the update.
    pub(super) update_flops: f64,
    /// Operations of the micro-batch.
    pub(super) micro_batch_flops: f64,
}

impl StepWork {
    /// The work of a step of a micro-batch of this shape.
    pub(super) fn new(
        shapes: &Shapes,
        training: &TrainingConfig,
        shape: BatchShape,
        place: machine::Place,
    ) -> Self {
        let tokens = (shape.rows * shape.length) as u64;
        let on = training.gradient_checkpointing.is_on();
        let sizes = shapes.sizes(tokens, shape.length, on, place);
        Self {
            update_bytes: update_bytes(shapes, training),
            update_flops: optim::update_flops(shapes.outline.layout(), training),
            micro_batch_flops: shapes.outline.flops(&sizes.predicting_all(shape.is_causal)),
        }
    }
}

/// Estimates the seconds of the update in a step of `step_seconds` on this CPU: its bytes from the memory
/// bandwidth, at most half of the step, and its operations as a share of those of the rest of the step.
pub(super) fn update_seconds(work: &StepWork, step_seconds: f64) -> f64 {
    let StepWork { update_bytes, update_flops, micro_batch_flops } = work;
    let memory = (update_bytes / machine::in_pool(peak::bytes_per_second)).min(step_seconds / 2.0);
    memory + (step_seconds - memory) * update_flops / (update_flops + micro_batch_flops)
}

/// The median seconds of a step; `None` if it does not fit into memory.
fn seconds(steps: Steps, threads: usize) -> Result<Option<f64>> {
    match job::start(&Job::Steps(Box::new(steps)), threads, || {})? {
        Ended::Steps(timed) => Ok(Some(timed.median_seconds)),
        Ended::OutOfMemory => Ok(None),
        Ended::Failed(message) => {
            Err(Problem::new(format!("the speed could not be measured: {message}")).into())
        }
        Ended::Machine(_) => Err(Problem::new("the process measured something else").into()),
    }
}

/// Measures a row, unless its predicted memory is more than there is.
fn measure(
    model: &str,
    steps: &Steps,
    threads: usize,
    machine: &Machine,
    progress: &Progress,
) -> Result<Outcome> {
    let needed = steps.case.predicted_bytes(machine.is_gpu())?;
    if let Some(available) = machine.memory_bytes.filter(|&available| needed > available) {
        return Ok(Outcome::DoesNotFit(format!(
            "needs about {}, {} are free",
            format_bytes(needed),
            format_bytes(available)
        )));
    }
    let stage = progress.stage(&label(model, &steps.case), Unit::Items, Some(steps.least as u64));
    let ended = job::start(&Job::Steps(Box::new(steps.clone())), threads, || stage.advance(1))?;
    Ok(match ended {
        Ended::Steps(timed) => Outcome::Done(Measured::new(&steps.case, &timed, machine)?),
        Ended::OutOfMemory => {
            Outcome::DoesNotFit(format!("it was tried, and should need about {}", format_bytes(needed)))
        }
        Ended::Failed(message) => Outcome::Failed(message),
        Ended::Machine(_) => Outcome::Failed("the process measured something else".to_string()),
    })
}

/// Name of a row for progress and warnings.
fn label(model: &str, case: &Case) -> String {
    format!("{} {} x {} {}", terminal::printable(model), case.rows, case.length, case.compute.name())
}
