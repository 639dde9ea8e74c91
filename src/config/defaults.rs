//! Defaults of pretraining that depend on the model and the steps. Hugging Face's are meant for fine-tuning:
//! with them a model with random weights learns hardly anything.

use serde_json::Value as Json;

use crate::muon::AdjustLrFn;
use crate::pretrain::PretrainConfig;
use crate::task::PretrainTask;
use crate::training::{OptimizerType, SchedulerType, TrainingConfig};
use base::families::ModelConfig;

/// Keys that set the rows of an update.
const BATCH: [&str; 2] = ["per_device_train_batch_size", "gradient_accumulation_steps"];

/// Share of the steps over which the learning rate rises.
pub const WARMUP_SHARE: f64 = 0.05;

/// Weight decay of pretraining.
pub const WEIGHT_DECAY: f64 = 0.01;

/// Decay of the second moment, that of RoBERTa: gradients of early steps say little about later ones.
pub const ADAM_BETA2: f64 = 0.98;

/// Lion's learning rate as a share of that of AdamW (section 5 of its paper).
const LION_SHARE: f64 = 0.1;

/// Lion's weight decay: that of AdamW, larger by as much as its learning rate is smaller.
const LION_WEIGHT_DECAY: f64 = 0.1;

/// The decay of Lion's momentum in its paper.
const LION_BETA2: f64 = 0.99;

/// Tokens of an update in a training of [`TOKENS_OF_SMALL_UPDATES`]. Updates grow with the square root of the
/// tokens of a training: larger ones save no steps (Zhang et al. 2024, arXiv:2410.21676).
const SMALL_UPDATE_TOKENS: f64 = 4096.0;
const TOKENS_OF_SMALL_UPDATES: f64 = 1.6e7;
const LARGEST_UPDATE_TOKENS: f64 = 524_288.0;

/// Tokens of a micro-batch: enough to keep a device busy, and few enough for its memory.
const MICRO_BATCH_TOKENS: usize = 4096;

/// Tokens for each parameter of the layers in a training whose length is not known.
const USUAL_TOKENS_PER_PARAMETER: f64 = 20.0;

/// A key below `training` that was not given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Derived {
    /// The key, without `training.`.
    pub key: &'static str,
    /// The reason of its value, such as `width 768`.
    pub from: String,
}

/// Peak learning rate of AdamW for a model with random weights: 1e-3 for a width of 256, otherwise inversely
/// proportional to the square root of the width; half of it for replaced-token detection.
pub fn learning_rate(hidden_size: usize, task: PretrainTask) -> f64 {
    let of_256 = if task == PretrainTask::ReplacedTokenDetection { 0.5e-3 } else { 1e-3 };
    let exact = of_256 * (256.0 / hidden_size as f64).sqrt();
    // Two significant digits: the rule is not more exact.
    (exact * 1e5).round() / 1e5
}

/// Number of rows in an update, a power of two, for a training of `training_tokens` in rows of
/// `max_seq_length` tokens.
pub fn update_rows(training_tokens: f64, max_seq_length: usize) -> usize {
    let wanted = SMALL_UPDATE_TOKENS * (training_tokens / TOKENS_OF_SMALL_UPDATES).sqrt();
    let tokens = wanted.clamp(SMALL_UPDATE_TOKENS, LARGEST_UPDATE_TOKENS);
    2_f64.powf((tokens / max_seq_length as f64).log2().round()).max(1.0) as usize
}

/// Number of tokens of a training with `steps` updates of [`update_rows`].
fn tokens_of_steps(steps: f64) -> f64 {
    // steps * 4096 * sqrt(tokens / 1.6e7) = tokens, solved for the tokens.
    (steps * SMALL_UPDATE_TOKENS).powi(2) / TOKENS_OF_SMALL_UPDATES
}

/// Collects the keys that are not given.
struct Open<'a> {
    is_given: &'a dyn Fn(&str) -> bool,
    derived: Vec<Derived>,
}

impl Open<'_> {
    /// Returns true if none of `keys` is given.
    fn are(&self, keys: &[&str]) -> bool {
        keys.iter().all(|key| !(self.is_given)(&format!("training.{key}")))
    }

    /// Returns true, and collects the key, if it is not given.
    fn take(&mut self, key: &'static str, from: &str) -> bool {
        let is_open = self.are(&[key]);
        if is_open {
            self.derived.push(Derived { key, from: from.to_string() });
        }
        is_open
    }
}

impl PretrainConfig {
    /// Sets the keys of `training` that are not given to values for a model with random weights, and returns
    /// these keys with their reasons. A model that begins with the weights of a folder keeps Hugging Face's
    /// defaults. For a decay, only the keys are returned: [`keep_derived`] takes their values from the run of
    /// the checkpoint.
    #[must_use]
    pub(super) fn with_training_defaults(mut self, is_given: &dyn Fn(&str) -> bool) -> (Self, Vec<Derived>) {
        let mut open = Open { is_given, derived: Vec::new() };
        let has_folder = self.model.path.is_some();
        let model = self.model().filter(|model| !has_folder && model.encoder.hidden_size > 0);
        let Some(model) = model else { return (self, open.derived) };
        let is_batch_open = open.are(&BATCH) && open.are(&["train_batch_size", "phases", "batch_size_ramp"]);
        if self.decay_from.is_some() {
            let keys =
                ["weight_decay", "adam_beta2"].into_iter().chain(BATCH.into_iter().filter(|_| is_batch_open));
            for key in keys {
                open.take(key, "the run of the checkpoint");
            }
            return (self, open.derived);
        }
        let task = self.task();
        let max_seq_length = self.data.max_seq_length.max(1);
        let width = model.encoder.hidden_size;
        let training = &mut self.training;
        let is_lamb = training.optim == OptimizerType::Lamb;
        let is_other_muon =
            training.optim == OptimizerType::Muon && training.muon.adjust_lr_fn != AdjustLrFn::MatchRmsAdamw;
        let is_lion = training.optim == OptimizerType::Lion;
        let share = if is_lion { LION_SHARE } else { 1.0 };
        let of_lion = if is_lion { ", a tenth for Lion" } else { "" };
        if is_lamb || is_other_muon {
            open.take("learning_rate", "fine-tuning's: no rule is known for this optimizer, so give one");
        } else if open.take("learning_rate", &format!("width {width}{of_lion}")) {
            training.learning_rate = share * learning_rate(width, task);
        }
        let has_warmup = training.lr_scheduler_type != SchedulerType::Constant;
        if has_warmup && open.take("warmup_steps", "random weights") {
            training.warmup_steps = WARMUP_SHARE;
        }
        if open.take("weight_decay", "pretraining") {
            training.weight_decay = if is_lion { LION_WEIGHT_DECAY } else { WEIGHT_DECAY };
        }
        if !is_lamb && open.take("adam_beta2", "pretraining") {
            training.adam_beta2 = if is_lion { LION_BETA2 } else { ADAM_BETA2 };
        }
        if is_batch_open {
            let (tokens, from) = training_tokens(training.max_steps, &model);
            let rows = update_rows(tokens, max_seq_length);
            let most_at_once = 1 << (MICRO_BATCH_TOKENS / max_seq_length).max(1).ilog2();
            let rows_at_once = rows.min(most_at_once);
            training.per_device_train_batch_size = rows_at_once.into();
            training.gradient_accumulation_steps = rows.div_ceil(rows_at_once);
            for key in BATCH {
                open.take(key, &from);
            }
        }
        (self, open.derived)
    }
}

/// Number of tokens that a training takes, and the reason: by its steps if they are given (above 0), else by
/// the size of the model.
fn training_tokens(max_steps: i64, model: &ModelConfig) -> (f64, String) {
    if max_steps > 0 {
        return (tokens_of_steps(max_steps as f64), format!("{max_steps} steps"));
    }
    let layers = model.encoder.num_hidden_layers;
    let width = model.encoder.hidden_size;
    let parameters = 12.0 * layers as f64 * (width as f64).powi(2);
    (USUAL_TOKENS_PER_PARAMETER * parameters, format!("{layers} layers of width {width}"))
}

/// Sets the keys of `derived` to their values in a `saved` configuration, so that a resumed run continues as
/// it began.
pub fn keep_derived(training: &mut TrainingConfig, derived: &[Derived], saved: &Json) {
    let Ok(mut now) = serde_json::to_value(&*training) else { return };
    for Derived { key, .. } in derived {
        if let Some(value) = saved["training"].get(key) {
            now[key] = value.clone();
        }
    }
    if let Ok(kept) = serde_json::from_value(now) {
        *training = kept;
    }
}

impl Derived {
    /// The key, its value in `training`, and the reason if it has a number.
    fn describe(&self, training: &Json) -> String {
        let Self { key, from } = self;
        let value = &training[key];
        if from.contains(|c: char| c.is_ascii_digit()) {
            format!("{key} {value} ({from})")
        } else {
            format!("{key} {value}")
        }
    }
}

/// A line with the keys of `derived`, their values and reasons; `None` without keys.
pub fn summary(training: &TrainingConfig, derived: &[Derived]) -> Option<String> {
    let training = serde_json::to_value(training).ok()?;
    let list: Vec<String> = derived.iter().map(|derived| derived.describe(&training)).collect();
    (!list.is_empty()).then(|| format!("defaults for this model: {}", list.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_follow_from_the_model_and_the_steps() {
        for (task, rates) in [
            (PretrainTask::MaskedLm, ["0.00141", "0.001", "0.00058", "0.0005"]),
            (PretrainTask::ReplacedTokenDetection, ["0.00071", "0.0005", "0.00029", "0.00025"]),
        ] {
            assert_eq!([128, 256, 768, 1024].map(|width| learning_rate(width, task).to_string()), rates);
        }
        assert_eq!([1e6, 1.6e7, 1e10, 1e13].map(|tokens| update_rows(tokens, 128)), [32, 32, 1024, 4096]);
        assert_eq!(update_rows(1e6, 8192), 1);
        for steps in [10_000.0, 100_000.0] {
            let rows = update_rows(tokens_of_steps(steps), 128) as f64;
            assert!((0.7..1.5).contains(&(rows * 128.0 / (1.0486 * steps))), "{steps}: {rows}");
        }
    }
}
