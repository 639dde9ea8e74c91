//! What a model is trained for, by name.

use clap::ValueEnum;
use schemars::JsonSchema;
use serde::Deserialize;
use serde::Serialize;

use crate::families::Family;

/// What `pretrain` trains for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum PretrainTask {
    /// Finding masked tokens again.
    #[default]
    MaskedLm,
    /// Telling the tokens that a generator put in from the original ones (ELECTRA).
    ReplacedTokenDetection,
    /// Finding masked tokens again, and telling whether the second of two segments follows the first (BERT).
    NextSentencePrediction,
    /// Finding masked tokens again, and telling whether two segments that follow each other were swapped
    /// (ALBERT).
    SentenceOrderPrediction,
}

/// What the second class of a pair of segments is; of the first, the second segment follows the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SentencePairs {
    /// The second segment is one of another document.
    NextSentence,
    /// The two segments are swapped.
    SentenceOrder,
}

impl PretrainTask {
    /// The pairs of segments that it is about, where it is.
    pub fn sentence_pairs(self) -> Option<SentencePairs> {
        match self {
            Self::MaskedLm | Self::ReplacedTokenDetection => None,
            Self::NextSentencePrediction => Some(SentencePairs::NextSentence),
            Self::SentenceOrderPrediction => Some(SentencePairs::SentenceOrder),
        }
    }

    /// What models of a family are pretrained for unless a configuration says otherwise.
    pub fn of(family: Family) -> Self {
        let is_usual = family.replaced_tokens.is_some_and(|form| form.is_usual);
        if is_usual { Self::ReplacedTokenDetection } else { Self::MaskedLm }
    }
}

/// What `finetune` trains for.
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

/// How many labels an example has, by the names of transformers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProblemType {
    /// One of several.
    SingleLabelClassification,
    /// Any number of them, none included.
    MultiLabelClassification,
}

/// What is learnt of each example: `task` and `problem_type` together.
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
}
