//! ModernBERT: byte-level BPE, rotary positions, pre-norm blocks, gated feed-forward, no biases, and local
//! attention in two of three layers. arXiv:2412.13663; `modeling_modernbert.py` of transformers.

use crate::families::{
    AttentionNames, ClassificationNames, Constant, Descriptor, Dropouts, EncoderConfig, EncoderNames, Family,
    FeedForwardKind, HeadActivation, Initialisation, Keys, MaskedLmNames, NormKind, NormNames, PositionKind,
    SpecialNames, SpecialRole, TransformNames,
};

impl Family {
    /// ModernBERT.
    pub const MODERNBERT: Self = Self(&DESCRIPTOR);
}

static DESCRIPTOR: Descriptor = Descriptor {
    name: "modernbert",
    title: "ModernBERT",
    class: "ModernBert",
    own_classes: &[],
    other_classes: &[],
    prefix: "model",
    defaults: BASE,
    hub_defaults: EncoderConfig { vocab_size: 50_368, pad_token_id: 50_283, ..BASE },
    keys: Keys {
        renamed: &[("layer_norm_eps", "norm_eps"), ("attention_probs_dropout_prob", "attention_dropout")],
        own: &[
            "embedding_dropout",
            "mlp_dropout",
            "classifier_pooling",
            "local_attention",
            "global_attn_every_n_layers",
            "global_rope_theta",
            "local_rope_theta",
        ],
        absent: &["embedding_size", "hidden_dropout_prob", "type_vocab_size"],
        constants: &[
            ("hidden_activation", Constant::Text("gelu")),
            ("classifier_activation", Constant::Text("gelu")),
            ("attention_bias", Constant::Flag(false)),
            ("mlp_bias", Constant::Flag(false)),
            ("norm_bias", Constant::Flag(false)),
            ("classifier_bias", Constant::Flag(false)),
            ("decoder_bias", Constant::Flag(true)),
        ],
    },
    positions: PositionKind::Rotary,
    has_biases: false,
    norm: NormKind::LayerNorm,
    feed_forward: FeedForwardKind::Geglu,
    feed_forward_width: EncoderConfig::WIDTH_AS_GIVEN,
    initialisation: Initialisation::TruncatedByDepth,
    dropouts: |shape| Dropouts {
        embeddings: shape.embedding_dropout,
        attention_probabilities: shape.attention_probs_dropout_prob,
        attention_output: shape.attention_probs_dropout_prob,
        feed_forward_input: shape.mlp_dropout,
        feed_forward_output: 0.0,
        token_classifier: shape.classifier_dropout.unwrap_or(0.0),
    },
    embedding_map: None,
    shares_layers: false,
    names: EncoderNames {
        word: "embeddings.tok_embeddings",
        position: None,
        token_type: None,
        embedding_norm: Some("embeddings.norm"),
        layers: "layers",
        attention: AttentionNames::Together("attn.Wqkv"),
        attention_output: "attn.Wo",
        intermediate: "mlp.Wi",
        output: "mlp.Wo",
        norms: NormNames::Before { attention: "attn_norm", feed_forward: "mlp_norm", last: "final_norm" },
        relative: None,
        position_bias: None,
    },
    masked_lm: MaskedLmNames {
        transform: Some(TransformNames { dense: "head.dense", norm: "head.norm" }),
        bias: "decoder.bias",
        decoder: "decoder",
        is_tied: true,
    },
    sentence_pairs: None,
    replaced_tokens: None,
    classification: ClassificationNames {
        dense: "head.dense",
        has_bias: false,
        norm: Some("head.norm"),
        output: "classifier",
        drops_input: false,
        activation: HeadActivation::Gelu,
    },
    token_classifier: Some("classifier"),
    remote_code: None,
    unused_tensors: &[],
    other_names: &[],
    special: SpecialNames::BERT,
    // The class of transformers has default ids for these, which are right only for the published vocabulary.
    token_ids: &[
        ("bos_token_id", SpecialRole::Cls),
        ("cls_token_id", SpecialRole::Cls),
        ("eos_token_id", SpecialRole::Sep),
        ("sep_token_id", SpecialRole::Sep),
    ],
    double_separator: false,
    second_type: 0,
    byte_level_class: None,
    word_piece_class: None,
};

const BASE: EncoderConfig = EncoderConfig {
    num_hidden_layers: 22,
    intermediate_size: 1152,
    hidden_dropout_prob: 0.0,
    attention_probs_dropout_prob: 0.0,
    classifier_dropout: Some(0.0),
    max_position_embeddings: 8192,
    type_vocab_size: 1,
    layer_norm_eps: 1e-5,
    ..EncoderConfig::BASE
};
