//! Trains a byte-level BPE: every byte can be spelled, nothing is unknown, and decoding gives the text back.
//!
//! Texts are counted as words as they come, so memory holds the distinct words and never the corpus.

use std::collections::HashMap;

use anyhow::Result;
use rayon::prelude::*;
use serde_json::Value;
use serde_json::json;
use tokenizers::OffsetReferential;
use tokenizers::OffsetType;
use tokenizers::PreTokenizedString;
use tokenizers::PreTokenizer;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;

use crate::config::Family;
use crate::error::Problem;
use crate::tokenizer::Tokenizer;
use crate::tokenizer::bpe;
use crate::tokenizer::files;

/// What to train.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BpeOptions {
    /// Whose special tokens to use.
    pub family: Family,
    /// Entries of the vocabulary, special tokens included; a small corpus may give fewer.
    pub vocab_size: usize,
    /// Pairs seen fewer times than this are not merged.
    pub min_frequency: u64,
    /// Longest input of the model, special tokens included; transformers reads it from the tokenizer's files.
    pub model_max_length: usize,
}

/// Names of the special tokens in the order of their ids, by role.
struct Names {
    order: [&'static str; 5],
    cls: &'static str,
    sep: &'static str,
    pad: &'static str,
    unk: &'static str,
    mask: &'static str,
}

fn names_of(family: Family) -> Names {
    match family {
        Family::Roberta => Names {
            order: ["<s>", "<pad>", "</s>", "<unk>", "<mask>"],
            cls: "<s>",
            sep: "</s>",
            pad: "<pad>",
            unk: "<unk>",
            mask: "<mask>",
        },
        Family::Bert => Names {
            order: ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"],
            cls: "[CLS]",
            sep: "[SEP]",
            pad: "[PAD]",
            unk: "[UNK]",
            mask: "[MASK]",
        },
    }
}

/// Counts words, then learns from the counts.
pub struct BpeTrainer {
    options: BpeOptions,
    counts: HashMap<String, u64>,
}

impl BpeTrainer {
    /// A trainer that has seen no text; a vocabulary too small for all bytes is an error.
    pub fn new(options: BpeOptions) -> Result<Self> {
        let least = names_of(options.family).order.len() + 256;
        if options.vocab_size < least {
            return Err(Problem::usage(format!("is {}, a byte-level vocabulary has at least {least} entries", options.vocab_size))
                .at("tokenizer.vocab_size")
                .into());
        }
        Ok(Self { options, counts: HashMap::new() })
    }

    /// Counts the words of some texts, in parallel.
    pub fn add<T: AsRef<str> + Sync>(&mut self, texts: &[T]) -> Result<()> {
        let parts: Vec<HashMap<String, u64>> = texts.par_iter().map(|text| count_words(text.as_ref())).collect::<Result<_>>()?;
        for part in parts {
            #[expect(clippy::iter_over_hash_type, reason = "sums do not depend on the order")]
            for (word, count) in part {
                *self.counts.entry(word).or_default() += count;
            }
        }
        Ok(())
    }

    /// Learns the vocabulary; `progress` gets its size as it grows.
    pub fn finish(self, progress: impl FnMut(usize)) -> Result<Tokenizer> {
        let names = names_of(self.options.family);
        let alphabet = alphabet();
        let mut spellings: Vec<String> = names.order.iter().map(ToString::to_string).collect();
        let ids: HashMap<char, u32> = alphabet.iter().zip(spellings.len() as u32..).map(|(c, id)| (*c, id)).collect();
        spellings.extend(alphabet.iter().map(ToString::to_string));
        let mut counts: Vec<(String, u64)> = self.counts.into_iter().collect();
        counts.sort_unstable();
        let words = counts
            .into_iter()
            .map(|(word, count)| bpe::Word { symbols: word.chars().filter_map(|c| ids.get(&c).copied()).collect(), count })
            .collect();
        let learned = bpe::learn(words, spellings, self.options.vocab_size, self.options.min_frequency, progress);
        Tokenizer::from_files(files_of(&learned, &names, &self.options), "the trained tokenizer")
    }
}

/// The characters that stand for the 256 bytes, in the order of their code points.
fn alphabet() -> Vec<char> {
    let mut characters: Vec<char> = ByteLevel::alphabet().into_iter().collect();
    characters.sort_unstable();
    characters
}

/// The words of a text in the alphabet of byte characters; RoBERTa's way: no space is put before the first word.
fn count_words(text: &str) -> Result<HashMap<String, u64>> {
    let cannot = |e| Problem::new(format!("cannot split a text into words: {e}"));
    let mut split = PreTokenizedString::from(text);
    ByteLevel::new(false, true, true).pre_tokenize(&mut split).map_err(cannot)?;
    let mut counts: HashMap<String, u64> = HashMap::new();
    for (word, ..) in split.get_splits(OffsetReferential::Normalized, OffsetType::None) {
        if let Some(count) = counts.get_mut(word) {
            *count += 1;
        } else {
            counts.insert(word.to_string(), 1);
        }
    }
    Ok(counts)
}

fn files_of(learned: &bpe::Learned, names: &Names, options: &BpeOptions) -> Vec<(String, Vec<u8>)> {
    let vocab: serde_json::Map<String, Value> = learned.spellings.iter().zip(0u32..).map(|(s, id)| (s.clone(), id.into())).collect();
    let merges: Vec<[&String; 2]> =
        learned.merges.iter().map(|&(a, b)| [&learned.spellings[a as usize], &learned.spellings[b as usize]]).collect();
    let merge_lines = merges.iter().fold("#version: 0.2\n".to_string(), |text, [a, b]| text + a + " " + b + "\n");
    let tokenizer = json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": added_tokens(names),
        "normalizer": null,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        "post_processor": post_processor(names, options.family),
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": "", "end_of_word_suffix": "",
            "fuse_unk": false, "byte_fallback": false, "ignore_merges": false, "vocab": vocab, "merges": merges,
        },
    });
    let class = match options.family {
        Family::Roberta => "RobertaTokenizer",
        // transformers has no class for a BERT with byte-level BPE; this one reads tokenizer.json as it is.
        Family::Bert => "PreTrainedTokenizerFast",
    };
    let config = json!({
        "tokenizer_class": class,
        "add_prefix_space": false,
        "trim_offsets": true,
        "clean_up_tokenization_spaces": false,
        "errors": "replace",
        "model_max_length": options.model_max_length,
        "bos_token": names.cls, "eos_token": names.sep, "cls_token": names.cls, "sep_token": names.sep,
        "pad_token": names.pad, "unk_token": names.unk, "mask_token": names.mask,
    });
    vec![
        ("tokenizer.json".to_string(), files::pretty(&tokenizer)),
        ("tokenizer_config.json".to_string(), files::pretty(&config)),
        ("vocab.json".to_string(), Value::Object(vocab).to_string().into_bytes()),
        ("merges.txt".to_string(), merge_lines.into_bytes()),
    ]
}

fn added_tokens(names: &Names) -> Vec<Value> {
    let token = |(id, name): (usize, &&str)| {
        let lstrip = *name == names.mask;
        json!({"id": id, "content": name, "single_word": false, "lstrip": lstrip, "rstrip": false, "normalized": false, "special": true})
    };
    names.order.iter().enumerate().map(token).collect()
}

/// What stands around one text and a pair: `<s> a </s>` and `<s> a </s></s> b </s>`, or `[CLS] a [SEP]` and
/// `[CLS] a [SEP] b [SEP]` with token type 1 from `b` on.
fn post_processor(names: &Names, family: Family) -> Value {
    let id = |name: &str| names.order.iter().position(|n| *n == name).unwrap_or_default();
    if family == Family::Roberta {
        let (sep, cls) = (json!([names.sep, id(names.sep)]), json!([names.cls, id(names.cls)]));
        return json!({"type": "RobertaProcessing", "sep": sep, "cls": cls, "trim_offsets": true, "add_prefix_space": false});
    }
    let special = |name: &str, type_id: u32| json!({"SpecialToken": {"id": name, "type_id": type_id}});
    let sequence = |name: &str, type_id: u32| json!({"Sequence": {"id": name, "type_id": type_id}});
    let entry = |name: &str| json!({"id": name, "ids": [id(name)], "tokens": [name]});
    let single = [special(names.cls, 0), sequence("A", 0), special(names.sep, 0)];
    let pair = [&single[..], &[sequence("B", 1), special(names.sep, 1)]].concat();
    let tokens = json!({names.cls: entry(names.cls), names.sep: entry(names.sep)});
    json!({"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": tokens})
}
