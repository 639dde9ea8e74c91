//! The tasks of pretraining and fine-tuning.

use clap::ValueEnum;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use base::families::Family;
use base::scores::Metric;

/// Task of `pretrain`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum PretrainTask {
    /// Predict masked tokens.
    #[default]
    MaskedLm,
    /// Detect the tokens that a generator replaced (ELECTRA).
    ReplacedTokenDetection,
    /// Finding masked tokens again, and telling whether the second of two segments follows the first (BERT).
    NextSentencePrediction,
    /// Finding masked tokens again, and telling whether two segments that follow each other were swapped
    /// (ALBERT).
    SentenceOrderPrediction,
}

/// The second class of pairs of segments. In the first class, the second segment follows the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SentencePairs {
    /// The second segment is from another document.
    NextSentence,
    /// The two segments are swapped.
    SentenceOrder,
}

impl PretrainTask {
    /// Returns the kind of pairs of segments, if the task is about pairs.
    pub fn sentence_pairs(self) -> Option<SentencePairs> {
        match self {
            Self::MaskedLm | Self::ReplacedTokenDetection => None,
            Self::NextSentencePrediction => Some(SentencePairs::NextSentence),
            Self::SentenceOrderPrediction => Some(SentencePairs::SentenceOrder),
        }
    }

    /// Returns the default task for a family.
    pub fn of(family: Family) -> Self {
        let is_usual = family.replaced_tokens.is_some_and(|form| form.is_usual);
        if is_usual { Self::ReplacedTokenDetection } else { Self::MaskedLm }
    }
}

/// Task of `finetune`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum FinetuneTask {
    /// A label for each text, or pair of texts, or any number of them (`problem_type`).
    #[default]
    Classify,
    /// A number, or several, for each text, or pair of texts.
    Regression,
    /// A tag for each word of a sentence, such as the entities of a text.
    TokenClassify,
}

impl FinetuneTask {
    /// The name in configurations and on the command line.
    pub fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_string()).unwrap_or_default()
    }
}

/// How many labels an example has, by the names of transformers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProblemType {
    /// One of several.
    SingleLabelClassification,
    /// Any number of them, none included.
    MultiLabelClassification,
}

/// Goal of fine-tuning: `task` and `problem_type` together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Goal {
    /// One label.
    Label,
    /// Any number of labels.
    LabelSet,
    /// Numbers.
    Numbers,
    /// A tag for each word.
    Tags,
}

impl Goal {
    /// Every goal.
    pub const ALL: [Self; 4] = [Self::Label, Self::LabelSet, Self::Numbers, Self::Tags];

    /// The goal of a task.
    pub fn new(task: FinetuneTask, problem_type: Option<ProblemType>) -> Self {
        match (task, problem_type) {
            (FinetuneTask::Classify, Some(ProblemType::MultiLabelClassification)) => Self::LabelSet,
            (FinetuneTask::Classify, _) => Self::Label,
            (FinetuneTask::Regression, _) => Self::Numbers,
            (FinetuneTask::TokenClassify, _) => Self::Tags,
        }
    }

    /// The scores by which models can be compared; the first is the default.
    pub fn metrics(self) -> &'static [Metric] {
        match self {
            Self::Label => Metric::OF_LABELS,
            Self::LabelSet => Metric::OF_LABEL_SETS,
            Self::Numbers => Metric::OF_NUMBERS,
            Self::Tags => Metric::OF_ENTITIES,
        }
    }
}
