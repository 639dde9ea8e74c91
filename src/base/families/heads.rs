//! What stands on top of an encoder, as model folders tell it.

/// What stands on top of an encoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeadKind {
    /// Nothing: hidden states only.
    None,
    /// A masked language model, its decoder tied to the word embedding.
    MaskedLm,
    /// One class for a sequence.
    SequenceClassification,
    /// Any number of labels for a sequence.
    MultiLabelClassification,
    /// Numbers for a sequence.
    Regression,
    /// One class for each token.
    TokenClassification,
    /// Whether each token was replaced: the discriminator of ELECTRA.
    ReplacedTokenDetection,
    /// A masked language model, and beside it one of two classes for a pair of segments.
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

    /// Whether its outputs have names, which are in `config.json`.
    pub fn has_labels(self) -> bool {
        self.is_of_sequences() || self == Self::TokenClassification
    }

    /// Whether it is a head of transformers' `ForSequenceClassification`.
    pub fn is_of_sequences(self) -> bool {
        matches!(self, Self::SequenceClassification | Self::MultiLabelClassification | Self::Regression)
    }

    /// `problem_type` of `config.json`, by which transformers tells heads of the same class apart.
    pub fn problem_type(self) -> Option<&'static str> {
        match self {
            Self::SequenceClassification => Some("single_label_classification"),
            Self::MultiLabelClassification => Some("multi_label_classification"),
            Self::Regression => Some("regression"),
            _ => None,
        }
    }

    /// The end of the name of transformers' class, behind the family's: `RobertaForMaskedLM`.
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
