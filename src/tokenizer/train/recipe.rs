//! The parts of a tokenizer.json that are known before anything is learnt, for each algorithm.

use serde_json::Value;
use serde_json::json;

use crate::config::TokenizerAlgorithm;
use crate::tokenizer::train::TrainerOptions;

/// Normalizer, pre-tokenizer and decoder.
pub(super) struct Recipe {
    pub(super) normalizer: Value,
    pub(super) pre_tokenizer: Value,
    pub(super) decoder: Value,
}

impl Recipe {
    pub(super) fn of(options: &TrainerOptions) -> Self {
        match options.algorithm {
            // RoBERTa's way: no space is put before the first word.
            TokenizerAlgorithm::ByteLevelBpe => Self {
                normalizer: letters(options),
                pre_tokenizer: json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true}),
                decoder: json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true}),
            },
            TokenizerAlgorithm::WordPiece => Self {
                normalizer: json!({
                    "type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
                    "strip_accents": options.strip_accents, "lowercase": options.lowercase,
                }),
                pre_tokenizer: json!({"type": "BertPreTokenizer"}),
                decoder: json!({"type": "WordPiece", "prefix": "##", "cleanup": true}),
            },
            // Nothing is put before the first word, and lines are kept apart, so that every text comes back
            // as it was.
            TokenizerAlgorithm::Unigram => Self {
                normalizer: letters(options),
                pre_tokenizer: json!({"type": "Sequence", "pretokenizers": [
                    {"type": "Split", "pattern": {"String": "\n"}, "behavior": "Isolated", "invert": false},
                    {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never", "split": true},
                ]}),
                decoder: json!({"type": "Sequence", "decoders": [
                    {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                    {"type": "ByteFallback"},
                    {"type": "Fuse"},
                ]}),
            },
        }
    }
}

/// What is done to letters; nothing at all where nothing is asked for.
fn letters(options: &TrainerOptions) -> Value {
    let mut parts = Vec::new();
    if options.strip_accents {
        parts.extend([json!({"type": "NFD"}), json!({"type": "StripAccents"})]);
    }
    if options.lowercase {
        parts.push(json!({"type": "Lowercase"}));
    }
    if options.strip_accents {
        parts.push(json!({"type": "NFC"}));
    }
    if parts.is_empty() { Value::Null } else { json!({"type": "Sequence", "normalizers": parts}) }
}
