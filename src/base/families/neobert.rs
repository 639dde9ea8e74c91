//! NeoBERT: WordPiece, rotary positions, RMSNorm before each block, SwiGLU, no biases in the encoder, and a
//! decoder that is not tied. arXiv:2502.19587; `model.py` of chandar-lab/NeoBERT on the Hugging Face Hub,
//! since transformers has no class for it.

use crate::families::{
    AttentionNames, ClassificationNames, Descriptor, Dropouts, EncoderConfig, EncoderNames, Family,
    FeedForwardKind, HeadActivation, HeadKind, Initialisation, Keys, MaskedLmNames, NormKind, NormNames,
    PositionKind, RemoteCode, SpecialNames,
};

impl Family {
    /// NeoBERT.
    pub const NEOBERT: Self = Self(&DESCRIPTOR);
}

static DESCRIPTOR: Descriptor = Descriptor {
    name: "neobert",
    title: "NeoBERT",
    class: "NeoBERT",
    own_classes: &[(HeadKind::None, "NeoBERT"), (HeadKind::MaskedLm, "NeoBERTLMHead")],
    other_classes: &[],
    prefix: "model",
    defaults: BASE,
    hub_defaults: EncoderConfig {
        vocab_size: 30_522,
        max_position_embeddings: 1024,
        layer_norm_eps: 1e-6,
        ..BASE
    },
    keys: Keys {
        renamed: &[
            ("layer_norm_eps", "norm_eps"),
            ("max_position_embeddings", "max_length"),
            ("initializer_range", "decoder_init_range"),
        ],
        own: &[],
        absent: &["embedding_size", "type_vocab_size"],
        constants: &[],
    },
    positions: PositionKind::Rotary,
    has_biases: false,
    norm: NormKind::RmsNorm,
    feed_forward: FeedForwardKind::SwiGlu,
    feed_forward_width: |intermediate_size| (2 * intermediate_size / 3).next_multiple_of(8),
    initialisation: Initialisation::Uniform,
    // The published code has no dropout in its encoder, and ignores the keys.
    dropouts: |shape| Dropouts { embeddings: 0.0, ..(Dropouts::BERT)(shape) },
    embedding_map: None,
    shares_layers: false,
    names: EncoderNames {
        word: "encoder",
        position: None,
        token_type: None,
        embedding_norm: None,
        layers: "transformer_encoder",
        attention: AttentionNames::ByHead("qkv"),
        attention_output: "wo",
        intermediate: "ffn.w12",
        output: "ffn.w3",
        norms: NormNames::Before {
            attention: "attention_norm",
            feed_forward: "ffn_norm",
            last: "layer_norm",
        },
        relative: None,
        position_bias: None,
    },
    masked_lm: MaskedLmNames { transform: None, bias: "decoder.bias", decoder: "decoder", is_tied: false },
    sentence_pairs: None,
    replaced_tokens: None,
    classification: ClassificationNames {
        dense: "dense",
        has_bias: true,
        norm: None,
        output: "classifier",
        drops_input: true,
        activation: HeadActivation::Tanh,
    },
    // The published code has no token classifier: this is the one of BERT.
    token_classifier: Some("classifier"),
    remote_code: Some(RemoteCode {
        module: "chandar-lab/NeoBERT--model",
        classes: &[
            ("AutoConfig", "NeoBERTConfig"),
            ("AutoModel", "NeoBERT"),
            ("AutoModelForMaskedLM", "NeoBERTLMHead"),
            ("AutoModelForSequenceClassification", "NeoBERTForSequenceClassification"),
        ],
    }),
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
    num_hidden_layers: 28,
    hidden_dropout_prob: 0.0,
    attention_probs_dropout_prob: 0.0,
    classifier_dropout: Some(0.1),
    max_position_embeddings: 4096,
    global_attn_every_n_layers: 1,
    global_rope_theta: 10_000.0,
    type_vocab_size: 1,
    layer_norm_eps: 1e-5,
    ..EncoderConfig::BASE
};
