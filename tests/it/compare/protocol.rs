//! `mlmtrain compare --protocol euroeval`: iterations with drawn examples, test scores, published rows, and
//! the schema of Every Eval Ever.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::compare::{killed_at, workplace};
use crate::material::{examples, tagged};
use crate::notes::skipped;
use crate::workplace::{Workplace, assert_same_tree};

const TASKS: &str = "\
protocol: euroeval
iterations: 2
training: {learning_rate: 0.005, max_steps: 20, warmup_steps: 4, eval_steps: 10, save_steps: 10}
published:
  - name: a large one
    source: a leaderboard of 2026
    scores:
      - {task: animals, metric: matthews_correlation, score: 91.97}
      - {task: names, metric: micro_f1_no_misc, score: 80.97}
      - {task: another, metric: f1, score: 1}
tasks:
  - name: animals
    data: {train_file: train.csv, eval_file: dev.csv, test_file: test.csv}
  - name: names
    task: token-classify
    data:
      train_file: train.conll
      eval_file: dev.conll
      test_file: test.conll
      rename_types: [{from: [fish], to: MISC}]
";

const COMPARE: &[&str] = &[
    "compare",
    "--models",
    "run/final",
    "other/final",
    "--tasks",
    "tasks.yaml",
    "--sample",
    "64,20,24",
    "--output-dir",
    "out",
];

fn furnished() -> Workplace {
    let place = workplace();
    fs::write(place.path("tasks.yaml"), TASKS).unwrap();
    fs::write(place.path("test.csv"), examples(50)).unwrap();
    fs::write(place.path("test.conll"), tagged(24)).unwrap();
    place
}

fn read_json(place: &Workplace, name: &str) -> Value {
    serde_json::from_slice(&fs::read(place.path(name)).unwrap()).unwrap()
}

#[test]
fn euroevals_protocol_ends_in_the_same_bytes_whatever_happened_on_the_way() {
    let place = furnished();
    let whole = place.program(COMPARE, "").ok();
    for words in [
        "animals: 2 iterations, 20 validation and 24 test examples",
        "names: 2 iterations, 20 validation and 24 test sentences",
        "test: micro",
        "F1 without",
        "validation:",
        "random twin of run",
        "a leaderboard of 2026: a large one",
        "not the protocol's: `training.learning_rate` is 0.005, not 0.00002",
        "not the protocol's: `iterations` is 2, not 10",
        "out/every_eval_ever.jsonl",
    ] {
        assert!(whole.stdout.contains(words), "{words}: {}", whole.stdout);
    }
    let markdown = fs::read_to_string(place.path("out/compare.md")).unwrap();
    for title in ["test: micro F1 without MISC", "validation: Matthews"] {
        assert!(markdown.contains(title), "{title}: {markdown}");
    }
    assert!(!whole.stdout.contains("`training.train_batch_size`"), "an update has 32 rows: {}", whole.stdout);

    let json = read_json(&place, "out/compare.json");
    let row = |task: usize, name: &str| -> Value {
        let rows = json["tasks"][task]["rows"].as_array().unwrap();
        rows.iter().find(|row| row["name"] == name).unwrap_or_else(|| panic!("{name}: {json:#}")).clone()
    };
    assert_eq!(json["tasks"][0]["seeds"], serde_json::json!([4242, 4243]));
    let own = row(0, "run");
    let record = read_json(&place, "out/animals/run/seed-4242/cell.json");
    for (split, start) in [("test", "test"), ("validation", "eval")] {
        for metric in ["matthews_correlation", "f1"] {
            let stored = &record["scores"][&format!("{start}_{metric}")];
            assert_eq!(&own[split][metric]["scores"][0], stored, "{split} {metric}: the run's own score");
        }
    }
    assert_eq!(record["test_outcomes"]["labels"]["gold"].as_array().unwrap().len(), 24);
    assert_eq!(row(0, "a large one")["test"]["matthews_correlation"]["mean"], 0.9197);
    assert_eq!(row(0, "TF-IDF + logistic regression")["test"]["f1"]["scores"], serde_json::json!([1.0, 1.0]));
    let dictionary = row(1, "dictionary");
    let scores = |metric: &str| dictionary["test"][metric]["scores"].as_array().unwrap().len();
    assert_eq!(["micro_f1", "micro_f1_no_misc", "overall_f1"].map(scores), [2, 2, 2]);
    let page = fs::read_to_string(place.path("out/compare.html")).unwrap();
    assert!(page.contains("<i class=\"dot published\"></i>published") && !page.contains("://"), "{page}");
    assert!(!place.path("out/animals/run/seed-4242/final").exists(), "weights are not kept");
    every_eval_ever(&place, &own);

    let before = place.tree_of("out");
    assert_eq!(place.program(COMPARE, "").ok().stdout, whole.stdout);
    assert_same_tree(&before, &place.tree_of("out"));

    fs::rename(place.path("out"), place.path("whole")).unwrap();
    for file in ["out/animals/run/seed-4242/checkpoint-10", "out/names/run/seed-4242/metrics.jsonl"] {
        killed_at(&place, COMPARE, file);
    }
    // The one time in all files is that of the beginning.
    fs::copy(place.path("whole/started"), place.path("out/started")).unwrap();
    assert_eq!(place.program(COMPARE, "").ok().stdout, whole.stdout);
    for name in ["compare.json", "compare.md", "compare.html", "every_eval_ever.jsonl"] {
        let read = |folder: &str| fs::read(place.path(folder).join(name)).unwrap();
        assert!(read("out") == read("whole"), "{name}");
    }
}

/// The file has a record for each model on each task, with EuroEval's names and percentages, and follows the
/// schema where the package that has it is installed.
fn every_eval_ever(place: &Workplace, own: &Value) {
    let text = fs::read_to_string(place.path("out/every_eval_ever.jsonl")).unwrap();
    let records: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let started = fs::read_to_string(place.path("out/started")).unwrap().trim().to_string();
    let ids: Vec<&str> = records.iter().map(|record| record["evaluation_id"].as_str().unwrap()).collect();
    let wanted = ["animals/run", "animals/other", "names/run", "names/other"];
    assert_eq!(ids, wanted.map(|id| format!("{id}/{started}")));
    let first = &records[0];
    assert_eq!((&first["schema_version"], &first["retrieved_timestamp"]), (&"0.2.1".into(), &started.into()));
    let parameters = first["model_info"]["additional_details"]["num_model_parameters"].as_str().unwrap();
    assert!(parameters.parse::<u64>().unwrap() > 10_000, "{parameters}");
    let results = first["evaluation_results"].as_array().unwrap();
    let names: Vec<&str> = results.iter().map(|result| result["evaluation_name"].as_str().unwrap()).collect();
    assert_eq!(names, ["test_mcc", "test_macro_f1", "val_mcc", "val_macro_f1"]);
    let mcc = &own["test"]["matthews_correlation"];
    let details = &results[0]["score_details"];
    assert_eq!(details["score"], 100.0 * mcc["mean"].as_f64().unwrap());
    let interval = &details["uncertainty"]["confidence_interval"];
    let width = interval["upper"].as_f64().unwrap() - interval["lower"].as_f64().unwrap();
    assert!((width - 200.0 * mcc["half_width"].as_f64().unwrap()).abs() < 1e-9, "{details}");
    validate(&place.path("out/every_eval_ever.jsonl"));
}

/// Checks the records with the types of the package `every-eval-ever`, or says that it is not there.
fn validate(path: &Path) {
    const CHECK: &str = "\
import json, sys
try:
    import every_eval_ever.eval_types as types
except ImportError:
    sys.exit(3)
for line in open(sys.argv[1]):
    types.EvaluationLog.model_validate(json.loads(line))
";
    let program = std::env::var("MLMTRAIN_PYTHON").unwrap_or_else(|_| "python3".to_string());
    let mut command = Command::new(&program);
    command.arg("-").arg(path).stdin(Stdio::piped()).stderr(Stdio::piped());
    let Ok(mut child) = command.spawn() else {
        return skipped(&format!("there is no `{program}` to check records of Every Eval Ever with"));
    };
    child.stdin.take().unwrap().write_all(CHECK.as_bytes()).unwrap();
    let ended = child.wait_with_output().unwrap();
    if ended.status.code() == Some(3) {
        return skipped("the Python package `every-eval-ever` is not installed, which has the schema");
    }
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
}

#[test]
fn what_a_protocol_does_not_allow_is_named() {
    let place = furnished();
    let refused = |text: &str, more: &[&str], words: &str| {
        fs::write(place.path("tasks.yaml"), text).unwrap();
        place.program(&[COMPARE, more].concat(), "").refused(2, &[words]);
        assert!(!place.path("out/animals").exists());
    };
    let without = TASKS.replace("protocol: euroeval\n", "");
    refused(&without, &[], "`iterations` is given, and the list follows no protocol");
    let bare =
        "tasks:\n  - name: a\n    data: {train_file: train.csv, eval_file: dev.csv, test_file: test.csv}\n";
    refused(bare, &[], "`data.test_file` is given, and the list follows no protocol");
    let no_test = bare.replace(", test_file: test.csv", "");
    refused(
        &no_test,
        &["--protocol", "euroeval"],
        "`data.max_test_samples` is given, and there is no `data.test_file`",
    );
    let regression = bare.replace("name: a", "name: a\n    task: regression");
    refused(&regression, &["--protocol", "euroeval"], "the protocol has scores for `classify`");
    let metric = TASKS.replace("name: animals", "name: animals\n    metric: accuracy");
    refused(&metric, &[], "tasks.yaml:13:5: `metric` is given, and the protocol has its own scores");
    let seeds = TASKS.replace("iterations: 2", "iterations: 2\nseeds: [1]");
    refused(&seeds, &[], "`seeds` and `iterations` are both given");
    let published = TASKS.replace("metric: matthews_correlation", "metric: accuracy");
    refused(&published, &[], "this task has `matthews_correlation`, `f1`");
    refused(TASKS, &["--protocol", "glue"], "invalid value 'glue' for '--protocol <NAME>'");
    let two = COMPARE.iter().map(|argument| if *argument == "64,20,24" { "1,2" } else { *argument });
    place.program(&two.collect::<Vec<&str>>(), "").refused(2, &["has 2 numbers, three are wanted"]);
    refused(TASKS, &["--set", "iterations=0"], "`iterations` is 0");
    refused(&TASKS.replace("published:", "publish:"), &[], "unknown key `publish`");
}
