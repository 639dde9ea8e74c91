//! What is to be said of a family.

use crate::families::Dropouts;
use crate::families::EncoderConfig;
use crate::families::EncoderNames;
use crate::families::Family;
use crate::families::HeadKind;
use crate::families::Keys;
use crate::families::PositionKind;

/// Everything in which families differ.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each says something else of a family")]
pub struct Descriptor {
    /// Its table in a configuration, `model_type` in `config.json`.
    pub name: &'static str,
    /// As people write it.
    pub title: &'static str,
    /// Begin of the names of its classes in transformers.
    pub class: &'static str,
    /// Other classes that are read, and the head that is taken of them.
    pub other_classes: &'static [(&'static str, HeadKind)],
    /// First part of the encoder's parameter names.
    pub prefix: &'static str,
    /// What absent keys of a configuration stand for: the base model on the hub.
    pub defaults: EncoderConfig,
    /// What absent keys of `config.json` stand for: the defaults of transformers' own class (5.23).
    pub hub_defaults: EncoderConfig,
    /// What its keys are called in a configuration and in `config.json`.
    pub keys: Keys,
    /// How the model learns where tokens stand.
    pub positions: PositionKind,
    /// Whether maps and norms have biases; the decoder and the last map of a head have one in any case.
    pub has_biases: bool,
    /// Whether the feed-forward block is gated: its first map gives two halves, GELU of the first of which is
    /// multiplied by the second.
    pub is_gated: bool,
    /// How weights begin.
    pub initialisation: Initialisation,
    /// Where values are dropped.
    pub dropouts: fn(&EncoderConfig) -> Dropouts,
    /// The map behind embeddings that may have a width of their own (`embedding_size`).
    pub embedding_map: Option<EmbeddingMap>,
    /// Whether all layers are one: they share its parameters, and each adds to their gradients. Names are
    /// those of layer 0.
    pub shares_layers: bool,
    /// Names of the encoder's parameters.
    pub names: EncoderNames,
    /// Names of the masked-LM head.
    pub masked_lm: MaskedLmNames,
    /// The head that tells pairs of segments, beside the masked-LM head, where the family has it.
    pub sentence_pairs: Option<SentencePairNames>,
    /// The head that tells replaced tokens, and the generator beside it, where the family has them.
    pub replaced_tokens: Option<ReplacedTokens>,
    /// Names and form of the sequence classifier.
    pub classification: ClassificationNames,
    /// Name of the map to labels of the token classifier; `None` where the family has none that is built. Where
    /// the sequence classifier has a norm, the token classifier begins with its map, activation and norm.
    pub token_classifier: Option<&'static str>,
    /// Beginnings of the names of tensors that some folders have and nothing reads.
    pub unused_tensors: &'static [&'static str],
    /// Beginnings of names that some folders have, and what stands in their place here; where both are there,
    /// the latter counts.
    pub other_names: &'static [(&'static str, &'static str)],
    /// The special tokens that a new tokenizer gets.
    pub special: SpecialNames,
    /// Keys of `config.json` that hold the id of a special token, besides `pad_token_id`.
    pub token_ids: &'static [(&'static str, SpecialRole)],
    /// Whether two separators stand between the texts of a pair.
    pub double_separator: bool,
    /// Token type of the second text of a pair, where the model has more than one type.
    pub second_type: u32,
    /// Class of transformers that reads a byte-level BPE of this family; it makes its pipeline anew, without
    /// a normalizer. `None`: there is none, and `PreTrainedTokenizerFast` reads `tokenizer.json` as it
    /// is.
    pub byte_level_class: Option<&'static str>,
    /// Class of transformers that reads a WordPiece tokenizer of this family, and puts its special tokens
    /// around a text.
    pub word_piece_class: Option<&'static str>,
}

impl Descriptor {
    /// Name of transformers' class of an encoder with this head; `None` where it has none.
    pub fn architecture(&self, head: HeadKind) -> Option<String> {
        let has_class = match head {
            HeadKind::ReplacedTokenDetection => self.replaced_tokens.is_some_and(|form| form.has_class),
            HeadKind::SentencePairs => self.sentence_pairs.is_some(),
            _ => true,
        };
        has_class.then(|| format!("{}{}", self.class, head.class_suffix()))
    }

    /// The head of the model that a class of transformers makes; `None` for classes that are not known.
    pub fn head_of(&self, class: &str) -> Option<HeadKind> {
        let other = self.other_classes.iter().find(|(name, _)| *name == class).map(|&(_, head)| head);
        let own =
            || HeadKind::ALL.into_iter().find(|&head| self.architecture(head).as_deref() == Some(class));
        other.or_else(own).filter(|&head| self.has(head))
    }

    /// Whether there are models of this family with this head.
    pub fn has(&self, head: HeadKind) -> bool {
        match head {
            HeadKind::ReplacedTokenDetection => self.replaced_tokens.is_some(),
            HeadKind::SentencePairs => self.sentence_pairs.is_some(),
            HeadKind::TokenClassification => self.token_classifier.is_some(),
            HeadKind::None
            | HeadKind::MaskedLm
            | HeadKind::SequenceClassification
            | HeadKind::MultiLabelClassification
            | HeadKind::Regression => true,
        }
    }
}

/// How the weights of matrices and tables begin; biases begin at 0, norms at 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Initialisation {
    /// Normal with a deviation of `initializer_range`; the rows of padding tokens are 0.
    Normal,
    /// Normal, cut off at two deviations: `initializer_range`, for the last map of each block and the first
    /// one of a head divided by `sqrt(2 L)`, for a classifier's last map `D^-0.5`. `_init_weights` of
    /// `modeling_modernbert.py` (transformers 5.23).
    TruncatedByDepth,
}

/// The map from the width of the embeddings to that of hidden states.
#[derive(Debug, Clone, Copy)]
pub struct EmbeddingMap {
    /// Its name, in the encoder.
    pub name: &'static str,
    /// Whether it is there where both widths are the same, too.
    pub is_always_there: bool,
}

/// Names of the parameters of the masked-LM head.
#[derive(Debug, Clone, Copy)]
pub struct MaskedLmNames {
    /// The map.
    pub dense: &'static str,
    /// The `LayerNorm`.
    pub norm: &'static str,
    /// The decoder's bias.
    pub bias: &'static str,
    /// The decoder, which some folders save beside the word embedding that it is.
    pub decoder: &'static str,
}

/// The head that tells pairs of segments: a map behind the pooler, which is the first map of the classifier.
#[derive(Debug, Clone, Copy)]
pub struct SentencePairNames {
    /// Name of the map to two classes.
    pub output: &'static str,
    /// Whether its input is dropped, as that of a classifier's last map is.
    pub drops_input: bool,
}

/// How models of a family learn to tell replaced tokens.
#[derive(Debug, Clone, Copy)]
pub struct ReplacedTokens {
    /// Name of the head's norm, where it has one: of the sum of a token's hidden state and the first one's.
    pub norm: Option<&'static str>,
    /// Name of the head's map.
    pub dense: &'static str,
    /// Name of its map to one number.
    pub output: &'static str,
    /// Whether transformers has a class for a model with this head.
    pub has_class: bool,
    /// Whether models are pretrained so unless a configuration says otherwise.
    pub is_usual: bool,
    /// What generator and discriminator share.
    pub sharing: EmbeddingSharing,
    /// The generator beside a model, unless a configuration says otherwise.
    pub generator: GeneratorSize,
}

/// What generator and discriminator share of their embeddings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EmbeddingSharing {
    /// All of them.
    Whole,
    /// The discriminator's word embedding is the generator's plus one that begins at zero, and only the
    /// latter has a gradient of the discriminator (gradient-disentangled embedding sharing, He et al. 2021,
    /// section 3.3).
    Disentangled,
}

/// The size of a generator beside its model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GeneratorSize {
    /// A quarter of the width, in whole attention heads.
    QuarterOfWidth,
    /// The same width and half of the layers.
    HalfOfDepth,
}

/// What stands between the two maps of a sequence classifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeadActivation {
    /// The hyperbolic tangent.
    Tanh,
    /// GELU, erf form.
    Gelu,
    /// The rectified linear unit.
    Relu,
}

/// Names of the parameters of the sequence classifier, and its form.
#[derive(Debug, Clone, Copy)]
pub struct ClassificationNames {
    /// The first map; where it is the encoder's pooler, it is there in folders without a classifier, too.
    pub dense: &'static str,
    /// The norm behind the activation, where there is one.
    pub norm: Option<&'static str>,
    /// The map to labels.
    pub output: &'static str,
    /// Whether the input of the first map is dropped as well.
    pub drops_input: bool,
    /// Between the two maps.
    pub activation: HeadActivation,
}

/// What a special token is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpecialRole {
    /// It begins a text.
    Cls,
    /// It ends a text.
    Sep,
}

/// Names of special tokens, by role.
#[derive(Debug, Clone, Copy)]
pub struct SpecialNames {
    /// All of them, in the order of their ids.
    pub order: [&'static str; 5],
    /// Begins a text.
    pub cls: &'static str,
    /// Ends a text.
    pub sep: &'static str,
    /// Padding.
    pub pad: &'static str,
    /// What the vocabulary cannot spell.
    pub unk: &'static str,
    /// Takes the place of a token that is to be predicted.
    pub mask: &'static str,
    /// What stands around the number of an entry that only fills the vocabulary up.
    pub unused: (&'static str, &'static str),
}

impl SpecialNames {
    /// The id of a name.
    pub fn id(&self, name: &str) -> usize {
        self.order.iter().position(|known| *known == name).unwrap_or_default()
    }
}

impl EncoderConfig {
    /// The defaults of a family: those of its base model on the hub.
    pub fn of(family: Family) -> Self {
        family.defaults.clone()
    }
}
