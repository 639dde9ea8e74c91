//! The description of a family.

use crate::families::{Dropouts, EncoderConfig, EncoderNames, Family, HeadKind, Keys, PositionKind};

/// All properties in which families differ.
#[derive(Debug)]
pub struct Descriptor {
    /// Name of its table in a configuration, and `model_type` in `config.json`.
    pub name: &'static str,
    /// Name as people write it.
    pub title: &'static str,
    /// Start of the names of its classes in transformers.
    pub class: &'static str,
    /// Names of classes that are not `class` and the head's usual suffix.
    pub own_classes: &'static [(HeadKind, &'static str)],
    /// Other classes of transformers whose models can be read, with the head that is used of them.
    pub other_classes: &'static [(&'static str, HeadKind)],
    /// First part of the encoder's parameter names.
    pub prefix: &'static str,
    /// Defaults of the keys in a configuration: those of the base model on the Hugging Face Hub.
    pub defaults: EncoderConfig,
    /// Defaults of the keys in `config.json`: those of transformers' own class (5.23).
    pub hub_defaults: EncoderConfig,
    /// Names of its keys in a configuration and in `config.json`.
    pub keys: Keys,
    /// Kind of position information.
    pub positions: PositionKind,
    /// True if linear layers and norms have biases. The decoder and the last layer of a head always have one,
    /// and [`ClassificationNames::has_bias`] says if the first layer of a classifier has.
    pub has_biases: bool,
    /// Form of all norms.
    pub norm: NormKind,
    /// Form of the feed-forward block.
    pub feed_forward: FeedForwardKind,
    /// Width between the two linear layers of the feed-forward block, computed from `intermediate_size`.
    pub feed_forward_width: fn(usize) -> usize,
    /// Initialisation of the weights.
    pub initialisation: Initialisation,
    /// Dropout rates, computed from the shape of the encoder.
    pub dropouts: fn(&EncoderConfig) -> Dropouts,
    /// Linear layer after the embeddings, for embeddings with a width of their own (`embedding_size`).
    pub embedding_map: Option<EmbeddingMap>,
    /// True if all layers share the parameters of one layer, so that each layer adds to the same gradients.
    /// The names are those of layer 0.
    pub shares_layers: bool,
    /// Names of the encoder's parameters.
    pub names: EncoderNames,
    /// Names of the masked-LM head.
    pub masked_lm: MaskedLmNames,
    /// Head that classifies pairs of segments, in addition to the masked-LM head, if the family has one.
    pub sentence_pairs: Option<SentencePairNames>,
    /// Head that detects replaced tokens, with its generator, if the family has them.
    pub replaced_tokens: Option<ReplacedTokens>,
    /// Names and form of the sequence classifier.
    pub classification: ClassificationNames,
    /// Name of the token classifier's linear layer to labels; `None` if no token classifier is implemented
    /// for the family. If the sequence classifier has a norm, the token classifier starts with the same
    /// linear layer, activation and norm.
    pub token_classifier: Option<&'static str>,
    /// Python code outside transformers that defines the classes of the family, if transformers has none.
    pub remote_code: Option<RemoteCode>,
    /// Prefixes of the names of tensors that some model folders contain and that nothing reads.
    pub unused_tensors: &'static [&'static str],
    /// Prefixes of tensor names in some model folders, each with the prefix that is used here instead. If a
    /// folder has both, the latter is read.
    pub other_names: &'static [(&'static str, &'static str)],
    /// Special tokens of a new tokenizer.
    pub special: SpecialNames,
    /// Keys of `config.json`, other than `pad_token_id`, with the id of a special token.
    pub token_ids: &'static [(&'static str, SpecialRole)],
    /// True if two separators are between the texts of a pair.
    pub double_separator: bool,
    /// Token type of the second text of a pair, for models with more than one type.
    pub second_type: u32,
    /// Class of transformers that reads a byte-level BPE tokenizer of this family. It rebuilds the pipeline
    /// without a normalizer. `None` if there is no such class, and `PreTrainedTokenizerFast` reads
    /// `tokenizer.json` as it is.
    pub byte_level_class: Option<&'static str>,
    /// Class of transformers that reads a WordPiece tokenizer of this family and puts its special tokens
    /// around a text.
    pub word_piece_class: Option<&'static str>,
}

impl Descriptor {
    /// Name of transformers' class for an encoder with this head; `None` if there is no such class.
    pub fn architecture(&self, head: HeadKind) -> Option<String> {
        let has_class = match head {
            HeadKind::ReplacedTokenDetection => self.replaced_tokens.is_some_and(|form| form.has_class),
            HeadKind::SentencePairs => self.sentence_pairs.is_some(),
            _ => true,
        };
        let own = self.own_classes.iter().find(|(of, _)| *of == head).map(|(_, name)| (*name).to_string());
        has_class.then(|| own.unwrap_or_else(|| format!("{}{}", self.class, head.class_suffix())))
    }

    /// The head of the model that a class of transformers builds; `None` for an unknown class.
    pub fn head_of(&self, class: &str) -> Option<HeadKind> {
        let other = self.other_classes.iter().find(|(name, _)| *name == class).map(|&(_, head)| head);
        other
            .or_else(|| {
                HeadKind::ALL.into_iter().find(|&head| self.architecture(head).as_deref() == Some(class))
            })
            .filter(|&head| self.has(head))
    }

    /// Returns true if attention has a causal form: it adds no relative positions to its scores.
    pub fn has_causal_attention(&self) -> bool {
        self.positions != PositionKind::Relative && self.names.position_bias.is_none()
    }

    /// Returns true if models of this family can have this head.
    pub fn has(&self, head: HeadKind) -> bool {
        match head {
            HeadKind::ReplacedTokenDetection => self.replaced_tokens.is_some(),
            HeadKind::SentencePairs => self.sentence_pairs.is_some(),
            HeadKind::TokenClassification => self.token_classifier.is_some(),
            _ => true,
        }
    }
}

/// Form of a norm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NormKind {
    /// Layer normalisation.
    LayerNorm,
    /// RMSNorm: no mean is subtracted.
    RmsNorm,
}

/// Function between the two linear layers of a feed-forward block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FeedForwardKind {
    /// The function that `hidden_act` names.
    Plain,
    /// Gated GELU: the output of the first linear layer has two halves, and GELU of the first half is
    /// multiplied by the second half.
    Geglu,
    /// Gated SiLU, likewise.
    SwiGlu,
}

/// Python code on the Hugging Face Hub that defines the classes of a family.
#[derive(Debug, Clone, Copy)]
pub struct RemoteCode {
    /// Repository and module, such as `owner/model--module`.
    pub module: &'static str,
    /// Auto classes of transformers, each with the class of the module that it loads.
    pub classes: &'static [(&'static str, &'static str)],
}

/// Initialisation of matrices and embedding tables; biases start at 0 and norms at 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Initialisation {
    /// Normal with the standard deviation `initializer_range`; the rows of padding tokens are 0.
    Normal,
    /// Normal, truncated at two standard deviations. The standard deviation is `initializer_range`, divided
    /// by `sqrt(2 L)` for the last linear layer of each block and for the first one of a head; for the last
    /// layer of a classifier it is `D^-0.5`. As in `_init_weights` of `modeling_modernbert.py` (transformers
    /// 5.23).
    TruncatedByDepth,
    /// Uniform between `-initializer_range` and `initializer_range`.
    Uniform,
}

/// The linear layer from the width of the embeddings to that of the hidden states.
#[derive(Debug, Clone, Copy)]
pub struct EmbeddingMap {
    /// Its name, relative to the encoder.
    pub name: &'static str,
    /// True if the layer exists even if both widths are the same.
    pub is_always_there: bool,
}

/// Names of the parameters of the masked-LM head.
#[derive(Debug, Clone, Copy)]
pub struct MaskedLmNames {
    /// Linear layer, activation and norm before the decoder, if there are any.
    pub transform: Option<TransformNames>,
    /// Bias of the decoder.
    pub bias: &'static str,
    /// Decoder.
    pub decoder: &'static str,
    /// True if the weight of the decoder is the word embedding; some folders save both.
    pub is_tied: bool,
}

/// Names of a linear layer and of the norm after its activation.
#[derive(Debug, Clone, Copy)]
pub struct TransformNames {
    /// Linear layer.
    pub dense: &'static str,
    /// Norm.
    pub norm: &'static str,
}

impl MaskedLmNames {
    /// Name of the first linear layer with a weight of its own, by which a folder with this head is known.
    pub fn first(&self) -> &'static str {
        self.transform.map_or(self.decoder, |names| names.dense)
    }
}

/// The head that classifies pairs of segments: a linear layer after the pooler. The pooler is also the first
/// layer of the classifier.
#[derive(Debug, Clone, Copy)]
pub struct SentencePairNames {
    /// Name of the linear layer to two classes.
    pub output: &'static str,
    /// True if its input has dropout, like the input of a classifier's last layer.
    pub drops_input: bool,
}

/// Replaced-token detection in a family: the head, and the generator that is trained with it.
#[derive(Debug, Clone, Copy)]
pub struct ReplacedTokens {
    /// Name of the head's norm, if it has one. Its input is the sum of a token's hidden state and that of the
    /// first token.
    pub norm: Option<&'static str>,
    /// Name of the head's first linear layer.
    pub dense: &'static str,
    /// Name of the head's linear layer to one number.
    pub output: &'static str,
    /// True if transformers has a class for a model with this head.
    pub has_class: bool,
    /// True if models of the family are pretrained this way by default.
    pub is_usual: bool,
    /// Embeddings that generator and discriminator share.
    pub sharing: EmbeddingSharing,
    /// Default size of the generator.
    pub generator: GeneratorSize,
}

/// Sharing of embeddings between generator and discriminator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EmbeddingSharing {
    /// All embeddings are shared.
    Whole,
    /// The discriminator's word embedding is the generator's plus a difference that starts at zero. Gradients
    /// of the discriminator reach only the difference (gradient-disentangled embedding sharing, He et al.
    /// 2021, section 3.3).
    Disentangled,
}

/// Size of a generator relative to its discriminator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GeneratorSize {
    /// A quarter of the width, in whole attention heads.
    QuarterOfWidth,
    /// The same width and half of the layers.
    HalfOfDepth,
}

/// Activation between the two linear layers of a sequence classifier.
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
    /// First linear layer. If it is the encoder's pooler, folders without a classifier contain it, too.
    pub dense: &'static str,
    /// True if the first linear layer has a bias.
    pub has_bias: bool,
    /// Norm after the activation, if there is one.
    pub norm: Option<&'static str>,
    /// Linear layer to labels.
    pub output: &'static str,
    /// True if the input of the first linear layer has dropout, too.
    pub drops_input: bool,
    /// Activation between the two linear layers.
    pub activation: HeadActivation,
}

/// Role of a special token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpecialRole {
    /// Starts a text.
    Cls,
    /// Ends a text.
    Sep,
}

/// Names of special tokens, by role.
#[derive(Debug, Clone, Copy)]
pub struct SpecialNames {
    /// All special tokens, in the order of their ids.
    pub order: [&'static str; 5],
    /// Starts a text.
    pub cls: &'static str,
    /// Ends a text.
    pub sep: &'static str,
    /// Padding.
    pub pad: &'static str,
    /// Takes the place of text that the vocabulary cannot represent.
    pub unk: &'static str,
    /// Takes the place of a token that is to be predicted.
    pub mask: &'static str,
    /// Text before and after the number, in the name of an entry that only fills up the vocabulary.
    pub unused: (&'static str, &'static str),
}

impl SpecialNames {
    /// Id of the special token with this name; 0 if there is none.
    pub fn id(&self, name: &str) -> usize {
        self.order.iter().position(|known| *known == name).unwrap_or_default()
    }
}

impl EncoderConfig {
    /// The defaults of a family: those of its base model on the Hugging Face Hub.
    pub fn of(family: Family) -> Self {
        family.defaults.clone()
    }
}
