//! `mlmtrain finetune`, `evaluate` and `predict` as their users meet them, on a small model that the test
//! pretrains.

mod again;
mod auroc;
mod beginning;
mod care;
mod distillation;
mod entities;
mod files;
mod label_sets;
mod numbers;
mod options;
mod parquet;
mod planned;
mod round_trip;
mod sweep;
mod test_file;

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;

use crate::material::examples;
use crate::workplace::{Workplace, assert_same_tree};

/// A workplace with a pretrained model in `run/final`, `train.csv` and `dev.csv`.
fn workplace() -> Workplace {
    let place = Workplace::new();
    place.run(&["training.max_steps=20", "run.sample_text=null"], &[]).ok();
    fs::write(place.path("train.csv"), examples(160)).unwrap();
    fs::write(place.path("dev.csv"), examples(40)).unwrap();
    place
}

const FLAGS: &[&str] =
    &["finetune", "--task", "classify", "--model", "run/final", "--train", "train.csv", "--eval", "dev.csv"];
const SETS: &[&str] = &[
    "--set",
    "training.learning_rate=0.005",
    "--set",
    "training.num_train_epochs=6",
    "--set",
    "training.warmup_steps=0.1",
    "--set",
    "data.max_seq_length=32",
    "--set",
    // As `evaluate` and `predict` compute.
    "precision.compute=f32",
];

fn finetune(place: &Workplace, more: &[&str]) -> crate::workplace::Finished {
    place.program(&[FLAGS, SETS, more].concat(), "")
}

fn rows(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_classifier_learns_evaluates_and_predicts_the_same() {
    let place = workplace();
    let report = finetune(&place, &["--output-dir", "cls"]).ok();
    assert!(report.stdout.contains("cls/final") && report.stdout.contains("confusion"), "{}", report.stdout);
    let results: Value =
        serde_json::from_slice(&fs::read(place.path("cls/all_results.json")).unwrap()).unwrap();
    let value = |name: &str| results[name].as_f64().unwrap_or_else(|| panic!("{name} is not in {results}"));
    assert!(
        value("eval_accuracy") > 0.9 && value("eval_matthews_correlation") > 0.8 && value("eval_f1") > 0.9,
        "{results}"
    );

    assert!(report.stdout.contains("training s  evaluation s  model"), "{}", report.stdout);
    assert!(value("eval_runtime") > 0.0 && value("train_runtime") > 0.0, "{results}");

    // The predictions file, `predict` and `evaluate` agree.
    let written = rows(&fs::read_to_string(place.path("cls/predictions.jsonl")).unwrap());
    let texts: Vec<&str> = written.iter().map(|row| row["text"].as_str().unwrap()).collect();
    let texts = texts.join("\n");
    let predicted = rows(
        &place
            .program(&["predict", "--model", "cls/final", "--input", "-", "--batch-size", "7"], &texts)
            .ok()
            .stdout,
    );
    assert_eq!(predicted.len(), 40);
    for (row, again) in written.iter().zip(&predicted) {
        assert_eq!((&row["text"], &row["label"]), (&again["text"], &again["label"]));
        assert!((row["score"].as_f64().unwrap() - again["score"].as_f64().unwrap()).abs() < 1e-5);
        let sum: f64 =
            again["probabilities"].as_object().unwrap().values().map(|p| p.as_f64().unwrap()).sum();
        assert!((sum - 1.0).abs() < 1e-5);
    }
    let scored = place.program(&["evaluate", "--model", "cls/final", "--data", "dev.csv"], "").ok().stdout;
    assert!(scored.contains(&format!("{:.2} %", 100.0 * value("eval_accuracy"))), "{scored}");

    let before = place.tree();
    let second = finetune(&place, &["--output-dir", "cls"]).ok();
    assert!(second.stdout.contains("complete already"), "{}", second.stdout);
    assert_same_tree(&before, &place.tree());
}

#[test]
fn tables_are_read_by_their_columns_and_programs_get_json() {
    let place = workplace();
    finetune(&place, &["--output-dir", "cls"]).ok();
    let predict = |more: &[&str], input: &str| {
        rows(&place.program(&[&["predict", "--model", "cls/final"], more].concat(), input).ok().stdout)
    };
    let labelled = predict(&["--input", "dev.csv", "--device", "cpu"], "");
    assert_eq!(labelled.len(), 40, "the header is no text");
    assert_eq!((&labelled[0]["input_label"], &labelled[1]["input_label"]), (&"bird".into(), &"fish".into()));
    assert!(labelled[0]["text"].as_str().unwrap().starts_with("the eagle sees"));
    let csv = fs::read_to_string(place.path("dev.csv")).unwrap();
    assert_eq!(predict(&["--input", "-", "--format", "csv"], &csv), labelled);

    let evaluate =
        ["evaluate", "--model", "cls/final", "--data", "dev.csv", "--json", "--dump-logits", "l.st"];
    let scores = rows(&place.program(&evaluate, "").ok().stdout);
    let [scores] = scores.as_slice() else { panic!("one object, not {scores:?}") };
    let right = labelled.iter().filter(|row| row["label"] == row["input_label"]).count();
    assert_eq!(scores["eval_accuracy"].as_f64(), Some(right as f64 / 40.0));
    assert_eq!(
        (&scores["eval_examples"], &scores["eval_by_class"]["bird"]["support"]),
        (&40.into(), &20.into())
    );
    assert!(scores["eval_loss"].is_number() && scores["eval_matthews_correlation"].is_number(), "{scores}");
    let logits = candle_core::safetensors::load(place.path("l.st"), &candle_core::Device::Cpu).unwrap();
    assert_eq!(logits["logits"].dims(), [32, 2], "a row for each example of the first batch");

    if cfg!(not(feature = "cuda")) {
        place
            .program(&["predict", "--model", "cls/final", "--input", "dev.csv", "--device", "cuda"], "")
            .refused(2, &["--device: cannot compute on `cuda`"]);
    }
}

/// `finetune` cuts all of these texts, and so must the commands that use its model.
#[test]
fn texts_are_cut_where_they_were_cut_in_training() {
    let place = workplace();
    let more = ["--set", "data.max_seq_length=8", "--set", "training.num_train_epochs=2"];
    let report = finetune(&place, &[&["--output-dir", "cls"], &more[..]].concat()).ok();
    assert!(report.stderr.contains("40 of 40 evaluation examples were cut at 8 tokens"), "{}", report.stderr);
    let read =
        |name: &str| -> Value { serde_json::from_slice(&fs::read(place.path(name)).unwrap()).unwrap() };
    assert_eq!(read("cls/final/tokenizer_config.json")["model_max_length"], 8);
    let evaluate = ["evaluate", "--model", "cls/final", "--data", "dev.csv", "--json"];
    let scores = rows(&place.program(&evaluate, "").ok().stdout).remove(0);
    let results = read("cls/all_results.json");
    let loss = |of: &Value| of["eval_loss"].as_f64().unwrap();
    assert!((loss(&scores) - loss(&results)).abs() < 1e-5, "{scores} {results}");
    assert_eq!(scores["eval_examples_cut"], 40);
}

#[test]
fn a_head_for_other_labels_is_refused_by_its_shape() {
    let place = workplace();
    finetune(&place, &["--output-dir", "cls", "--set", "training.max_steps=1"]).ok();
    let path = place.path("cls/final/config.json");
    let mut config: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    config["id2label"]["2"] = "frog".into();
    fs::write(&path, config.to_string()).unwrap();
    // Its hashes would tell that it was changed.
    fs::remove_file(place.path("cls/final/manifest.json")).unwrap();
    place.program(&["predict", "--model", "cls/final", "--input", "-"], "an owl\n").refused(
        1,
        &["cls/final/model.safetensors: tensor `classifier.out_proj.", "the model of `config.json` wants [3"],
    );
}

#[test]
fn several_seeds_give_mean_and_deviation_and_a_part_of_the_data_is_enough() {
    let place = workplace();
    let more = [
        "--output-dir",
        "cls",
        "--seeds",
        "1,2",
        "--max-train-fraction",
        "0.5",
        "--set",
        "training.num_train_epochs=1",
    ];
    let report = finetune(&place, &more).ok();
    assert!(report.stderr.contains("80 training and 40 evaluation examples, 2 labels"), "{}", report.stderr);
    assert!(report.stdout.contains("mean") && report.stdout.contains("std"), "{}", report.stdout);
    let results: Value =
        serde_json::from_slice(&fs::read(place.path("cls/all_results.json")).unwrap()).unwrap();
    assert!(
        results["eval_accuracy_mean"].is_number() && results["eval_accuracy_std"].is_number(),
        "{results}"
    );
    let models = |output: &str| -> BTreeSet<Vec<u8>> {
        let model = |seed| format!("{output}/seed-{seed}/final/model.safetensors");
        [1, 2].map(|seed| fs::read(place.path(&model(seed))).unwrap()).into()
    };
    assert_eq!(models("cls").len(), 2, "two seeds give two models");
    // Two threads for one after the other, one for each side by side.
    for at_once in ["1", "2"] {
        let output = format!("{at_once}-at-once");
        let again = ["--output-dir", &output, "--threads", "2", "--at-once", at_once];
        let again = finetune(&place, &[&more[2..], &again].concat()).ok();
        assert!(models(&output) == models("cls"), "{at_once} at once");
        assert_eq!(again.stderr.contains("seed 2: step "), at_once == "2", "{}", again.stderr);
    }
}

#[test]
fn masks_are_filled_and_a_text_without_one_is_refused() {
    let place = workplace();
    let filled = place
        .program(&["predict", "--model", "run/final", "--input", "-"], "the <mask> sees the <mask>.\n")
        .ok();
    let row = &rows(&filled.stdout)[0];
    let masks = row["masks"].as_array().unwrap();
    assert_eq!(masks.len(), 2);
    for mask in masks {
        let scores: Vec<f64> =
            mask.as_array().unwrap().iter().map(|c| c["score"].as_f64().unwrap()).collect();
        assert!(
            scores.len() == 5
                && scores.is_sorted_by(|a, b| a >= b)
                && scores.iter().sum::<f64>() <= 1.0 + 1e-6,
            "{scores:?}"
        );
    }
    place
        .program(&["predict", "--model", "run/final", "--input", "-"], "no mask here\n")
        .refused(1, &["standard input:1", "no mask", "<mask>"]);
    let scored = place.program(&["evaluate", "--model", "run/final", "--data", "corpus.txt"], "").ok().stdout;
    assert!(scored.contains("perplexity") && scored.contains("entropy of this file's own"), "{scored}");
}

#[test]
fn bad_input_is_named_and_leaves_nothing_behind() {
    let place = workplace();
    fs::write(place.path("other.csv"), "label,text\nbird,an owl\nstone,a pebble\n").unwrap();
    let refuse = |arguments: &[&str], code: i32, words: &[&str]| {
        place.program(&[FLAGS, arguments, &["--output-dir", "cls"]].concat(), "").refused(code, words);
        assert!(!place.path("cls/final").exists());
    };
    refuse(&["--eval", "other.csv"], 2, &["--eval"]);
    refuse(&["--text-column", "body"], 1, &["train.csv", "body", "text"]);
    refuse(&["--set", "data.max_seq_length=512"], 2, &["--max-seq-length: is 512", "32"]);
    let arguments = [
        "finetune",
        "--task",
        "classify",
        "--model",
        "run/final",
        "--train",
        "train.csv",
        "--eval",
        "other.csv",
        "--output-dir",
        "cls",
    ];
    place.program(&arguments, "").refused(1, &["other.csv:3", "stone", "bird"]);
    place.program(&["predict", "--model", "run", "--input", "-"], "x\n").refused(1, &["run", "config.json"]);
    place
        .program(&["predict", "--model", "run/final", "--input", "nowhere.txt"], "")
        .refused(2, &["nowhere.txt: there is no such file"]);
    place
        .program(&["evaluate", "--model", "run/final", "--data", "nowhere.txt"], "")
        .refused(2, &["nowhere.txt: there is no such file"]);
}
