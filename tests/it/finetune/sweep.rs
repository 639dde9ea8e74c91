//! Sweeps and learning curves: one table whatever happened on the way, and the best model kept.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::finetune::{FLAGS, SETS, finetune, workplace};
use crate::workplace::{Finished, Workplace, assert_same_tree};

const GRID: &[&str] = &[
    "--output-dir",
    "out",
    "--sweep",
    "learning_rate=0.0001,0.005",
    "--sweep",
    "seed=1,2",
    "--set",
    "training.max_steps=60",
    "--set",
    "training.save_steps=20",
];

fn json(place: &Workplace, name: &str) -> Value {
    serde_json::from_slice(&fs::read(place.path(name)).unwrap()).unwrap()
}

/// Starts the sweep, and kills it when `file` is there; `false` where it came to its end before that.
fn killed_at(place: &Workplace, file: &str) -> bool {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mlmtrain"));
    command.args([FLAGS, SETS, GRID].concat()).current_dir(place.path(""));
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    while child.try_wait().unwrap().is_none() {
        if place.path(file).exists() {
            child.kill().unwrap();
            child.wait().unwrap();
            return true;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    false
}

#[test]
fn a_sweep_that_is_killed_over_and_over_leaves_the_same_table_and_the_same_model() {
    let place = workplace();
    // One after the other; below, as many at once as there are threads.
    let whole = finetune(&place, &[GRID, &["--at-once", "1"]].concat()).ok();
    let lines: Vec<&str> = whole.stdout.lines().collect();
    assert!(
        lines[0].trim_start().starts_with("learning_rate  seeds  ") && lines[0].contains("accuracy %"),
        "{}",
        whole.stdout
    );
    assert!(lines[2].starts_with("* 0.005"), "the higher rate learns: {}", whole.stdout);
    assert!(
        whole.stderr.contains("cell 4 of 4, learning_rate=0.005, seed=2: eval_accuracy"),
        "{}",
        whole.stderr
    );
    assert!(whole.stderr.contains(" left"), "a forecast: {}", whole.stderr);
    let next = "next:\n  mlmtrain predict --model out/best/final --input ";
    assert!(whole.stderr.contains(next), "{}", whole.stderr);
    let weights = |folder: &str| fs::read(place.path(folder).join("final/model.safetensors"));
    let best = weights("out/best").unwrap();
    let summary = json(&place, "out/sweep.json");
    assert_eq!(summary["best"]["setting"]["training.learning_rate"], 0.005);
    let of_best = weights(summary["best"]["folder"].as_str().unwrap()).unwrap();
    assert!(of_best == best, "the link leads to the best run");
    let kept = ["0.0001/seed-1", "0.0001/seed-2", "0.005/seed-1", "0.005/seed-2"]
        .map(|cell| weights(&format!("out/learning_rate={cell}")).is_ok());
    assert_eq!(kept.iter().filter(|is_kept| **is_kept).count(), 1, "{kept:?}");

    let before = place.tree_of("out");
    let again = finetune(&place, GRID).ok();
    assert_eq!(again.stdout, whole.stdout);
    assert_eq!(again.stderr.matches("(complete already)").count(), 4, "{}", again.stderr);
    assert_same_tree(&before, &place.tree_of("out"));

    fs::rename(place.path("out"), place.path("whole")).unwrap();
    for file in [
        "out/learning_rate=0.0001/seed-1/metrics.jsonl",
        "out/learning_rate=0.0001/seed-1/all_results.json",
        "out/learning_rate=0.0001/seed-1/cell.json",
        "out/learning_rate=0.0001/seed-2/checkpoint-40",
        "out/learning_rate=0.005/seed-1/metrics.jsonl",
        "out/learning_rate=0.005/seed-1/final",
        "out/learning_rate=0.005/seed-2/cell.json",
    ] {
        killed_at(&place, file);
    }
    let resumed = finetune(&place, GRID).ok();
    assert!(resumed.stderr.contains("(complete already)"), "{}", resumed.stderr);
    assert_eq!(resumed.stdout, whole.stdout);
    for name in ["sweep.json", "sweep.md", "best/final/model.safetensors", "best/cell.json"] {
        let read = |folder: &str| fs::read(place.path(folder).join(name)).unwrap();
        assert!(read("out") == read("whole"), "{name}");
    }
}

#[test]
fn a_sweep_goes_on_with_what_it_began_with_only() {
    let place = workplace();
    let short = ["--set", "training.max_steps=2", "--set", "training.save_steps=0"];
    let grid = [GRID, &short].concat();
    finetune(&place, &grid).ok();
    finetune(&place, &[&grid[..], &["--set", "training.weight_decay=0.1"]].concat()).refused(
        2,
        &["seed-1/cell.json: `training.weight_decay` was 0.0 and is 0.1 now", "hint: restore it"],
    );
    let train = fs::read(place.path("train.csv")).unwrap();
    fs::write(place.path("train.csv"), crate::material::examples(150)).unwrap();
    finetune(&place, &grid).refused(2, &["the content of `data.train_file` is not what it was"]);
    fs::write(place.path("train.csv"), train).unwrap();

    // Other keys, and fewer values or seeds, would replace rows of the table.
    let before = place.tree_of("out");
    let more_keys = [&grid[..], &["--sweep", "weight_decay=0.0,0.5"]].concat();
    let other_key = [&grid[..3], &["num_train_epochs=1,2"], &grid[4..]].concat();
    let fewer_values = [&grid[..3], &["learning_rate=0.005"], &grid[4..]].concat();
    let fewer_seeds = [&grid[..5], &["seed=2"], &grid[6..]].concat();
    let other = "out/sweep.json: holds the results of a sweep over other keys";
    let left_out = "holds the results of `out/learning_rate=0.0001/seed-1`, which this sweep would leave out";
    for (arguments, words) in
        [(more_keys, other), (other_key, other), (fewer_values, left_out), (fewer_seeds, left_out)]
    {
        for more in [&["--dry-run"][..], &[]] {
            finetune(&place, &[&arguments[..], more].concat())
                .refused(2, &[words, "choose another folder with `--output-dir`"]);
        }
    }
    assert_same_tree(&before, &place.tree_of("out"));

    // A grid with one more value trains that one alone; the best run gets its weights back.
    fs::remove_dir_all(place.path("out/best/final")).unwrap();
    fs::remove_dir_all(place.path("out/best/checkpoint-2")).ok();
    let report = finetune(&place, &grid).ok();
    assert!(
        report.stderr.contains("the best run's weights are gone, it is trained again"),
        "{}",
        report.stderr
    );
    assert!(place.path("out/best/final/model.safetensors").exists());
    let wider = [&grid[..3], &["learning_rate=0.0001,0.005,0.01"], &grid[4..]].concat();
    let report = finetune(&place, &wider).ok();
    assert_eq!(report.stderr.matches("(complete already)").count(), 4, "{}", report.stderr);
    assert_eq!(json(&place, "out/sweep.json")["settings"].as_array().unwrap().len(), 3);
    fs::remove_file(place.path("train.csv")).unwrap();
    finetune(&place, &wider).refused(2, &["train.csv: there is no such file", "hint: check the path"]);
}

/// Fine-tunes for one step into `folder`.
fn one_step(place: &Workplace, folder: &str, more: &[&str]) -> Finished {
    finetune(place, &[&["--output-dir", folder, "--set", "training.max_steps=1"], more].concat())
}

/// The command with these arguments is refused in `folder`, also by its dry run, and changes nothing there.
#[track_caller]
fn refused_in(place: &Workplace, folder: &str, arguments: &[&str], words: &str) {
    let before = place.tree_of(folder);
    for more in [&["--dry-run"][..], &[]] {
        let ended = one_step(place, folder, &[arguments, more].concat());
        ended.refused(2, &[words, "hint: choose another"]);
    }
    assert_same_tree(&before, &place.tree_of(folder));
}

const RATES: &[&str] = &["--sweep", "learning_rate=1e-4,1e-3"];
const TWO_SEEDS: &[&str] = &["--seeds", "1,2"];

#[test]
fn a_sweep_is_refused_in_the_folder_of_an_ordinary_run_which_may_go_on() {
    let place = workplace();
    one_step(&place, "single", &[]).ok();
    one_step(&place, "seeds", TWO_SEEDS).ok();
    for sweep in [RATES, &["--fractions", "0.5,1"]] {
        refused_in(&place, "single", sweep, "single: holds `final` of a run with one seed");
        refused_in(&place, "seeds", sweep, "seeds: holds `seed-1` of a run with several seeds");
    }
    assert!(one_step(&place, "single", &[]).ok().stdout.contains("complete already"));
    let wider = one_step(&place, "seeds", &["--seeds", "1,2,3"]).ok();
    assert_eq!(wider.stdout.matches("complete already").count(), 2, "{}", wider.stdout);
}

#[test]
fn an_ordinary_run_is_refused_in_the_folder_of_a_sweep_which_may_go_on() {
    let place = workplace();
    let whole = one_step(&place, "swept", RATES).ok();
    for run in [&[][..], TWO_SEEDS] {
        refused_in(&place, "swept", run, "swept: holds `sweep.json` of a sweep");
    }
    // As if it had been interrupted before it had results.
    fs::remove_file(place.path("swept/sweep.json")).unwrap();
    refused_in(&place, "swept", &[], "swept: holds `learning_rate=1e-3` of a sweep");
    let other = ["--sweep", "weight_decay=0,0.1"];
    refused_in(&place, "swept", &other, "swept: holds `learning_rate=1e-3` of a sweep over other keys");
    assert_eq!(one_step(&place, "swept", RATES).ok().stdout, whole.stdout);
}

#[test]
fn a_rate_that_is_far_too_high_is_a_row_and_no_end() {
    let place = workplace();
    let rates =
        ["--output-dir", "out", "--sweep", "learning_rate=1e30,0.005", "--set", "training.max_steps=30"];
    let report = finetune(&place, &rates).ok();
    assert!(report.stdout.contains("* 0.005"), "{}", report.stdout);
    assert!(report.stdout.contains("(1 diverged)"), "{}", report.stdout);
    let again = finetune(&place, &rates).ok();
    assert_eq!(again.stdout, report.stdout);
}

#[test]
fn a_learning_curve_has_a_row_and_a_point_for_each_share() {
    let place = workplace();
    let curve = ["--output-dir", "out", "--fractions", "1,0.05,0.25", "--seeds", "1,2"];
    let short = ["--set", "training.max_steps=20"];
    let report = finetune(&place, &[&curve[..], &short].concat()).ok();
    let lines: Vec<&str> = report.stdout.lines().collect();
    let first =
        lines.iter().position(|line| line.trim_start_matches('*').trim_start().starts_with("0.05")).unwrap();
    assert!(lines[first - 1].contains("share  examples  seeds"), "{}", report.stdout);
    assert!(lines[..first].concat().contains("TF-IDF"), "{}", report.stdout);
    let rows: Vec<Vec<&str>> = lines[first..first + 3]
        .iter()
        .map(|line| line.trim_start_matches('*').split_whitespace().take(3).collect())
        .collect();
    assert_eq!(rows, [["0.05", "8", "2"], ["0.25", "40", "2"], ["1", "160", "2"]]);
    let svg = fs::read_to_string(place.path("out/learning_curve.svg")).unwrap();
    assert_eq!(svg.matches("<title>").count(), 6, "a dot for each seed says its value");
    let points = &json(&place, "out/sweep.json")["learning_curve"];
    assert_eq!(points[2]["examples"], 160);
    assert_eq!(points[2]["floor"], 1.0, "counted words know these sentences by heart");
}
