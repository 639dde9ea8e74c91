//! `mlmtrain compare`: compares models on several tasks, with confidence intervals for their differences.

mod plan;

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, ValueEnum};

use crate::commands::config_args::RunChangeArgs;
use crate::commands::notify::notify;
use crate::commands::{staging, terminal, together, upload};
use crate::config::{CacheConfig, NamedTask, Override, Protocol, to_yaml};
use crate::distributed::World;
use crate::error::Problem;
use crate::interop::read_folder;
use crate::machine;
use crate::telemetry::Progress;
use crate::train::signals::Signals;
use crate::trials::{Comparison, Equipment, cell};

/// Arguments of `compare`.
#[derive(Debug, Args)]
pub struct CompareArgs {
    /// Model folders in the Hugging Face layout
    #[arg(long, value_name = "DIR", num_args = 1.., required = true)]
    pub models: Vec<PathBuf>,
    /// YAML or JSON list of tasks (configs/tasks/README.md)
    #[arg(long, value_name = "FILE")]
    pub tasks: PathBuf,
    /// Compare by a published protocol: `euroeval` is EuroEval's for encoders (key `protocol` of the list)
    #[arg(long, value_name = "NAME")]
    pub protocol: Option<Protocol>,
    /// Training, validation and test examples to draw once, before anything else, from each task's files
    /// (keys `data.max_train_samples`, `data.max_eval_samples` and `data.max_test_samples`)
    #[arg(long, value_name = "N,N,N", value_parser = sample)]
    pub sample: Option<Sample>,
    /// Seeds that each model is trained with on each task (key `seeds`)
    #[arg(long, value_name = "N,N,...", value_delimiter = ',')]
    pub seeds: Option<Vec<u64>>,
    /// Runs that are trained at once on a CPU, each with its share of the threads; as many as threads and
    /// memory allow unless given (key `runs_at_once`)
    #[arg(long, value_name = "N")]
    pub at_once: Option<u32>,
    /// Leave out random twins and baselines without a network; the same command without this adds them
    #[arg(long)]
    pub no_baselines: bool,
    /// Folder of the runs and the tables
    #[arg(long, value_name = "DIR", default_value = "runs/compare")]
    pub output_dir: PathBuf,
    /// Changes for all tasks.
    #[command(flatten)]
    pub changes: RunChangeArgs,
    /// Say what would be done and what it would cost, and do nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// Numbers of training, validation and test examples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample([u64; 3]);

/// Reads three numbers with commas between them.
fn sample(text: &str) -> Result<Sample, String> {
    let numbers: Result<Vec<u64>, _> = text.split(',').map(|number| number.trim().parse()).collect();
    let numbers = numbers.map_err(|e| e.to_string())?;
    <[u64; 3]>::try_from(numbers).map(Sample).map_err(|found| {
        format!("has {} numbers, three are wanted: training, validation and test examples", found.len())
    })
}

/// Runs the subcommand.
pub fn run(args: &CompareArgs) -> Result<()> {
    let mut overrides = Vec::new();
    if let Some(protocol) = args.protocol.as_ref().and_then(ValueEnum::to_possible_value) {
        overrides.push(Override::flag("--protocol", "protocol", protocol.get_name()));
    }
    if let Some(Sample(sizes)) = args.sample {
        for (set, size) in ["train", "eval", "test"].into_iter().zip(sizes) {
            overrides.push(Override::flag("--sample", &format!("data.max_{set}_samples"), size));
        }
    }
    overrides.extend(args.seeds.clone().map(|seeds| Override::flag("--seeds", "seeds", seeds)));
    overrides.extend(args.at_once.map(|runs| Override::flag("--at-once", "runs_at_once", runs)));
    overrides.extend(args.changes.overrides()?);
    let repeated = (1..args.models.len()).find(|&at| args.models[..at].contains(&args.models[at]));
    if let Some(model) = repeated.map(|at| &args.models[at]) {
        let problem = Problem::usage(format!("names `{}` twice", model.display())).at("--models");
        return Err(problem.hint("keep one of the two").into());
    }
    let mut tasks = staging::tasks(&args.tasks, &overrides)?;
    tasks.iter().try_for_each(|task| upload::refuse_for_many_runs(&task.config.run))?;
    let models = staging::staged(args.models.clone(), &CacheConfig::default())?;
    let folders = Comparison::folders(&tasks, &models, &args.output_dir);
    let Some(first) = tasks.first() else { return Ok(()) };
    // All cells are computed on one kind of device in one number type, so that their scores can be compared.
    let mut shared = first.config.clone();
    if let Some(other) = tasks.iter().find(|task| {
        (task.config.precision.clone(), task.config.run.device)
            != (shared.precision.clone(), shared.run.device)
    }) {
        let message =
            format!("tasks `{}` and `{}` have other machines or number types", first.name, other.name);
        let hint = "write `precision` and `run.device` once, beside `tasks`";
        return Err(Problem::usage(message).at(args.tasks.display()).hint(hint).into());
    }
    cell::keep_type(&mut shared, folders)?;
    shared.run.output_dir.clone_from(&args.output_dir);
    let (machine, world) = if args.dry_run {
        (machine::set_up(&shared.run, &shared.precision)?, World::ALONE)
    } else {
        machine::set_up_to_share_runs(&shared.run, &shared.precision, &shared.distributed)?
    };
    cell::require_files(tasks.iter().map(|task| &task.config))?;
    let longest = longest(&models)?;
    let mut notes = Vec::new();
    for task in &mut tasks {
        task.config.precision.compute = machine.policy.compute_type().into();
        if let Some(task_protocol) = &task.protocol {
            let usual = task_protocol.protocol.sequence_length(longest);
            task.config.data.max_seq_length.get_or_insert(usual);
        }
        let note = task.config.data.choose_sequence_length(longest);
        notes.extend(note.map(|note| format!("{}: {note}", task.name)));
    }
    let with_baselines = !args.no_baselines;
    if args.dry_run {
        for note in &notes {
            terminal::note(note);
        }
        return plan::print(&tasks, &models, with_baselines, &args.output_dir, &machine);
    }
    let progress = Progress::detect(terminal::is_quiet());
    let progress = together::begin(world, || text(&tasks, &models, with_baselines), &shared.run, progress)?;
    machine.announce(&progress);
    for note in &notes {
        progress.note(note);
    }
    let signals = Signals::listen(&progress)?;
    let with = Equipment { machine: &machine, progress: &progress, signals: &signals, world };
    let output = &args.output_dir;
    let comparison = Comparison { tasks: &tasks, models: &models, with_baselines, output, with };
    let lines = comparison.run();
    if world.is_first() {
        notify(&shared.run, &lines);
    }
    // Names of models and tasks come from outside and are escaped.
    lines?.iter().map(|line| terminal::printable(line)).try_for_each(|line| terminal::stdout_line(&line))
}

/// Longest sequence in tokens that all models accept.
fn longest(models: &[PathBuf]) -> Result<usize> {
    models
        .iter()
        .try_fold(usize::MAX, |least, path| Ok(least.min(read_folder(path)?.config.max_sequence_length())))
}

/// A comparison as text. Several processes compare it, to make sure that they were started with the same one.
fn text(tasks: &[NamedTask], models: &[PathBuf], with_baselines: bool) -> String {
    let tasks = tasks.iter().map(|task| format!("{} {:?}\n{}", task.name, task.seeds, to_yaml(&task.config)));
    format!("{models:?} {with_baselines}\n{}", tasks.collect::<Vec<String>>().concat())
}
