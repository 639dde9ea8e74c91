//! Probes: scores of the weights of the moment on tasks, which leave the run as it is.

use std::fs;
use std::time::Duration;

use serde_json::Value;

use crate::material::examples;
use crate::workplace::{Tree, Workplace, send};

const SIGTERM: i32 = 15;

const TASKS: &str = "\
data: {train_file: rows.csv, eval_file: more.csv, max_seq_length: 32}
training: {max_steps: 6, learning_rate: 1.0e-3}
seeds: [3, 4]
tasks:
  - name: animals
";

const PAIRS: &str = "{\"good\": \"the cat sees the dog\", \"bad\": \"cat the the sees dog\"}\n\
                     {\"good\": \"the wolf sleeps\", \"bad\": \"sleeps wolf the\"}\n";

const SETS: [&str; 3] =
    ["evaluation.probes=tasks.yaml", "evaluation.minimal_pairs=[order.jsonl]", "evaluation.probe_steps=20"];

fn place() -> Workplace {
    let place = Workplace::new();
    for (name, text) in
        [("rows.csv", examples(24)), ("more.csv", examples(9)), ("order.jsonl", PAIRS.to_string())]
    {
        fs::write(place.path(name), text).unwrap();
    }
    fs::write(place.path("tasks.yaml"), TASKS).unwrap();
    place
}

/// The records of the run without those of probes.
fn own_records(place: &Workplace) -> Vec<Value> {
    let is_own = |record: &Value| record.get("eval/animals").is_none();
    place.metrics().into_iter().filter(is_own).collect()
}

/// All files of the last checkpoint and the final model, but the configuration, the state, which holds times,
/// and what holds the hashes of both.
fn weights_and_state(place: &Workplace) -> Tree {
    let of = |folder: &str| {
        let root = place.path("run");
        let files = place.tree_of(folder).into_iter();
        files.map(move |(path, hash)| (path.strip_prefix(&root).unwrap().to_path_buf(), hash))
    };
    let mut files: Tree = of("run/checkpoint-40").chain(of("run/final")).collect();
    let others = ["trainer/config.json", "trainer/state.json", "manifest.json"];
    files.retain(|path, _| !others.iter().any(|other| path.ends_with(other)));
    assert!(files.len() > 8, "{files:?}");
    files
}

#[test]
fn probes_say_what_the_weights_are_worth_and_change_none_of_them() {
    let (place, without) = (place(), Workplace::new());
    without.run(&[], &[]).ok();
    place.run(&SETS, &[]).ok();
    let steps = |tag: &str| place.series(tag).iter().map(|(step, _)| *step).collect::<Vec<u64>>();
    assert_eq!([steps("eval/animals"), steps("eval/order")], [[0, 20, 40], [0, 20, 40]]);
    assert_eq!(own_records(&place), without.metrics());
    assert_eq!(weights_and_state(&place), weights_and_state(&without));
    assert!(!place.run_path("probes").exists() && !place.run_path("probed").exists());

    // The last scores are those that the commands give to the final model.
    let last = |tag: &str| place.series(tag)[2].1;
    let tuning = ["finetune", "--model", "run/final", "--train", "rows.csv", "--eval", "more.csv"];
    let sets = ["data.max_seq_length=32", "training.max_steps=6", "training.learning_rate=1.0e-3"];
    let sets = sets.iter().chain(&["run.output_dir=tuned"]).flat_map(|set| ["--set", set]);
    let sets: Vec<&str> = sets.chain(["--seeds", "3,4"]).collect();
    place.program(&[&tuning[..], &sets].concat(), "").ok();
    let scores = ["seed-3", "seed-4"].map(|seed| place.json(&format!("../tuned/{seed}/all_results.json")));
    let mean = scores.iter().map(|scores| scores["eval_accuracy"].as_f64().unwrap()).sum::<f64>() / 2.0;
    assert!((last("eval/animals") - mean).abs() < 1e-12, "{} and {mean}", last("eval/animals"));
    let judged = ["evaluate", "--task", "minimal-pairs", "--model", "run/final", "--data", "order.jsonl"];
    let judged = place.program(&[&judged[..], &["--json"]].concat(), "").ok();
    let judged: Value = serde_json::from_str(&judged.stdout).unwrap();
    assert_eq!(judged["eval_accuracy"], last("eval/order"));
    assert_eq!(place.json("all_results.json")["eval_animals"], last("eval/animals"));
}

#[test]
fn a_probe_that_is_interrupted_is_made_again_and_every_score_is_there_once() {
    let (place, undisturbed) = (place(), place());
    undisturbed.run(&SETS, &[]).ok();
    let mut stopped = 0;
    for _ in 0..40 {
        let mut child = place.start(&SETS);
        while child.try_wait().unwrap().is_none() {
            if place.run_path("probed").exists() {
                send(&child, SIGTERM);
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        match child.wait().unwrap().code() {
            Some(0) => break,
            code => assert_eq!(code, Some(128 + SIGTERM)),
        }
        stopped += 1;
    }
    assert!(stopped > 0, "no run was stopped");
    place.run(&SETS, &[]).ok();
    assert_eq!(place.metrics(), undisturbed.metrics());
}

#[test]
fn what_cannot_be_probed_is_said_before_the_first_step() {
    let place = place();
    fs::write(place.path("more.csv"), "label,text\nbird,\"an eagle\"\ncow,\"a cow\"\n").unwrap();
    place.run(&SETS, &[]).refused(1, &["more.csv:3", "`cow`"]);
    let twice = ["evaluation.minimal_pairs=[order.jsonl,order.jsonl]"];
    place.run(&twice, &[]).refused(2, &["two probes are called `order`"]);
    let alone = ["evaluation.probe_steps=20"];
    place.run(&alone, &[]).refused(2, &["`evaluation.probe_steps` is given, but there is nothing to probe"]);
    fs::write(place.path("tasks.yaml"), format!("precision: {{compute: bf16}}\n{TASKS}")).unwrap();
    place.run(&SETS, &[]).refused(2, &["task `animals`: precision", "is that of the run"]);
    assert!(!place.run_path("metrics.jsonl").exists());
}
