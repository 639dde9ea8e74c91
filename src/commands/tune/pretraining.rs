//! The tuning of a pretraining configuration, by its validation loss.

use anyhow::Result;

use crate::commands::staging::Corpus;
use crate::commands::tune::{Job, TuneArgs};
use crate::commands::{prepare, staging};
use crate::config::{PretrainConfig, Shuffle, Tuning};
use crate::distributed::World;
use crate::error::Problem;
use crate::prepare::Prepared;
use crate::tasks::list;
use crate::tasks::list::PretrainedVisitor;
use crate::tasks::pretraining::origin::Origin;
use crate::tasks::pretraining::{Pretrained, Pretraining, origin};
use crate::telemetry::Progress;
use crate::train::request::Request;
use crate::train::resume::Start;
use crate::train::trial::Trial;
use crate::trials::Equipment;
use crate::trials::tune::{Trained, Trainee, entrants};
use crate::{machine, train};

pub(super) fn run(args: &TuneArgs, tuning: &Tuning<PretrainConfig>) -> Result<()> {
    let corpus = if args.dry_run { Corpus::Skipped } else { Corpus::Included };
    if tuning.base.decay_from.is_some() {
        let problem =
            Problem::usage("brings down the rate of another run, and a tuning trains from the start");
        return Err(problem.at("decay_from").hint("remove it, and tune the run of the checkpoint").into());
    }
    let mut base = staging::pretraining(tuning.base.clone(), corpus)?;
    base.data.shuffle.get_or_insert(Shuffle::Rows);
    let mut entrants = entrants(tuning, &base.run.output_dir);
    for entrant in &mut entrants {
        entrant.config.data.prepared_dir = Some(base.prepared_dir());
        entrant.config.data.shuffle = base.data.shuffle;
        entrant.config = staging::pretraining(entrant.config.clone(), corpus)?;
    }
    let metric = "eval_loss".to_string();
    let job = Job { args, tuning, base, entrants, metric, command: "pretrain", notes: Vec::new() };
    job.run(&Text, prepared)
}

/// Makes the tokenizer and the shards that all candidates share.
fn prepared(base: &PretrainConfig, progress: &Progress) -> Result<()> {
    let (resolved, _) = origin::resolve(base)?;
    let prepared = prepare::ensure_prepared(World::ALONE, &resolved, progress)?;
    for line in prepare::summary(&resolved, &prepared) {
        progress.note(&line);
    }
    prepare::warn_of_lost_text(&resolved, progress)
}

/// Trains candidates on text.
struct Text;

impl Trainee<PretrainConfig> for Text {
    fn train(&self, config: &PretrainConfig, trial: Trial, with: Equipment<'_>) -> Result<Trained> {
        let (resolved, origin) = origin::resolve(config)?;
        let prepared = prepare::ensure_prepared(World::ALONE, &resolved, with.progress)?;
        let request = Request { trial: Some(trial), ..Request::from_pretrain_config(config, &Start::Again) };
        let sitting = Sitting { request: &request, resolved: &resolved, origin, prepared, with };
        list::pretrained(resolved.task(), sitting)
    }
}

/// A sitting of a task, whose type the visitor is called with.
struct Sitting<'a> {
    request: &'a Request<'a, PretrainConfig>,
    /// The configuration with the model of the folder that it may name.
    resolved: &'a PretrainConfig,
    origin: Option<Origin>,
    prepared: Prepared,
    with: Equipment<'a>,
}

impl PretrainedVisitor for Sitting<'_> {
    type Output = Result<Trained>;

    fn visit<T: Pretrained>(self) -> Result<Trained> {
        let Self { request, resolved, origin, prepared, with } = self;
        let kind = Pretraining::<T>::new(resolved, prepared, origin)?;
        let outcome =
            machine::in_pool(|| train::run::run(kind, request, with.machine, with.progress, with.signals))?;
        let train::run::Outcome { end, step, planned_steps, results, .. } = outcome;
        Ok(Trained { end, step, planned_steps, results })
    }
}
