//! The shape of an encoder, in the names of Hugging Face's `config.json`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::families::bounds::{MOST_INITIALIZER_RANGE, MOST_LAYER_NORM_EPS, ROPE_THETA};
use crate::families::{Family, PositionKind, PositionNorm, PositionScores};

/// Reduction of the hidden states of a text to one vector, for a classifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Pooling {
    /// The first token.
    Cls,
    /// The mean of all tokens.
    Mean,
}

/// Activation in feed-forward blocks and in the masked-LM head.
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
    #[schemars(range(max = 1 << 24))]
    pub vocab_size: usize,
    /// Width of the embeddings and of the masked-LM decoder (E), where a map to `hidden_size` follows them
    /// (ELECTRA, ALBERT); `hidden_size` when absent.
    #[schemars(range(min = 1, max = 1 << 16))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub embedding_size: Option<usize>,
    /// Width of every hidden state (D).
    #[schemars(range(min = 1, max = 1 << 16))]
    pub hidden_size: usize,
    /// Number of layers (L).
    #[schemars(range(min = 1, max = 1 << 10))]
    pub num_hidden_layers: usize,
    /// Number of attention heads (H); must divide `hidden_size`.
    #[schemars(range(min = 1, max = 1 << 16))]
    pub num_attention_heads: usize,
    /// Width between the two feed-forward products (F); NeoBERT takes two thirds of it, rounded up to a
    /// multiple of 8.
    #[schemars(range(min = 1, max = 1 << 18))]
    pub intermediate_size: usize,
    /// The activation of feed-forward blocks and of the masked-LM head.
    pub hidden_act: HiddenAct,
    /// Dropout on embeddings, attention output and feed-forward output.
    #[schemars(range(min = 0.0), example = 0.1, extend("exclusiveMaximum" = 1))]
    pub hidden_dropout_prob: f64,
    /// Dropout on attention probabilities; of ModernBERT on attention output, too.
    #[schemars(range(min = 0.0), example = 0.1, extend("exclusiveMaximum" = 1))]
    pub attention_probs_dropout_prob: f64,
    /// Dropout on embeddings, where it has a key of its own.
    #[schemars(range(min = 0.0), example = 0.1, extend("exclusiveMaximum" = 1))]
    pub embedding_dropout: f64,
    /// Dropout between the two feed-forward products.
    #[schemars(range(min = 0.0), example = 0.1, extend("exclusiveMaximum" = 1))]
    pub mlp_dropout: f64,
    /// Dropout before the classifier; `hidden_dropout_prob` when absent.
    #[schemars(range(min = 0.0), example = 0.1, extend("exclusiveMaximum" = 1))]
    pub classifier_dropout: Option<f64>,
    /// Reduction of a text to one vector, for a classifier.
    pub classifier_pooling: Pooling,
    /// Entries of the position embedding, of which RoBERTa can use two fewer; where positions are rotary, the
    /// longest sequence in tokens.
    #[schemars(range(min = 1, max = 1 << 20))]
    pub max_position_embeddings: usize,
    /// Tokens that a token of a local layer attends to, half of them to either side.
    #[schemars(range(min = 2, max = 1 << 20))]
    pub local_attention: usize,
    /// Every n-th layer, starting with the first, attends to all tokens; the others are local.
    #[schemars(range(min = 1, max = 1 << 10))]
    pub global_attn_every_n_layers: usize,
    /// Base of the rotary angles of layers that attend to all tokens.
    #[schemars(range(min = *ROPE_THETA.start(), max = *ROPE_THETA.end()))]
    pub global_rope_theta: f64,
    /// Base of the rotary angles of local layers.
    #[schemars(range(min = *ROPE_THETA.start(), max = *ROPE_THETA.end()))]
    pub local_rope_theta: f64,
    /// Rows of the table of relative positions to either side, the farther the more distances share one; 0
    /// for a row for each distance.
    #[schemars(range(max = 1 << 16))]
    pub position_buckets: usize,
    /// The distance from which on all relative positions are the same; 0 stands for
    /// `max_position_embeddings`.
    #[schemars(range(max = 1 << 20))]
    pub max_relative_positions: usize,
    /// Attention scores that use relative positions.
    pub pos_att_type: PositionScores,
    /// Projects relative positions by the linear layers of contents, not by layers of their own.
    pub share_att_key: bool,
    /// Norm after the table of relative positions.
    pub norm_rel_ebd: PositionNorm,
    /// Adds a position embedding to the input, in addition to relative positions.
    pub position_biased_input: bool,
    /// Runs the last layer of a masked language model twice, in a decoder with absolute positions.
    pub enhanced_mask_decoder: bool,
    /// Dropout before the pooler of a classifier, where it has a key of its own.
    #[schemars(range(min = 0.0), example = 0.1, extend("exclusiveMaximum" = 1))]
    pub pooler_dropout: f64,
    /// Entries of the token type embedding; of DeBERTa, 0 for none.
    #[schemars(range(max = 1 << 10))]
    pub type_vocab_size: usize,
    /// Added to the variance in LayerNorm.
    #[schemars(range(max = MOST_LAYER_NORM_EPS), example = 1e-5, extend("exclusiveMinimum" = 0))]
    pub layer_norm_eps: f64,
    /// Standard deviation of the initial weights; of NeoBERT the bound of their uniform distribution.
    #[schemars(range(max = MOST_INITIALIZER_RANGE), extend("exclusiveMinimum" = 0))]
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
    /// Sizes of every base model, with the numbers of BERT's paper and of transformers' classes.
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

    /// The feed-forward width of most families: `intermediate_size` itself.
    pub(super) const WIDTH_AS_GIVEN: fn(usize) -> usize = |intermediate_size| intermediate_size;

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

    /// Returns true if the buckets of relative positions reach from buckets of a single distance to the
    /// farthest distance.
    pub fn buckets_fit(&self) -> bool {
        match self.position_buckets {
            0 => true,
            buckets => buckets > 1 && self.farthest_position() > buckets / 2 + 1,
        }
    }

    /// The largest distance at which a token of this layer attends to others, on either side; `None` if it
    /// attends to all tokens.
    pub fn window(&self, layer: usize) -> Option<usize> {
        let is_global = layer.is_multiple_of(self.global_attn_every_n_layers);
        (!is_global).then_some(self.local_attention / 2)
    }
}

/// Dropout rates, by place in the model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Dropouts {
    /// After the embeddings.
    pub embeddings: f64,
    /// On the attention probabilities.
    pub attention_probabilities: f64,
    /// After the last linear layer of an attention block.
    pub attention_output: f64,
    /// Before the last linear layer of a feed-forward block.
    pub feed_forward_input: f64,
    /// After the last linear layer of a feed-forward block; 0 if dropout is applied before it.
    pub feed_forward_output: f64,
    /// Before the last linear layer of a token classifier.
    pub token_classifier: f64,
}

impl Dropouts {
    /// Dropout rates of BERT and of the families derived from it.
    pub(super) const BERT: fn(&EncoderConfig) -> Self = |shape| Self {
        embeddings: shape.hidden_dropout_prob,
        attention_probabilities: shape.attention_probs_dropout_prob,
        attention_output: shape.hidden_dropout_prob,
        feed_forward_input: 0.0,
        feed_forward_output: shape.hidden_dropout_prob,
        token_classifier: shape.classifier_dropout.unwrap_or(shape.hidden_dropout_prob),
    };
}

/// A family and the shape of its encoder, from which models are built.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelConfig {
    /// The family.
    pub family: Family,
    /// The encoder's shape.
    pub encoder: EncoderConfig,
}

/// Rows of the embeddings for padding: they start at zero and get no gradient.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PaddingRows {
    /// Row of the word embedding.
    pub word: Option<u32>,
    /// Row of the position embedding.
    pub position: Option<u32>,
}

impl ModelConfig {
    /// Width between the two linear layers of a feed-forward block (F).
    pub fn feed_forward_width(&self) -> usize {
        (self.family.feed_forward_width)(self.encoder.intermediate_size)
    }

    /// The embedding rows of the padding token.
    pub fn padding_rows(&self) -> PaddingRows {
        let word = Some(self.encoder.pad_token_id);
        PaddingRows { word, position: word.filter(|_| self.position_offset() > 0) }
    }

    /// The longest sequence that the model takes, in tokens.
    pub fn max_sequence_length(&self) -> usize {
        self.encoder.max_position_embeddings.saturating_sub(self.position_offset())
    }

    /// Row of the position embedding for the first token.
    pub fn position_offset(&self) -> usize {
        match self.family.positions {
            PositionKind::TableBehindPadding => self.encoder.pad_token_id as usize + 1,
            PositionKind::Table | PositionKind::Rotary | PositionKind::Relative => 0,
        }
    }
}
