//! The section `training`: batch, optimizer, schedule, and intervals of logging, evaluation and checkpoints.
//! Names and defaults are those of Hugging Face's `TrainingArguments`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::batch_size::BatchSize;
use crate::batching::BatchSizeRamp;
use crate::checkpointing::GradientCheckpointing;
use crate::class_weights::ClassWeights;
use crate::frozen_layers::FrozenLayers;
use crate::muon::MuonConfig;
use crate::on_resume::OnResume;
use crate::phases::{PhaseObjective, TrainingPhase};
use crate::weight_average::WeightAverage;

/// How gradients become updates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OptimizerType {
    /// Adam with decoupled weight decay, as `torch.optim.AdamW` (Hugging Face's `adamw_torch`).
    Adamw,
    /// LAMB: Adam with the decay in the update, each tensor's update scaled to the tensor's own norm; for
    /// batches of thousands of rows. Wants a `weight_decay`; its recipes set `adam_epsilon: 1.0e-6`.
    Lamb,
    /// Lion: the sign of a momentum, so that each weight moves by the learning rate; half the state of
    /// `adamw`. Wants a third to a tenth of its learning rate, and a `weight_decay` larger by as much;
    /// `adam_beta2: 0.99` is usual.
    Lion,
    /// StableAdamW: `adamw` with a lower learning rate for each tensor whose gradients are larger than its
    /// second moment expects, against loss spikes (Hugging Face's `stable_adamw`).
    StableAdamw,
    /// Muon for the matrices of the layers: a momentum made orthogonal, with half the state of `adamw`;
    /// `adamw` for embeddings, heads, norms and biases. Takes more operations, so it wants updates of many
    /// tokens.
    Muon,
}

/// Shape of the learning rate over the steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SchedulerType {
    /// Warm-up, then a straight line to zero.
    Linear,
    /// Warm-up, then half a cosine to zero.
    Cosine,
    /// No warm-up, no decay.
    Constant,
    /// Warm-up, then constant.
    ConstantWithWarmup,
    /// Warm-up, then `(1 - progress)^lr_power`, with progress from 0 where the warm-up ends to 1.
    Polynomial,
    /// Warm-up, constant, then a decay over the last `lr_decay_steps`.
    WarmupStableDecay,
}

/// The curve of the decay of `warmup_stable_decay`, as `get_wsd_schedule` of transformers calls it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DecayType {
    /// A straight line.
    #[serde(rename = "linear")]
    Linear,
    /// Half a cosine.
    #[serde(rename = "cosine")]
    Cosine,
    /// `1 - sqrt(progress)`: quick at first, then slower and slower.
    #[serde(rename = "1-sqrt")]
    OneMinusSqrt,
}

/// The optimizer, its schedule, the batch, and when to evaluate, save and stop.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TrainingConfig {
    /// Rows (pretraining: packed rows of `max_seq_length` tokens; fine-tuning: examples) a device takes at
    /// once. `auto`: as many as memory has room for, by prediction, in as many micro-batches as
    /// `train_batch_size` then needs. Pretraining from random weights: 4,096 tokens.
    #[schemars(extend(
        "x-on-resume" = OnResume::Split,
        "x-other-names" = ["per_gpu_train_batch_size"],
        "x-foreign-names" = [
            "batch_size",
            "train_batch_size_per_device",
            "micro_batch_size",
            "device_train_microbatch_size",
        ],
    ))]
    pub per_device_train_batch_size: BatchSize,
    /// Rows of an update over all devices and micro-batches, given with `per_device_train_batch_size: auto`
    /// only; else they are that number times `gradient_accumulation_steps`.
    #[schemars(
        range(min = 1, max = 1 << 24),
        extend(
            "x-on-resume" = OnResume::Split,
            "x-foreign-names" = ["global_batch_size"],
            "x-foreign-hint" = ", with `per_device_train_batch_size: auto`",
        ),
    )]
    pub train_batch_size: Option<usize>,
    /// Rows a device takes at once in evaluation.
    #[schemars(
        range(min = 1),
        extend(
            "x-on-resume" = OnResume::Cadence,
            "x-decides-losses" = false,
            "x-other-names" = ["per_gpu_eval_batch_size"],
            "x-foreign-names" = ["eval_batch_size"],
        ),
    )]
    pub per_device_eval_batch_size: usize,
    /// Micro-batches whose gradients are added before one update.
    #[schemars(
        range(min = 1, max = 1 << 20),
        extend(
            "x-on-resume" = OnResume::Split,
            "x-foreign-names" = ["accumulate_grad_batches", "grad_accumulation"],
        ),
    )]
    pub gradient_accumulation_steps: usize,
    /// Save only the input of each layer and compute the rest again in backward (its other name:
    /// `activation_checkpointing`). It takes far less memory and about a third more time; no number changes.
    /// `auto`: where a step would not fit into memory otherwise, by prediction.
    #[schemars(extend("x-on-resume" = OnResume::Free, "x-other-names" = ["activation_checkpointing"]))]
    pub gradient_checkpointing: GradientCheckpointing,
    /// Another objective, other rows, learning rates, positions or data for the first steps, such as short
    /// sequences before long ones; needs `max_steps`.
    pub phases: Vec<TrainingPhase>,
    /// Fewer micro-batches at the beginning; needs `max_steps`.
    pub batch_size_ramp: BatchSizeRamp,
    /// Passes over the training data; ignored when `max_steps` is given.
    #[schemars(extend(
        "x-on-resume" = OnResume::Length,
        "x-foreign-names" = ["epochs", "num_epochs", "max_epochs", "n_epochs"],
    ))]
    pub num_train_epochs: f64,
    /// Updates in all; -1 means "as `num_train_epochs` says", 0 writes the model as it begins.
    #[schemars(extend(
        "x-on-resume" = OnResume::Length,
        "x-foreign-names" = ["steps", "num_steps", "total_steps", "max_train_steps"],
    ))]
    pub max_steps: i64,
    /// Wall-clock budget such as `4m` or `24h`, evaluations included; training ends with a checkpoint when it
    /// is used up.
    #[schemars(extend("x-on-resume" = OnResume::Cadence, "x-decides-losses" = false))]
    pub max_train_time: Option<String>,
    /// The optimizer. `weight_decay` and `adam_*` hold for each, but `lion` has no `adam_epsilon` and no
    /// `adam_bias_correction`.
    #[schemars(extend("x-foreign-names" = ["optimizer"]))]
    pub optim: OptimizerType,
    /// Peak learning rate. Pretraining from random weights: by the model's width, about 1e-3; a tenth of that
    /// for `lion`; for `lamb` give one.
    #[schemars(extend("exclusiveMinimum" = 0, "x-foreign-names" = ["lr", "max_lr", "peak_lr"]))]
    pub learning_rate: f64,
    /// Shape of the learning rate.
    #[schemars(extend("x-foreign-names" = ["lr_scheduler", "scheduler", "schedule"]))]
    pub lr_scheduler_type: SchedulerType,
    /// Steps of linear warm-up; a value below 1 is a share of all steps (its other name: `warmup_ratio`).
    /// Pretraining from random weights: 0.05.
    #[schemars(extend(
        "x-other-names" = ["warmup_ratio"],
        "x-foreign-names" = ["warmup", "warmup_fraction", "num_warmup_steps"],
        "x-foreign-hint" = "; below 1 it is a share",
    ))]
    pub warmup_steps: f64,
    /// Steps of the final decay of `warmup_stable_decay`; a value below 1 is a share of all steps.
    #[schemars(extend(
        "x-only-with" = ["training.lr_scheduler_type", "warmup_stable_decay"],
        "x-foreign-names" = ["num_decay_steps", "decay_steps", "lr_scheduler_kwargs"],
        "x-foreign-hint" = ", `decay_type` and `min_lr_ratio`, or `lr_power`",
    ))]
    pub lr_decay_steps: f64,
    /// Curve of the decay of `warmup_stable_decay`.
    #[schemars(extend("x-only-with" = ["training.lr_scheduler_type", "warmup_stable_decay"]))]
    pub decay_type: DecayType,
    /// Share of the peak at which `warmup_stable_decay` begins its warm-up and ends its decay.
    #[schemars(
        range(min = 0.0),
        example = 0.1,
        extend(
            "exclusiveMaximum" = 1,
            "x-only-with" = ["training.lr_scheduler_type", "warmup_stable_decay"],
        ),
    )]
    pub min_lr_ratio: f64,
    /// Exponent of `polynomial`.
    #[schemars(extend(
        "exclusiveMinimum" = 0,
        "x-only-with" = ["training.lr_scheduler_type", "polynomial"],
    ))]
    pub lr_power: f64,
    /// Weight decay of all weights but biases and LayerNorm: part of the update for `lamb`, decoupled for all
    /// others. Pretraining from random weights: 0.01; 0.1 for `lion`.
    #[schemars(range(min = 0.0))]
    pub weight_decay: f64,
    /// Decay of the first moment; for `lion`, of the momentum whose sign is taken.
    #[schemars(range(min = 0.0), example = 0.9, extend("exclusiveMaximum" = 1))]
    pub adam_beta1: f64,
    /// Decay of the second moment; for `lion`, of the momentum that is kept. Pretraining from random weights:
    /// 0.98; 0.99 for `lion`.
    #[schemars(range(min = 0.0), example = 0.999, extend("exclusiveMaximum" = 1))]
    pub adam_beta2: f64,
    /// Added to the root of the second moment; the papers on LAMB use 1e-6.
    #[schemars(
        example = 1e-8,
        extend(
            "exclusiveMinimum" = 0,
            "x-only-with" = ["training.optim", "adamw", "lamb", "stable_adamw", "muon"],
            "x-foreign-names" = ["eps", "epsilon"],
        ),
    )]
    pub adam_epsilon: f64,
    /// Correct the moments for their beginning at zero. BERT's and ELECTRA's own code does not.
    #[schemars(extend("x-only-with" = ["training.optim", "adamw", "lamb", "stable_adamw", "muon"]))]
    pub adam_bias_correction: bool,
    /// `optim: muon`: the momentum and the update of matrices.
    #[schemars(extend("x-only-with" = ["training.optim", "muon"]))]
    pub muon: MuonConfig,
    /// Each layer below the head learns at this share of the rate of the one above it (ELECTRA fine-tunes
    /// with 0.8); 1 for one rate. The head has the full rate, the last layer its square, as in ELECTRA's
    /// code.
    #[schemars(
        range(max = 1.0),
        example = 0.8,
        extend("exclusiveMinimum" = 0, "x-foreign-names" = ["layer_wise_lr_decay", "llrd"]),
    )]
    pub layerwise_lr_decay: f64,
    /// Fine-tuning: peak learning rate of the head, which is new; `learning_rate` when absent.
    #[schemars(extend(
        "exclusiveMinimum" = 0,
        "x-foreign-names" = ["classifier_learning_rate", "head_lr", "classifier_lr"],
    ))]
    pub head_learning_rate: Option<f64>,
    /// Fine-tuning: the embeddings and this many layers above them keep their values: no update, no moments,
    /// no gradient; `embeddings` for these alone, 0 for nothing. The norm that ModernBERT's next layer begins
    /// with counts as part of the layer before it.
    #[schemars(extend(
        "x-foreign-names" = ["freeze_layers", "freeze_embeddings", "freeze_encoder", "num_frozen_layers"],
        "x-foreign-hint" = ": a number of layers, or `embeddings`",
    ))]
    pub frozen_layers: FrozenLayers,
    /// `classify`: what the training loss of an example is multiplied by: `balanced`, or a table with a
    /// number for every label; without the key all labels weigh 1. The loss is divided by the number of
    /// examples; that of evaluations has no weights.
    #[schemars(extend(
        "x-foreign-names" = ["class_weight"],
        "x-foreign-hint" = ": `balanced`, or a number for each label",
    ))]
    pub class_weights: Option<ClassWeights>,
    /// `classify`: the share of each target that all labels have alike in training; 0 turns it off.
    #[schemars(
        range(min = 0.0),
        example = 0.1,
        extend("exclusiveMaximum" = 1, "x-foreign-names" = ["label_smoothing"]),
    )]
    pub label_smoothing_factor: f64,
    /// The global gradient norm is cut to this; 0 turns clipping off.
    #[schemars(
        range(min = 0.0),
        extend("x-foreign-names" = ["gradient_clipping", "grad_clip", "clip_grad", "clip_grad_norm"]),
    )]
    pub max_grad_norm: f64,
    /// A step whose loss is this many standard deviations (robust: of the median) above the median of the
    /// latest 128 is bad, as is one whose loss or gradient norm is not finite, which is skipped. After ten
    /// bad steps in a row training goes back to a checkpoint and past their data. 0 looks for values that are
    /// not finite only.
    #[schemars(range(min = 0.0))]
    pub loss_spike_threshold: f64,
    /// Average the weights over the steps, as in `{decay: 0.999}`; the average is what is evaluated and what
    /// the folders of models hold. Nothing is averaged when absent.
    #[schemars(extend(
        "x-foreign-names" = ["ema", "use_ema", "ema_decay", "model_ema", "model_ema_decay"],
        "x-foreign-hint" = ": `{decay: 0.999}`",
    ))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight_average: Option<WeightAverage>,
    /// Steps between two log records; the first and the last step are logged, too. A run of fewer steps than
    /// this logs about ten times.
    #[schemars(
        range(min = 1),
        extend("x-on-resume" = OnResume::Cadence, "x-foreign-names" = ["logging_strategy"]),
    )]
    pub logging_steps: u64,
    /// Steps between two evaluations; 0 means only at the end.
    #[schemars(extend(
        "x-on-resume" = OnResume::Cadence,
        "x-decides-losses" = false,
        "x-foreign-names" = ["eval_strategy", "evaluation_strategy"],
        "x-foreign-hint" = "; 0 evaluates only at the end",
    ))]
    pub eval_steps: u64,
    /// Steps between two checkpoints; 0 means only at the end.
    #[schemars(extend(
        "x-on-resume" = OnResume::Cadence,
        "x-decides-losses" = false,
        "x-foreign-names" = ["save_strategy"],
        "x-foreign-hint" = "; 0 saves only at the end",
    ))]
    pub save_steps: u64,
    /// Write checkpoints while training continues, from a copy of weights and moments in memory; if twice as
    /// much as that is not free, or with `false`, training waits. A run that is killed in the meantime
    /// continues from the checkpoint before; one that is asked to stop saves first in either case.
    #[schemars(extend("x-on-resume" = OnResume::Free))]
    pub save_in_background: bool,
    /// Checkpoints kept, newest first; the best one is kept, too. At least 1.
    #[schemars(range(min = 1), extend("x-on-resume" = OnResume::Free))]
    pub save_total_limit: usize,
    /// Bytes that all checkpoints together may take, such as `20GB`; the oldest go first. The newest, the
    /// best and the newest that was due by `save_steps` stay even where they take more, and while one is
    /// written it comes on top.
    #[schemars(range(min = 1), extend("x-on-resume" = OnResume::Free))]
    pub save_total_bytes: Option<u64>,
    /// Evaluations without improvement after which training stops; absent means never.
    #[schemars(
        range(min = 1),
        extend("x-on-resume" = OnResume::Cadence, "x-foreign-names" = ["early_stopping", "patience"]),
    )]
    pub early_stopping_patience: Option<u32>,
    /// The score that says which evaluation is best, with or without `eval_`: any that evaluations write; the
    /// task's own (such as `accuracy` or `loss`) when absent. Errors and losses are better the lower they
    /// are, all others the higher.
    pub metric_for_best_model: Option<String>,
    /// Put the best checkpoint's weights into the final model folder instead of the last one's.
    #[schemars(extend("x-on-resume" = OnResume::Cadence, "x-decides-losses" = false))]
    pub load_best_model_at_end: bool,
}

impl TrainingConfig {
    /// Returns the rows per device and micro-batch; all rows of an update as long as `auto` is not resolved.
    pub fn rows_at_once(&self) -> usize {
        match self.per_device_train_batch_size {
            BatchSize::Rows(rows) => rows,
            BatchSize::Auto => self.train_batch_size.unwrap_or(1),
        }
    }

    /// Returns the phase of the step after `steps_done`; `None` after the last phase.
    pub fn phase_at(&self, steps_done: u64) -> Option<&TrainingPhase> {
        self.phases.iter().find(|phase| steps_done < phase.until_step)
    }

    /// Returns the number of steps at the beginning that predict each token from those before it.
    pub fn causal_steps(&self) -> u64 {
        let causal = self.phases.iter().take_while(|phase| phase.objective == PhaseObjective::Causal);
        causal.last().map_or(0, |phase| phase.until_step)
    }

    /// Returns the changes of a value over the steps: the number of steps that are done when it changes, and
    /// the new value. The first entry is that of step 0. `value_of` returns the value in a phase (`None`
    /// after the last one).
    pub fn changes<T: PartialEq>(&self, value_of: impl Fn(Option<&TrainingPhase>) -> T) -> Vec<(u64, T)> {
        let begins = self.phases.iter().map(|phase| phase.until_step);
        let mut changes: Vec<(u64, T)> = vec![(0, value_of(self.phase_at(0)))];
        for steps_done in begins {
            let value = value_of(self.phase_at(steps_done));
            if changes.last().is_none_or(|(_, before)| *before != value) {
                changes.push((steps_done, value));
            }
        }
        changes
    }

    /// Returns the rows of an update, without regard to phases and the ramp.
    pub fn rows_per_update(&self) -> usize {
        self.rows_at_once().saturating_mul(self.gradient_accumulation_steps)
    }
}

impl Default for TrainingConfig {
    fn default() -> Self {
        Self {
            per_device_train_batch_size: BatchSize::Rows(8),
            train_batch_size: None,
            per_device_eval_batch_size: 8,
            gradient_accumulation_steps: 1,
            gradient_checkpointing: GradientCheckpointing::Auto,
            phases: Vec::new(),
            batch_size_ramp: BatchSizeRamp::default(),
            num_train_epochs: 3.0,
            max_steps: -1,
            max_train_time: None,
            optim: OptimizerType::Adamw,
            learning_rate: 5e-5,
            lr_scheduler_type: SchedulerType::Linear,
            warmup_steps: 0.0,
            lr_decay_steps: 0.1,
            decay_type: DecayType::Cosine,
            min_lr_ratio: 0.0,
            lr_power: 1.0,
            weight_decay: 0.0,
            adam_beta1: 0.9,
            adam_beta2: 0.999,
            adam_epsilon: 1e-8,
            adam_bias_correction: true,
            muon: MuonConfig::default(),
            layerwise_lr_decay: 1.0,
            head_learning_rate: None,
            frozen_layers: FrozenLayers::Layers(0),
            class_weights: None,
            label_smoothing_factor: 0.0,
            max_grad_norm: 1.0,
            loss_spike_threshold: 10.0,
            weight_average: None,
            logging_steps: 500,
            eval_steps: 500,
            save_steps: 500,
            save_in_background: true,
            save_total_limit: 3,
            save_total_bytes: None,
            early_stopping_patience: None,
            metric_for_best_model: None,
            load_best_model_at_end: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value_at;

    #[test]
    fn equal_phases_are_not_a_change() {
        let phases =
            [(10, 64), (20, 64), (30, 128)].map(|(until, length)| TrainingPhase::of_length(until, length));
        let training = TrainingConfig { phases: phases.to_vec(), ..TrainingConfig::default() };
        let lengths = training.changes(|phase| phase.map_or(256, |phase| phase.max_seq_length));
        assert_eq!(lengths, [(0, 64), (20, 128), (30, 256)]);
        let found = [0, 19, 20, 29, 30, u64::MAX].map(|step| *value_at(&lengths, step));
        assert_eq!(found, [64, 64, 128, 128, 256, 256]);
    }
}
