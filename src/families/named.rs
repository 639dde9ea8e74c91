//! Four shapes of RoBERTa that have a name: what speed is measured on.
//!
//! `base` and `large` are those of the paper; `scripts/peer_pytorch.py` builds the same four.

use crate::families::EncoderConfig;
use crate::families::Family;
use crate::families::ModelConfig;

/// The names, from small to large.
pub const MODEL_NAMES: [&str; 4] = ["tiny", "small", "base", "large"];

/// The model of a name; `None` for any other word. All have heads of 64, a feed-forward of four times the
/// width, 512 positions and dropout 0.1.
pub fn named_model(name: &str) -> Option<ModelConfig> {
    let (vocab_size, hidden_size, num_hidden_layers) = match name {
        "tiny" => (8192, 128, 2),
        "small" => (30_522, 256, 12),
        "base" => (50_265, 768, 12),
        "large" => (50_265, 1024, 24),
        _ => return None,
    };
    let encoder = EncoderConfig {
        vocab_size,
        hidden_size,
        num_hidden_layers,
        num_attention_heads: hidden_size / 64,
        intermediate_size: 4 * hidden_size,
        ..EncoderConfig::of(Family::ROBERTA)
    };
    Some(ModelConfig { family: Family::ROBERTA, encoder })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_a_model() {
        let widths = MODEL_NAMES.map(|name| named_model(name).unwrap().encoder.hidden_size);
        assert_eq!(widths, [128, 256, 768, 1024]);
        assert_eq!(
            named_model("base").unwrap().encoder,
            EncoderConfig { vocab_size: 50_265, ..EncoderConfig::default() }
        );
        assert_eq!(named_model("huge"), None);
    }
}
