//! The candidates of a tuning: configurations that differ in the values of the varied keys.
//!
//! Does not run anything; `trials` does.

mod space;
#[cfg(test)]
mod tests;

use std::path::Path;

use crate::axes::{Axis, SEEDS_KEY, SHARED, VariedBy};
use crate::kind::Kind;
use crate::load::Loaded;
use crate::overrides::Override;
use crate::shape::Shape;
use crate::tuning::space::{Choices, candidates};
use crate::{
    FinetuneConfig, PretrainConfig, RunSection, TrainingConfig, axes, detect_kind, load, tasks_file,
    variables,
};
use base::error::{Problem, Problems};

/// Largest number of candidates; more are a typing error.
const MOST_CANDIDATES: usize = 1_000;

/// The key that is varied if none is named.
const RATE_KEY: &str = "training.learning_rate";

/// Folder of the winner's own run, in the folder of the tuning.
const WINNER: &str = "best";

/// The origin of the values that a tuning gives the winner's configuration.
const ORIGIN: &str = "tune";

/// The default range of the learning rate ends at its value divided and multiplied by this.
const RATE_FACTOR: f64 = 10.0;

/// Keys that are the same for all candidates. The score of a candidate is that at the end of its steps, so
/// keys that choose another step are among them.
const COMMON: [&str; 7] = [
    "cache",
    "distributed",
    "training.max_train_time",
    "training.eval_steps",
    "training.early_stopping_patience",
    "training.metric_for_best_model",
    "training.load_best_model_at_end",
];

/// Further ones of fine-tuning, which choose the training examples.
const OF_FINETUNING: [&str; 3] = ["data.train_file", "data.max_train_samples", "data.nested_train_fractions"];

/// Further ones of pretraining. Losses are comparable only on the same tokens, masked in the same way.
const OF_PRETRAINING: [&str; 9] =
    ["run", "task", "precision", "data", "tokenizer", "mlm", "rtd", "evaluation", "decay_from"];

/// The flag in a tuning of fine-tuning.
const FINETUNING: VariedBy =
    VariedBy { flag: "--vary", name: "tuning", shared: &[&SHARED, &OF_FINETUNING, &COMMON] };

/// The flag in a tuning of pretraining.
const PRETRAINING: VariedBy = VariedBy { shared: &[&OF_PRETRAINING, &COMMON], ..FINETUNING };

/// The keys to vary, as the command line names them.
#[derive(Debug, Clone, Copy, Default)]
pub struct Vary<'a> {
    /// The texts after `--vary`: `learning_rate=1e-4..1e-2` or `weight_decay=0,0.1`.
    pub keys: &'a [String],
    /// The number of candidates where it is not given by lists.
    pub candidates: Option<usize>,
}

/// The configurations that are compared, by their kind.
#[derive(Debug, Clone)]
pub enum TuningPlan {
    /// Of `pretrain`.
    Pretrain(Box<Tuning<PretrainConfig>>),
    /// Of `finetune`.
    Finetune(Box<Tuning<FinetuneConfig>>),
}

/// A configuration and its variants.
#[derive(Debug, Clone)]
pub struct Tuning<C> {
    /// The configuration with its own values of the varied keys.
    pub base: C,
    /// Dotted paths of the varied keys.
    pub keys: Vec<String>,
    /// At least two; no two are the same.
    pub candidates: Vec<Candidate<C>>,
}

/// A value for each varied key.
#[derive(Debug, Clone)]
pub struct Candidate<C> {
    /// The values as text, in the order of [`Tuning::keys`].
    pub values: Vec<String>,
    /// The whole configuration, whose output folder is below that of the tuning.
    pub loaded: Loaded<C>,
}

/// Loads the configuration at `path` with the values of each candidate. Without keys to vary, those in the
/// table `sweep` of the file are taken, else the learning rate. Later overrides win.
pub fn load_tuning(path: &Path, overrides: &[Override], vary: Vary<'_>) -> Result<TuningPlan, Problems> {
    let root = load::read(path, overrides)?;
    if tasks_file::has_tasks(&root) {
        let problem = Problem::usage("holds the tasks of a comparison, and a configuration is tuned");
        let hint = "name a configuration of `pretrain` or of `finetune`";
        return Err(Problems(vec![problem.at(path.display()).hint(hint)]));
    }
    let kind = detect_kind::detect(&root);
    let shape = match kind {
        Kind::Pretrain => Shape::from_struct::<PretrainConfig>(),
        Kind::Finetune => Shape::from_struct::<FinetuneConfig>(),
    };
    let by = if matches!(kind, Kind::Pretrain) { &PRETRAINING } else { &FINETUNING };
    let written: Result<Vec<Axis>, Problem> =
        vary.keys.iter().map(|text| axes::written(text, &shape, by)).collect();
    let axes = match written {
        Ok(axes) if axes.is_empty() && matches!(kind, Kind::Finetune) => axes::in_file(&root, &shape, by),
        written => written,
    };
    let axes = axes.map_err(|problem| Problems(vec![problem]))?;
    let asked = Asked { axes, shape: &shape, candidates: vary.candidates, overrides };
    Ok(match kind {
        Kind::Pretrain => TuningPlan::Pretrain(Box::new(asked.tuning(
            |overrides| load::pretrain_of(Some((path, root.clone())), overrides),
            |config: &PretrainConfig| (&config.run, &config.training),
            pretraining_of_winner,
        )?)),
        Kind::Finetune => TuningPlan::Finetune(Box::new(asked.tuning(
            |overrides| load::finetune_of(Some((path, root.clone())), overrides),
            |config: &FinetuneConfig| (&config.run, &config.training),
            |config: &FinetuneConfig| vec![folder_of_winner(&config.run)],
        )?)),
    })
}

/// The varied keys of a tuning, before their values are chosen.
struct Asked<'a> {
    axes: Vec<Axis>,
    shape: &'a Shape,
    candidates: Option<usize>,
    overrides: &'a [Override],
}

impl Asked<'_> {
    /// Loads all candidates.
    fn tuning<C: PartialEq>(
        mut self,
        load: impl Fn(&[Override]) -> Result<Loaded<C>, Problems>,
        sections: impl Fn(&C) -> (&RunSection, &TrainingConfig),
        of_winner: impl Fn(&C) -> Vec<Override>,
    ) -> Result<Tuning<C>, Problems> {
        let base = load(self.overrides)?.config;
        let own = of_winner(&base);
        let (run, training) = sections(&base);
        if self.axes.is_empty() {
            self.axes.push(around(training.learning_rate));
        }
        let found = self.values(run.seed).map_err(|problem| Problems(vec![problem]))?;
        let mut candidates: Vec<Candidate<C>> = Vec::new();
        for values in found {
            let varied = self.axes.iter().zip(&values);
            let varied: Vec<Override> =
                varied.map(|(axis, value)| Override::placed(&axis.place, &axis.key, value)).collect();
            let loaded = load(&[self.overrides, &varied, &own].concat())?;
            let values: Vec<String> = values.into_iter().map(bare).collect();
            if let Some(same) = candidates.iter().find(|other| other.loaded.config == loaded.config) {
                let [same, other] = [&same.values, &values].map(|values| values.join(", "));
                let message = format!("`{same}` and `{other}` are the same candidate");
                let place = self.axes.last().map_or(FINETUNING.flag, |axis| &axis.place);
                return Err(Problems(vec![Problem::usage(message).at(place).hint("keep one of the two")]));
            }
            candidates.push(Candidate { values, loaded });
        }
        Ok(Tuning { base, keys: self.axes.into_iter().map(|axis| axis.key).collect(), candidates })
    }

    /// Returns the values of each candidate, as YAML.
    fn values(&self, seed: u64) -> Result<Vec<Vec<String>>, Problem> {
        for (at, axis) in self.axes.iter().enumerate() {
            if self.axes[..at].iter().any(|other| other.key == axis.key) {
                let problem = Problem::usage(format!("`{}` is varied twice", axis.key)).at(&axis.place);
                return Err(problem.hint("write all of its values after one key"));
            }
            if axis.key == SEEDS_KEY {
                let problem = Problem::usage("a seed is no setting that could be better than another");
                return Err(problem.at(&axis.place).hint("`finetune --seeds 1,2,3` shows how scores vary"));
            }
        }
        let choices: Result<Vec<Choices>, Problem> =
            self.axes.iter().map(|axis| Choices::read(axis, self.shape)).collect();
        let found = candidates(&choices?, self.candidates, seed);
        let place = self.axes.last().map_or(FINETUNING.flag, |axis| &axis.place);
        match found.len() {
            0 | 1 => Err(Problem::usage("gives one candidate, and at least two are compared")
                .at(place)
                .hint("name several values, or a range: `--vary learning_rate=1e-4..1e-2`")),
            many if many > MOST_CANDIDATES => {
                let message = format!("there are {many} candidates, the most is {MOST_CANDIDATES}");
                Err(Problem::usage(message).at(place).hint("`--settings 27` draws 27 of them"))
            }
            _ => Ok(found),
        }
    }
}

/// Returns the setting of a folder for the winner: next to the candidates, so that their table stays.
fn folder_of_winner(run: &RunSection) -> Override {
    of_path("run.output_dir", &run.output_dir.join(WINNER))
}

/// Returns the settings of the winner of a tuning of pretraining: it trains on the data of the tuning.
fn pretraining_of_winner(config: &PretrainConfig) -> Vec<Override> {
    let data =
        config.data.prepared_dir.is_none().then(|| of_path("data.prepared_dir", &config.prepared_dir()));
    [folder_of_winner(&config.run)].into_iter().chain(data).collect()
}

fn of_path(key: &str, path: &Path) -> Override {
    Override::flag(ORIGIN, key, variables::escaped(&path.display().to_string()))
}

/// Returns the range around a learning rate.
fn around(rate: f64) -> Axis {
    let [low, high] = [rate / RATE_FACTOR, rate * RATE_FACTOR].map(|end| space::text(space::rounded(end)));
    let place = format!("{} {RATE_KEY}", FINETUNING.flag);
    Axis { key: RATE_KEY.to_string(), place, values: vec![format!("{low}..{high}")] }
}

/// Removes the quotation marks of a text in YAML.
fn bare(value: String) -> String {
    serde_json::from_str(&value).unwrap_or(value)
}
