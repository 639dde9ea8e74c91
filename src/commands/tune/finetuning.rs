//! The tuning of a fine-tuning configuration, by the score of its task.

use std::cell::RefCell;

use anyhow::Result;

use crate::commands::finetune::choose_length;
use crate::commands::staging;
use crate::commands::tune::{Job, TuneArgs};
use crate::config::{ClassifyData, FinetuneConfig, Tuning};
use crate::interop::read_folder;
use crate::tasks::finetuning_task::{Examples, FinetuningTask};
use crate::tasks::list;
use crate::tasks::list::FinetunedVisitor;
use crate::train::request::Request;
use crate::train::resume::Start;
use crate::train::trial::Trial;
use crate::trials::tune::{Entrant, Trained, Trainee, entrants};
use crate::trials::{Equipment, cell};
use crate::{machine, train};

pub(super) fn run(args: &TuneArgs, tuning: &Tuning<FinetuneConfig>) -> Result<()> {
    let mut base = staging::finetuning(tuning.base.clone())?;
    let mut entrants = entrants(tuning, &base.run.output_dir);
    for entrant in &mut entrants {
        entrant.config = staging::finetuning(entrant.config.clone())?;
    }
    cell::require_files(entrants.iter().map(|entrant| &entrant.config))?;
    let mut notes: Vec<String> = choose_length(&mut base)?.into_iter().collect();
    let seed = base.seeds.first().copied().unwrap_or(base.run.seed);
    for Entrant { config, .. } in &mut entrants {
        choose_length(config)?;
        config.seeds = vec![seed];
        config.runs_at_once = 0;
    }
    if base.seeds.len() > 1 {
        notes.push(format!("note: candidates are trained with the first seed, {seed}"));
    }
    list::finetuned(base.goal(), Tuned { args, tuning, base, entrants, notes })
}

/// The tuning for a task, whose type the visitor is called with.
struct Tuned<'a> {
    args: &'a TuneArgs,
    tuning: &'a Tuning<FinetuneConfig>,
    base: FinetuneConfig,
    entrants: Vec<Entrant<FinetuneConfig>>,
    notes: Vec<String>,
}

impl FinetunedVisitor for Tuned<'_> {
    type Output = Result<()>;

    fn visit<T: FinetuningTask>(self) -> Result<()> {
        let Self { args, tuning, base, entrants, notes } = self;
        let named = base.training.metric_for_best_model.as_deref();
        let metric = named.map_or(T::BEST, |name| name.strip_prefix("eval_").unwrap_or(name));
        let metric = format!("eval_{metric}");
        let labelled = Labelled::<T> { held: RefCell::new(None) };
        let job = Job { args, tuning, base, entrants, metric, command: "finetune", notes };
        job.run(&labelled, |_, _| Ok(()))
    }
}

/// Trains candidates on labelled examples.
struct Labelled<T: FinetuningTask> {
    /// The examples that were read last, with the configuration of their files: most candidates share them.
    held: RefCell<Option<(ClassifyData, Examples<T>)>>,
}

impl<T: FinetuningTask> Trainee<FinetuneConfig> for Labelled<T> {
    fn train(&self, config: &FinetuneConfig, trial: Trial, with: Equipment<'_>) -> Result<Trained> {
        let mut held = self.held.borrow_mut();
        let same = held.take().filter(|held| held.0 == config.data);
        let (_, examples) = if let Some(same) = same {
            held.insert(same)
        } else {
            let examples = Examples::<T>::read(config)?;
            with.progress.note_once(&examples.summary());
            examples.warning().into_iter().for_each(|text| with.progress.warn(text));
            held.insert((config.data.clone(), examples))
        };
        let folder = read_folder(&config.model)?;
        let seed = config.seeds.first().copied().unwrap_or(config.run.seed);
        let request =
            Request { trial: Some(trial), ..Request::from_finetune_config(config, seed, &Start::Again) };
        let drawn = examples.drawn(config, seed);
        let kind = drawn.as_ref().unwrap_or(examples).kind(config, &folder);
        let outcome =
            machine::in_pool(|| train::run::run(kind, &request, with.machine, with.progress, with.signals))?;
        let train::run::Outcome { end, step, planned_steps, results, .. } = outcome;
        Ok(Trained { end, step, planned_steps, results })
    }
}
