//! What a fine-tuned folder says is what training did: tokens and token types of single texts, pairs and
//! words are those that its tokenizer.json and tokenizer_config.json give other readers, and the
//! probabilities are transformers' where that is installed.
//!
//! Transformers encodes with the `tokenizers` crate and reads tokenizer.json as it stands where no class of
//! its own is named, so the crate judges the tokens everywhere.

use std::fs;
use std::path::Path;
use std::process::Command;

use candle_core::{Device, Tensor};
use serde_json::{Value, json};
use tokenizers::{Encoding, InputSequence, Tokenizer};

use crate::finetune::rows;
use crate::material::corpus;
use crate::notes::skipped;
use crate::workplace::Workplace;

/// Texts that end lines, begin with blanks, have accents, marks alone, and words that are nothing.
const TEXTS: [&str; 14] = [
    "London",
    " the cat sees  the dog",
    "\tTab first",
    "one line\nanother line\n\n x",
    "Äänekoski İstanbul größer",
    "漢字 and 漢字漢字",
    "we'll don't 'tis",
    "e\u{301} cafe\u{301} \u{301} x",
    "a\u{a0}b \u{3000}c",
    "👩\u{200d}🚀 \u{200d} ok",
    "U.S. 3.5% (x)",
    "▁under score_",
    "<s> [CLS] </s> [SEP]",
    "the fox hides in the wood.",
];

const WORDS: [&[&str]; 6] = [
    &["London", "sees", "Äänekoski", "."],
    &["don't", "'s", "İstanbul", "U.S.", "(", "3.5", "%", ")"],
    &["the", "dog-house", "\u{200d}", "z"],
    &[" lead", "in side", "\u{301}", "e\u{301}"],
    &["漢字", "👩\u{200d}🚀", "▁x"],
    &["the", "cat", "sees", "the", "fox", "."],
];

struct Kind {
    family: &'static str,
    tokenizer: &'static str,
}

/// Each family, and each kind of vocabulary with families that have token types and such that have none.
const KINDS: [Kind; 15] = [
    Kind { family: "roberta", tokenizer: "{vocab_size: 400}" },
    Kind { family: "roberta", tokenizer: "{vocab_size: 400, lowercase: true, strip_accents: true}" },
    Kind { family: "roberta", tokenizer: "{vocab_size: 400, add_prefix_space: true}" },
    Kind { family: "bert", tokenizer: "{vocab_size: 400}" },
    Kind { family: "bert", tokenizer: "{vocab_size: 400, algorithm: unigram, lowercase: true}" },
    Kind { family: "bert", tokenizer: "{vocab_size: 400, algorithm: wordpiece, lowercase: true}" },
    Kind { family: "electra", tokenizer: "{vocab_size: 400, add_prefix_space: true}" },
    Kind { family: "albert", tokenizer: "{vocab_size: 400, algorithm: unigram}" },
    Kind { family: "deberta-v2", tokenizer: "{vocab_size: 400, algorithm: unigram}" },
    Kind { family: "modernbert", tokenizer: "{vocab_size: 400, add_prefix_space: true}" },
    Kind { family: "mpnet", tokenizer: "{vocab_size: 400, algorithm: wordpiece}" },
    Kind { family: "neobert", tokenizer: "{vocab_size: 400, algorithm: wordpiece, lowercase: true}" },
    Kind { family: "distilbert", tokenizer: "{vocab_size: 400, lowercase: true}" },
    Kind { family: "camembert", tokenizer: "{vocab_size: 400}" },
    Kind { family: "xlm-roberta", tokenizer: "{vocab_size: 400, algorithm: unigram}" },
];

const TASKS: [&str; 3] = ["single", "pair", "words"];

/// Pretrains a model of this kind for a step, then fine-tunes it for each of [`TASKS`].
fn train(place: &Workplace, name: &str, kind: &Kind) {
    let shape = match kind.family {
        "distilbert" => "dim: 16, n_layers: 1, n_heads: 2, hidden_dim: 32",
        "deberta-v2" => {
            "hidden_size: 16, num_hidden_layers: 1, num_attention_heads: 2, intermediate_size: 32, \
             position_buckets: 32"
        }
        _ => "hidden_size: 16, num_hidden_layers: 1, num_attention_heads: 2, intermediate_size: 32",
    };
    let positions = if kind.family == "neobert" { "max_length" } else { "max_position_embeddings" };
    let config = format!(
        "run: {{output_dir: {name}, threads: 1, sample_text: null, tensorboard: false}}\n\
         data: {{sources: [{{files: [corpus.txt], document: paragraph}}], validation_fraction: 0.1, \
         max_seq_length: 32}}\ntokenizer: {}\n\
         model: {{{}: {{{shape}, {positions}: 80}}}}\n\
         training: {{per_device_train_batch_size: 2, max_steps: 1, save_steps: 100, eval_steps: 100}}\n",
        kind.tokenizer, kind.family
    );
    fs::write(place.path("config.yaml"), config).unwrap();
    place.program(&["pretrain", "--config", "config.yaml"], "").ok();
    let pair = place.path(name).join("final/discriminator");
    let model = format!("{name}/final{}", if pair.exists() { "/discriminator" } else { "" });
    for task in TASKS {
        let what = if task == "words" { "token-classify" } else { "classify" };
        let (data, output) = (format!("{task}.jsonl"), format!("{name}/{task}"));
        let flags =
            ["finetune", "--task", what, "--model", &model, "--output-dir", &output, "--threads", "1"];
        let files = ["--train", &data, "--eval", &data];
        let sets = ["training.learning_rate=0.05", "training.max_steps=6", "data.max_seq_length=64"];
        let sets: Vec<&str> = sets.iter().flat_map(|set| ["--set", set]).collect();
        let columns: &[&str] =
            if task == "pair" { &["--text-column", "a", "--text-pair-column", "b"] } else { &[] };
        place.program(&[&flags[..], &files, &sets, columns].concat(), "").ok();
    }
}

/// Writes the rows of all tasks, each with some label.
fn write_rows(place: &Workplace) {
    fs::write(place.path("corpus.txt"), corpus(60) + &TEXTS.join("\n\n")).unwrap();
    let label = |row: usize| ["x", "y", "z"][row % 3];
    let lines = |rows: Vec<Value>| rows.iter().map(Value::to_string).collect::<Vec<_>>().join("\n") + "\n";
    let rows = || TEXTS.iter().enumerate();
    let single = rows().map(|(row, text)| json!({"text": text, "label": label(row)})).collect();
    let pair = rows().map(|(row, text)| json!({"a": text, "b": TEXTS[(row + 5) % 14], "label": label(row)}));
    let tags = |words: &[&str]| {
        (0..words.len()).map(|at| ["O", "B-PER", "I-PER", "B-LOC"][at % 4]).collect::<Vec<_>>()
    };
    let words = WORDS.iter().map(|words| json!({"tokens": words, "tags": tags(words)})).collect();
    fs::write(place.path("single.jsonl"), lines(single)).unwrap();
    fs::write(place.path("pair.jsonl"), lines(pair.collect())).unwrap();
    fs::write(place.path("words.jsonl"), lines(words)).unwrap();
}

fn read_json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// Ids and token types of each row, as another reader of the folder gets them.
fn read_by_others(folder: &Path, task: &str) -> Vec<(Vec<u32>, Vec<u32>)> {
    let mut tokenizer = Tokenizer::from_file(folder.join("tokenizer.json")).unwrap();
    tokenizer.set_encode_special_tokens(true);
    let config = read_json(&folder.join("tokenizer_config.json"));
    let names = config["model_input_names"].as_array().expect("what the model gets is said");
    let has_types = names.iter().any(|name| name == "token_type_ids");
    let encode = |row: usize| -> Encoding {
        match task {
            "single" => tokenizer.encode(TEXTS[row], true).unwrap(),
            "pair" => tokenizer.encode((TEXTS[row], TEXTS[(row + 5) % 14]), true).unwrap(),
            _ => tokenizer.encode(InputSequence::from(WORDS[row]), true).unwrap(),
        }
    };
    let rows = if task == "words" { WORDS.len() } else { TEXTS.len() };
    let types =
        |encoding: &Encoding| encoding.get_type_ids().iter().map(|t| t * u32::from(has_types)).collect();
    (0..rows).map(encode).map(|encoding| (encoding.get_ids().to_vec(), types(&encoding))).collect()
}

/// The same of a batch that the program wrote down.
fn read_by_us(path: &Path) -> Vec<(Vec<u32>, Vec<u32>)> {
    let tensors = candle_core::safetensors::load(path, &Device::Cpu).unwrap();
    let numbers = |name: &str| Tensor::to_vec1::<u32>(&tensors[name]).unwrap();
    let (ids, types, bounds) = (numbers("ids"), numbers("token_type_ids"), numbers("cu_seqlens"));
    let rows = bounds.windows(2).map(|bounds| bounds[0] as usize..bounds[1] as usize);
    rows.map(|row| (ids[row.clone()].to_vec(), types[row].to_vec())).collect()
}

#[test]
fn every_folder_tells_others_what_training_did() {
    let place = Workplace::new();
    write_rows(&place);
    let mut cells = 0;
    for (number, kind) in KINDS.iter().enumerate() {
        let name = format!("kind{number}");
        train(&place, &name, kind);
        for task in TASKS {
            let what = format!("{} {} {task}", kind.family, kind.tokenizer);
            let folder = format!("{name}/{task}/final");
            let (data, dumped) = (format!("{task}.jsonl"), format!("{name}/{task}.st"));
            let evaluate = ["evaluate", "--model", &folder, "--data", &data, "--dump-logits", &dumped];
            // Columns are those of training.
            place.program(&evaluate, "").ok();
            let others = read_by_others(&place.path(&folder), task);
            assert_eq!(read_by_us(&place.path(&dumped)), others, "{what}");
            let predict = ["predict", "--model", &folder, "--input", &data];
            let said = place.program(&predict, "").ok().stdout;
            assert_eq!(rows(&said).len(), others.len(), "{what}");
            fs::write(place.path(&format!("{name}/{task}.said")), said).unwrap();
            cells += 1;
        }
    }
    assert_eq!(cells, 3 * KINDS.len());
    by_transformers(&place);
}

/// Holds the predictions against those of transformers, if it is there.
fn by_transformers(place: &Workplace) {
    let python = std::env::var("MLMTRAIN_PYTHON").unwrap_or_else(|_| "python3".to_string());
    let has_it = Command::new(&python).args(["-c", "import torch, transformers"]).output();
    if !has_it.is_ok_and(|output| output.status.success()) {
        return skipped("there is no python3 (or MLMTRAIN_PYTHON) with torch and transformers");
    }
    let judge = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/finetune/round_trip.py");
    let output = Command::new(python).arg(judge).arg(place.path("")).output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{told}\n{}", String::from_utf8_lossy(&output.stderr));
}

/// Token places of a text are those of its words, without the blank before them:
/// `pipeline("token-classification")` takes them for the places of entities.
#[test]
fn places_of_words_begin_behind_blanks() {
    let place = Workplace::new();
    write_rows(&place);
    for number in [3, 4, 9] {
        let name = format!("kind{number}");
        train(&place, &name, &KINDS[number]);
        let tokenizer =
            Tokenizer::from_file(place.path(&format!("{name}/words/final/tokenizer.json"))).unwrap();
        let text = "the cat sees  Äänekoski and the dog\nthe fox";
        let places = tokenizer.encode(text, false).unwrap();
        let of = |start: usize, end: usize| &text[start..end];
        let early = places
            .get_offsets()
            .iter()
            .filter(|(start, end)| of(*start, *end).starts_with(' ') && !of(*start, *end).trim().is_empty());
        assert_eq!(early.count(), 0, "{} {}", KINDS[number].family, KINDS[number].tokenizer);
    }
}
