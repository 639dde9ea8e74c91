//! The tokenizer of an old folder of BERT or MPNet, which has a `vocab.txt` and no `tokenizer.json`:
//! WordPiece, as `BertTokenizer` and `MPNetTokenizer` of transformers make it of that file.

use anyhow::Result;
use serde_json::Map;
use serde_json::Value;
use serde_json::json;

use crate::error::Problem;

/// Longer words are unknown (BERT's limit).
const WORD_CHARACTERS_MAX: usize = 100;

/// Special tokens, and how they stand around a pair.
struct Special {
    cls: &'static str,
    sep: &'static str,
    pad: &'static str,
    mask: &'static str,
    /// Whether two separators stand between the texts, and all is of one type; and the mask takes the space
    /// before it.
    is_mpnet: bool,
}

const UNK: &str = "[UNK]";
const BERT: Special = Special { cls: "[CLS]", sep: "[SEP]", pad: "[PAD]", mask: "[MASK]", is_mpnet: false };
/// Its vocabulary is BERT's and these.
const MPNET: Special = Special { cls: "<s>", sep: "</s>", pad: "<pad>", mask: "<mask>", is_mpnet: true };

/// The `tokenizer.json` of a `vocab.txt` called `place`, an entry a line; `config` is the
/// `tokenizer_config.json` beside it. Where that does not say `do_lower_case`, a vocabulary that has capital
/// letters is cased.
pub(super) fn tokenizer_json(vocabulary: &[u8], config: Option<&[u8]>, place: &str) -> Result<Vec<u8>> {
    let text =
        std::str::from_utf8(vocabulary).map_err(|e| Problem::new(format!("is not UTF-8: {e}")).at(place))?;
    let entries: Vec<&str> = text.lines().map(|line| line.trim_end_matches('\r')).collect();
    let vocab: Map<String, Value> =
        entries.iter().zip(0u32..).map(|(s, id)| ((*s).to_string(), id.into())).collect();
    let config: Value = config.and_then(|bytes| serde_json::from_slice(bytes).ok()).unwrap_or_default();
    let id = |name: &str| {
        let missing = || {
            let hint = "is it a vocabulary of BERT or MPNet?";
            Problem::new(format!("has no entry `{name}`")).at(place).hint(hint)
        };
        vocab.get(name).cloned().ok_or_else(missing)
    };
    let is_mpnet = [MPNET.cls, MPNET.sep, MPNET.pad, MPNET.mask].iter().all(|name| vocab.contains_key(*name));
    let Special { cls, sep, pad, mask, is_mpnet } = if is_mpnet { MPNET } else { BERT };
    let ids = [id(cls)?, id(sep)?];
    id(UNK)?;
    let is_special = |entry: &str| entry.starts_with('[') && entry.ends_with(']') && entry.len() > 2;
    let has_capitals =
        entries.iter().any(|entry| !is_special(entry) && entry.chars().any(char::is_uppercase));
    let lowercase = config["do_lower_case"].as_bool().unwrap_or(!has_capitals);
    let token = |name: &str, type_id: u32| json!({"SpecialToken": {"id": name, "type_id": type_id}});
    let sequence = |name: &str, type_id: u32| json!({"Sequence": {"id": name, "type_id": type_id}});
    let single = [token(cls, 0), sequence("A", 0), token(sep, 0)];
    let pair = if is_mpnet {
        [&single[..], &[token(sep, 0), sequence("B", 0), token(sep, 0)]].concat()
    } else {
        [&single[..], &[sequence("B", 1), token(sep, 1)]].concat()
    };
    let entry = |name: &str, id: &Value| json!({"id": name, "ids": [id], "tokens": [name]});
    let added = |name: &&str| {
        let id = vocab.get(*name)?;
        Some(json!({
            "id": id,
            "content": name,
            "single_word": false,
            "lstrip": is_mpnet && *name == mask,
            "rstrip": false,
            "normalized": false,
            "special": true,
        }))
    };
    let names = [pad, UNK, cls, sep, mask];
    let mut added: Vec<Value> = names.iter().filter_map(added).collect();
    added.sort_by_key(|token| token["id"].as_u64());
    let json = json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": added,
        "normalizer": {
            "type": "BertNormalizer", "clean_text": true, "lowercase": lowercase,
            "handle_chinese_chars": config["tokenize_chinese_chars"].as_bool().unwrap_or(true),
            "strip_accents": config["strip_accents"].as_bool(),
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing", "single": single, "pair": pair,
            "special_tokens": {cls: entry(cls, &ids[0]), sep: entry(sep, &ids[1])},
        },
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
        "model": {
            "type": "WordPiece", "unk_token": UNK, "continuing_subword_prefix": "##",
            "max_input_chars_per_word": WORD_CHARACTERS_MAX, "vocab": vocab,
        },
    });
    Ok(json.to_string().into_bytes())
}

#[cfg(test)]
mod tests {
    use crate::tokenizer::Tokenizer;

    const CASED: &str = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nThe\nthe\nbird\n##s\nsing\n.\ncafé\ncafe\n";

    fn load(vocabulary: &str, config: Option<&str>) -> anyhow::Result<Tokenizer> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("vocab.txt"), vocabulary).unwrap();
        if let Some(config) = config {
            std::fs::write(folder.path().join("tokenizer_config.json"), config).unwrap();
        }
        Tokenizer::load(folder.path())
    }

    #[test]
    fn words_are_cut_as_bert_cuts_them() {
        let tokenizer = load(CASED, None).unwrap();
        assert_eq!(tokenizer.encode("The birds sing.").unwrap(), [5, 7, 8, 9, 10]);
        assert_eq!(tokenizer.encode("the café[MASK] Wolf").unwrap(), [6, 11, 4, 1]);
        assert_eq!((tokenizer.special().cls, tokenizer.special().pad), (2, 0));
        assert_eq!(tokenizer.vocab_size(), 13);
        assert!(tokenizer.files().iter().any(|(name, _)| name == "tokenizer.json"));
    }

    #[test]
    fn letters_are_lowered_where_the_files_say_so() {
        let lowered = [6, 7, 12];
        let uncased = CASED.replace("The\n", "a\n");
        assert_eq!(load(&uncased, None).unwrap().encode("THE bird Café").unwrap(), lowered);
        let config = Some(r#"{"do_lower_case": true}"#);
        assert_eq!(load(CASED, config).unwrap().encode("THE bird Café").unwrap(), lowered);
        let config = Some(r#"{"do_lower_case": false}"#);
        assert_eq!(load(&uncased, config).unwrap().encode("the bird café").unwrap(), [6, 7, 11]);
    }

    /// BERT's special tokens are words like others there.
    #[test]
    fn a_vocabulary_of_mpnet_has_its_special_tokens() {
        let words = CASED.replace("The\n", "");
        let tokenizer = load(&format!("<s>\n<pad>\n</s>\n<unk>\n{words}<mask>\n"), None).unwrap();
        let special = tokenizer.special();
        assert_eq!((special.cls, special.pad, special.sep), (0, 1, 2));
        assert_eq!((special.mask, special.unk), (Some(16), Some(5)));
        assert_eq!(tokenizer.encode("the <mask> Wolf").unwrap(), [9, 16, 5]);
        let (_, json) = tokenizer.files().iter().find(|(name, _)| name == "tokenizer.json").unwrap();
        let json: serde_json::Value = serde_json::from_slice(json).unwrap();
        let around: Vec<&str> = json["post_processor"]["pair"]
            .as_array()
            .unwrap()
            .iter()
            .map(|part| part["SpecialToken"]["id"].as_str().unwrap_or_default())
            .collect();
        assert_eq!(around, ["<s>", "", "</s>", "</s>", "", "</s>"]);
    }

    #[test]
    fn a_list_of_other_words_is_refused() {
        let error = format!("{:#}", load("one\ntwo\n", None).err().unwrap());
        assert!(error.contains("vocab.txt: has no entry `[CLS]`"), "{error}");
    }
}
