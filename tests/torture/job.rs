//! The kinds of run that are tortured: their configurations, their text, their command lines.
//!
//! It starts nothing.

use std::fs;
use std::path::Path;

use anyhow::Result;

use crate::material;

/// Steps of a run.
pub(crate) const STEPS: u64 = 50;

/// Steps from one checkpoint to the next, where a row wants no other cadence.
pub(crate) const SAVE_STEPS: u64 = 2;

/// A kind of run. All of them have fifty steps of a few thousand tokens, in a second or so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Job {
    /// A masked language model in f32.
    Pretrain,
    /// The same in bf16.
    Bf16,
    /// The same in f16, with a loss scale that grows.
    F16,
    /// LAMB, short rows first, and batches that grow.
    Lamb,
    /// Muon for the matrices of the layers.
    Muon,
    /// A causal phase, then a masking rate that falls; Lion, and an average of the weights.
    Causal,
    /// Two models in one run.
    Electra,
    /// A classifier.
    Finetune,
}

const PRETRAIN: &str = "\
run: {output_dir: run, seed: 7, threads: 1, tensorboard: true}
data:
  sources: [{files: [corpus.txt], document: paragraph}]
  validation_fraction: 0.1
  max_seq_length: 32
  prepared_dir: data
tokenizer: {vocab_size: 400}
model:
  roberta: {hidden_size: 32, num_hidden_layers: 2, num_attention_heads: 2, intermediate_size: 64, \
max_position_embeddings: 34}
training:
  per_device_train_batch_size: 8
  max_steps: 50
  learning_rate: 3.0e-3
  warmup_steps: 0.1
  weight_decay: 0.01
  logging_steps: 1
  eval_steps: 16
  save_steps: 2
  save_in_background: false
  save_total_limit: 2
";

const FINETUNE: &str = "\
run: {output_dir: run, seed: 7, threads: 1, tensorboard: true}
model: base
data: {train_file: train.csv, eval_file: dev.csv, max_seq_length: 32}
training:
  per_device_train_batch_size: 8
  max_steps: 50
  learning_rate: 5.0e-3
  warmup_steps: 0.1
  logging_steps: 1
  eval_steps: 16
  save_steps: 2
  save_in_background: false
  save_total_limit: 2
";

const ELECTRA: [&str; 3] = [
    "model={electra: {embedding_size: 24, hidden_size: 32, num_hidden_layers: 2, num_attention_heads: 2, \
     intermediate_size: 64}}",
    "tokenizer.algorithm=wordpiece",
    "data.prepared_dir=data-electra",
];

const LAMB: [&str; 5] = [
    "training.optim=lamb",
    "training.per_device_train_batch_size=4",
    "training.gradient_accumulation_steps=4",
    "training.phases=[{until_step: 20, max_seq_length: 16}]",
    "training.batch_size_ramp={start_micro_batches: 1, steps: 30}",
];

const CAUSAL: [&str; 5] = [
    "training.phases=[{until_step: 20, max_seq_length: 32, objective: causal}]",
    "mlm.mlm_probability_end=0.05",
    "training.optim=lion",
    "training.learning_rate=3e-4",
    "training.weight_average={decay: 0.9, start_step: 3, every: 2}",
];

impl Job {
    pub(crate) const ALL: [Self; 8] = [
        Self::Pretrain,
        Self::Bf16,
        Self::F16,
        Self::Lamb,
        Self::Muon,
        Self::Causal,
        Self::Electra,
        Self::Finetune,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Pretrain => "pretrain",
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
            Self::Lamb => "lamb",
            Self::Muon => "muon",
            Self::Causal => "causal",
            Self::Electra => "electra",
            Self::Finetune => "finetune",
        }
    }

    /// The command line without the changes of a row.
    pub(crate) fn arguments(self) -> Vec<&'static str> {
        let mut arguments = match self {
            Self::Finetune => vec!["finetune", "--task", "classify", "--config", "finetune.yaml"],
            _ => vec!["pretrain", "--config", "config.yaml"],
        };
        arguments.extend(self.sets().iter().flat_map(|set| ["--set", set]));
        arguments
    }

    fn sets(self) -> &'static [&'static str] {
        match self {
            Self::Pretrain | Self::Finetune => &[],
            Self::Bf16 => &["precision.compute=bf16"],
            Self::F16 => &[
                "precision.compute=f16",
                "precision.loss_scale.init_scale=1024",
                "precision.loss_scale.growth_interval=4",
            ],
            Self::Lamb => &LAMB,
            Self::Muon => &["training.optim=muon"],
            Self::Causal => &CAUSAL,
            Self::Electra => &ELECTRA,
        }
    }
}

/// Puts the text and the configurations of all kinds of run into `folder`.
pub(crate) fn write_material(folder: &Path) -> Result<()> {
    fs::write(folder.join("corpus.txt"), material::corpus(400))?;
    fs::write(folder.join("config.yaml"), PRETRAIN)?;
    fs::write(folder.join("finetune.yaml"), FINETUNE)?;
    fs::write(folder.join("train.csv"), material::examples(160))?;
    fs::write(folder.join("dev.csv"), material::examples(40))?;
    Ok(())
}
