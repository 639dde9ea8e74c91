//! What a task of fine-tuning brings along; `list.rs` names them all.

use std::path::Path;

use anyhow::Result;
use candle_core::Device;

use crate::config::FinetuneConfig;
use crate::families::HeadKind;
use crate::interop::PretrainedFolder;
use crate::machine::Machine;
use crate::scores::Better;
use crate::scores::Outcomes;
use crate::tasks::Task;
use crate::tasks::planned::Planned;
use crate::tasks::run::Kind;
use crate::tasks::trained::Trained;

/// What a model has to beat.
#[derive(Debug, Clone, PartialEq)]
pub struct Floor {
    /// How it is made.
    pub name: &'static str,
    /// What it says of each evaluation example.
    pub outcomes: Outcomes,
}

/// A task that a pretrained encoder is fine-tuned for: its examples, which are read once for all seeds.
pub trait Finetuned: Sized + Sync {
    /// The head that it trains.
    const HEAD: HeadKind;

    /// The scores of a report, in its order: Trainer's name, the title of the column, and 100 for a share
    /// that is shown in percent.
    const COLUMNS: &'static [(&'static str, &'static str, f64)];

    /// The run of one seed.
    type Kind<'a>: Kind
    where
        Self: 'a;

    /// Reads and checks the examples.
    fn read(config: &FinetuneConfig) -> Result<Self>;

    /// One line of what was read.
    fn summary(&self) -> String;

    /// How many examples there are to train on.
    fn num_train(&self) -> usize;

    /// What a run from `folder` would read, without its weights. What is wrong with the lengths that are
    /// asked for is an error, as in a run.
    fn planned(&self, config: &FinetuneConfig, folder: &PretrainedFolder) -> Result<Planned>;

    /// The run of one seed from the encoder of `folder`.
    fn kind<'a>(&'a self, config: &'a FinetuneConfig, folder: &'a PretrainedFolder) -> Self::Kind<'a>;

    /// What a report says of the last evaluation of a run, beside its scores.
    fn details(&self, data: &<Self::Kind<'_> as Kind>::Data) -> String;

    /// The score that says which of two runs is better, as an evaluation names it, and which way.
    fn best(&self) -> (&'static str, Better);

    /// What the last evaluation of a run said of each example.
    fn outcomes(&self, data: &<Self::Kind<'_> as Kind>::Data) -> Outcomes;

    /// What is reached on these examples without a neural network, the best way last.
    fn floors(&self) -> Vec<Floor>;

    /// The task of a model folder, with values that are still to be read.
    fn unfilled(folder: &PretrainedFolder, machine: &Machine) -> Result<Box<dyn Task>>;

    /// The model of a folder that was trained for it.
    fn open(path: &Path, device: &Device) -> Result<Box<dyn Trained>>;
}
