//! ELECTRA: BERT's tokens and layers behind embeddings of a width of their own, pretrained by telling
//! replaced tokens, with a classifier that has GELU. arXiv:2003.10555; `modeling_electra.py` of transformers.

use crate::families::ClassificationNames;
use crate::families::Descriptor;
use crate::families::EncoderConfig;
use crate::families::Family;
use crate::families::HeadActivation;
use crate::families::MaskedLmNames;
use crate::families::ReplacedTokenNames;
use crate::families::SpecialNames;

impl Family {
    /// ELECTRA.
    pub const ELECTRA: Self = Self(&DESCRIPTOR);
}

static DESCRIPTOR: Descriptor = Descriptor {
    name: "electra",
    title: "ELECTRA",
    class: "Electra",
    other_classes: &[],
    prefix: "electra",
    defaults: EncoderConfig::BASE,
    // Those of the small model, as transformers has them.
    hub_defaults: EncoderConfig {
        vocab_size: 30_522,
        embedding_size: Some(128),
        hidden_size: 256,
        num_attention_heads: 4,
        intermediate_size: 1024,
        ..EncoderConfig::BASE
    },
    positions_follow_padding: false,
    projects_embeddings: true,
    masked_lm: MaskedLmNames {
        dense: "generator_predictions.dense",
        norm: "generator_predictions.LayerNorm",
        bias: "generator_lm_head.bias",
        decoder: "generator_lm_head",
    },
    replaced_tokens: Some(ReplacedTokenNames {
        dense: "discriminator_predictions.dense",
        output: "discriminator_predictions.dense_prediction",
    }),
    classification: ClassificationNames {
        dense: "classifier.dense",
        output: "classifier.out_proj",
        drops_input: true,
        activation: HeadActivation::Gelu,
    },
    token_classifier: Some("classifier"),
    unused_tensors: &[],
    special: SpecialNames::BERT,
    double_separator: false,
    second_type: 1,
    byte_level_class: None,
    word_piece_class: Some("BertTokenizer"),
};
