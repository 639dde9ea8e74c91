//! The special tokens of each family: their names, their ids, and where they stand around a text.

use serde_json::Value;
use serde_json::json;

use crate::config::Family;

/// Names of the special tokens in the order of their ids, by role.
pub(super) struct Names {
    pub(super) family: Family,
    pub(super) order: [&'static str; 5],
    pub(super) cls: &'static str,
    pub(super) sep: &'static str,
    pub(super) pad: &'static str,
    pub(super) unk: &'static str,
    pub(super) mask: &'static str,
}

impl Names {
    pub(super) fn of(family: Family) -> Self {
        match family {
            Family::Roberta => Self {
                family,
                order: ["<s>", "<pad>", "</s>", "<unk>", "<mask>"],
                cls: "<s>",
                sep: "</s>",
                pad: "<pad>",
                unk: "<unk>",
                mask: "<mask>",
            },
            Family::Bert => Self {
                family,
                order: ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"],
                cls: "[CLS]",
                sep: "[SEP]",
                pad: "[PAD]",
                unk: "[UNK]",
                mask: "[MASK]",
            },
        }
    }

    pub(super) fn id(&self, name: &str) -> usize {
        self.order.iter().position(|n| *n == name).unwrap_or_default()
    }

    /// The name of an entry that only fills the vocabulary up.
    pub(super) fn unused(&self, number: usize) -> String {
        match self.family {
            Family::Roberta => format!("<unused{number}>"),
            Family::Bert => format!("[unused{number}]"),
        }
    }

    /// Fills a vocabulary up to `size` entries.
    pub(super) fn fill(&self, spellings: &mut Vec<String>, size: usize) {
        let known = spellings.len();
        spellings.extend((known..size).map(|id| self.unused(id - known)));
    }

    /// `added_tokens` of a tokenizer.json. RoBERTa's mask takes the space before it.
    pub(super) fn added_tokens(&self, mask_takes_space: bool) -> Vec<Value> {
        let token = |(id, name): (usize, &&str)| {
            let lstrip = mask_takes_space && *name == self.mask;
            json!({"id": id, "content": name, "single_word": false, "lstrip": lstrip, "rstrip": false, "normalized": false, "special": true})
        };
        self.order.iter().enumerate().map(token).collect()
    }

    /// What stands around one text and a pair: `<s> a </s>` and `<s> a </s></s> b </s>`, or `[CLS] a [SEP]`
    /// and `[CLS] a [SEP] b [SEP]` with token type 1 from `b` on.
    pub(super) fn post_processor(&self) -> Value {
        let id = |name: &str| self.id(name);
        if self.family == Family::Roberta {
            let (sep, cls) = (json!([self.sep, id(self.sep)]), json!([self.cls, id(self.cls)]));
            return json!({"type": "RobertaProcessing", "sep": sep, "cls": cls, "trim_offsets": true, "add_prefix_space": false});
        }
        let special = |name: &str, type_id: u32| json!({"SpecialToken": {"id": name, "type_id": type_id}});
        let sequence = |name: &str, type_id: u32| json!({"Sequence": {"id": name, "type_id": type_id}});
        let entry = |name: &str| json!({"id": name, "ids": [id(name)], "tokens": [name]});
        let single = [special(self.cls, 0), sequence("A", 0), special(self.sep, 0)];
        let pair = [&single[..], &[sequence("B", 1), special(self.sep, 1)]].concat();
        let tokens = json!({self.cls: entry(self.cls), self.sep: entry(self.sep)});
        json!({"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": tokens})
    }

    /// `tokenizer_config.json`: which token has which role, and `more`.
    pub(super) fn config(&self, class: &str, model_max_length: usize, more: Value) -> Value {
        let mut config = json!({
            "tokenizer_class": class,
            "clean_up_tokenization_spaces": false,
            "model_max_length": model_max_length,
            "bos_token": self.cls, "eos_token": self.sep, "cls_token": self.cls, "sep_token": self.sep,
            "pad_token": self.pad, "unk_token": self.unk, "mask_token": self.mask,
        });
        if let (Some(config), Value::Object(more)) = (config.as_object_mut(), more) {
            config.extend(more);
        }
        config
    }
}
