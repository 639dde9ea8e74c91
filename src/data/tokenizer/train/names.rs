//! The special tokens of each family: their names, their ids, and their positions around a text.

use std::ops::Deref;

use serde_json::{Value, json};

use crate::tokenizer::framing::{template_entry, template_text, template_token};
use crate::tokenizer::train::TrainerOptions;
use crate::tokenizer::{files, prefix};
use base::families::{Family, SpecialNames};
use config::TokenizerAlgorithm;

/// The family's special tokens, in the form of tokenizer files.
pub(super) struct Names {
    family: Family,
    special: &'static SpecialNames,
}

impl Deref for Names {
    type Target = SpecialNames;

    fn deref(&self) -> &SpecialNames {
        self.special
    }
}

impl Names {
    pub(super) fn new(family: Family) -> Self {
        Self { family, special: family.special_names() }
    }

    /// The name of an unused entry.
    pub(super) fn unused(&self, number: usize) -> String {
        let (before, after) = self.special.unused;
        format!("{before}{number}{after}")
    }

    /// Fills a vocabulary with unused entries up to `size`.
    pub(super) fn fill(&self, spellings: &mut Vec<String>, size: usize) {
        let known = spellings.len();
        spellings.extend((known..size).map(|id| self.unused(id - known)));
    }

    /// The `added_tokens` of a tokenizer.json. RoBERTa's mask includes the space before it.
    pub(super) fn added_tokens(&self, mask_takes_space: bool) -> Vec<Value> {
        let tokens = self.order.iter().enumerate().map(|(id, name)| {
            let lstrip = mask_takes_space && *name == self.mask;
            json!({"id": id, "content": name, "single_word": false, "lstrip": lstrip, "rstrip": false, "normalized": false, "special": true})
        });
        tokens.collect()
    }

    /// The template of special tokens around one text and a pair: `<s> a </s>` and `<s> a </s></s> b </s>`,
    /// or `[CLS] a [SEP]` and `[CLS] a [SEP] b [SEP]` with token type 1 from `b` on. The positions of words
    /// in a byte-level vocabulary exclude the blank before them.
    pub(super) fn post_processor(&self, options: &TrainerOptions) -> Value {
        let around = self.around();
        match options.algorithm {
            TokenizerAlgorithm::ByteLevelBpe => prefix::trimming(around, options.add_prefix_space),
            TokenizerAlgorithm::WordPiece | TokenizerAlgorithm::Unigram => around,
        }
    }

    fn around(&self) -> Value {
        let [cls_id, sep_id] = [self.cls, self.sep].map(|name| self.id(name) as u32);
        if self.family.double_separator {
            let sep = json!([self.sep, sep_id]);
            let cls = json!([self.cls, cls_id]);
            return json!({"type": "RobertaProcessing", "sep": sep, "cls": cls, "trim_offsets": true, "add_prefix_space": false});
        }
        let single = [template_token(self.cls, 0), template_text("A", 0), template_token(self.sep, 0)];
        let pair = [&single[..], &[template_text("B", 1), template_token(self.sep, 1)]].concat();
        let tokens = json!({
            self.cls: template_entry(self.cls, Some(cls_id)),
            self.sep: template_entry(self.sep, Some(sep_id)),
        });
        json!({"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": tokens})
    }

    /// The `tokenizer_config.json`: the tokens by role, and `more`.
    pub(super) fn config(&self, class: &str, model_max_length: usize, more: Value) -> Value {
        let mut config = json!({
            "tokenizer_class": class,
            "clean_up_tokenization_spaces": false,
            "model_max_length": model_max_length,
            "bos_token": self.cls, "eos_token": self.sep, "cls_token": self.cls, "sep_token": self.sep,
            "pad_token": self.pad, "unk_token": self.unk, "mask_token": self.mask,
        });
        // Without this key, the inputs that transformers passes to a model differ by class and version.
        config[files::INPUT_NAMES] = files::input_names(self.family.second_type > 0);
        if let (Some(config), Value::Object(more)) = (config.as_object_mut(), more) {
            config.extend(more);
        }
        config
    }
}
