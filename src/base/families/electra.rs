//! ELECTRA: BERT's tokens and layers after embeddings with a width of their own, pretrained by detecting
//! replaced tokens, with GELU in the classifier. arXiv:2003.10555; `modeling_electra.py` of transformers.

use crate::families::{
    ClassificationNames, Descriptor, Dropouts, EmbeddingMap, EmbeddingSharing, EncoderConfig, EncoderNames,
    Family, FeedForwardKind, GeneratorSize, HeadActivation, Initialisation, Keys, MaskedLmNames, NormKind,
    PositionKind, ReplacedTokens, SpecialNames, TransformNames,
};

impl Family {
    /// ELECTRA.
    pub const ELECTRA: Self = Self(&DESCRIPTOR);
}

static DESCRIPTOR: Descriptor = Descriptor {
    name: "electra",
    title: "ELECTRA",
    class: "Electra",
    own_classes: &[],
    other_classes: &[],
    prefix: "electra",
    defaults: EncoderConfig::BASE,
    // Sizes of the small model, which are the defaults of transformers.
    hub_defaults: EncoderConfig {
        vocab_size: 30_522,
        embedding_size: Some(128),
        hidden_size: 256,
        num_attention_heads: 4,
        intermediate_size: 1024,
        ..EncoderConfig::BASE
    },
    keys: Keys::BERT,
    positions: PositionKind::Table,
    has_biases: true,
    norm: NormKind::LayerNorm,
    feed_forward: FeedForwardKind::Plain,
    feed_forward_width: EncoderConfig::WIDTH_AS_GIVEN,
    initialisation: Initialisation::Normal,
    dropouts: Dropouts::BERT,
    embedding_map: Some(EmbeddingMap { name: "embeddings_project", is_always_there: false }),
    shares_layers: false,
    names: EncoderNames::BERT,
    masked_lm: MaskedLmNames {
        transform: Some(TransformNames {
            dense: "generator_predictions.dense",
            norm: "generator_predictions.LayerNorm",
        }),
        bias: "generator_lm_head.bias",
        decoder: "generator_lm_head",
        is_tied: true,
    },
    sentence_pairs: None,
    replaced_tokens: Some(ReplacedTokens {
        norm: None,
        dense: "discriminator_predictions.dense",
        output: "discriminator_predictions.dense_prediction",
        has_class: true,
        is_usual: true,
        sharing: EmbeddingSharing::Whole,
        generator: GeneratorSize::QuarterOfWidth,
    }),
    classification: ClassificationNames {
        dense: "classifier.dense",
        has_bias: true,
        norm: None,
        output: "classifier.out_proj",
        drops_input: true,
        activation: HeadActivation::Gelu,
    },
    token_classifier: Some("classifier"),
    remote_code: None,
    unused_tensors: &[],
    other_names: &[],
    special: SpecialNames::BERT,
    token_ids: &[],
    double_separator: false,
    second_type: 1,
    byte_level_class: None,
    word_piece_class: Some("BertTokenizer"),
};
