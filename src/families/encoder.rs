//! The shape of an encoder, in the names of Hugging Face's `config.json`.

use schemars::JsonSchema;
use serde::Deserialize;
use serde::Serialize;

use crate::families::Family;

/// Everything that decides the tensors and the arithmetic of an encoder; defaults are RoBERTa-base's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EncoderConfig {
    /// Entries of the word embedding; 0 means "as many as the tokenizer has".
    pub vocab_size: usize,
    /// Width of the embeddings and of the masked-LM decoder (E), where a map to `hidden_size` follows them
    /// (ELECTRA); `hidden_size` when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub embedding_size: Option<usize>,
    /// Width of every hidden state (D).
    pub hidden_size: usize,
    /// Number of layers (L).
    pub num_hidden_layers: usize,
    /// Number of attention heads (H); must divide `hidden_size`.
    pub num_attention_heads: usize,
    /// Width between the two feed-forward products (F).
    pub intermediate_size: usize,
    /// Dropout on embeddings, attention output and feed-forward output.
    pub hidden_dropout_prob: f64,
    /// Dropout on attention probabilities.
    pub attention_probs_dropout_prob: f64,
    /// Dropout before the classifier; `hidden_dropout_prob` when absent.
    pub classifier_dropout: Option<f64>,
    /// Entries of the position embedding. RoBERTa can use two fewer than this.
    pub max_position_embeddings: usize,
    /// Entries of the token type embedding.
    pub type_vocab_size: usize,
    /// Added to the variance in LayerNorm.
    pub layer_norm_eps: f64,
    /// Standard deviation of the initial weights.
    pub initializer_range: f64,
    /// Id of the padding token; RoBERTa's first position is one past it.
    pub pad_token_id: u32,
}

impl Default for EncoderConfig {
    fn default() -> Self {
        Self::of(Family::ROBERTA)
    }
}

impl EncoderConfig {
    /// The sizes of every base model, with the numbers of BERT's paper and of transformers' classes.
    pub(super) const BASE: Self = Self {
        vocab_size: 0,
        embedding_size: None,
        hidden_size: 768,
        num_hidden_layers: 12,
        num_attention_heads: 12,
        intermediate_size: 3072,
        hidden_dropout_prob: 0.1,
        attention_probs_dropout_prob: 0.1,
        classifier_dropout: None,
        max_position_embeddings: 512,
        type_vocab_size: 2,
        layer_norm_eps: 1e-12,
        initializer_range: 0.02,
        pad_token_id: 0,
    };

    /// Width of the embeddings (E).
    pub fn embedding_width(&self) -> usize {
        self.embedding_size.unwrap_or(self.hidden_size)
    }

    /// Width of one attention head (K).
    pub fn head_size(&self) -> usize {
        self.hidden_size / self.num_attention_heads
    }
}

/// A family and its encoder: what models are built from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelConfig {
    /// The family.
    pub family: Family,
    /// The encoder's shape.
    pub encoder: EncoderConfig,
}

/// Rows of the embeddings that belong to padding: they start at zero and get no gradient.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PaddingRows {
    /// Row of the word embedding.
    pub word: Option<u32>,
    /// Row of the position embedding.
    pub position: Option<u32>,
}

impl ModelConfig {
    /// The rows that are padding.
    pub fn padding_rows(&self) -> PaddingRows {
        let word = Some(self.encoder.pad_token_id);
        PaddingRows { word, position: word.filter(|_| self.family.positions_follow_padding) }
    }

    /// The longest sequence that the position embedding can hold, in tokens.
    pub fn max_sequence_length(&self) -> usize {
        self.encoder.max_position_embeddings.saturating_sub(self.position_offset())
    }

    /// The row of the position embedding that the first token takes.
    pub fn position_offset(&self) -> usize {
        if self.family.positions_follow_padding { self.encoder.pad_token_id as usize + 1 } else { 0 }
    }
}
