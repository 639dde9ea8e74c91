//! `mlmtrain verify-resume`: that it proves what it says, and leaves nothing behind.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;

use crate::workplace::{Workplace, assert_same_tree, send};

const SIGTERM: i32 = 15;

/// The names in a workplace.
fn names(place: &Workplace) -> BTreeSet<OsString> {
    fs::read_dir(place.path("")).unwrap().map(|entry| entry.unwrap().file_name()).collect()
}

#[test]
fn a_pretraining_run_comes_to_the_same_bytes_and_its_folder_is_not_touched() {
    let place = Workplace::new();
    place.program(&["prepare", "--config", "config.yaml"], "").ok();
    let (before, there) = (place.tree(), names(&place));
    let args =
        ["verify-resume", "--config", "config.yaml", "--steps", "33", "--set", "training.eval_steps=6"];
    let proof = place.program(&args, "").ok();
    assert!(proof.stdout.starts_with("the same bytes after 32 steps: "), "{proof:#?}");
    assert!(proof.stdout.contains("SIGTERM after step ") && proof.stdout.contains("SIGKILL after step "));
    assert_eq!(names(&place), there, "nothing is left");
    let args = ["verify-resume", "--config", "config.yaml", "--set", "tokenizer.vocab_size=420"];
    let other = place.program(&args, "");
    other.refused(2, &["the straight run failed", ": run/data: was prepared with other settings"]);
    assert_same_tree(&before, &place.tree());
}

#[test]
fn a_run_shorter_than_asked_for_is_trained_to_its_end_and_both_folders_may_be_kept() {
    let place = Workplace::new();
    let args = ["--steps", "100", "--set", "training.max_steps=24", "--keep"];
    let proof = place.program(&[&["verify-resume", "--config", "config.yaml"][..], &args].concat(), "").ok();
    assert!(proof.stdout.starts_with("the same bytes after 24 steps: "), "{proof:#?}");
    assert!(proof.stderr.contains("note: there is no prepared data in `run/data`"), "{proof:#?}");
    assert!(!place.path("run").exists(), "the output folder of the configuration is not touched");
    let kept: Vec<OsString> =
        names(&place).into_iter().filter(|name| name.to_string_lossy().contains("verify-resume")).collect();
    assert_eq!(kept.len(), 1, "{kept:?}");
    let folder = place.path(&kept[0].to_string_lossy());
    let model = |run: &str| fs::read(folder.join(run).join("checkpoint-24/model.safetensors")).unwrap();
    assert!(model("straight") == model("interrupted"));
}

#[test]
fn a_finetuning_run_comes_to_the_same_bytes() {
    let place = Workplace::new();
    place.run(&["training.max_steps=4", "run.sample_text=null"], &[]).ok();
    let mut csv = String::from("label,text\n");
    for number in 0..160 {
        let (label, word) = if number % 2 == 0 { ("bird", "eagle") } else { ("fish", "trout") };
        writeln!(csv, "{label},the {word} sees the horse and the wolf {number} runs home").unwrap();
    }
    fs::write(place.path("train.csv"), &csv).unwrap();
    let config = "run: {output_dir: cls}\nmodel: run/final\nseeds: [3, 4]\n\
                  data: {train_file: train.csv, eval_file: train.csv, max_seq_length: 32}\n\
                  training: {per_device_train_batch_size: 4, warmup_steps: 0.1}\n";
    fs::write(place.path("finetune.yaml"), config).unwrap();
    let proof = place.program(&["verify-resume", "--config", "finetune.yaml", "--threads", "2"], "").ok();
    assert!(proof.stdout.starts_with("the same bytes after 20 steps: "), "{proof:#?}");
    assert!(!place.path("cls").exists());
}

#[test]
fn what_keeps_the_run_from_starting_is_told_and_nothing_is_left() {
    let place = Workplace::new();
    let there = names(&place);
    let verify = |more: &[&str]| {
        place.program(&[&["verify-resume", "--config", "config.yaml"][..], more].concat(), "")
    };
    verify(&["--set", "training.warmpu_steps=1"]).refused(2, &["unknown key `warmpu_steps`"]);
    verify(&["--set", "data.sources.0.files=[none.txt]"])
        .refused(2, &["the straight run failed", "none.txt"]);
    verify(&["--set", "training.max_steps=1"]).refused(2, &["training.max_steps", "1 steps in all"]);
    assert_eq!(names(&place), there);
}

#[test]
fn a_signal_ends_both_the_proof_and_its_runs() {
    let place = Workplace::new();
    place.program(&["prepare", "--config", "config.yaml"], "").ok();
    let there = names(&place);
    // So many steps are not done before the signal comes.
    let sets = ["training.max_steps=1000000"];
    let mut child = place.subcommand("verify-resume", &sets, &["--steps", "999983"]).spawn().expect("starts");
    while names(&place) == there {
        assert!(child.try_wait().expect("can be asked").is_none(), "it has begun");
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    send(&child, SIGTERM);
    assert_eq!(child.wait().expect("ends").code(), Some(128 + SIGTERM));
    assert_eq!(names(&place), there, "nothing is left");
}
