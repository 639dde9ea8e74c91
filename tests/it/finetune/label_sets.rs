//! Any number of labels a text as its users meet it: learnt, scored at tuned thresholds and told the same.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;

use serde_json::{Value, json};

use crate::finetune::{rows, workplace};
use crate::workplace::{Workplace, assert_same_tree};

/// Sentences about a king, or an animal that is a bird or a fish, of the night or not.
fn labelled(count: usize) -> String {
    let words: [(&str, &[&str]); 5] = [
        ("king", &[]),
        ("eagle", &["bird"]),
        ("owl", &["bird", "night"]),
        ("salmon", &["fish"]),
        ("pike", &["fish", "night"]),
    ];
    let row = |number: usize| {
        let (word, labels) = words[number % words.len()];
        let text = format!("the {word} sees the horse and the wolf {number} runs home");
        json!({"text": text, "labels": labels}).to_string() + "\n"
    };
    (0..count).map(row).collect()
}

/// A workplace with a pretrained model, `train.jsonl` and `dev.jsonl`.
fn with_sets() -> Workplace {
    let place = workplace();
    fs::write(place.path("train.jsonl"), labelled(160)).unwrap();
    fs::write(place.path("dev.jsonl"), labelled(40)).unwrap();
    place
}

const FLAGS: &[&str] = &["finetune", "--task", "classify", "--problem-type", "multi_label_classification"];
const FILES: &[&str] = &["--model", "run/final", "--train", "train.jsonl", "--eval", "dev.jsonl"];
const SETS: &[&str] = &[
    "training.learning_rate=0.003",
    "training.num_train_epochs=40",
    "training.warmup_steps=0.1",
    "data.max_seq_length=32",
    "precision.compute=f32",
];

fn finetune(place: &Workplace, more: &[&str]) -> crate::workplace::Finished {
    let sets: Vec<&str> = SETS.iter().flat_map(|set| ["--set", set]).collect();
    place.program(&[FLAGS, FILES, &sets, more].concat(), "")
}

fn json_of(place: &Workplace, name: &str) -> Value {
    serde_json::from_slice(&fs::read(place.path(name)).unwrap()).unwrap()
}

#[test]
fn sets_of_labels_are_learnt_and_all_commands_say_the_same() {
    let place = with_sets();
    let report = finetune(&place, &["--output-dir", "sets"]).ok();
    assert!(report.stderr.contains("3 labels, 1.20 a text"), "{}", report.stderr);
    assert!(report.stdout.contains("micro F1 %") && report.stdout.contains("threshold"), "{}", report.stdout);
    let results = json_of(&place, "sets/all_results.json");
    let value = |name: &str| results[name].as_f64().unwrap_or_else(|| panic!("{name} is not in {results}"));
    for name in ["f1_micro", "f1_macro", "f1_samples", "exact_match"] {
        // A fifth of the rows has no label, and no F1.
        let most = if name == "f1_samples" { 0.8 } else { 1.0 };
        let (found, tuned) = (value(&format!("eval_{name}")), value(&format!("eval_{name}_tuned")));
        assert!(found > 0.8 * most && found <= most + 1e-9 && tuned > 0.8 * most, "{name}: {results}");
    }
    assert!(value("eval_f1_macro_tuned") >= value("eval_f1_macro"), "{results}");
    let config = json_of(&place, "sets/final/config.json");
    assert_eq!(config["problem_type"], "multi_label_classification");
    assert_eq!(config["id2label"], json!({"0": "bird", "1": "fish", "2": "night"}));
    let thresholds = json_of(&place, "sets/final/thresholds.json");
    assert_eq!(thresholds.as_object().unwrap().keys().collect::<Vec<_>>(), ["bird", "fish", "night"]);
    place.program(&["checkpoint", "verify", "sets/final"], "").ok();

    let model = ["--model", "sets/final"];
    let data = ["--data", "dev.jsonl", "--json", "--predictions", "p.jsonl"];
    let scores = rows(&place.program(&[&["evaluate"], &model[..], &data].concat(), "").ok().stdout).remove(0);
    for name in ["eval_loss", "eval_f1_micro", "eval_f1_samples_tuned", "eval_exact_match_tuned"] {
        assert!((scores[name].as_f64().unwrap() - value(name)).abs() < 1e-5, "{name}: {scores} {results}");
    }
    assert_eq!(scores["eval_by_label"]["night"]["support"], 16);
    assert_eq!(scores["eval_by_label"]["night"]["threshold"], thresholds["night"]);
    let written = rows(&fs::read_to_string(place.path("sets/predictions.jsonl")).unwrap());
    let again = rows(&fs::read_to_string(place.path("p.jsonl")).unwrap());
    let predict = ["--input", "dev.jsonl", "--batch-size", "7"];
    let predicted = place.program(&[&["predict"], &model[..], &predict].concat(), "").ok();
    assert!(predicted.stderr.contains("their thresholds in `thresholds.json`"), "{}", predicted.stderr);
    let predicted = rows(&predicted.stdout);
    assert_eq!((written.len(), again.len(), predicted.len()), (40, 40, 40));
    for ((row, again), third) in written.iter().zip(&again).zip(&predicted) {
        assert_eq!((&row["labels"], &row["gold"]), (&again["labels"], &again["gold"]));
        assert_eq!((&row["labels"], &row["gold"]), (&third["labels"], &third["input_labels"]));
        let labels: Vec<&str> =
            row["labels"].as_array().unwrap().iter().map(|l| l.as_str().unwrap()).collect();
        let above = row["probabilities"].as_object().unwrap().iter().filter(|(label, probability)| {
            let probability = probability.as_f64().unwrap();
            assert!((probability - third["probabilities"][*label].as_f64().unwrap()).abs() < 1e-5);
            probability > thresholds[*label].as_f64().unwrap()
        });
        let above: BTreeMap<&String, &Value> = above.collect();
        assert!(labels.iter().all(|label| above.contains_key(&(*label).to_string())));
        assert_eq!((labels.len(), row["scores"].as_array().unwrap().len()), (above.len(), above.len()));
    }

    // Without the file, or with another one; its hash would tell that it was changed.
    for file in ["manifest.json", "thresholds.json"] {
        fs::remove_file(place.path("sets/final").join(file)).unwrap();
    }
    let told = place.program(&[&["predict"], &model[..], &predict].concat(), "").ok();
    assert!(told.stderr.contains("a probability above 0.5"), "{}", told.stderr);
    fs::write(place.path("sets/final/thresholds.json"), r#"{"bird": 0, "fish": 1, "night": 0}"#).unwrap();
    let told = place.program(&[&["predict"], &model[..], &predict].concat(), "").ok();
    let labels = |row: &Value| {
        let mut labels: Vec<String> = serde_json::from_value(row["labels"].clone()).unwrap();
        labels.sort();
        labels
    };
    assert!(rows(&told.stdout).iter().all(|row| labels(row) == ["bird", "night"]), "{}", told.stdout);
}

/// Lists, texts with a separator and columns of 0 and 1 are the same examples, and end in the same bytes.
#[test]
fn all_ways_to_write_labels_train_the_same_model() {
    let place = with_sets();
    let weights = |output: &str| fs::read(place.path(output).join("final/model.safetensors")).unwrap();
    let short = ["--set", "training.num_train_epochs=1", "--set", "data.labels=[bird, fish, night]"];
    finetune(&place, &[&["--output-dir", "list"], &short[..]].concat()).ok();
    for file in ["train", "dev"] {
        let rows = rows(&fs::read_to_string(place.path(&format!("{file}.jsonl"))).unwrap());
        let (mut joined, mut hot) = ("text\tlabels\n".to_string(), "fish,text,night,bird\n".to_string());
        for row in rows {
            let labels: Vec<&str> =
                row["labels"].as_array().unwrap().iter().map(|l| l.as_str().unwrap()).collect();
            let text = row["text"].as_str().unwrap();
            writeln!(joined, "{text}\t{}", labels.join(" | ")).unwrap();
            let has = |label| u8::from(labels.contains(&label));
            writeln!(hot, "{},{text},{}.0,{}", has("fish"), has("night"), has("bird")).unwrap();
        }
        fs::write(place.path(&format!("{file}.tsv")), joined).unwrap();
        fs::write(place.path(&format!("{file}.csv")), hot).unwrap();
    }
    let joined = ["--train", "train.tsv", "--eval", "dev.tsv", "--label-separator", "|"];
    let hot = ["--train", "train.csv", "--eval", "dev.csv"];
    let sets: Vec<&str> = SETS.iter().flat_map(|set| ["--set", set]).collect();
    for (output, files) in [("joined", &joined[..]), ("hot", &hot)] {
        let arguments =
            [FLAGS, &["--model", "run/final", "--output-dir", output], files, &sets, &short].concat();
        place.program(&arguments, "").ok();
        assert!(weights(output) == weights("list"), "{output}");
    }
    let scored = |arguments: &[&str]| {
        let scores =
            place.program(&[&["evaluate", "--model", "list/final", "--json"], arguments].concat(), "");
        rows(&scores.ok().stdout).remove(0)
    };
    let of_list = scored(&["--data", "dev.jsonl"]);
    assert_eq!(of_list, scored(&["--data", "dev.tsv", "--label-separator", "|"]));
    assert_eq!(of_list, scored(&["--data", "dev.csv"]));
}

#[test]
fn a_stopped_run_ends_in_the_same_bytes_and_a_sweep_and_a_curve_are_drawn() {
    let place = with_sets();
    let bf16 = ["--set", "precision.compute=bf16", "--set", "training.save_steps=3"];
    let constant = ["--set", "training.lr_scheduler_type=constant", "--set", "training.warmup_steps=0"];
    let steps = |steps: &'static str| ["--set", steps];
    for run in [&["training.max_steps=9"][..], &["training.max_steps=4", "training.max_steps=9"]] {
        let output = if run.len() == 1 { "whole" } else { "parted" };
        for steps in run.iter().map(|set| steps(set)) {
            finetune(&place, &[&["--output-dir", output], &bf16[..], &constant, &steps].concat()).ok();
        }
    }
    for file in ["final/model.safetensors", "final/thresholds.json", "predictions.jsonl"] {
        let read = |output: &str| fs::read(place.path(output).join(file)).unwrap();
        assert!(read("whole") == read("parted"), "{file}");
    }
    let before = place.tree();
    let again = [&["--output-dir", "whole"], &bf16[..], &constant, &steps("training.max_steps=9")].concat();
    assert!(finetune(&place, &again).ok().stdout.contains("complete already"));
    assert_same_tree(&before, &place.tree());

    let swept =
        ["--output-dir", "swept", "--fractions", "0.1,1", "--seeds", "1", "--set", "training.max_steps=9"];
    let table = finetune(&place, &swept).ok().stdout;
    assert!(table.contains("TF-IDF +") && table.contains("micro F1 %"), "{table}");
    // Steps this short change no prediction: the second evaluation is no better than the first.
    let short = ["training.learning_rate=1e-12", "training.max_steps=40", "training.eval_steps=2"];
    let more = ["training.save_steps=2", "training.early_stopping_patience=1"];
    let named = ["training.metric_for_best_model=f1_samples"];
    let sets: Vec<&str> =
        [&short[..], &more, &named].concat().into_iter().flat_map(|set| ["--set", set]).collect();
    finetune(&place, &[&["--output-dir", "early"], &sets[..]].concat()).ok();
    assert!(!place.path("early/checkpoint-6").exists());
    let state = json_of(&place, "early/checkpoint-4/trainer_state.json");
    let logged = state["log_history"].as_array().unwrap();
    let scores: Vec<&Value> = logged.iter().filter_map(|row| row.get("eval_f1_samples")).collect();
    assert_eq!(scores, [&state["best_metric"]; 2]);
}

#[test]
fn what_does_not_fit_several_labels_is_refused_by_its_place() {
    let place = with_sets();
    let refuse = |arguments: &[&str], code: i32, words: &[&str]| {
        finetune(&place, &[arguments, &["--output-dir", "sets"]].concat()).refused(code, words);
        assert!(!place.path("sets/final").exists());
    };
    refuse(&["--set", "training.class_weights=balanced"], 2, &["training.class_weights", "one label"]);
    refuse(&["--set", "data.label_separator=\"\""], 2, &["data.label_separator", "empty"]);
    refuse(&["--problem-type", "one_label"], 2, &["--problem-type"]);
    refuse(&["--set", "training.metric_for_best_model=accuracy"], 2, &["`f1_micro`", "`exact_match`"]);
    for (row, words) in [
        (r#"{"text": "an owl", "labels": ["bird", "stone"]}"#, "unknown label `stone`; known are `bird`"),
        (r#"{"text": "an owl", "labels": ["bird", 0.5]}"#, "item 2 of `labels` is a number with a fraction"),
        (r#"{"text": "an owl", "labels": [" "]}"#, "item 1 of `labels` is empty"),
        (r#"{"text": "an owl", "labels": null}"#, "the labels `labels` are null"),
        (r#"{"text": "an owl"}"#, "has no field `labels`"),
    ] {
        fs::write(place.path("dev.jsonl"), labelled(2) + row + "\n").unwrap();
        refuse(&[], 1, &["dev.jsonl:3", words]);
    }
    fs::write(place.path("hot.csv"), "text,bird,fish\nan owl,1,0\na pike,0,2\n").unwrap();
    let hot = ["--train", "hot.csv", "--eval", "hot.csv"];
    let named = ["--set", "data.labels=[bird, fish]"];
    let arguments = [FLAGS, &["--model", "run/final", "--output-dir", "sets"], &hot, &named].concat();
    place.program(&arguments, "").refused(1, &["hot.csv:3", "column `fish` is `2`, a 0 or a 1 is wanted"]);
    fs::write(place.path("none.jsonl"), "{\"text\": \"an owl\", \"labels\": []}\n").unwrap();
    let none = ["--train", "none.jsonl", "--eval", "none.jsonl"];
    let arguments = [FLAGS, &["--model", "run/final", "--output-dir", "sets"], &none].concat();
    place.program(&arguments, "").refused(1, &["none.jsonl: no example has a label"]);
}
