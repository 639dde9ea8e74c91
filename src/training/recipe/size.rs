//! The model sizes that a recipe chooses from, with the vocabulary, dropout and masking share for each.

use base::families::{EncoderConfig, Family, ModelConfig};

/// Row length in tokens for most of the training: attention over longer rows costs more and is no better at
/// the beginning (BERT trains nine tenths of its steps with 128 tokens).
pub const SHORT_LENGTH: usize = 128;

/// Vocabulary sizes from small to large; multiples of 64, which suit matrix units.
const VOCABULARIES: [usize; 5] = [4_096, 8_192, 16_384, 32_768, 50_048];

/// Width of an attention head.
const HEAD_SIZE: usize = 64;

/// Standard deviation of the initial weights of a narrow model, which learns sooner from larger weights.
const NARROW_RANGE: f64 = 0.05;

/// Least number of tokens of text per vocabulary entry: the embedding of a rarer entry learns little.
const TEXT_TOKENS_PER_ENTRY: f64 = 500.0;

/// Depth and width of an encoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Number of layers (L).
    pub layers: usize,
    /// Hidden size (D).
    pub hidden: usize,
}

impl Size {
    /// All sizes, the smallest first. Each has two to four times the parameters of the previous one.
    pub const ALL: [Self; 8] = [
        Self { layers: 2, hidden: 128 },
        Self { layers: 3, hidden: 192 },
        Self { layers: 4, hidden: 256 },
        Self { layers: 6, hidden: 384 },
        Self { layers: 8, hidden: 512 },
        Self { layers: 12, hidden: 512 },
        Self { layers: 12, hidden: 768 },
        Self { layers: 24, hidden: 1024 },
    ];

    /// Number of parameters of the layers, without the embeddings: 12 D² for each layer. Attention has four
    /// D×D matrices, the feed-forward network a D×4D and a 4D×D matrix.
    pub fn layer_parameters(self) -> u64 {
        (12 * self.layers * self.hidden * self.hidden) as u64
    }

    /// Vocabulary size for a text of about `text_tokens` tokens: the largest whose embedding has no more
    /// parameters than the layers, and whose entries appear often enough in the text.
    pub fn vocab_size(self, text_tokens: f64) -> usize {
        VOCABULARIES
            .into_iter()
            .rfind(|&vocab_size| {
                (vocab_size * self.hidden) as u64 <= self.layer_parameters()
                    && vocab_size as f64 * TEXT_TOKENS_PER_ENTRY <= text_tokens
            })
            .unwrap_or(VOCABULARIES[0])
    }

    /// Returns a model of this size and family for rows of `max_seq_length` tokens, with heads of 64 and the
    /// family's own ratio of feed-forward to hidden size.
    pub fn model(self, family: Family, vocab_size: usize, max_seq_length: usize) -> ModelConfig {
        let usual = EncoderConfig::of(family);
        let encoder = EncoderConfig {
            vocab_size,
            hidden_size: self.hidden,
            embedding_size: usual.embedding_size.map(|_| self.hidden),
            num_hidden_layers: self.layers,
            num_attention_heads: self.hidden / HEAD_SIZE,
            intermediate_size: usual.intermediate_size * self.hidden / usual.hidden_size,
            position_buckets: usual.position_buckets.min(max_seq_length),
            hidden_dropout_prob: usual.hidden_dropout_prob.min(self.dropout()),
            attention_probs_dropout_prob: usual.attention_probs_dropout_prob.min(self.dropout()),
            initializer_range: if self.hidden < 256 { NARROW_RANGE } else { usual.initializer_range },
            ..usual
        };
        let model = ModelConfig { family, encoder };
        let max_position_embeddings = max_seq_length + model.position_offset();
        ModelConfig { family, encoder: EncoderConfig { max_position_embeddings, ..model.encoder } }
    }

    /// Dropout probability of hidden states and attention.
    pub fn dropout(self) -> f64 {
        if self.hidden < 512 { 0.0 } else { 0.1 }
    }

    /// Share of the tokens to mask and predict: wide models learn more from more targets (Wettig et al.
    /// 2023).
    pub fn mlm_probability(self) -> f64 {
        match self.hidden {
            ..384 => 0.15,
            384..768 => 0.2,
            _ => 0.3,
        }
    }
}
