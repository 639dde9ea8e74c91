//! The request for a run: its configuration, its folder and its start.

use std::path::Path;

use crate::train::checkpoint_files::Resumed;
use crate::train::probe::Probe;
use crate::train::resume::Start;
use crate::train::trial::Trial;
use config::{FinetuneConfig, LossBand, PrecisionConfig, PretrainConfig, RunSection, TrainingConfig};

/// The configuration of a run, as a whole and by sections, and what is not in a configuration.
pub struct Request<'a, C> {
    /// The whole configuration, as it is saved and compared on resume.
    pub config: &'a C,
    /// Folder, seeds, devices and limits of the run.
    pub run: &'a RunSection,
    /// Batch, optimizer, schedule, cadence.
    pub training: &'a TrainingConfig,
    /// Number types of the computation.
    pub precision: &'a PrecisionConfig,
    /// Tokens of a row, unless a phase sets another number.
    pub max_seq_length: usize,
    /// Folder of this run.
    pub output: &'a Path,
    /// Seed of this run.
    pub seed: u64,
    /// The start of the run: afresh or from a checkpoint.
    pub start: &'a Start,
    /// An additional measurement of the weights during training.
    pub probe: Option<&'a dyn Probe>,
    /// The expected band of the loss.
    pub loss_band: Option<&'a LossBand>,
    /// A checkpoint of another run to start from, until this run has saved one.
    pub parent: Option<&'a Resumed>,
    /// Another number of steps, and the step at which this sitting pauses.
    pub trial: Option<Trial>,
}

impl<'a> Request<'a, PretrainConfig> {
    /// A pretraining run.
    pub fn from_pretrain_config(config: &'a PretrainConfig, start: &'a Start) -> Self {
        Self {
            config,
            run: &config.run,
            training: &config.training,
            precision: &config.precision,
            max_seq_length: config.data.max_seq_length,
            output: &config.run.output_dir,
            seed: config.run.seed,
            start,
            probe: None,
            loss_band: None,
            parent: None,
            trial: None,
        }
    }
}

impl<'a> Request<'a, FinetuneConfig> {
    /// A fine-tuning run with one seed.
    pub fn from_finetune_config(config: &'a FinetuneConfig, seed: u64, start: &'a Start) -> Self {
        Self {
            config,
            run: &config.run,
            training: &config.training,
            precision: &config.precision,
            max_seq_length: config.data.sequence_length(),
            output: &config.run.output_dir,
            seed,
            start,
            probe: None,
            loss_band: None,
            parent: None,
            trial: None,
        }
    }
}
