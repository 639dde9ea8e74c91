//! `mlmtrain tune`: finds the best values of some keys for pretraining or fine-tuning, and writes the
//! configuration with them.

mod finetuning;
mod pretraining;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use clap::Args;

use crate::commands::config_args::RunChangeArgs;
use crate::commands::notify::notify;
use crate::commands::outputs::OverwriteArgs;
use crate::commands::{next_step, prepare, terminal, upload};
use crate::config;
use crate::config::{Tuning, TuningPlan, Vary};
use crate::distributed::World;
use crate::error::{Class, Problem};
use crate::quantity::parse_duration;
use crate::telemetry::Progress;
use crate::train::resume::{Start, keep_compute};
use crate::train::run_folder::FINAL;
use crate::train::signals::{EndAtOnce, Signals};
use crate::trials::Equipment;
use crate::trials::tune::{Entrant, Trainee, Tunable, Tune, Tuned};
use crate::{fs, machine};

/// Default file of the winner's configuration, in the folder of the tuning.
const TUNE_YAML: &str = "tune.yaml";

/// The beginning of that file, by which a repeated command recognises its own.
const HEAD: &str = "# Written by `mlmtrain tune`: ";

/// Arguments of `tune`.
#[derive(Debug, Args)]
pub struct TuneArgs {
    /// YAML or JSON configuration of `pretrain` or of `finetune`
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
    /// How long all candidates together may take, e.g. `20m`, `2h`; the preparation of a text is not counted
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub budget: Duration,
    /// A key and the values to try: a list or a range, e.g. `weight_decay=0,0.01,0.1` or
    /// `learning_rate=1e-4..1e-2`; may be repeated [default: the learning rate, from a tenth to ten times its
    /// value]
    #[arg(long, value_name = "KEY=VALUES")]
    pub vary: Vec<String>,
    /// Candidates to compare; of lists alone, as many combinations are drawn [default: 9 of one range, 18 of
    /// several keys, all combinations of lists alone]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(2..=1000))]
    pub settings: Option<u64>,
    /// File for the winner's configuration [default: `tune.yaml` in the output folder]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Permission to replace a file that is not of an earlier tuning.
    #[command(flatten)]
    pub overwrite: OverwriteArgs,
    /// Say what would be done, and do nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Changes for all candidates.
    #[command(flatten)]
    pub changes: RunChangeArgs,
}

fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).map_err(|e| e.to_string())
}

/// Runs the subcommand.
pub fn run(args: &TuneArgs) -> Result<()> {
    let vary = Vary { keys: &args.vary, candidates: args.settings.map(|count| count as usize) };
    match config::load_tuning(&args.config, &args.changes.overrides()?, vary)? {
        TuningPlan::Pretrain(tuning) => pretraining::run(args, &tuning),
        TuningPlan::Finetune(tuning) => finetuning::run(args, &tuning),
    }
}

/// A tuning of one kind of configuration, ready to be run.
struct Job<'a, C> {
    args: &'a TuneArgs,
    tuning: &'a Tuning<C>,
    /// The configuration without the values of candidates, with all files on this disk.
    base: C,
    entrants: Vec<Entrant<C>>,
    /// The score that candidates are ranked by, by the name of transformers' Trainer.
    metric: String,
    /// The command that trains a configuration of this kind.
    command: &'static str,
    /// Notes for the user.
    notes: Vec<String>,
}

impl<C: Tunable> Job<'_, C> {
    /// Trains the candidates with `trainee`, after `make_data` has made the data. Prints the table and writes
    /// the configuration of the winner.
    fn run(
        mut self,
        trainee: &impl Trainee<C>,
        make_data: impl FnOnce(&C, &Progress) -> Result<()>,
    ) -> Result<()> {
        let run = self.base.sections().run.clone();
        upload::refuse_for_many_runs(&run)?;
        if let Some(key) = run.limit() {
            let problem = Problem::usage("limits one run, and `--budget` limits all candidates together");
            return Err(problem.at(key).hint(format!("remove it: `--set {key}=null`")).into());
        }
        let output = run.output_dir.clone();
        let winner = self.args.output.clone().unwrap_or_else(|| output.join(TUNE_YAML));
        let file = fs::Output { is_own: is_own_file, ..fs::Output::new("--output", &winner) };
        self.args.overwrite.require(&[file], &[self.args.config.as_path()])?;
        let folders: Vec<PathBuf> = self.entrants.iter().map(|entrant| entrant.folder.clone()).collect();
        keep_compute(self.base.sections().precision, &Start::Again, folders)?;
        let machine = machine::set_up(&run, self.base.sections().precision)?;
        self.base.sections().precision.compute = machine.policy.compute_type().into();
        for entrant in &mut self.entrants {
            entrant.config.sections().precision.compute = machine.policy.compute_type().into();
        }
        if let Some(limit) = &self.base.sections().training.max_train_time {
            self.notes.push(format!(
                "note: `training.max_train_time` {limit} limits no candidate: `--budget` limits all of them"
            ));
        }
        let Self { args, tuning, base, entrants, metric, command, notes } = &self;
        let (keys, budget) = (tuning.keys.as_slice(), args.budget);
        let tune = Tune { base, keys, entrants, budget, output: &output, metric };
        if args.dry_run {
            for note in notes {
                terminal::note(note);
            }
            let lines = tune.outlook()?;
            return lines.iter().try_for_each(|line| terminal::stdout_line(&terminal::printable(line)));
        }
        let progress = Progress::detect(terminal::is_quiet());
        progress.run_folder(&output);
        machine.announce(&progress);
        for note in notes {
            progress.note(note);
        }
        let end_at_once = EndAtOnce::listen(&progress, prepare::KEPT)?;
        make_data(base, &progress)?;
        let signals = Signals::listen(&progress)?;
        drop(end_at_once);
        let with =
            Equipment { machine: &machine, progress: &progress, signals: &signals, world: World::ALONE };
        let tuned = tune.run(trainee, with).and_then(|tuned| {
            let lines = self.finished(&tuned, &winner)?;
            // Values of candidates come from outside and are escaped.
            lines.iter().try_for_each(|line| terminal::stdout_line(&terminal::printable(line)))?;
            if tuned.best.is_some() { Ok(lines) } else { Err(without_score(&tuned, metric, &output).into()) }
        });
        notify(&run, &tuned);
        tuned?;
        next_step::after_tuning(command, &winner).lines().for_each(|line| progress.note(line));
        Ok(())
    }

    /// Writes the configuration of the winner, if there is one, and returns the lines to print.
    fn finished(&self, tuned: &Tuned, winner: &Path) -> Result<Vec<String>> {
        let mut lines = tuned.table.lines();
        let Some(best) = tuned.best else { return Ok(lines) };
        let Tuned { summary, is_whole, .. } = tuned;
        let Entrant { name, folder, .. } = &self.entrants[best];
        let count = self.entrants.len();
        lines.push(format!("best of {count}: {name}, {summary}"));
        if *is_whole {
            lines.push(format!("trained to its end: {}", folder.join(FINAL).display()));
        }
        let head = format!("{HEAD}the best of {count} candidates, {summary}.\n");
        let given = self.tuning.candidates[best].loaded.given();
        fs::create_folder(&fs::parent_of(winner))?;
        fs::write_bytes(winner, (head + &given).as_bytes())?;
        lines.push(format!("configuration: {}", winner.display()));
        Ok(lines)
    }
}

/// The error of a tuning in which no candidate has a score.
fn without_score(tuned: &Tuned, metric: &str, output: &Path) -> Problem {
    let problem = if tuned.all_diverged {
        let problem = Problem::new("training diverged with every candidate").class(Class::Diverged);
        problem.hint("vary over smaller learning rates, in another `run.output_dir`")
    } else {
        let problem = Problem::new(format!("no candidate has a score: `{metric}` was not measured"));
        problem.hint("evaluate on more examples or tokens, in another `run.output_dir`")
    };
    problem.at(output.display())
}

/// True for the first bytes of a file that an earlier tuning wrote.
fn is_own_file(head: &[u8]) -> bool {
    head.starts_with(HEAD.as_bytes())
}
