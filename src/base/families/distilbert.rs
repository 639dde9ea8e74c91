//! DistilBERT: BERT without token types and pooler, with its own names for all parameters. arXiv:1910.01108;
//! `modeling_distilbert.py` of transformers.

use crate::families::{
    AttentionNames, ClassificationNames, Constant, Descriptor, Dropouts, EncoderConfig, EncoderNames, Family,
    FeedForwardKind, HeadActivation, Initialisation, Keys, MaskedLmNames, NormKind, NormNames, PositionKind,
    SpecialNames, TransformNames,
};

impl Family {
    /// DistilBERT.
    pub const DISTILBERT: Self = Self(&DESCRIPTOR);
}

static DESCRIPTOR: Descriptor = Descriptor {
    name: "distilbert",
    title: "DistilBERT",
    class: "DistilBert",
    own_classes: &[],
    other_classes: &[],
    prefix: "distilbert",
    defaults: BASE,
    hub_defaults: EncoderConfig { vocab_size: 30_522, ..BASE },
    keys: Keys {
        renamed: &[
            ("hidden_size", "dim"),
            ("num_hidden_layers", "n_layers"),
            ("num_attention_heads", "n_heads"),
            ("intermediate_size", "hidden_dim"),
            ("hidden_dropout_prob", "dropout"),
            ("attention_probs_dropout_prob", "attention_dropout"),
            ("classifier_dropout", "seq_classif_dropout"),
        ],
        own: &[],
        absent: &["embedding_size", "type_vocab_size", "layer_norm_eps"],
        constants: &[("activation", Constant::Text("gelu"))],
    },
    positions: PositionKind::Table,
    has_biases: true,
    norm: NormKind::LayerNorm,
    feed_forward: FeedForwardKind::Plain,
    feed_forward_width: EncoderConfig::WIDTH_AS_GIVEN,
    initialisation: Initialisation::Normal,
    dropouts: |shape| Dropouts {
        embeddings: shape.hidden_dropout_prob,
        attention_probabilities: shape.attention_probs_dropout_prob,
        attention_output: 0.0,
        feed_forward_input: 0.0,
        feed_forward_output: shape.hidden_dropout_prob,
        token_classifier: shape.hidden_dropout_prob,
    },
    embedding_map: None,
    shares_layers: false,
    names: EncoderNames {
        token_type: None,
        layers: "transformer.layer",
        attention: AttentionNames::Apart(["attention.q_lin", "attention.k_lin", "attention.v_lin"]),
        attention_output: "attention.out_lin",
        intermediate: "ffn.lin1",
        output: "ffn.lin2",
        norms: NormNames::After { attention: "sa_layer_norm", feed_forward: "output_layer_norm" },
        ..EncoderNames::BERT
    },
    masked_lm: MaskedLmNames {
        transform: Some(TransformNames { dense: "vocab_transform", norm: "vocab_layer_norm" }),
        bias: "vocab_projector.bias",
        decoder: "vocab_projector",
        is_tied: true,
    },
    sentence_pairs: None,
    replaced_tokens: None,
    classification: ClassificationNames {
        dense: "pre_classifier",
        has_bias: true,
        norm: None,
        output: "classifier",
        drops_input: false,
        activation: HeadActivation::Relu,
    },
    token_classifier: Some("classifier"),
    remote_code: None,
    unused_tensors: &[],
    other_names: &[],
    special: SpecialNames::BERT,
    token_ids: &[],
    double_separator: false,
    second_type: 0,
    byte_level_class: None,
    word_piece_class: Some("BertTokenizer"),
};

const BASE: EncoderConfig = EncoderConfig {
    num_hidden_layers: 6,
    classifier_dropout: Some(0.2),
    type_vocab_size: 1,
    ..EncoderConfig::BASE
};
