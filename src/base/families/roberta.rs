//! RoBERTa: byte-level BPE, positions from one past the padding id, one token type, dropout before the first
//! linear layer of the classifier. arXiv:1907.11692; `modeling_roberta.py` of transformers.

use crate::families::{
    ClassificationNames, Descriptor, Dropouts, EncoderConfig, EncoderNames, Family, FeedForwardKind,
    HeadActivation, Initialisation, Keys, MaskedLmNames, NormKind, PositionKind, SpecialNames, SpecialRole,
    TransformNames,
};

impl Family {
    /// RoBERTa.
    pub const ROBERTA: Self = Self(&DESCRIPTOR);
}

/// Families that descend from RoBERTa take every field from here that they do not set themselves.
pub(super) const DESCRIPTOR: Descriptor = Descriptor {
    name: "roberta",
    title: "RoBERTa",
    class: "Roberta",
    own_classes: &[],
    other_classes: &[],
    prefix: "roberta",
    defaults: EncoderConfig {
        max_position_embeddings: 514,
        type_vocab_size: 1,
        layer_norm_eps: 1e-5,
        ..BASE
    },
    hub_defaults: EncoderConfig { vocab_size: 50_265, ..BASE },
    keys: Keys::BERT,
    positions: PositionKind::TableBehindPadding,
    has_biases: true,
    norm: NormKind::LayerNorm,
    feed_forward: FeedForwardKind::Plain,
    feed_forward_width: EncoderConfig::WIDTH_AS_GIVEN,
    initialisation: Initialisation::Normal,
    dropouts: Dropouts::BERT,
    embedding_map: None,
    shares_layers: false,
    names: EncoderNames::BERT,
    masked_lm: MaskedLmNames {
        transform: Some(TransformNames { dense: "lm_head.dense", norm: "lm_head.layer_norm" }),
        bias: "lm_head.bias",
        decoder: "lm_head.decoder",
        is_tied: true,
    },
    sentence_pairs: None,
    replaced_tokens: None,
    classification: ClassificationNames {
        dense: "classifier.dense",
        has_bias: true,
        norm: None,
        output: "classifier.out_proj",
        drops_input: true,
        activation: HeadActivation::Tanh,
    },
    token_classifier: Some("classifier"),
    // transformers adds a pooler to `RobertaModel`, which is never trained and which no head reads.
    remote_code: None,
    unused_tensors: &["roberta.pooler."],
    other_names: &[],
    special: SpecialNames {
        order: ["<s>", "<pad>", "</s>", "<unk>", "<mask>"],
        cls: "<s>",
        sep: "</s>",
        pad: "<pad>",
        unk: "<unk>",
        mask: "<mask>",
        unused: ("<unused", ">"),
    },
    token_ids: &[("bos_token_id", SpecialRole::Cls), ("eos_token_id", SpecialRole::Sep)],
    double_separator: true,
    second_type: 0,
    byte_level_class: Some("RobertaTokenizer"),
    word_piece_class: None,
};

/// Defaults of the keys in `config.json`, for the families that descend from RoBERTa.
pub(super) const HUB_DEFAULTS: EncoderConfig = EncoderConfig { vocab_size: 30_522, ..BASE };

const BASE: EncoderConfig = EncoderConfig { pad_token_id: 1, ..EncoderConfig::BASE };
