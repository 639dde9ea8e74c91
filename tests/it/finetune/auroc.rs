//! The area under the ROC curve as its users meet it: measured, selected by, swept by and compared by.

use std::cmp::Ordering;
use std::fs;

use serde_json::Value;

use crate::finetune::{SETS, finetune, rows, workplace};
use crate::workplace::Workplace;

const BY_AUROC: &[&str] = &["--set", "training.metric_for_best_model=auroc"];

fn json(place: &Workplace, name: &str) -> Value {
    serde_json::from_slice(&fs::read(place.path(name)).unwrap()).unwrap()
}

/// The share of pairs of a fish and another example in which the fish is likelier to be one; equal ones count
/// half. Of the two classes, `bird` and `fish`, `fish` is the second.
fn share_of_pairs(predictions: &[Value]) -> f64 {
    let mut sum = 0.0;
    let mut pairs = 0.0;
    for fish in predictions.iter().filter(|row| row["gold"] == "fish") {
        for other in predictions.iter().filter(|row| row["gold"] != "fish") {
            let [of_fish, of_other] = [fish, other].map(|row| row["probabilities"]["fish"].as_f64().unwrap());
            sum += match of_fish.total_cmp(&of_other) {
                Ordering::Greater => 1.0,
                Ordering::Equal => 0.5,
                Ordering::Less => 0.0,
            };
            pairs += 1.0;
        }
    }
    sum / pairs
}

#[test]
fn the_area_under_the_curve_is_measured_and_selects_the_checkpoint() {
    let place = workplace();
    let steps = ["training.eval_steps=5", "training.save_steps=5", "training.early_stopping_patience=2"];
    let steps: Vec<&str> = steps.iter().flat_map(|set| ["--set", set]).collect();
    let report = finetune(&place, &[BY_AUROC, &steps, &["--output-dir", "cls"]].concat()).ok();
    assert!(report.stdout.contains("AUROC %"), "{}", report.stdout);
    let results = json(&place, "cls/all_results.json");
    let auroc = results["eval_auroc"].as_f64().unwrap_or_else(|| panic!("{results}"));
    let written = rows(&fs::read_to_string(place.path("cls/predictions.jsonl")).unwrap());
    assert!((share_of_pairs(&written) - auroc).abs() < 1e-12, "{results}");
    let mut checkpoints: Vec<u64> = fs::read_dir(place.path("cls"))
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().to_str()?.strip_prefix("checkpoint-")?.parse().ok())
        .collect();
    checkpoints.sort_unstable();
    let last = checkpoints.last().unwrap();
    let state = json(&place, &format!("cls/checkpoint-{last}/trainer_state.json"));
    let logged = state["log_history"].as_array().unwrap().iter();
    let best = logged.filter_map(|row| row.get("eval_auroc")?.as_f64()).fold(f64::NAN, f64::max);
    assert_eq!(state["best_metric"].as_f64(), Some(best));

    let evaluate = ["evaluate", "--model", "cls/final", "--data", "dev.csv", "--json"];
    let scores = rows(&place.program(&evaluate, "").ok().stdout).remove(0);
    assert!((scores["eval_auroc"].as_f64().unwrap() - auroc).abs() < 0.02, "{scores}");

    // With one class alone there is no pair.
    let csv = fs::read_to_string(place.path("dev.csv")).unwrap();
    let birds: Vec<&str> =
        csv.lines().enumerate().filter(|(at, _)| at % 2 == 1 || *at == 0).map(|(_, line)| line).collect();
    fs::write(place.path("birds.csv"), birds.join("\n") + "\n").unwrap();
    let evaluate = ["evaluate", "--model", "cls/final", "--data", "birds.csv"];
    let scored = place.program(&evaluate, "").ok().stdout;
    let line = scored.lines().find(|line| line.starts_with("AUROC")).unwrap_or_else(|| panic!("{scored}"));
    assert!(line.ends_with("not measured"), "{scored}");
    let scores = rows(&place.program(&[&evaluate[..], &["--json"]].concat(), "").ok().stdout).remove(0);
    assert_eq!(scores.get("eval_auroc"), Some(&Value::Null), "{scores}");
}

#[test]
fn sweeps_and_comparisons_rank_by_the_area_under_the_curve() {
    let place = workplace();
    let short = ["--set", "training.max_steps=12"];
    let grid = ["--sweep", "learning_rate=0.0001,0.005", "--seeds", "1", "--output-dir", "swept"];
    finetune(&place, &[BY_AUROC, &short, &grid].concat()).ok();
    let sweep = json(&place, "swept/sweep.json");
    assert_eq!(sweep["metric"], "eval_auroc");
    for setting in sweep["settings"].as_array().unwrap() {
        assert!(setting["mean"].is_number(), "{setting}");
        assert_eq!(setting["mean"], setting["runs"][0]["scores"]["eval_auroc"]);
    }

    // A curve would replace the table and the best model of the sweep, and the reverse.
    let before = fs::read(place.path("swept/sweep.json")).unwrap();
    let curve = ["--fractions", "0.5,1", "--seeds", "1", "--output-dir", "swept"];
    finetune(&place, &[&short[..], &curve].concat())
        .refused(2, &["swept/sweep.json", "a sweep over other keys"]);
    assert_eq!(fs::read(place.path("swept/sweep.json")).unwrap(), before);
    let curve = ["--fractions", "0.5,1", "--seeds", "1", "--output-dir", "curve"];
    finetune(&place, &[&short[..], &curve].concat()).ok();
    let grid = ["--sweep", "learning_rate=0.0001,0.005", "--seeds", "1", "--output-dir", "curve"];
    finetune(&place, &[&short[..], &grid].concat()).refused(2, &["curve/sweep.json", "a learning curve"]);

    let data = "{train_file: train.csv, eval_file: dev.csv, max_seq_length: 32}";
    let tasks = format!("tasks:\n- {{name: birds, metric: auroc, seeds: [1], data: {data}}}\n");
    fs::write(place.path("tasks.yaml"), tasks).unwrap();
    let compare = ["compare", "--models", "run/final", "--tasks", "tasks.yaml", "--output-dir", "cmp"];
    place.program(&[&compare[..], &short, &SETS[..2]].concat(), "").ok();
    let compared = &json(&place, "cmp/compare.json")["tasks"][0];
    assert_eq!(compared["metric"], "auroc");
    for row in compared["rows"].as_array().unwrap() {
        let mean = row["mean"].as_f64().unwrap_or_else(|| panic!("not measured: {row}"));
        assert!((0.0..=1.0).contains(&mean), "{row}");
    }
}
