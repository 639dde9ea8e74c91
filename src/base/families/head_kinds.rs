//! Heads of encoders, as model folders name them.

/// Kind of head on top of an encoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeadKind {
    /// No head: hidden states only.
    None,
    /// A masked language model.
    MaskedLm,
    /// One class per sequence.
    SequenceClassification,
    /// Any number of labels per sequence.
    MultiLabelClassification,
    /// Numbers per sequence.
    Regression,
    /// One class per token.
    TokenClassification,
    /// A decision for each token if it was replaced: the discriminator of ELECTRA.
    ReplacedTokenDetection,
    /// A masked language model, and in addition one of two classes for a pair of segments.
    SentencePairs,
}

impl HeadKind {
    /// Every kind.
    pub const ALL: [Self; 8] = [
        Self::None,
        Self::MaskedLm,
        Self::SequenceClassification,
        Self::MultiLabelClassification,
        Self::Regression,
        Self::TokenClassification,
        Self::ReplacedTokenDetection,
        Self::SentencePairs,
    ];

    /// Returns true if its outputs have names, which are stored in `config.json`.
    pub fn has_labels(self) -> bool {
        self.is_of_sequences() || self == Self::TokenClassification
    }

    /// Returns true if transformers has it in `ForSequenceClassification`.
    pub fn is_of_sequences(self) -> bool {
        matches!(self, Self::SequenceClassification | Self::MultiLabelClassification | Self::Regression)
    }

    /// `problem_type` of `config.json`, by which transformers distinguishes heads of the same class.
    pub fn problem_type(self) -> Option<&'static str> {
        match self {
            Self::SequenceClassification => Some("single_label_classification"),
            Self::MultiLabelClassification => Some("multi_label_classification"),
            Self::Regression => Some("regression"),
            _ => None,
        }
    }

    /// End of the name of transformers' class, after the name of the family: `RobertaForMaskedLM`.
    pub fn class_suffix(self) -> &'static str {
        match self {
            Self::None => "Model",
            Self::MaskedLm => "ForMaskedLM",
            Self::SequenceClassification | Self::MultiLabelClassification | Self::Regression => {
                "ForSequenceClassification"
            }
            Self::TokenClassification => "ForTokenClassification",
            Self::ReplacedTokenDetection | Self::SentencePairs => "ForPreTraining",
        }
    }
}
