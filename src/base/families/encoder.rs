//! The shape of an encoder, in the names of Hugging Face's `config.json`.

use schemars::JsonSchema;
use serde::Deserialize;
use serde::Serialize;

use crate::families::Family;
use crate::families::PositionKind;
use crate::families::PositionNorm;
use crate::families::PositionScores;

/// What a classifier makes one vector of, for each text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Pooling {
    /// The first token.
    Cls,
    /// The mean of all tokens.
    Mean,
}

/// What stands between the two maps of a feed-forward block, and in the masked-LM head.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HiddenAct {
    /// GELU, erf form.
    Gelu,
    /// GELU, tanh form.
    GeluNew,
}

/// Everything that decides the tensors and the arithmetic of an encoder; defaults are RoBERTa-base's. A
/// family has some of the keys, and calls some of them by names of its own: see [`Family::key`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EncoderConfig {
    /// Entries of the word embedding; 0 means "as many as the tokenizer has".
    pub vocab_size: usize,
    /// Width of the embeddings and of the masked-LM decoder (E), where a map to `hidden_size` follows them
    /// (ELECTRA, ALBERT); `hidden_size` when absent.
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
    /// The activation of feed-forward blocks and of the masked-LM head.
    pub hidden_act: HiddenAct,
    /// Dropout on embeddings, attention output and feed-forward output.
    pub hidden_dropout_prob: f64,
    /// Dropout on attention probabilities; of ModernBERT on attention output, too.
    pub attention_probs_dropout_prob: f64,
    /// Dropout on embeddings, where it has a key of its own.
    pub embedding_dropout: f64,
    /// Dropout between the two feed-forward products.
    pub mlp_dropout: f64,
    /// Dropout before the classifier; `hidden_dropout_prob` when absent.
    pub classifier_dropout: Option<f64>,
    /// What a classifier sees of a text.
    pub classifier_pooling: Pooling,
    /// Entries of the position embedding, of which RoBERTa can use two fewer; where positions are rotary, the
    /// longest sequence in tokens.
    pub max_position_embeddings: usize,
    /// Tokens that a token of a local layer attends to, half of them to either side.
    pub local_attention: usize,
    /// One layer in so many attends to all tokens, the first one among them; the others are local.
    pub global_attn_every_n_layers: usize,
    /// Base of the rotary angles of layers that attend to all tokens.
    pub global_rope_theta: f64,
    /// Base of the rotary angles of local layers.
    pub local_rope_theta: f64,
    /// Rows of the table of relative positions to either side, the farther the more distances share one; 0
    /// for a row for each distance.
    pub position_buckets: usize,
    /// The distance from which on all relative positions are the same; 0 stands for
    /// `max_position_embeddings`.
    pub max_relative_positions: usize,
    /// Which scores of attention know relative positions.
    pub pos_att_type: PositionScores,
    /// Whether relative positions are projected by the maps of contents, not by maps of their own.
    pub share_att_key: bool,
    /// What stands behind the table of relative positions.
    pub norm_rel_ebd: PositionNorm,
    /// Whether a position embedding is added to the input beside relative positions.
    pub position_biased_input: bool,
    /// Whether a masked language model runs its last layer twice, in a decoder that is told absolute positions.
    pub enhanced_mask_decoder: bool,
    /// Dropout before the pooler of a classifier, where it has a key of its own.
    pub pooler_dropout: f64,
    /// Entries of the token type embedding; of DeBERTa, 0 for none.
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
        hidden_act: HiddenAct::Gelu,
        hidden_dropout_prob: 0.1,
        attention_probs_dropout_prob: 0.1,
        embedding_dropout: 0.0,
        mlp_dropout: 0.0,
        classifier_dropout: None,
        classifier_pooling: Pooling::Cls,
        max_position_embeddings: 512,
        local_attention: 128,
        global_attn_every_n_layers: 3,
        global_rope_theta: 160_000.0,
        local_rope_theta: 10_000.0,
        position_buckets: 0,
        max_relative_positions: 0,
        pos_att_type: PositionScores::None,
        share_att_key: false,
        norm_rel_ebd: PositionNorm::None,
        position_biased_input: true,
        enhanced_mask_decoder: false,
        pooler_dropout: 0.0,
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

    /// The distance from which on all relative positions are the same.
    pub fn farthest_position(&self) -> usize {
        match self.max_relative_positions {
            0 => self.max_position_embeddings,
            farthest => farthest,
        }
    }

    /// Whether buckets of relative positions grow from those of one distance each to the farthest.
    pub fn buckets_fit(&self) -> bool {
        match self.position_buckets {
            0 => true,
            buckets => buckets > 1 && self.farthest_position() > buckets / 2 + 1,
        }
    }

    /// The farthest that a token of a layer attends to either side; `None` where it attends to all.
    pub fn window(&self, layer: usize) -> Option<usize> {
        let is_global = layer.is_multiple_of(self.global_attn_every_n_layers);
        (!is_global).then_some(self.local_attention / 2)
    }
}

/// Where a model drops values, and how many of them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Dropouts {
    /// Behind the embeddings.
    pub embeddings: f64,
    /// Of the attention probabilities.
    pub attention_probabilities: f64,
    /// Behind the last map of an attention block.
    pub attention_output: f64,
    /// Before the last map of a feed-forward block.
    pub feed_forward_input: f64,
    /// Behind the last map of a feed-forward block; 0 where values are dropped before it.
    pub feed_forward_output: f64,
    /// Before the last map of a token classifier.
    pub token_classifier: f64,
}

impl Dropouts {
    /// Those of BERT and what descends from it.
    pub(super) const BERT: fn(&EncoderConfig) -> Self = |shape| Self {
        embeddings: shape.hidden_dropout_prob,
        attention_probabilities: shape.attention_probs_dropout_prob,
        attention_output: shape.hidden_dropout_prob,
        feed_forward_input: 0.0,
        feed_forward_output: shape.hidden_dropout_prob,
        token_classifier: shape.classifier_dropout.unwrap_or(shape.hidden_dropout_prob),
    };
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
        PaddingRows { word, position: word.filter(|_| self.position_offset() > 0) }
    }

    /// The longest sequence that the model takes, in tokens.
    pub fn max_sequence_length(&self) -> usize {
        self.encoder.max_position_embeddings.saturating_sub(self.position_offset())
    }

    /// The row of the position embedding that the first token takes.
    pub fn position_offset(&self) -> usize {
        match self.family.positions {
            PositionKind::TableBehindPadding => self.encoder.pad_token_id as usize + 1,
            PositionKind::Table | PositionKind::Rotary | PositionKind::Relative => 0,
        }
    }
}
