//! Numbers and names of labels as users meet them: what a number in a file stands for, which rows of a head
//! are kept, and that no class is lost.

use std::fmt::Write as _;
use std::fs;

use serde_json::{Value, json};

use crate::material::{examples, tagged};
use crate::workplace::{Finished, Workplace};

const FAST: &[&str] = &["--set", "training.learning_rate=0.005", "--set", "data.max_seq_length=32"];

/// A workplace with a pretrained model in `run/final`.
fn pretrained() -> Workplace {
    let place = Workplace::new();
    place.run(&["training.max_steps=4", "run.sample_text=null"], &[]).ok();
    place
}

/// The same with a classifier of birds and fish in `cls/final`.
fn classifier() -> Workplace {
    let place = pretrained();
    fs::write(place.path("train.csv"), examples(60)).unwrap();
    fs::write(place.path("dev.csv"), examples(12)).unwrap();
    finetune(&place, "run/final", "cls", &["--set", "training.max_steps=12"]).ok();
    place
}

fn finetune(place: &Workplace, model: &str, output: &str, more: &[&str]) -> Finished {
    let flags =
        ["finetune", "--task", "classify", "--model", model, "--train", "train.csv", "--eval", "dev.csv"];
    place.program(&[&flags[..], FAST, &["--output-dir", output], more].concat(), "")
}

fn rows(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn predicted(place: &Workplace, model: &str, texts: &str) -> Vec<Value> {
    rows(&place.program(&["predict", "--model", model, "--input", "-"], texts).ok().stdout)
}

/// A copy of the model in `cls/final` whose `config.json` is changed.
fn changed(place: &Workplace, name: &str, change: impl FnOnce(&mut Value)) {
    fs::create_dir(place.path(name)).unwrap();
    for file in ["model.safetensors", "tokenizer.json", "tokenizer_config.json"] {
        fs::copy(place.path("cls/final").join(file), place.path(name).join(file)).unwrap();
    }
    let config = fs::read(place.path("cls/final/config.json")).unwrap();
    let mut config: Value = serde_json::from_slice(&config).unwrap();
    change(&mut config);
    fs::write(place.path(name).join("config.json"), config.to_string()).unwrap();
}

const TEXTS: &str = "the eagle sees the horse\nthe salmon runs home\n";

#[test]
fn rows_of_a_head_follow_the_names_of_their_labels() {
    let place = classifier();
    let before = predicted(&place, "cls/final", TEXTS);
    let still = ["--set", "training.max_steps=1", "--set", "training.learning_rate=1e-9"];
    let order = |labels: &str| [&still[..], &["--set", labels]].concat().join("\u{1}");
    let again = |output: &str, labels: &str| {
        let sets = order(labels);
        let sets: Vec<&str> = sets.split('\u{1}').collect();
        finetune(&place, "cls/final", output, &sets).ok().stderr
    };
    let told = again("turned", "data.labels=[fish,bird]");
    assert!(
        told.contains("rows of its head are kept by the names of their labels: `fish`, `bird`"),
        "{told}"
    );
    let turned = predicted(&place, "turned/final", TEXTS);
    let share = |row: &Value, label: &str| row["probabilities"][label].as_f64().unwrap();
    for (before, after) in before.iter().zip(&turned) {
        assert_eq!(before["label"], after["label"]);
        assert!((share(before, "bird") - share(after, "bird")).abs() < 1e-4, "{before} {after}");
    }
    // A new label begins fresh, the others keep their odds.
    let told = again("more", "data.labels=[frog,fish,bird]");
    assert!(told.contains("`fish`, `bird`; new and fresh are `frog`"), "{told}");
    for (before, after) in before.iter().zip(predicted(&place, "more/final", TEXTS)) {
        let odds = |row: &Value| share(row, "bird") / share(row, "fish");
        assert!((odds(before).ln() - odds(&after).ln()).abs() < 1e-3, "{before} {after}");
    }
    let told = again("same", "data.labels=[bird,fish]");
    assert!(told.contains("the rows of all 2 labels of its head are kept"), "{told}");
}

#[test]
fn as_many_labels_of_other_names_keep_no_row() {
    let place = classifier();
    let others = examples(60).replace("bird,", "up,").replace("fish,", "down,");
    fs::write(place.path("train.csv"), &others).unwrap();
    fs::write(place.path("dev.csv"), &others).unwrap();
    let told = finetune(&place, "cls/final", "other", &["--set", "training.max_steps=1"]).ok().stderr;
    assert!(told.contains("no row of its head is kept: its labels are `bird`, `fish`"), "{told}");
    assert!(told.contains("newly initialised with the seed of the run: classifier.out_proj.bias"), "{told}");
}

#[test]
fn every_form_of_id2label_is_read_and_no_class_is_lost() {
    let place = classifier();
    let before = &predicted(&place, "cls/final", TEXTS)[0];
    let values = |row: &Value| -> Vec<f64> {
        row["probabilities"].as_object().unwrap().values().map(|value| value.as_f64().unwrap()).collect()
    };
    let forms: [(&str, Value, Value, &[&str]); 6] = [
        ("numbers", json!({"0": 0, "1": 1}), Value::Null, &["0", "1"]),
        ("truths", json!({"0": false, "1": true}), Value::Null, &["false", "true"]),
        ("list", json!(["no", "yes"]), Value::Null, &["no", "yes"]),
        ("count", Value::Null, json!(2), &["LABEL_0", "LABEL_1"]),
        ("twice", json!({"0": "same", "1": "same"}), Value::Null, &["same (0)", "same (1)"]),
        ("turned", json!({"1": "one", "0": "zero"}), Value::Null, &["zero", "one"]),
    ];
    for (name, id2label, num_labels, labels) in forms {
        changed(&place, name, |config| {
            config.as_object_mut().unwrap().remove("label2id");
            config["id2label"] = id2label;
            config["num_labels"] = num_labels;
        });
        let row = &predicted(&place, name, TEXTS)[0];
        let names: Vec<&String> = row["probabilities"].as_object().unwrap().keys().collect();
        assert_eq!(names, labels, "{name}");
        assert_eq!(values(row), values(before), "{name}");
    }
    let told = place.program(&["predict", "--model", "twice", "--input", "-"], TEXTS).ok().stderr;
    assert!(told.contains("several classes are called `same`"), "{told}");
    changed(&place, "gap", |config| config["id2label"] = json!({"1": "a", "2": "b"}));
    place
        .program(&["predict", "--model", "gap", "--input", "-"], TEXTS)
        .refused(2, &["`id2label` has 2 labels, so that their ids are 0 to 1, and names the id 2"]);
}

#[test]
fn numbers_of_tags_are_read_in_the_order_of_their_file_alone() {
    let place = pretrained();
    fs::write(place.path("train.conll"), tagged(80)).unwrap();
    fs::write(place.path("dev.conll"), tagged(20)).unwrap();
    let flags = ["finetune", "--task", "token-classify", "--model", "run/final", "--output-dir", "ner"];
    let files = ["--train", "train.conll", "--eval", "dev.conll", "--set", "training.max_steps=30"];
    place.program(&[&flags[..], &files[..], FAST].concat(), "").ok();
    // Fish before birds, and the outside last: not as the model has it.
    let names = ["B-fish", "I-fish", "B-bird", "I-bird", "O"];
    let (mut texts, mut numbers) = (String::new(), String::new());
    for (words, tags) in [
        (
            json!(["the", "owl", "sees", "the", "king", "trout"]),
            ["O", "B-bird", "O", "O", "B-fish", "I-fish"],
        ),
        (json!(["a", "salmon", "and", "an", "eagle", "runs"]), ["O", "B-fish", "O", "O", "B-bird", "O"]),
    ] {
        let ids = tags.map(|tag| names.iter().position(|name| *name == tag).unwrap());
        writeln!(texts, "{}", json!({"tokens": words, "ner_tags": tags})).unwrap();
        writeln!(numbers, "{}", json!({"tokens": words, "ner_tags": ids})).unwrap();
    }
    fs::write(place.path("texts.jsonl"), texts).unwrap();
    fs::write(place.path("numbers.jsonl"), numbers).unwrap();
    let evaluate = |file: &str, more: &[&str]| {
        place.program(&[&["evaluate", "--model", "ner/final", "--data", file, "--json"], more].concat(), "")
    };
    evaluate("numbers.jsonl", &[]).refused(
        1,
        &["numbers.jsonl:1: field `ner_tags` is a list with the number 4", "this file have: `--labels`"],
    );
    let named = evaluate("numbers.jsonl", &["--labels", &names.join(",")]).ok().stdout;
    assert_eq!(named, evaluate("texts.jsonl", &[]).ok().stdout);
    assert_eq!(rows(&named)[0]["eval_fish_number"], 2);
}

#[test]
fn numbers_of_classes_are_names_where_they_are_given() {
    let place = classifier();
    let numbered = examples(12).replace("bird,", "1,").replace("fish,", "0,");
    fs::write(place.path("numbers.csv"), numbered).unwrap();
    let evaluate = |file: &str, more: &[&str]| {
        place.program(&[&["evaluate", "--model", "cls/final", "--data", file, "--json"], more].concat(), "")
    };
    evaluate("numbers.csv", &[]).refused(
        1,
        &["numbers.csv:2: unknown label `1`", "numbers are not read in the order of the model's"],
    );
    let named = evaluate("numbers.csv", &["--labels=fish,bird"]).ok().stdout;
    assert_eq!(named, evaluate("dev.csv", &[]).ok().stdout);
    // Names that cannot be meant are refused for a file of names, too, and so is what has no effect.
    assert_eq!(named, evaluate("dev.csv", &["--labels=fish,bird"]).ok().stdout);
    for (flags, words) in [
        (["--labels", "fish,cat"], "--labels: `cat` is no label of the model"),
        (["--labels", "fish"], "--labels: does not name `bird`, a label of the model"),
        (
            ["--label-separator", ";"],
            "--label-separator: has no effect on the score of a sequence classifier",
        ),
        (["--predictions", "p.csv"], "--predictions: p.csv: has the name of another format"),
    ] {
        evaluate("dev.csv", &flags).refused(2, &[words]);
    }
    assert!(!place.path("p.csv").exists());
    let pretrained = ["evaluate", "--model", "run/final", "--data", "dev.csv", "--label-column", "label"];
    place
        .program(&pretrained, "")
        .refused(2, &["--label-column: has no effect on the score of a pretrained"]);
}

#[test]
fn rows_without_a_label_are_left_out_of_a_score_where_that_is_wanted() {
    let place = classifier();
    let some = examples(12) + ",\"the owl sees the horse\"\n";
    fs::write(place.path("some.csv"), some).unwrap();
    let evaluate = ["evaluate", "--model", "cls/final", "--json", "--data"];
    let skip = ["--on-bad-record", "skip"];
    let refused = place.program(&[&evaluate[..], &["some.csv"]].concat(), "");
    refused.refused(1, &["some.csv:14: label `label` is empty", "`--on-bad-record skip`"]);
    let scored = place.program(&[&evaluate[..], &["some.csv"], &skip].concat(), "").ok();
    assert!(scored.stderr.contains("some.csv: 1 row left out that cannot be read"), "{}", scored.stderr);
    assert_eq!(scored.stdout, place.program(&[&evaluate[..], &["dev.csv"]].concat(), "").ok().stdout);
}

#[test]
fn lists_of_marks_are_read_by_the_names_of_their_places_or_refused() {
    let place = pretrained();
    let mut lines = String::new();
    for number in 0..24 {
        let (text, marks) = match number % 3 {
            0 => ("the eagle sees the horse", json!([1, 0, 1])),
            1 => ("the trout runs home", json!([0, 1, 1])),
            _ => ("the wolf waits by the river", json!([0, 0, 0])),
        };
        writeln!(lines, "{}", json!({"text": text, "labels": marks})).unwrap();
    }
    fs::write(place.path("marks.jsonl"), lines).unwrap();
    let flags = ["finetune", "--task", "classify", "--problem-type", "multi_label_classification"];
    let files = ["--model", "run/final", "--train", "marks.jsonl", "--eval", "marks.jsonl"];
    let run = |more: &[&str]| {
        place.program(&[&flags[..], &files[..], FAST, &["--set", "training.max_steps=3"], more].concat(), "")
    };
    run(&["--output-dir", "a"]).refused(
        1,
        &["marks.jsonl:1: `labels` is a list of 0 and 1 for each label (multi-hot)", "the 3 labels"],
    );
    run(&["--output-dir", "a", "--set", "data.labels=[bird,fish]"])
        .refused(1, &["marks.jsonl:1: `labels` is a list of 3 marks of 0 and 1, and 2 labels are named"]);
    run(&["--output-dir", "b", "--set", "data.labels=[bird,fish,moves]"]).ok();
    let gold: Vec<Value> = rows(&fs::read_to_string(place.path("b/predictions.jsonl")).unwrap())
        .into_iter()
        .take(3)
        .map(|row| row["gold"].clone())
        .collect();
    assert_eq!(gold, [json!(["bird", "moves"]), json!(["fish", "moves"]), json!([])]);
    let evaluate = ["evaluate", "--model", "b/final", "--data", "marks.jsonl", "--json"];
    place.program(&evaluate, "").refused(1, &["(multi-hot), and nothing names the 3 labels"]);
    let named = place.program(&[&evaluate[..], &["--labels", "bird,fish,moves"]].concat(), "").ok().stdout;
    assert_eq!(rows(&named)[0]["eval_by_label"]["moves"]["support"], 16);
    // The same marks in the order of another file.
    let turned = place.program(&[&evaluate[..], &["--labels", "moves,fish,bird"]].concat(), "").ok().stdout;
    assert_eq!(rows(&turned)[0]["eval_by_label"]["bird"]["support"], 16);
}

#[test]
fn labels_in_two_forms_of_unicode_are_told() {
    let place = pretrained();
    let csv = examples(24).replace("bird,", "caf\u{e9},").replace("fish,", "cafe\u{301},");
    fs::write(place.path("train.csv"), &csv).unwrap();
    fs::write(place.path("dev.csv"), &csv).unwrap();
    let told = finetune(&place, "run/final", "cls", &["--set", "training.max_steps=1"]).ok().stderr;
    assert!(told.contains("look the same and are two") && told.contains("NFC, NFD"), "{told}");
    let one_form = examples(24).replace("bird,", "caf\u{e9},");
    fs::write(place.path("train.csv"), &one_form).unwrap();
    fs::write(place.path("dev.csv"), one_form.replace("caf\u{e9}", "cafe\u{301}")).unwrap();
    finetune(&place, "run/final", "other", &[])
        .refused(1, &["dev.csv:2: unknown label", "one of them looks the same, in another Unicode form"]);
}

#[test]
fn each_line_has_an_answer_empty_ones_too() {
    let place = classifier();
    let lines = "the eagle sees the horse\n\n  \nthe trout runs home\n";
    let answers = predicted(&place, "cls/final", lines);
    let texts: Vec<&str> = answers.iter().map(|row| row["text"].as_str().unwrap()).collect();
    assert_eq!(texts, lines.lines().collect::<Vec<_>>());
    let masked = predicted(&place, "run/final", "the <mask> sees\n\nthe <mask> runs\n");
    let masks: Vec<usize> = masked.iter().map(|row| row["masks"].as_array().unwrap().len()).collect();
    assert_eq!(masks, [1, 0, 1]);
    let embed = ["embed", "--model", "run/final", "--file", "-", "--output", "v.npy"];
    let told = place.program(&embed, lines).ok().stdout;
    assert!(told.starts_with("4 vectors of 32 numbers"), "{told}");
}
