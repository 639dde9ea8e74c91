//! Byte-level BPE: every byte can be spelled, nothing is unknown, and decoding returns the text.

use std::collections::HashMap;

use serde_json::{Value, json};

use crate::tokenizer::bpe;
use crate::tokenizer::fast::byte_bpe::byte_characters;
use crate::tokenizer::train::{Learned, Task};

/// Learns merges from words in the characters that represent bytes.
pub(super) fn learn(task: Task, progress: impl FnMut(usize)) -> Learned {
    let Task { words, names, options, vocab_size } = task;
    let mut alphabet = byte_characters();
    alphabet.sort_unstable();
    let mut spellings: Vec<String> = names.order.iter().map(ToString::to_string).collect();
    let ids: HashMap<char, u32> =
        alphabet.iter().zip(spellings.len() as u32..).map(|(c, id)| (*c, id)).collect();
    spellings.extend(alphabet.iter().map(ToString::to_string));
    let words = words
        .into_iter()
        .map(|(word, count)| bpe::Word {
            symbols: word.chars().filter_map(|c| ids.get(&c).copied()).collect(),
            count,
        })
        .collect();
    let mut learned = bpe::learn(words, spellings, "", vocab_size, options.min_frequency, progress);
    let merges: Vec<[String; 2]> = learned
        .merges
        .iter()
        .map(|&(a, b)| [learned.spellings[a as usize].clone(), learned.spellings[b as usize].clone()])
        .collect();
    names.fill(&mut learned.spellings, options.filled_size());
    let vocab: serde_json::Map<String, Value> =
        learned.spellings.iter().zip(0u32..).map(|(s, id)| (s.clone(), id.into())).collect();
    // A family's own class rebuilds its pipeline without a normalizer; the general class uses tokenizer.json
    // as it is.
    let class = options.family.byte_level_class.filter(|_| !options.changes_letters());
    let class = class.unwrap_or("PreTrainedTokenizerFast");
    let more =
        json!({"add_prefix_space": options.add_prefix_space, "trim_offsets": true, "errors": "replace"});
    let merge_lines =
        merges.iter().fold("#version: 0.2\n".to_string(), |text, [a, b]| text + a + " " + b + "\n");
    let model = json!({
        "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": "", "end_of_word_suffix": "",
        "fuse_unk": false, "byte_fallback": false, "ignore_merges": false, "vocab": vocab, "merges": merges,
    });
    Learned {
        config: names.config(class, options.model_max_length, more),
        files: vec![
            ("vocab.json".to_string(), Value::Object(vocab).to_string().into_bytes()),
            ("merges.txt".to_string(), merge_lines.into_bytes()),
        ],
        model,
        notes: Vec::new(),
    }
}
