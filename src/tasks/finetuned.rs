//! The interface of a fine-tuning task. `list.rs` lists all of them.

use std::path::Path;

use anyhow::Result;
use candle_core::Device;

use crate::config::FinetuneConfig;
use crate::families::HeadKind;
use crate::interop::PretrainedFolder;
use crate::machine::Machine;
use crate::scores::{Better, Outcomes};
use crate::tasks::Task;
use crate::tasks::planned::Planned;
use crate::tasks::run::Kind;
use crate::tasks::trained::Trained;

/// A baseline without a neural network that a model has to beat.
#[derive(Debug, Clone, PartialEq)]
pub struct Floor {
    /// Name of the baseline, as reports print it.
    pub name: &'static str,
    /// Its result on each evaluation example.
    pub outcomes: Outcomes,
}

/// A task that a pretrained encoder is fine-tuned for, with its examples, which are read once for all seeds.
pub trait Finetuned: Sized + Sync {
    /// The head that the task trains.
    const HEAD: HeadKind;

    /// The score columns of a report, in order: name of the score in the Trainer of transformers, title of
    /// the column, and the factor of the printed value (100 for a share printed in percent).
    const COLUMNS: &'static [(&'static str, &'static str, f64)];

    /// The fine-tuning run of one seed.
    type Kind<'a>: Kind
    where
        Self: 'a;

    /// Reads and checks the examples.
    fn read(config: &FinetuneConfig) -> Result<Self>;

    /// Returns a line that summarises the examples.
    fn summary(&self) -> String;

    /// Returns a warning about evaluation texts that are training texts as well.
    fn warning(&self) -> Option<&str>;

    /// Returns the number of training examples.
    fn num_train(&self) -> usize;

    /// Returns what a run starting from `folder` would read, without loading the weights. Invalid lengths in
    /// the configuration are an error, as in a run.
    fn planned(&self, config: &FinetuneConfig, folder: &PretrainedFolder) -> Result<Planned>;

    /// Returns the run of one seed, starting from the encoder of `folder`.
    fn kind<'a>(&'a self, config: &'a FinetuneConfig, folder: &'a PretrainedFolder) -> Self::Kind<'a>;

    /// Returns text about the last evaluation of a run that a report prints in addition to the scores.
    fn details(&self, data: &<Self::Kind<'_> as Kind>::Data) -> String;

    /// Returns the score by which the better of two runs is chosen, as an evaluation names it, and if higher
    /// or lower is better.
    fn best(&self) -> (&'static str, Better);

    /// Returns the result of each example in the last evaluation of a run.
    fn outcomes(&self, data: &<Self::Kind<'_> as Kind>::Data) -> Outcomes;

    /// Returns the baselines on these examples that need no neural network, the best one last.
    fn floors(&self) -> Vec<Floor>;

    /// Builds the task of a model folder, without reading the values of its parameters.
    fn unfilled(folder: &PretrainedFolder, machine: &Machine) -> Result<Box<dyn Task>>;

    /// Opens the model of a folder that was trained for this task.
    fn open(path: &Path, device: &Device) -> Result<Box<dyn Trained>>;
}
