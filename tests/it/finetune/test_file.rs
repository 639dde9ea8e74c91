//! `data.test_file` and `data.bootstrap` as their users meet them: a second table, and other examples for
//! each seed.

use std::fs;

use serde_json::Value;

use crate::finetune::{finetune, rows, workplace};
use crate::material::examples;
use crate::workplace::assert_same_tree;

#[test]
fn a_test_file_is_scored_by_the_final_model_and_a_bootstrap_draws_for_each_seed() {
    let place = workplace();
    fs::write(place.path("test.csv"), examples(30)).unwrap();
    let json =
        |name: &str| -> Value { serde_json::from_slice(&fs::read(place.path(name)).unwrap()).unwrap() };
    let test = ["--set", "data.test_file=test.csv", "--set", "data.max_eval_samples=10"];
    let more = [&test[..], &["--output-dir", "cls", "--max-steps", "8"]].concat();
    let report = finetune(&place, &more).ok();
    assert!(report.stdout.contains("\n    test    accuracy %"), "{}", report.stdout);
    assert!(report.stderr.contains("160 training, 10 evaluation and 30 test examples"), "{}", report.stderr);
    assert_eq!(rows(&fs::read_to_string(place.path("cls/predictions.jsonl")).unwrap()).len(), 10);
    let results = json("cls/test_results.json");
    let evaluate = ["evaluate", "--model", "cls/final", "--data", "test.csv", "--json"];
    let scores = rows(&place.program(&evaluate, "").ok().stdout).remove(0);
    for (own, name) in
        [("test_loss", "eval_loss"), ("test_accuracy", "eval_accuracy"), ("test_f1", "eval_f1")]
    {
        let difference = results[own].as_f64().unwrap() - scores[name].as_f64().unwrap();
        assert!(difference.abs() < 1e-5, "{own}: {results} {scores}");
        assert_eq!(json("cls/all_results.json")[own], results[own]);
    }
    let before = place.tree();
    let again = finetune(&place, &more).ok();
    assert!(again.stdout.contains("complete already"), "{}", again.stdout);
    assert_same_tree(&before, &place.tree());
    fs::write(place.path("test.csv"), examples(20)).unwrap();
    finetune(&place, &more)
        .refused(2, &["data.test_file: its content is not what it was when this run began"]);

    let drawn =
        ["--set", "data.bootstrap=true", "--seeds", "1,2", "--max-steps", "2", "--output-dir", "drawn"];
    let report = finetune(&place, &[&test[..], &drawn].concat()).ok();
    assert_eq!(report.stdout.matches("\n    mean ").count(), 2, "{}", report.stdout);
    let texts = |seed: u64| -> Vec<String> {
        let predictions =
            fs::read_to_string(place.path(&format!("drawn/seed-{seed}/predictions.jsonl"))).unwrap();
        rows(&predictions).iter().map(|row| row["text"].to_string()).collect()
    };
    let both = [texts(1), texts(2)];
    assert!(both[0].len() == 10 && both[1].len() == 10 && both[0] != both[1], "{both:?}");
    assert!(json("drawn/test_results.json")["test_accuracy_mean"].is_number());
}
