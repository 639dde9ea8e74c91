//! Named shapes of models, for measurements of speed.
//!
//! `tiny`, `small`, `base` and `large` are RoBERTa models; `base` and `large` are those of the paper. Other
//! families have a `-small` and a `-base`. Every `-base` is the published model. Every small model has 12
//! layers (DistilBERT 6) of width 256 and a vocabulary of 30,522. `scripts/peer_pytorch.py` builds the same
//! models.

use crate::families::{EncoderConfig, Family, ModelConfig};

/// Names of all shapes, from small to large, family by family.
pub const MODEL_NAMES: [&str; 18] = [
    "tiny",
    "small",
    "base",
    "large",
    "electra-small",
    "electra-base",
    "distilbert-small",
    "distilbert-base",
    "modernbert-small",
    "modernbert-base",
    "deberta-v3-small",
    "deberta-v3-base",
    "albert-small",
    "albert-base",
    "mpnet-small",
    "mpnet-base",
    "neobert-small",
    "neobert-base",
];

/// Vocabulary of the small models.
const SMALL_VOCABULARY: usize = 30_522;

/// The model with this name; `None` for an unknown name. All models have attention heads of size 64, 512
/// positions (ModernBERT 8,192, NeoBERT 4,096), and dropout 0.1 (ModernBERT, ALBERT and NeoBERT none).
pub fn named_model(name: &str) -> Option<ModelConfig> {
    match name {
        "tiny" => return Some(plain_model(2, 128, 8192)),
        "small" => return Some(plain_model(12, 256, SMALL_VOCABULARY)),
        "base" => return Some(plain_model(12, 768, 50_265)),
        "large" => return Some(plain_model(24, 1024, 50_265)),
        _ => {}
    }
    let (family_name, size) = name.rsplit_once('-')?;
    let (family, vocab_size) = match family_name {
        "electra" => (Family::ELECTRA, 30_522),
        "distilbert" => (Family::DISTILBERT, 30_522),
        "modernbert" => (Family::MODERNBERT, 50_368),
        "deberta-v3" => (Family::DEBERTA_V2, 128_100),
        "albert" => (Family::ALBERT, 30_000),
        "mpnet" => (Family::MPNET, 30_527),
        "neobert" => (Family::NEOBERT, 30_522),
        _ => return None,
    };
    let base = EncoderConfig { vocab_size, ..EncoderConfig::of(family) };
    let encoder = match size {
        "base" => base,
        "small" => EncoderConfig {
            vocab_size: SMALL_VOCABULARY,
            // The published small ELECTRA has embeddings of half the width.
            embedding_size: if family == Family::ELECTRA { Some(128) } else { base.embedding_size },
            hidden_size: 256,
            num_hidden_layers: base.num_hidden_layers.min(12),
            num_attention_heads: 4,
            intermediate_size: base.intermediate_size / 3,
            ..base
        },
        _ => return None,
    };
    Some(ModelConfig { family, encoder })
}

/// A RoBERTa model, the family that most things are tried with first, in the usual proportions: attention
/// heads of size 64, and a feed-forward width of four times the hidden size.
pub fn plain_model(num_hidden_layers: usize, hidden_size: usize, vocab_size: usize) -> ModelConfig {
    let family = Family::ROBERTA;
    let encoder = EncoderConfig {
        vocab_size,
        hidden_size,
        num_hidden_layers,
        num_attention_heads: hidden_size / 64,
        intermediate_size: 4 * hidden_size,
        ..EncoderConfig::of(family)
    };
    ModelConfig { family, encoder }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_a_model() {
        let shapes = MODEL_NAMES.map(|name| {
            let shape = named_model(name).unwrap().encoder;
            assert_eq!(shape.num_attention_heads * 64, shape.hidden_size, "{name}");
            (shape.num_hidden_layers, shape.hidden_size, shape.intermediate_size)
        });
        let [small, base] = [(12, 256, 1024), (12, 768, 3072)];
        assert_eq!(shapes[..6], [(2, 128, 512), small, base, (24, 1024, 4096), small, base]);
        assert_eq!(shapes[6..10], [(6, 256, 1024), (6, 768, 3072), (12, 256, 384), (22, 768, 1152)]);
        assert_eq!(shapes[10..16], [small, base, small, base, small, base]);
        assert_eq!(shapes[16..], [small, (28, 768, 3072)]);
        assert_eq!(
            named_model("base").unwrap().encoder,
            EncoderConfig { vocab_size: 50_265, ..EncoderConfig::default() }
        );
        for name in ["huge", "electra", "electra-huge", "bart-base"] {
            assert_eq!(named_model(name), None, "{name}");
        }
    }
}
