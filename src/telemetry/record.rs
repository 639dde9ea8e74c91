//! What training says of itself at one step; the sinks decide where it goes.

/// One observation of the run.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// Updates done.
    pub step: u64,
    /// Passes over the training data, with a fraction.
    pub epoch: f64,
    /// Tags and values. Tags are those of the Hugging Face Trainer (`train/loss`, `train/learning_rate`,
    /// `train/grad_norm`, `train/epoch`, `eval/loss`, ...); ours start with `perf/` or `cost/`.
    pub values: Vec<(String, f64)>,
}
