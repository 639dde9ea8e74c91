//! The tokenizer classes of transformers 5 that this program supports: how the class of a folder is chosen,
//! and what each class does with the files.

use serde_json::Value;

use base::error::Problem;

/// A class of transformers 5. All but [`Class::General`] rebuild normalizer, pre-tokenizer and template, and
/// use only the vocabulary of a tokenizer.json.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// `TokenizersBackend`, formerly `PreTrainedTokenizerFast`: uses a tokenizer.json as it is.
    General,
    Albert,
    Bert,
    Camembert,
    Deberta,
    DebertaV2,
    DistilBert,
    Gpt2,
    Herbert,
    Mpnet,
    Roberta,
    XlmRoberta,
}

/// The kind of model in a tokenizer.json that a class builds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    WordPiece,
    Bpe,
    Unigram,
}

/// Classes by name, without "Fast" at the end; the first name of a class is the one that is written.
const NAMES: [(&str, Class); 24] = [
    ("PreTrainedTokenizerFast", Class::General),
    ("PreTrainedTokenizer", Class::General),
    ("TokenizersBackend", Class::General),
    ("PythonBackend", Class::General),
    ("AlbertTokenizer", Class::Albert),
    ("BertTokenizer", Class::Bert),
    ("ElectraTokenizer", Class::Bert),
    ("LayoutLMTokenizer", Class::Bert),
    ("LxmertTokenizer", Class::Bert),
    ("MobileBertTokenizer", Class::Bert),
    ("SqueezeBertTokenizer", Class::Bert),
    ("CamembertTokenizer", Class::Camembert),
    ("DebertaTokenizer", Class::Deberta),
    ("DebertaV2Tokenizer", Class::DebertaV2),
    ("DistilBertTokenizer", Class::DistilBert),
    ("GPT2Tokenizer", Class::Gpt2),
    ("HerbertTokenizer", Class::Herbert),
    ("MPNetTokenizer", Class::Mpnet),
    ("RobertaTokenizer", Class::Roberta),
    ("BartTokenizer", Class::Roberta),
    ("LEDTokenizer", Class::Roberta),
    ("LongformerTokenizer", Class::Roberta),
    ("XLMRobertaTokenizer", Class::XlmRoberta),
    ("PreTrainedTokenizerBase", Class::General),
];

/// The class for a model type, if no file names a class.
const OF_MODELS: [(&str, Class); 11] = [
    ("albert", Class::Albert),
    ("bert", Class::Bert),
    ("camembert", Class::Camembert),
    ("deberta", Class::Deberta),
    ("deberta-v2", Class::DebertaV2),
    ("distilbert", Class::Bert),
    ("electra", Class::Bert),
    ("modernbert", Class::General),
    ("mpnet", Class::Mpnet),
    ("roberta", Class::Roberta),
    ("xlm-roberta", Class::XlmRoberta),
];

impl Class {
    /// The class of a folder by its `tokenizer_config.json` and `config.json`, as `AutoTokenizer` of
    /// transformers 5.24 chooses it; `None` if neither determines one.
    pub(super) fn choose(settings: &Value, model: &Value, place: &str) -> Result<Option<Self>, Problem> {
        let of_model =
            OF_MODELS.iter().find(|(name, _)| model["model_type"] == *name).map(|(_, class)| *class);
        // Published folders of ModernBERT name classes that do not match their tokenizers.
        if of_model == Some(Self::General) {
            return Ok(of_model);
        }
        for (file, key) in [
            ("tokenizer_config.json", &settings["tokenizer_class"]),
            ("config.json", &model["tokenizer_class"]),
        ] {
            match key {
                Value::Null => {}
                Value::String(name) if name.is_empty() => {}
                Value::String(name) => return Self::named(name, settings, file, place).map(Some),
                other => {
                    let message = format!("`tokenizer_class` of {file} is {other}, a name is wanted");
                    return Err(Problem::new(message).at(place));
                }
            }
        }
        Ok(of_model)
    }

    fn named(name: &str, settings: &Value, file: &str, place: &str) -> Result<Self, Problem> {
        let found = NAMES.iter().find(|(known, _)| without_fast(known) == without_fast(name));
        found.map(|(_, class)| *class).ok_or_else(|| {
            let code = if settings["auto_map"]["AutoTokenizer"].is_null() {
                ""
            } else {
                ", which is code of its own,"
            };
            Problem::new(format!("`tokenizer_class` of {file} is `{name}`{code} which is not supported"))
                .at(place)
                .hint("where its tokenizer.json says all, name `PreTrainedTokenizerFast` there")
        })
    }

    /// The name that is written.
    pub(super) fn name(self) -> &'static str {
        NAMES.iter().find(|(_, class)| *class == self).map_or("PreTrainedTokenizerFast", |(name, _)| name)
    }

    /// Returns true if `name` means this class.
    pub(super) fn is_named(self, name: &str) -> bool {
        NAMES.iter().any(|(known, class)| *class == self && without_fast(known) == without_fast(name))
    }

    /// The kind of model that the class builds from a vocabulary; `None` if it keeps the existing model.
    pub(super) fn kind(self) -> Option<Kind> {
        match self {
            Self::General => None,
            Self::Bert | Self::DistilBert | Self::Mpnet => Some(Kind::WordPiece),
            Self::Deberta | Self::Gpt2 | Self::Herbert | Self::Roberta => Some(Kind::Bpe),
            Self::Albert | Self::Camembert | Self::DebertaV2 | Self::XlmRoberta => Some(Kind::Unigram),
        }
    }

    /// Returns true if models get token types when `model_input_names` is absent.
    pub(super) fn gives_token_types(self) -> bool {
        matches!(self, Self::Bert | Self::Deberta | Self::DebertaV2)
    }

    /// Special tokens by role, for roles that no file names.
    pub(super) fn special_tokens(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::General => &[],
            Self::Bert | Self::DistilBert => &[
                ("unk_token", "[UNK]"),
                ("sep_token", "[SEP]"),
                ("pad_token", "[PAD]"),
                ("cls_token", "[CLS]"),
                ("mask_token", "[MASK]"),
            ],
            Self::Mpnet => &[
                ("bos_token", "<s>"),
                ("eos_token", "</s>"),
                ("unk_token", "[UNK]"),
                ("sep_token", "</s>"),
                ("pad_token", "<pad>"),
                ("cls_token", "<s>"),
                ("mask_token", "<mask>"),
            ],
            Self::Roberta | Self::XlmRoberta | Self::Camembert => &[
                ("bos_token", "<s>"),
                ("eos_token", "</s>"),
                ("unk_token", "<unk>"),
                ("sep_token", "</s>"),
                ("pad_token", "<pad>"),
                ("cls_token", "<s>"),
                ("mask_token", "<mask>"),
            ],
            Self::Albert => &[
                ("bos_token", "[CLS]"),
                ("eos_token", "[SEP]"),
                ("unk_token", "<unk>"),
                ("sep_token", "[SEP]"),
                ("pad_token", "<pad>"),
                ("cls_token", "[CLS]"),
                ("mask_token", "[MASK]"),
            ],
            Self::Deberta | Self::DebertaV2 => &[
                ("bos_token", "[CLS]"),
                ("eos_token", "[SEP]"),
                ("unk_token", "[UNK]"),
                ("sep_token", "[SEP]"),
                ("pad_token", "[PAD]"),
                ("cls_token", "[CLS]"),
                ("mask_token", "[MASK]"),
            ],
            Self::Gpt2 => &[
                ("bos_token", "<|endoftext|>"),
                ("eos_token", "<|endoftext|>"),
                ("unk_token", "<|endoftext|>"),
            ],
            Self::Herbert => &[
                ("unk_token", "<unk>"),
                ("sep_token", "</s>"),
                ("pad_token", "<pad>"),
                ("cls_token", "<s>"),
                ("mask_token", "<mask>"),
            ],
        }
    }

    /// Special tokens without a role that no file names.
    pub(super) fn extra_tokens(self) -> &'static [&'static str] {
        match self {
            Self::Camembert => &["<s>NOTUSED", "</s>NOTUSED", "<unk>NOTUSED"],
            _ => &[],
        }
    }

    /// Returns true if the mask token includes the space before it when only its name is given.
    pub(super) fn mask_takes_space(self) -> bool {
        matches!(self, Self::Mpnet | Self::Camembert)
    }
}

/// The name of a class without "Fast" at the end.
fn without_fast(name: &str) -> &str {
    name.strip_suffix("Fast").unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "the callers write the value in place")]
    fn chosen(settings: Value, model: Value) -> Result<Option<Class>, String> {
        Class::choose(&settings, &model, "here").map_err(|problem| problem.to_string())
    }

    #[test]
    fn a_class_is_chosen_as_auto_tokenizer_does() {
        let bert = json!({"model_type": "bert"});
        assert_eq!(chosen(json!({}), bert.clone()), Ok(Some(Class::Bert)));
        assert_eq!(
            chosen(json!({"tokenizer_class": "RobertaTokenizerFast"}), bert.clone()),
            Ok(Some(Class::Roberta))
        );
        assert_eq!(
            chosen(json!({"tokenizer_class": "PreTrainedTokenizerFast"}), bert),
            Ok(Some(Class::General))
        );
        let both = json!({"model_type": "bert", "tokenizer_class": "XLMRobertaTokenizer"});
        assert_eq!(chosen(json!({}), both.clone()), Ok(Some(Class::XlmRoberta)));
        assert_eq!(chosen(json!({"tokenizer_class": "ElectraTokenizer"}), both), Ok(Some(Class::Bert)));
        let modern = json!({"model_type": "modernbert"});
        assert_eq!(chosen(json!({"tokenizer_class": "BertTokenizer"}), modern), Ok(Some(Class::General)));
        assert_eq!(chosen(Value::Null, Value::Null), Ok(None));
    }

    #[test]
    fn a_class_that_is_not_supported_is_refused_by_name() {
        let refused = chosen(json!({"tokenizer_class": "BertJapaneseTokenizer"}), Value::Null).unwrap_err();
        assert!(
            refused.contains("`tokenizer_class` of tokenizer_config.json is `BertJapaneseTokenizer`"),
            "{refused}"
        );
        let refused = chosen(json!({}), json!({"tokenizer_class": "CanineTokenizer"})).unwrap_err();
        assert!(refused.contains("config.json is `CanineTokenizer`"), "{refused}");
    }

    #[test]
    fn the_written_name_means_the_class() {
        for (name, class) in NAMES {
            assert!(class.is_named(name) && class.is_named(class.name()), "{name}");
        }
    }
}
