//! Floating-point operations of a training step, from the configuration alone.

use crate::config::ModelConfig;

/// FLOPs of forward and backward over `tokens` tokens in segments of mean length `mean_length`, of which
/// `masked` reach the masked-LM head: `6 x encoder weights x tokens + 12 x L x tokens x length x D + 6 x head
/// weights x masked`.
pub fn masked_lm_step(config: &ModelConfig, tokens: f64, mean_length: f64, masked: f64) -> f64 {
    let shape = &config.encoder;
    let (d, f, l) =
        (shape.hidden_size as f64, shape.intermediate_size as f64, shape.num_hidden_layers as f64);
    let encoder_weights = l * (4.0 * d * d + 2.0 * d * f);
    let head_weights = d * d + d * shape.vocab_size as f64;
    6.0 * encoder_weights * tokens + 12.0 * l * tokens * mean_length * d + 6.0 * head_weights * masked
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::EncoderConfig;
    use crate::config::Family;

    #[test]
    fn roberta_base_at_8_by_128_takes_the_573_gflop_of_the_floor() {
        let encoder = EncoderConfig { vocab_size: 50_265, ..EncoderConfig::of(Family::Roberta) };
        let config = ModelConfig { family: Family::Roberta, encoder };
        let flops = masked_lm_step(&config, 1024.0, 128.0, 153.0);
        assert!((flops / 1e9 - 573.0).abs() < 6.0, "{}", flops / 1e9);
    }
}
