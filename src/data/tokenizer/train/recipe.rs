//! The parts of a tokenizer.json that are known before training, for each algorithm.

use serde_json::{Value, json};

use crate::tokenizer::prefix::unigram_words;
use crate::tokenizer::train::TrainerOptions;
use config::TokenizerAlgorithm;

/// Normalizer, pre-tokenizer and decoder of a tokenizer.json.
pub(super) struct Recipe {
    pub(super) normalizer: Value,
    pub(super) pre_tokenizer: Value,
    pub(super) decoder: Value,
}

impl Recipe {
    pub(super) fn new(options: &TrainerOptions) -> Self {
        match options.algorithm {
            TokenizerAlgorithm::ByteLevelBpe => Self {
                normalizer: letters(options),
                pre_tokenizer: json!({
                    "type": "ByteLevel", "add_prefix_space": options.add_prefix_space, "trim_offsets": true,
                    "use_regex": true,
                }),
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
            TokenizerAlgorithm::Unigram => Self {
                normalizer: letters(options),
                pre_tokenizer: unigram_words(),
                decoder: json!({"type": "Sequence", "decoders": [
                    {"type": "ByteFallback"},
                    {"type": "Fuse"},
                    {"type": "Replace", "pattern": {"String": "▁\n"}, "content": "\n"},
                    {"type": "Replace", "pattern": {"String": "\n▁"}, "content": "\n"},
                    {"type": "Strip", "content": "▁", "start": 1, "stop": 0},
                    {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                ]}),
            },
        }
    }
}

/// The normalizer of letters; null if the options change no letters.
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
