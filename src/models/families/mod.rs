//! What differs between families: names of parameters, padding rows, form of the heads.

mod bert;
mod roberta;

use crate::config::Family;
use crate::config::ModelConfig;
use crate::layers::Registry;
use crate::models::Encoder;
use crate::models::heads::masked_lm::MaskedLmHead;
use crate::models::heads::masked_lm::MaskedLmNames;
use crate::models::heads::sequence_classification::ClassificationHead;

/// Rows of the embeddings that belong to padding: they start at zero and get no gradient.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Padding {
    /// Row of the word embedding.
    pub word: Option<u32>,
    /// Row of the position embedding.
    pub position: Option<u32>,
}

/// First part of the encoder's parameter names.
pub fn prefix(family: Family) -> &'static str {
    match family {
        Family::Roberta => "roberta",
        Family::Bert => "bert",
    }
}

/// The padding rows of a model.
pub fn padding(config: &ModelConfig) -> Padding {
    let word = Some(config.encoder.pad_token_id);
    match config.family {
        Family::Roberta => Padding { word, position: word },
        Family::Bert => Padding { word, position: None },
    }
}

/// The masked-LM head of a family, its decoder tied to the word embedding.
pub fn masked_lm_head(registry: &mut Registry, config: &ModelConfig, encoder: &Encoder) -> MaskedLmHead {
    let names: MaskedLmNames = match config.family {
        Family::Roberta => roberta::MASKED_LM,
        Family::Bert => bert::MASKED_LM,
    };
    MaskedLmHead::new(registry, names, &config.encoder, encoder.embeddings.word)
}

/// The sequence classifier of a family.
pub fn classification_head(
    registry: &mut Registry,
    config: &ModelConfig,
    num_labels: usize,
) -> ClassificationHead {
    match config.family {
        Family::Roberta => roberta::classification_head(registry, &config.encoder, num_labels),
        Family::Bert => bert::classification_head(registry, &config.encoder, num_labels),
    }
}
