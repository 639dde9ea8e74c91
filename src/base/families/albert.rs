//! ALBERT: BERT with one set of parameters for all layers, embeddings with a width of their own, and the tanh
//! form of GELU. arXiv:1909.11942; `modeling_albert.py` of transformers.

use crate::families::{
    AttentionNames, ClassificationNames, Constant, Descriptor, Dropouts, EmbeddingMap, EncoderConfig,
    EncoderNames, Family, FeedForwardKind, HeadActivation, HiddenAct, Initialisation, Keys, MaskedLmNames,
    NormKind, NormNames, PositionKind, SentencePairNames, SpecialNames, SpecialRole, TransformNames,
};

impl Family {
    /// ALBERT.
    pub const ALBERT: Self = Self(&DESCRIPTOR);
}

static DESCRIPTOR: Descriptor = Descriptor {
    name: "albert",
    title: "ALBERT",
    class: "Albert",
    own_classes: &[],
    other_classes: &[],
    prefix: "albert",
    defaults: BASE,
    // Sizes of the largest model, which are the defaults of transformers.
    hub_defaults: EncoderConfig {
        vocab_size: 30_000,
        hidden_size: 4096,
        num_attention_heads: 64,
        intermediate_size: 16_384,
        ..BASE
    },
    keys: Keys {
        renamed: &[("classifier_dropout", "classifier_dropout_prob")],
        own: &["hidden_act"],
        absent: &[],
        constants: &[
            ("position_embedding_type", Constant::Text("absolute")),
            ("num_hidden_groups", Constant::Number(1)),
            ("inner_group_num", Constant::Number(1)),
        ],
    },
    positions: PositionKind::Table,
    has_biases: true,
    norm: NormKind::LayerNorm,
    feed_forward: FeedForwardKind::Plain,
    feed_forward_width: EncoderConfig::WIDTH_AS_GIVEN,
    initialisation: Initialisation::Normal,
    dropouts: Dropouts::BERT,
    embedding_map: Some(EmbeddingMap { name: "encoder.embedding_hidden_mapping_in", is_always_there: true }),
    shares_layers: true,
    names: EncoderNames {
        layers: "encoder.albert_layer_groups.0.albert_layers",
        attention: AttentionNames::Apart(["attention.query", "attention.key", "attention.value"]),
        attention_output: "attention.dense",
        intermediate: "ffn",
        output: "ffn_output",
        norms: NormNames::After { attention: "attention.LayerNorm", feed_forward: "full_layer_layer_norm" },
        ..EncoderNames::BERT
    },
    masked_lm: MaskedLmNames {
        transform: Some(TransformNames { dense: "predictions.dense", norm: "predictions.LayerNorm" }),
        bias: "predictions.bias",
        decoder: "predictions.decoder",
        is_tied: true,
    },
    sentence_pairs: Some(SentencePairNames { output: "sop_classifier.classifier", drops_input: true }),
    replaced_tokens: None,
    classification: ClassificationNames {
        dense: "albert.pooler",
        has_bias: true,
        norm: None,
        output: "classifier",
        drops_input: false,
        activation: HeadActivation::Tanh,
    },
    token_classifier: Some("classifier"),
    remote_code: None,
    unused_tensors: &[],
    other_names: &[],
    special: SpecialNames {
        order: ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"],
        pad: "<pad>",
        unk: "<unk>",
        ..SpecialNames::BERT
    },
    // The class of transformers has default ids for these, which are right only for the published vocabulary.
    token_ids: &[("bos_token_id", SpecialRole::Cls), ("eos_token_id", SpecialRole::Sep)],
    double_separator: false,
    second_type: 1,
    byte_level_class: None,
    word_piece_class: None,
};

const BASE: EncoderConfig = EncoderConfig {
    embedding_size: Some(128),
    hidden_act: HiddenAct::GeluNew,
    hidden_dropout_prob: 0.0,
    attention_probs_dropout_prob: 0.0,
    classifier_dropout: Some(0.1),
    ..EncoderConfig::BASE
};
