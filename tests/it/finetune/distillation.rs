//! A model learns from the probabilities of a teacher besides its labels.

use std::fs;

use serde_json::Value;

use crate::finetune::{finetune, workplace};
use crate::workplace::{Workplace, assert_same_tree};

/// A workplace with a teacher in `teacher/final`, and `swapped.csv`: the training examples, whose labels are
/// all wrong.
fn with_teacher() -> Workplace {
    let place = workplace();
    finetune(&place, &["--output-dir", "teacher"]).ok();
    let text = fs::read_to_string(place.path("train.csv")).unwrap();
    let swapped = text.replace("bird", "-").replace("fish", "bird").replace('-', "fish");
    assert_ne!(swapped, text);
    fs::write(place.path("swapped.csv"), swapped).unwrap();
    place
}

fn accuracy(place: &Workplace, folder: &str) -> f64 {
    let results = fs::read(place.path(folder).join("all_results.json")).unwrap();
    serde_json::from_slice::<Value>(&results).unwrap()["eval_accuracy"].as_f64().unwrap()
}

/// The flags of a student that learns from the teacher only, from examples with wrong labels.
const STUDENT: &[&str] = &[
    "--teacher",
    "teacher/final",
    "--set",
    "data.train_file=swapped.csv",
    "--set",
    "distillation.weight=1",
    "--set",
    "distillation.temperature=1.5",
];

#[test]
fn a_teacher_is_believed_as_much_as_its_weight_says() {
    let place = with_teacher();
    let report = finetune(&place, &[&["--output-dir", "student"], STUDENT].concat()).ok();
    assert!(accuracy(&place, "teacher") > 0.9);
    assert!(accuracy(&place, "student") > 0.9, "{}", report.stdout);
    let said = "predictions of the teacher: ";
    let line = report.stderr.lines().find(|line| line.contains(said)).expect("is said");
    assert!(line.contains(" % agree with the labels of 160 examples"), "{line}");
    let disagree = line.split(said).nth(1).unwrap().split(' ').next().unwrap().parse::<f64>().unwrap();
    assert!(disagree < 10.0, "the labels are wrong: {line}");
    // Of a small weight, the labels count, wrong as they are.
    let little = [&["--output-dir", "little"], STUDENT, &["--set", "distillation.weight=0.01"]].concat();
    finetune(&place, &little).ok();
    assert!(accuracy(&place, "little") < 0.1);
}

#[test]
fn an_interrupted_student_ends_in_the_same_bytes_and_never_changes_its_teacher() {
    let place = with_teacher();
    let constant = ["--set", "training.lr_scheduler_type=constant", "--set", "training.warmup_steps=0"];
    let student = |folder: &str, steps: &str, more: &[&str]| {
        let steps = ["--output-dir", folder, "--max-steps", steps, "--seeds", "5,6"];
        finetune(&place, &[&steps[..], &constant, STUDENT, more].concat())
    };
    let report = student("whole", "8", &[]).ok();
    assert_eq!(report.stderr.matches("predictions of the teacher").count(), 1, "{}", report.stderr);
    student("parts", "3", &[]).ok();
    student("parts", "8", &[]).ok();
    for seed in ["seed-5", "seed-6"] {
        let [whole, parts] = ["whole", "parts"].map(|folder| place.path(folder).join(seed).join("final"));
        let weights = |folder: &std::path::Path| fs::read(folder.join("model.safetensors")).unwrap();
        assert!(weights(&whole) == weights(&parts), "{seed}");
    }
    finetune(&place, &["--output-dir", "teacher-2", "--seeds", "9"]).ok();
    fs::rename(place.path("teacher"), place.path("teacher-1")).unwrap();
    fs::rename(place.path("teacher-2"), place.path("teacher")).unwrap();
    student("parts", "9", &[]).refused(2, &["distillation.teacher"]);
    student("whole", "8", &["--set", "distillation.temperature=3"]).refused(2, &["distillation.temperature"]);
}

/// A run with these flags and its dry run are refused with these words.
fn refused(place: &Workplace, more: &[&str], words: &[&str]) {
    for last in [&["--dry-run"][..], &[]] {
        finetune(place, &[&["--output-dir", "student"], more, last].concat()).refused(2, words);
    }
}

#[test]
fn what_is_no_teacher_is_refused_before_anything_is_written() {
    let place = with_teacher();
    let before = place.tree();
    refused(
        &place,
        &["--teacher", "run/final"],
        &["distillation.teacher: `run/final` holds no sequence classifier", "hint: fine-tune the teacher"],
    );
    refused(
        &place,
        &["--teacher", "teacher/final", "--labels", "bird,fish,cat"],
        &["distillation.teacher: has the labels `bird`, `fish`, and the examples have `bird`, `fish`, `cat`"],
    );
    finetune(&place, &["--output-dir", "student", "--teacher", "none"])
        .refused(1, &["there is no folder `none`"]);
    refused(&place, &["--set", "distillation.weight=0.5"], &["distillation", "teacher"]);
    refused(
        &place,
        &["--teacher", "teacher/final", "--set", "distillation.weight=0"],
        &["`distillation.weight` is 0"],
    );
    refused(
        &place,
        &["--teacher", "teacher/final", "--set", "distillation.temperature=-1"],
        &["`distillation.temperature` is -1"],
    );
    refused(
        &place,
        &["--teacher", "teacher/final", "--problem-type", "multi_label_classification"],
        &["`distillation` is given, but it is for `task: classify` with one label an example"],
    );
    let plan = finetune(&place, &["--output-dir", "student", "--teacher", "teacher/final", "--dry-run"]).ok();
    let row = "roberta 2 x 32, `teacher/final`: predicts the training examples before the first step";
    assert!(plan.stdout.contains(row), "{}", plan.stdout);
    assert_same_tree(&before, &place.tree());
}
