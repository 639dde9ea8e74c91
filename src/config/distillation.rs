//! Distillation: a classifier learns from its labels and from the probabilities of another classifier.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A teacher: a classifier from whose probabilities another one learns (Hinton, Vinyals and Dean, "Distilling
/// the Knowledge in a Neural Network", 2015).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Distillation {
    /// A model folder that was fine-tuned on the same labels; its tokenizer and family may be others. It
    /// predicts all training examples once, before the first step.
    #[schemars(
        length(min = 1),
        example = "runs/large/final",
        extend(
            "x-path" = true,
            "x-foreign-names" = ["teacher_model", "teacher_model_name_or_path", "teacher_name_or_path"],
        ),
    )]
    pub teacher: PathBuf,
    /// Share of the teacher in the loss; the rest is the loss of the labels.
    #[schemars(range(max = 1.0), extend("exclusiveMinimum" = 0))]
    #[serde(default = "usual_weight")]
    pub weight: f64,
    /// Divisor of the logits of both models. The larger it is, the more a model learns about classes
    /// that the teacher finds unlikely.
    #[schemars(extend("exclusiveMinimum" = 0))]
    #[serde(default = "usual_temperature")]
    pub temperature: f64,
}

fn usual_weight() -> f64 {
    0.5
}

fn usual_temperature() -> f64 {
    2.0
}
