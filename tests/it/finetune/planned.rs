//! `plan` and `bench` of a fine-tuning configuration, and what a dry run refuses before anything is written.

use std::fs;

use serde_json::Value;

use crate::finetune::{finetune, workplace};
use crate::workplace::Workplace;

const CONFIG: &str = "\
model: run/final
data: {train_file: train.csv, eval_file: dev.csv, max_seq_length: 32, labels: [bird, fish]}
training: {num_train_epochs: 2, per_device_train_batch_size: 4, gradient_accumulation_steps: 2}
run: {output_dir: planned}
seeds: [1, 2, 3]
";

fn plan(place: &Workplace, more: &[&str]) -> Value {
    let all = [&["plan", "--config", "tuned.yaml", "--json"], more].concat();
    serde_json::from_str(&place.program(&all, "").ok().stdout).expect("is JSON")
}

#[test]
fn a_fine_tuning_configuration_is_planned_and_timed_like_one_of_pretraining() {
    let place = workplace();
    fs::write(place.path("tuned.yaml"), CONFIG).unwrap();
    let devices = ["--device", "here,t4", "--price", "here=2,t4=0.5"];
    let three = plan(&place, &devices);
    let one = plan(&place, &[&devices[..], &["--set", "seeds=[1]"]].concat());
    assert_eq!([&three["runs"], &one["runs"]], [&Value::from(3), &Value::from(1)]);
    // 160 examples twice, 8 at a time.
    assert_eq!([&three["steps"], &one["steps"]], [&Value::from(40), &Value::from(40)]);
    assert_eq!(three["tokens"].as_u64().unwrap(), 3 * one["tokens"].as_u64().unwrap());
    let seconds = |plan: &Value| plan["devices"][1]["train_seconds"].as_f64().unwrap();
    assert!((seconds(&three) / seconds(&one) - 3.0).abs() < 1e-9, "{three} {one}");
    let [here, rented] = &three["devices"].as_array().unwrap()[..] else { panic!("{three}") };
    assert_eq!([&here["measured"], &rented["measured"]], [&Value::Bool(true), &Value::Bool(false)]);
    assert_eq!([&here["usd_per_hour"], &rented["usd_per_hour"]], [&Value::from(2.0), &Value::from(0.5)]);
    // One update takes all examples, however many it could take.
    let large = ["training.per_device_train_batch_size=100000", "training.gradient_accumulation_steps=3"];
    let large = plan(&place, &["--device", "t4", "--set", large[0], "--set", large[1]]);
    assert_eq!((&large["steps"], &large["tokens"]), (&Value::from(2), &three["tokens"]));
    let shown = place.program(&["plan", "--config", "tuned.yaml", "--device", "t4"], "").ok().stdout;
    for words in ["40 steps for each of 3 seeds", "for all seeds one after the other", "predicted"] {
        assert!(shown.contains(words), "`{words}` is not in:\n{shown}");
    }
    for flag in [&["--tokens", "1M"][..], &["--machines", "2"], &["--save"]] {
        let command = [&["plan", "--config", "tuned.yaml"], flag].concat();
        place.program(&command, "").refused(2, &[flag[0], "configurations of `pretrain`"]);
    }
    fs::write(place.path("sweep.yaml"), format!("{CONFIG}sweep: {{training.learning_rate: [1e-3, 1e-4]}}\n"))
        .unwrap();
    place
        .program(&["plan", "--config", "sweep.yaml"], "")
        .refused(2, &["sweep.yaml: is a sweep", "`mlmtrain finetune --config FILE --dry-run`"]);

    let command = ["bench", "--model", "tuned.yaml", "--steps", "1", "--seconds", "0", "--json"];
    let row: Value = serde_json::from_str(&place.program(&command, "").ok().stdout).unwrap();
    assert_eq!((&row["batch"], &row["length"]), (&Value::from(4), &Value::from(32)), "{row}");
    assert_eq!(row["task"], "classify");
    assert!(!place.path("planned").exists(), "nothing is written");
}

#[test]
fn a_dry_run_counts_the_steps_of_each_setting() {
    let place = workplace();
    let rows = ["--dry-run", "--set", "training.per_device_train_batch_size=8", "--output-dir", "out"];
    // 8 and 160 examples six times, 8 at a time, with two seeds each.
    let curve = ["--fractions", "0.05,1", "--seeds", "1,2"];
    let planned = finetune(&place, &[&rows[..], &curve].concat()).ok().stdout;
    assert!(planned.contains("6, 6.0 epochs\n") && planned.contains(" 252 in all 4 runs\n"), "{planned}");
    let planned = finetune(&place, &[&rows[..], &["--sweep", "num_train_epochs=1,2"]].concat()).ok().stdout;
    assert!(planned.contains("20, 1.0 epochs\n") && planned.contains(" 60 in all 2 runs\n"), "{planned}");
    assert!(!place.path("out").exists(), "nothing is written");
}

#[test]
fn a_dry_run_refuses_what_a_run_would() {
    let place = Workplace::new();
    fs::write(place.path("file"), "").unwrap();
    for (set, words) in [
        ("run.deadline=2020-01-01T00:00:00Z", &["run.deadline: 2020-01-01T00:00:00Z has passed"][..]),
        ("run.output_dir=file/run", &["folder `file/run`", "Not a directory"]),
    ] {
        let dry = place.program(&["pretrain", "--config", "config.yaml", "--dry-run", "--set", set], "");
        assert!(!dry.stderr.contains("panicked") && dry.code != Some(0), "{dry:?}");
        for word in words {
            assert!(dry.stderr.contains(word), "`{word}` is not in:\n{}", dry.stderr);
        }
    }
}
