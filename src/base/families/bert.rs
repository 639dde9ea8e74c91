//! BERT: WordPiece, two token types, and a pooler that is the first linear layer of the classifier.
//! arXiv:1810.04805; `modeling_bert.py` of transformers.

use crate::families::{
    ClassificationNames, Descriptor, Dropouts, EncoderConfig, EncoderNames, Family, FeedForwardKind,
    HeadActivation, Initialisation, Keys, MaskedLmNames, NormKind, PositionKind, SentencePairNames,
    SpecialNames, TransformNames,
};

impl Family {
    /// BERT.
    pub const BERT: Self = Self(&DESCRIPTOR);
}

impl SpecialNames {
    /// Special tokens of WordPiece vocabularies.
    pub(super) const BERT: Self = Self {
        order: ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"],
        cls: "[CLS]",
        sep: "[SEP]",
        pad: "[PAD]",
        unk: "[UNK]",
        mask: "[MASK]",
        unused: ("[unused", "]"),
    };
}

static DESCRIPTOR: Descriptor = Descriptor {
    name: "bert",
    title: "BERT",
    class: "Bert",
    own_classes: &[],
    other_classes: &[],
    prefix: "bert",
    defaults: EncoderConfig::BASE,
    hub_defaults: EncoderConfig { vocab_size: 30_522, ..EncoderConfig::BASE },
    keys: Keys::BERT,
    positions: PositionKind::Table,
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
        transform: Some(TransformNames {
            dense: "cls.predictions.transform.dense",
            norm: "cls.predictions.transform.LayerNorm",
        }),
        bias: "cls.predictions.bias",
        decoder: "cls.predictions.decoder",
        is_tied: true,
    },
    sentence_pairs: Some(SentencePairNames { output: "cls.seq_relationship", drops_input: false }),
    replaced_tokens: None,
    classification: ClassificationNames {
        dense: "bert.pooler.dense",
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
    special: SpecialNames::BERT,
    token_ids: &[],
    double_separator: false,
    second_type: 1,
    byte_level_class: None,
    word_piece_class: Some("BertTokenizer"),
};
