//! DeBERTa-v2 and v3: attention between contents and relative positions, no absolute positions and no token
//! types, and a pooler with GELU. arXiv:2006.03654, arXiv:2111.09543; `modeling_deberta_v2.py` of
//! transformers, which has one class for both versions. As in transformers, the masked-LM head reads the last
//! hidden states. The authors' enhanced mask decoder, which adds absolute positions, is a configuration key
//! that transformers does not have.

use crate::families::{
    AttentionNames, ClassificationNames, Constant, Descriptor, Dropouts, EmbeddingSharing, EncoderConfig,
    EncoderNames, Family, FeedForwardKind, GeneratorSize, HeadActivation, Initialisation, Keys,
    MaskedLmNames, NormKind, PositionKind, PositionNorm, PositionScores, RelativeNames, ReplacedTokens,
    SpecialNames, TransformNames,
};

impl Family {
    /// DeBERTa-v2 and v3.
    pub const DEBERTA_V2: Self = Self(&DESCRIPTOR);
}

static DESCRIPTOR: Descriptor = Descriptor {
    name: "deberta-v2",
    title: "DeBERTa-v2",
    class: "DebertaV2",
    own_classes: &[],
    other_classes: &[],
    prefix: "deberta",
    defaults: V3_BASE,
    // Sizes of v2-xlarge, which are the defaults of transformers.
    hub_defaults: EncoderConfig {
        vocab_size: 128_100,
        hidden_size: 1536,
        num_hidden_layers: 24,
        num_attention_heads: 24,
        intermediate_size: 6144,
        position_buckets: 0,
        pos_att_type: PositionScores::None,
        share_att_key: false,
        norm_rel_ebd: PositionNorm::None,
        position_biased_input: true,
        ..V3_BASE
    },
    keys: Keys {
        renamed: &[("classifier_dropout", "cls_dropout")],
        own: &[
            "position_buckets",
            "max_relative_positions",
            "pos_att_type",
            "share_att_key",
            "norm_rel_ebd",
            "position_biased_input",
            "enhanced_mask_decoder",
            "pooler_dropout",
        ],
        absent: &["embedding_size"],
        constants: &[
            ("hidden_act", Constant::Text("gelu")),
            ("pooler_hidden_act", Constant::Text("gelu")),
            ("relative_attention", Constant::Flag(true)),
            ("legacy", Constant::Flag(true)),
        ],
    },
    positions: PositionKind::Relative,
    has_biases: true,
    norm: NormKind::LayerNorm,
    feed_forward: FeedForwardKind::Plain,
    feed_forward_width: EncoderConfig::WIDTH_AS_GIVEN,
    initialisation: Initialisation::Normal,
    dropouts: Dropouts::BERT,
    embedding_map: None,
    shares_layers: false,
    names: EncoderNames {
        attention: AttentionNames::Apart([
            "attention.self.query_proj",
            "attention.self.key_proj",
            "attention.self.value_proj",
        ]),
        relative: Some(RelativeNames {
            table: "encoder.rel_embeddings",
            norm: "encoder.LayerNorm",
            key: "attention.self.pos_key_proj",
            query: "attention.self.pos_query_proj",
        }),
        ..EncoderNames::BERT
    },
    masked_lm: MaskedLmNames {
        transform: Some(TransformNames {
            dense: "cls.predictions.transform.dense",
            norm: "cls.predictions.transform.LayerNorm",
        }),
        bias: "cls.predictions.bias",
        decoder: "cls.predictions.decoder",
        is_tied: true,
    },
    // Names of v3; transformers has no class for a model with this head.
    sentence_pairs: None,
    replaced_tokens: Some(ReplacedTokens {
        norm: Some("mask_predictions.LayerNorm"),
        dense: "mask_predictions.dense",
        output: "mask_predictions.classifier",
        has_class: false,
        is_usual: false,
        sharing: EmbeddingSharing::Disentangled,
        generator: GeneratorSize::HalfOfDepth,
    }),
    classification: ClassificationNames {
        dense: "pooler.dense",
        has_bias: true,
        norm: None,
        output: "classifier",
        drops_input: false,
        activation: HeadActivation::Gelu,
    },
    token_classifier: Some("classifier"),
    remote_code: None,
    unused_tensors: &[],
    // Names of the same head in the authors' code, and in transformers with `legacy: false`.
    other_names: &[
        ("lm_predictions.lm_head.dense.", "cls.predictions.transform.dense."),
        ("lm_predictions.lm_head.LayerNorm.", "cls.predictions.transform.LayerNorm."),
        ("lm_predictions.lm_head.bias", "cls.predictions.bias"),
    ],
    special: SpecialNames { order: ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"], ..SpecialNames::BERT },
    token_ids: &[],
    double_separator: false,
    second_type: 1,
    byte_level_class: None,
    word_piece_class: None,
};

const V3_BASE: EncoderConfig = EncoderConfig {
    type_vocab_size: 0,
    layer_norm_eps: 1e-7,
    position_buckets: 256,
    pos_att_type: PositionScores::Both,
    share_att_key: true,
    norm_rel_ebd: PositionNorm::LayerNorm,
    position_biased_input: false,
    ..EncoderConfig::BASE
};
