//! Shapes that have a name: what speed is measured on.
//!
//! `base` and `large` are RoBERTa's, those of the paper, `electra-small` and `electra-base` ELECTRA's,
//! `modernbert-base` ModernBERT's, `deberta-v3-base` DeBERTa's, `albert-base` ALBERT's, `mpnet-base`
//! MPNet's; `scripts/peer_pytorch.py` builds the same.

use crate::families::EncoderConfig;
use crate::families::Family;
use crate::families::ModelConfig;

/// The names, from small to large.
pub const MODEL_NAMES: [&str; 10] = [
    "tiny",
    "small",
    "base",
    "large",
    "electra-small",
    "electra-base",
    "modernbert-base",
    "deberta-v3-base",
    "albert-base",
    "mpnet-base",
];

/// The model of a name; `None` for any other word. All have heads of 64; RoBERTa's and ELECTRA's a
/// feed-forward of four times the width, 512 positions and dropout 0.1.
pub fn named_model(name: &str) -> Option<ModelConfig> {
    let (roberta, electra, modernbert) = (Family::ROBERTA, Family::ELECTRA, Family::MODERNBERT);
    let (family, vocab_size, embedding_size, hidden_size, num_hidden_layers) = match name {
        "tiny" => (roberta, 8192, None, 128, 2),
        "small" => (roberta, 30_522, None, 256, 12),
        "base" => (roberta, 50_265, None, 768, 12),
        "large" => (roberta, 50_265, None, 1024, 24),
        "electra-small" => (electra, 30_522, Some(128), 256, 12),
        "electra-base" => (electra, 30_522, None, 768, 12),
        "modernbert-base" => {
            return Some(ModelConfig { family: modernbert, encoder: modernbert.hub_defaults.clone() });
        }
        "deberta-v3-base" => {
            let family = Family::DEBERTA_V2;
            return Some(ModelConfig {
                family,
                encoder: EncoderConfig { vocab_size: 128_100, ..EncoderConfig::of(family) },
            });
        }
        "albert-base" => {
            let family = Family::ALBERT;
            return Some(ModelConfig {
                family,
                encoder: EncoderConfig { vocab_size: 30_000, ..EncoderConfig::of(family) },
            });
        }
        "mpnet-base" => {
            let family = Family::MPNET;
            return Some(ModelConfig {
                family,
                encoder: EncoderConfig { vocab_size: 30_527, ..EncoderConfig::of(family) },
            });
        }
        _ => return None,
    };
    let encoder = sized(family, num_hidden_layers, hidden_size, vocab_size);
    Some(ModelConfig { family, encoder: EncoderConfig { embedding_size, ..encoder } })
}

/// A RoBERTa, the family that most things are tried with first, in the usual proportions: heads of 64, and four
/// widths between the maps of a layer.
pub fn plain_model(num_hidden_layers: usize, hidden_size: usize, vocab_size: usize) -> ModelConfig {
    let family = Family::ROBERTA;
    ModelConfig { family, encoder: sized(family, num_hidden_layers, hidden_size, vocab_size) }
}

fn sized(family: Family, num_hidden_layers: usize, hidden_size: usize, vocab_size: usize) -> EncoderConfig {
    EncoderConfig {
        vocab_size,
        hidden_size,
        num_hidden_layers,
        num_attention_heads: hidden_size / 64,
        intermediate_size: 4 * hidden_size,
        ..EncoderConfig::of(family)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_a_model() {
        let widths = MODEL_NAMES.map(|name| named_model(name).unwrap().encoder.hidden_size);
        assert_eq!(widths, [128, 256, 768, 1024, 256, 768, 768, 768, 768, 768]);
        assert_eq!(
            named_model("base").unwrap().encoder,
            EncoderConfig { vocab_size: 50_265, ..EncoderConfig::default() }
        );
        assert_eq!(named_model("huge"), None);
    }
}
