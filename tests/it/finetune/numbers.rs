//! Regression as its users meet it: one number and several are learnt, scored and told the same.

use std::fmt::Write;
use std::fs;

use serde_json::Value;

use crate::finetune::rows;
use crate::workplace::Workplace;

/// Sentences with a number that their words tell: how many kings there are.
fn numbered(count: usize) -> String {
    let mut csv = String::from("score,half,text\n");
    for number in 0..count {
        let kings = number % 3;
        let text = ["the"].into_iter().chain(["king"].into_iter().cycle().take(kings)).chain(["eagle"]);
        let text: Vec<&str> = text.collect();
        writeln!(csv, "{kings}.0,{},\"{} sees the horse\"", kings as f64 / 2.0, text.join(" ")).unwrap();
    }
    csv
}

#[test]
fn numbers_are_learnt_and_all_commands_say_the_same() {
    let place = Workplace::new();
    place.run(&["training.max_steps=20", "run.sample_text=null"], &[]).ok();
    fs::write(place.path("train.csv"), numbered(120)).unwrap();
    fs::write(place.path("dev.csv"), numbered(30)).unwrap();
    let json =
        |name: &str| -> Value { serde_json::from_slice(&fs::read(place.path(name)).unwrap()).unwrap() };
    for (output, more, names) in [
        ("one", &[][..], &["score"][..]),
        ("two", &["--set", "data.labels=[score, half]"], &["score", "half"]),
    ] {
        let flags = ["finetune", "--task", "regression", "--model", "run/final", "--output-dir", output];
        let files = ["--train", "train.csv", "--eval", "dev.csv"];
        let sets = [
            "training.learning_rate=0.003",
            "training.num_train_epochs=8",
            "data.max_seq_length=32",
            "precision.compute=f32",
        ];
        let sets: Vec<&str> = sets.iter().flat_map(|set| ["--set", set]).collect();
        let report = place.program(&[&flags[..], &files, &sets, more].concat(), "").ok();
        assert!(report.stdout.contains("Pearson") && report.stdout.contains("Spearman"), "{}", report.stdout);
        let results = json(&format!("{output}/all_results.json"));
        let value =
            |name: &str| results[name].as_f64().unwrap_or_else(|| panic!("{name} is not in {results}"));
        assert!(value("eval_pearson") > 0.9 && value("eval_mse") < 0.3, "{results}");
        assert_eq!(results["eval_loss"], results["eval_mse"]);
        let config = json(&format!("{output}/final/config.json"));
        assert_eq!(
            (&config["problem_type"], &config["id2label"]["0"]),
            (&"regression".into(), &names[0].into())
        );
        assert_eq!(config["id2label"].as_object().unwrap().len(), names.len());

        let model = format!("{output}/final");
        let predictions = format!("{output}.jsonl");
        let evaluate =
            ["evaluate", "--model", &model, "--data", "dev.csv", "--json", "--predictions", &predictions];
        let scores = rows(&place.program(&evaluate, "").ok().stdout).remove(0);
        // Batches of other sizes round f32 otherwise.
        assert!((scores["eval_pearson"].as_f64().unwrap() - value("eval_pearson")).abs() < 1e-6, "{scores}");
        let written = rows(&fs::read_to_string(place.path(&format!("{output}/predictions.jsonl"))).unwrap());
        let again = rows(&fs::read_to_string(place.path(&predictions)).unwrap());
        let predicted =
            rows(&place.program(&["predict", "--model", &model, "--input", "dev.csv"], "").ok().stdout);
        assert_eq!((written.len(), again.len(), predicted.len()), (30, 30, 30));
        let number = |row: &Value, key: &str| {
            let value = if names.len() == 1 { &row[key] } else { &row[key][names[0]] };
            value.as_f64().unwrap_or_else(|| panic!("{row}"))
        };
        for ((row, again), third) in written.iter().zip(&again).zip(&predicted) {
            assert_eq!((&row["text"], &row["gold"]), (&again["text"], &again["gold"]));
            for other in [again, third] {
                assert!(
                    (number(row, "prediction") - number(other, "prediction")).abs() < 1e-5,
                    "{row} {other}"
                );
            }
            assert!((number(row, "prediction") - number(row, "gold")).abs() < 2.0, "{row}");
        }
        assert_eq!(other_columns(&predicted[0]), ["score", "half"]);
    }
    let bad = [
        "finetune",
        "--task",
        "regression",
        "--model",
        "run/final",
        "--train",
        "train.csv",
        "--eval",
        "bad.csv",
    ];
    fs::write(place.path("bad.csv"), "score,text\n1,a\ngood,b\n").unwrap();
    place
        .program(&[&bad[..], &["--output-dir", "bad"]].concat(), "")
        .refused(1, &["bad.csv:3", "a number is wanted"]);
}

/// The columns of the input that travel with an answer.
fn other_columns(row: &Value) -> Vec<&str> {
    row.as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .filter(|key| !["text", "prediction"].contains(key))
        .collect()
}
