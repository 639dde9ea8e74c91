//! `mlmtrain tune`: it finds the setting that learns, whatever interrupts it, and writes its configuration.

use std::fs;
use std::path::Path;
use std::process::Child;
use std::time::Duration;

use serde_json::{Value, json};

use crate::material::examples;
use crate::workplace::{Finished, Workplace, assert_same_tree, send};

const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;

/// A rate that learns nothing, one that learns, and one that hardly does.
const RATES: [&str; 4] = ["--budget", "30m", "--vary", "learning_rate=1e-30,3e-3,1e-9"];

fn tune(place: &Workplace, sets: &[&str], more: &[&str]) -> Finished {
    let mut command = place.subcommand("tune", sets, more);
    command.output().expect("starts").into()
}

fn json_of(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// Starts a tuning of pretraining and sends `signal` once `file` exists; false if it ended before that.
fn interrupted_at(place: &Workplace, file: &str, signal: i32) -> bool {
    let mut child: Child = place.subcommand("tune", &[], &RATES).spawn().expect("starts");
    while child.try_wait().unwrap().is_none() {
        if place.path(file).exists() {
            send(&child, signal);
            let ended: Finished = child.wait_with_output().unwrap().into();
            if signal == SIGTERM && ended.code != Some(0) {
                assert_eq!(ended.code, Some(128 + SIGTERM), "{ended:#?}");
                assert!(ended.stderr.contains("the same command continues"), "{}", ended.stderr);
                assert_eq!(ended.stdout, "", "there is no table yet");
            }
            return true;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    false
}

#[test]
fn pretraining_finds_the_rate_that_learns_and_comes_through_interruptions_with_the_same_bytes() {
    let place = Workplace::new();
    let whole = tune(&place, &[], &RATES).ok();
    let lines: Vec<&str> = whole.stdout.lines().collect();
    assert_eq!(
        lines[0].split_whitespace().collect::<Vec<_>>().join(" "),
        "learning_rate step 13 step 40 out at rung"
    );
    assert!(lines[2].starts_with("* 0.003"), "{}", whole.stdout);
    assert!(lines[4].starts_with("best of 3: learning_rate=3e-3, eval_loss "), "{}", whole.stdout);
    assert!(whole.stdout.contains("trained to its end: run/learning_rate=3e-3/final\n"), "{}", whole.stdout);
    assert!(whole.stdout.ends_with("configuration: run/tune.yaml\n"), "{}", whole.stdout);
    assert!(whole.stderr.contains("rung 1 of 2, candidate 2 of 3, learning_rate=3e-3: eval_loss "));
    assert!(whole.stderr.contains(" left\n"), "a forecast: {}", whole.stderr);
    assert!(whole.stderr.contains("next:\n  mlmtrain pretrain --config run/tune.yaml"), "{}", whole.stderr);
    let record = json_of(&place.run_path("tune.json"));
    assert_eq!(record["best"], "learning_rate=3e-3");
    assert_eq!(record["rungs"][0], json!({"candidates": 3, "steps": 13, "part": 3}));
    assert_eq!(record["candidates"][1]["setting"]["training.learning_rate"], 0.003);
    assert_eq!(record["candidates"][1]["out_at"], Value::Null);
    let kept = |name: &str| {
        fs::read_dir(place.run_path(name))
            .unwrap()
            .flatten()
            .filter(|entry| entry.path().join("model.safetensors").exists())
            .count()
    };
    assert_eq!((kept("learning_rate=1e-30"), kept("learning_rate=1e-9")), (0, 0), "weights are removed");
    assert!(place.run_path("learning_rate=1e-9/metrics.jsonl").exists() && !place.run_path("speed").exists());

    let page = place.program(&["report", "run", "-o", "-"], "").ok().stdout;
    assert_eq!(page.matches("dropped out of the tuning at step 13").count(), 1, "{page}");
    assert!(!page.contains("run the same command to continue"), "{page}");

    let before = place.tree();
    let again = tune(&place, &[], &RATES).ok();
    assert_eq!(again.stdout, whole.stdout);
    assert_same_tree(&before, &place.tree());

    // No run is trained in the folder of a tuning, not even that of the winner.
    for more in [&["--dry-run"][..], &[]] {
        let words =
            ["run: holds `tune.json` of a tuning", "hint: choose another", "`tune.yaml`, names a folder"];
        place.run(&["training.learning_rate=3e-3"], more).refused(2, &words);
    }
    assert_same_tree(&before, &place.tree());

    // The winner was trained in two sittings, and ends in the bytes of a single one.
    place.program(&["pretrain", "--config", "run/tune.yaml", "--dry-run"], "").ok();
    place.program(&["pretrain", "--config", "run/tune.yaml"], "").ok();
    let again = place.program(&["pretrain", "--config", "run/tune.yaml"], "").ok().stdout;
    assert!(again.contains("this run is complete"), "{again}");
    let model = |name: &str| fs::read(place.run_path(name).join("final/model.safetensors")).unwrap();
    assert!(model("best") == model("learning_rate=3e-3"), "pauses change a byte");
    assert!(!place.run_path("best/data").exists(), "the data are those of the tuning");
    let listed = place.program(&["runs", "run"], "").ok().stdout;
    for name in ["\nbest ", "\nlearning_rate=3e-3 ", "\nlearning_rate=1e-9 "] {
        assert!(listed.contains(name), "`{name}` is not in:\n{listed}");
    }
    assert_eq!(tune(&place, &[], &RATES).ok().stdout, whole.stdout, "next to the final run");

    fs::rename(place.path("run"), place.path("whole")).unwrap();
    let mut interrupted = 0;
    for (file, signal) in [
        ("run/speed/metrics.jsonl", SIGTERM),
        ("run/tune.json", SIGKILL),
        ("run/learning_rate=1e-30/checkpoint-13", SIGKILL),
        ("run/learning_rate=3e-3/metrics.jsonl", SIGTERM),
        ("run/learning_rate=1e-9/metrics.jsonl", SIGKILL),
        ("run/learning_rate=3e-3/checkpoint-24", SIGTERM),
        ("run/learning_rate=3e-3/final", SIGKILL),
    ] {
        interrupted += u32::from(interrupted_at(&place, file, signal));
    }
    assert!(interrupted > 3, "{interrupted}");
    let resumed = tune(&place, &[], &RATES).ok();
    assert!(
        resumed.stderr.contains("continuing: 3 candidates are trained to step 13, 2 continue to step 40")
    );
    assert_eq!(resumed.stdout, whole.stdout);
    for name in ["tune.json", "tune.yaml", "learning_rate=3e-3/final/model.safetensors"] {
        let read = |folder: &str| fs::read(place.path(folder).join(name)).unwrap();
        assert!(read("run") == read("whole"), "{name}");
    }
}

#[test]
fn a_shortened_tuning_compresses_the_schedule_and_keeps_its_first_plan() {
    let place = Workplace::new();
    tune(&place, &[], &RATES).ok();
    // As a small budget would have planned it.
    let mut record = json_of(&place.run_path("tune.json"));
    record["rungs"][0]["steps"] = 4.into();
    record["rungs"][1]["steps"] = 12.into();
    record["best"] = Value::Null;
    for candidate in record["candidates"].as_array_mut().unwrap() {
        candidate["scores"] = json!([]);
        candidate["out_at"] = Value::Null;
        fs::remove_dir_all(place.run_path(candidate["folder"].as_str().unwrap())).unwrap();
    }
    fs::write(place.run_path("tune.json"), record.to_string()).unwrap();
    let other_budget = ["--budget", "5m", RATES[2], RATES[3]];
    let short = tune(&place, &[], &other_budget).ok();
    assert!(short.stderr.contains("note: the rungs stay those of the first start"), "{}", short.stderr);
    assert!(
        short.stdout.contains("eval_loss") && short.stdout.contains(" after 12 of 40 steps"),
        "{}",
        short.stdout
    );
    assert!(!short.stdout.contains("trained to its end"), "{}", short.stdout);
    let records = fs::read_to_string(place.run_path("learning_rate=3e-3/metrics.jsonl")).unwrap();
    let rates: Vec<f64> = records
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).unwrap()["train/learning_rate"].as_f64())
        .collect();
    assert_eq!(rates.len(), 12);
    // The last step of 40 has a rate of 1/36 of the peak, the last of these twelve that of step 36 of 40.
    assert!(rates[3] > 0.002 && rates[11] < 0.0005, "{rates:?}");
    let before = place.tree();
    assert_eq!(tune(&place, &[], &other_budget).ok().stdout, short.stdout);
    assert_same_tree(&before, &place.tree());
}

/// A workplace with a pretrained model, labelled files, and a configuration `cls.yaml` for them.
fn labelled() -> Workplace {
    let place = Workplace::new();
    place.run(&["training.max_steps=20", "run.sample_text=null"], &[]).ok();
    fs::write(place.path("train.csv"), examples(160)).unwrap();
    fs::write(place.path("dev.csv"), examples(40)).unwrap();
    let config = "# Ours.\ntask: classify\nmodel: run/final\nrun: {output_dir: cls, threads: 2}\nseeds: [3, 4]\n\
                  data: {train_file: train.csv, eval_file: dev.csv, max_seq_length: 32}\n\
                  precision: {compute: f32}\n\
                  training: {max_steps: 60, warmup_steps: 0.1, early_stopping_patience: 1}\n";
    fs::write(place.path("cls.yaml"), config).unwrap();
    place
}

#[test]
fn fine_tuning_finds_the_rate_that_learns_and_the_report_shows_the_table() {
    let place = labelled();
    let arguments = ["tune", "--config", "cls.yaml", "--budget", "30m", "--output", "best.yaml"];
    let vary = ["--vary", "learning_rate=1e30,1e-30,0.005", "--set", "training.logging_steps=5"];
    let arguments = [&arguments[..], &vary].concat();
    let planned = place.program(&[&arguments[..], &["--dry-run"]].concat(), "").ok();
    assert!(planned.stdout.starts_with("dry run: nothing is written\n"), "{}", planned.stdout);
    for words in
        ["3: learning_rate=1e30; ", "3 candidates are trained to 1/3, 2 continue to the end", "eval_accuracy"]
    {
        assert!(planned.stdout.contains(words), "{}", planned.stdout);
    }
    let small = ["tune", "--config", "cls.yaml", "--budget", "1s", "--settings", "300"];
    place.program(&small, "").refused(2, &["--budget: does not suffice: 300 candidates take about "]);
    assert!(!place.path("cls").exists() && !place.path("best.yaml").exists());
    let report = place.program(&arguments, "").ok();
    assert!(report.stdout.contains("* 0.005") && report.stdout.contains("diverged"), "{}", report.stdout);
    assert!(report.stdout.contains("best of 3: learning_rate=0.005, eval_accuracy "), "{}", report.stdout);
    assert!(report.stderr.contains("with the first seed, 3"), "{}", report.stderr);
    assert!(report.stderr.contains("next:\n  mlmtrain finetune --config best.yaml"), "{}", report.stderr);
    let yaml = fs::read_to_string(place.path("best.yaml")).unwrap();
    assert!(
        yaml.starts_with("# Written by `mlmtrain tune`: the best of 3 candidates, eval_accuracy "),
        "{yaml}"
    );
    let given =
        |words: &str| yaml.lines().any(|line| line.trim().split("  #").next().unwrap().trim() == words);
    assert!(given("learning_rate: 0.005") && given("early_stopping_patience: 1"), "{yaml}");
    assert!(given("seeds: [3, 4]") && !yaml.contains("weight_decay"), "{yaml}");
    place.program(&["config", "check", "best.yaml"], "").ok();
    let again = place.program(&arguments, "").ok();
    assert_eq!(again.stdout, report.stdout);
    let page = place.program(&["report", "cls", "-o", "-"], "").ok().stdout;
    for words in ["Tuning</h2>", "out at rung", "step 20", "eval_accuracy at each step", "diverged", "</svg>"]
    {
        assert!(page.contains(words), "`{words}` is not in the page");
    }
    let done = place.program(&[&arguments[..], &["--dry-run"]].concat(), "").ok();
    assert!(done.stdout.contains("complete already"), "{}", done.stdout);
    let other = ["--set", "training.weight_decay=0.1"];
    place.program(&[&arguments[..], &other].concat(), "").refused(
        2,
        &["cls/tune.json: `training.weight_decay` was 0.0 and is 0.1 now", "hint: repeat the tuning"],
    );
    place.program(&["finetune", "--config", "best.yaml"], "").ok();
    assert!(place.path("cls/best/seed-4/final").exists() && !place.path("cls/config.yaml").exists());
    let page = place.program(&["report", "cls", "-o", "-"], "").ok().stdout;
    assert!(page.contains("Tuning</h2>"), "also with the runs of the winner: {page}");
}

#[test]
fn what_cannot_be_tuned_is_refused_and_nothing_is_written() {
    let place = Workplace::new();
    let refused = |sets: &[&str], more: &[&str], words: &[&str]| {
        let budget: &[&str] = if more.contains(&"--budget") { &[] } else { &["--budget", "10m"] };
        tune(&place, sets, &[budget, more].concat()).refused(2, words);
        assert!(!place.run_path("tune.json").exists());
    };
    refused(&[], &["--vary", "learning_rat=1,2"], &["--vary learning_rat: unknown key", "`learning_rate`"]);
    refused(&[], &["--vary", "learning_rate=1e-2..1e-3"], &["`1e-2..1e-3` is not a range"]);
    refused(&["run.budget_usd=1", "run.usd_per_hour=1"], &[], &["run.budget_usd: limits one run"]);
    refused(
        &[],
        &["--output", "config.yaml"],
        &["--output config.yaml: is `config.yaml`, which this command"],
    );
    let fraction = ["data.validation_fraction=0"];
    refused(&fraction, &[], &["`data.validation_fraction` is 0, it must be above 0", "hint: "]);
    assert!(!place.path("run").exists());
    let many = ["--budget", "1s", "--settings", "300"];
    refused(
        &[],
        &many,
        &["--budget: does not suffice: ", " candidates take about ", "hint: give a larger one"],
    );
    let causal = ["training.phases=[{until_step: 20, max_seq_length: 32, objective: causal}]"];
    refused(
        &causal,
        &RATES,
        &[
            "training.phases: a rung ends at step 13, in a causal phase (until step 20)",
            "hint: give a larger",
        ],
    );
    place.run(&["training.max_steps=2"], &[]).ok();
    refused(&[], &[], &["run: holds `final` of a run", "hint: choose another `run.output_dir`"]);
    let lost = ["--budget", "10m", "--vary", "learning_rate=1e30,1e31"];
    let lost = tune(&place, &["run.output_dir=lost"], &lost);
    assert_eq!(lost.code, Some(76), "{lost:#?}");
}
