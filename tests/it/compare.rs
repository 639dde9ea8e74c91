//! `mlmtrain compare` as its users meet it: models beside their floors, the same tables whatever happened on
//! the way.

mod protocol;

use std::fmt::Write;
use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::material::{examples, tagged};
use crate::workplace::{Finished, Workplace, assert_same_tree};

const TASKS: &str = "\
seeds: [1, 2]
data: {max_seq_length: 32}
training: {learning_rate: 0.005, max_steps: 40, per_device_train_batch_size: 8, warmup_steps: 0.1, save_steps: 10}
tasks:
  - name: animals
    data: {train_file: train.csv, eval_file: dev.csv}
  - name: names
    task: token-classify
    data: {train_file: train.conll, eval_file: dev.conll}
";

const COMPARE: &[&str] =
    &["compare", "--models", "run/final", "other/final", "--tasks", "tasks.yaml", "--output-dir", "out"];

/// Two pretrained models of one shape, of which the second has seen the corpus for two steps alone.
fn workplace() -> Workplace {
    let place = Workplace::new();
    place.run(&["training.max_steps=30", "run.sample_text=null"], &[]).ok();
    place.run(&["training.max_steps=2", "run.output_dir=other", "run.sample_text=null"], &[]).ok();
    for (name, content) in [
        ("train.csv", examples(80)),
        ("dev.csv", examples(30)),
        ("train.conll", tagged(40)),
        ("dev.conll", tagged(20)),
        ("tasks.yaml", TASKS.to_string()),
    ] {
        fs::write(place.path(name), content).unwrap();
    }
    place
}

fn compare(place: &Workplace, more: &[&str]) -> Finished {
    place.program(&[COMPARE, more].concat(), "")
}

/// Starts a comparison and kills it when `file` is there, unless it ends before.
fn killed_at(place: &Workplace, arguments: &[&str], file: &str) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mlmtrain"));
    command.args(arguments).current_dir(place.path("")).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    while child.try_wait().unwrap().is_none() && !place.path(file).exists() {
        std::thread::sleep(Duration::from_millis(1));
    }
    // It may have ended just now.
    let _ = child.kill();
    child.wait().unwrap();
}

#[test]
fn models_stand_beside_their_floors_and_a_killed_comparison_ends_in_the_same_tables() {
    let place = workplace();
    let planned = compare(&place, &["--dry-run"]).ok().stdout;
    for words in [
        "tasks: 2, models: 2, random twins: 1, runs: 12",
        "`animals`: ",
        "other, ",
        "40 steps of 8 rows a run",
        "  here                 ",
        "all 12 runs, one after the other: measured here",
        "out: 0 of 12 runs complete",
    ] {
        assert!(planned.contains(words), "{words}: {planned}");
    }
    assert!(!place.path("out").exists(), "a dry run writes nothing");
    // One after the other; below, as many at once as there are threads.
    let whole = compare(&place, &["--at-once", "1"]).ok();
    for words in [
        "animals: accuracy of 30 examples, 2 seeds",
        "names: entity F1 of 20 sentences, 2 seeds",
        "random twin of run and other",
        "TF-IDF + logistic regression",
        "dictionary",
    ] {
        assert!(whole.stdout.contains(words), "{words}: {}", whole.stdout);
    }
    assert!(
        whole.stderr.contains("cell 12 of 12, names: random twin of run, seed=2: overall_f1"),
        "{}",
        whole.stderr
    );
    let json: Value = serde_json::from_slice(&fs::read(place.path("out/compare.json")).unwrap()).unwrap();
    let animals = &json["tasks"][0];
    let names: Vec<&str> =
        animals["rows"].as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["run", "other", "random twin of run and other", "TF-IDF + logistic regression"]);
    // Whoever counts words knows these sentences by heart.
    assert_eq!(animals["rows"][3]["mean"], 1.0);
    let records: Vec<Value> = ["animals/run/seed-1", "animals/run/seed-2"]
        .iter()
        .map(|cell| {
            serde_json::from_slice(&fs::read(place.path(&format!("out/{cell}/cell.json"))).unwrap()).unwrap()
        })
        .collect();
    let scores: Vec<&Value> = records.iter().map(|record| &record["scores"]["eval_accuracy"]).collect();
    assert_eq!(animals["rows"][0]["scores"], serde_json::json!(scores), "the task's own evaluation");
    let pair = &animals["pairs"][0];
    assert_eq!(
        (&pair["left"], &pair["right"], &pair["of_models"]),
        (&"run".into(), &"other".into(), &true.into())
    );
    let page = fs::read_to_string(place.path("out/compare.html")).unwrap();
    assert_eq!(page.matches("<figure class=\"strips\"").count(), 2);
    assert!(!page.contains("://"), "the page needs no network");
    assert!(!place.path("out/animals/run/seed-1/final").exists(), "weights are not kept");

    let before = place.tree_of("out");
    let planned = compare(&place, &["--dry-run"]).ok().stdout;
    assert!(planned.contains("out: 12 of 12 runs complete"), "{planned}");
    let planned = compare(&place, &["--dry-run", "--no-baselines"]).ok().stdout;
    assert!(planned.contains("random twins: 0, runs: 8"), "{planned}");
    let without = compare(&place, &["--no-baselines"]).ok().stdout;
    assert!(!without.contains("dictionary") && !without.contains("random twin"), "{without}");
    assert_eq!(compare(&place, &[]).ok().stdout, whole.stdout, "baselines are added to what is there");
    assert_same_tree(&before, &place.tree_of("out"));

    fs::rename(place.path("out"), place.path("whole")).unwrap();
    let twin = fs::read_dir(place.path("whole/animals")).unwrap().map(|entry| entry.unwrap().file_name());
    let twin = twin.map(|name| name.into_string().unwrap()).find(|name| name.starts_with("random")).unwrap();
    for file in [
        "out/animals/run/seed-1/checkpoint-10",
        "out/animals/other/seed-1/cell.json",
        &format!("out/animals/{twin}/seed-2/metrics.jsonl"),
        "out/names/run/seed-2/final",
        "out/names/other/seed-2/cell.json",
    ] {
        killed_at(&place, COMPARE, file);
    }
    assert_eq!(compare(&place, &[]).ok().stdout, whole.stdout);
    for name in ["compare.json", "compare.md", "compare.html"] {
        let read = |folder: &str| fs::read(place.path(folder).join(name)).unwrap();
        assert!(read("out") == read("whole"), "{name}");
    }

    // A page about its runs is made as well, and the comparison's own is named.
    let report = place.program(&["report", "out", "-o", "-"], "").ok();
    assert!(report.stdout.contains("12 runs</h1>"), "{}", report.stdout);
    let note = "note: `out` is the folder of a comparison: its page is `out/compare.html`, its table \
                `out/compare.md`\n";
    assert!(report.stderr.contains(note), "{}", report.stderr);
    for task in ["animals", "names"] {
        fs::remove_dir_all(place.path("out").join(task)).unwrap();
    }
    let hint = "hint: it is the folder of a comparison: its page is `out/compare.html`";
    place.program(&["report", "out"], "").refused(2, &["out: holds no run", hint]);
}

/// Of numbers and of sets of labels, too.
#[test]
fn every_kind_of_task_has_its_floors() {
    let place = workplace();
    let of = |count: usize| -> (String, String) {
        let rows = examples(count);
        let rows = rows.lines().skip(1).map(|line| line.split_once(',').unwrap());
        let (mut numbers, mut sets) = (String::from("score,text\n"), String::from("labels,text\n"));
        for (label, text) in rows {
            writeln!(numbers, "{},{text}", if label == "bird" { 3.5 } else { -1.0 }).unwrap();
            writeln!(sets, "{},{text}", if label == "bird" { "bird" } else { "" }).unwrap();
        }
        (numbers, sets)
    };
    for (file, count) in [("train", 80), ("dev", 30)] {
        let (numbers, sets) = of(count);
        fs::write(place.path(&format!("{file}-numbers.csv")), numbers).unwrap();
        fs::write(place.path(&format!("{file}-sets.csv")), sets).unwrap();
    }
    let tasks = "seeds: [1]\ndata: {max_seq_length: 32}\ntraining: {max_steps: 3}\ntasks:\n\
        - {name: numbers, task: regression, metric: mse, data: {train_file: train-numbers.csv, \
        eval_file: dev-numbers.csv}}\n\
        - {name: sets, problem_type: multi_label_classification, metric: exact_match, \
        data: {train_file: train-sets.csv, eval_file: dev-sets.csv}}\n";
    fs::write(place.path("tasks.yaml"), tasks).unwrap();
    let said = compare(&place, &[]).ok().stdout;
    let json: Value = serde_json::from_slice(&fs::read(place.path("out/compare.json")).unwrap()).unwrap();
    let mean = |task: usize, name: &str| {
        let rows = json["tasks"][task]["rows"].as_array().unwrap();
        let row = rows.iter().find(|row| row["name"] == name).unwrap_or_else(|| panic!("{name}: {said}"));
        row["mean"].as_f64().unwrap()
    };
    // Half of the numbers are 3.5, half -1.
    assert!((mean(0, "mean of the training numbers") - 2.25 * 2.25).abs() < 1e-6, "{said}");
    assert!(mean(0, "TF-IDF + ridge regression") < 2.0, "{said}");
    assert!((mean(1, "TF-IDF + logistic regression") - 1.0).abs() < 1e-12, "{said}");
}

#[test]
fn what_cannot_be_compared_is_named_before_anything_is_trained() {
    let place = workplace();
    let refused = |more: &[&str], code: i32, words: &[&str]| {
        compare(&place, more).refused(code, words);
        assert!(!place.path("out/animals").exists() && !place.path("out/names").exists());
    };
    refused(&["--models", "run/final"], 2, &["--models: names `run/final` twice"]);
    refused(&["--models", "nowhere"], 1, &["there is no folder `nowhere`, and nothing is downloaded"]);
    refused(
        &["--set", "data.max_seq_length=64"],
        2,
        &["task `animals`: data.max_seq_length: is 64", "takes 32 tokens"],
    );
    refused(&["--set", "trainin.max_steps=1"], 2, &["unknown key `trainin`"]);
    let folder = ["--set run.output_dir: a comparison has one folder", "hint: name it with `--output-dir`"];
    refused(&["--set", "run.output_dir=cmp"], 2, &folder);
    fs::write(place.path("dev.conll"), "word\tB-other\n").unwrap();
    refused(&[], 1, &["dev.conll:1: ", "other"]);
    fs::remove_file(place.path("dev.conll")).unwrap();
    refused(&[], 2, &["dev.conll: there is no such file"]);
    fs::write(place.path("tasks.yaml"), TASKS.replace("name: names", "name: animals")).unwrap();
    refused(&[], 2, &["tasks.yaml:7:5: two tasks are called `animals`"]);
    let checked = place.program(&["config", "check", "tasks.yaml"], "");
    checked.refused(2, &["tasks.yaml:7:5: two tasks are called `animals`"]);
}

#[test]
fn a_comparison_and_other_commands_have_folders_of_their_own() {
    let place = workplace();
    let tasks = "seeds: [1]\ndata: {max_seq_length: 32}\ntraining: {max_steps: 1}\ntasks:\n\
                 - {name: animals, data: {train_file: train.csv, eval_file: dev.csv}}\n";
    fs::write(place.path("tasks.yaml"), tasks).unwrap();
    let tune = ["finetune", "--task", "classify", "--model", "run/final", "--train", "train.csv"];
    let tune = [&tune[..], &["--eval", "dev.csv", "--max-steps", "1"]].concat();
    let tune = [&tune[..], &["--set", "data.max_seq_length=16"]].concat();
    place.program(&[&tune[..], &["--seeds", "1,2", "--output-dir", "tuned"]].concat(), "").ok();
    let small = ["--no-baselines", "--output-dir"];
    let before = [place.tree_of("tuned"), place.tree()];
    for more in [&["--dry-run"][..], &[]] {
        for (folder, words) in [
            ("tuned", "tuned: holds `seed-1` of a run with several seeds"),
            ("run", "run: holds `final` of a run with one seed"),
        ] {
            let arguments = [&COMPARE[..COMPARE.len() - 2], &small, &[folder], more].concat();
            place.program(&arguments, "").refused(2, &[words, "hint: choose another `run.output_dir`"]);
        }
    }
    assert_same_tree(&before[0], &place.tree_of("tuned"));
    assert_same_tree(&before[1], &place.tree());

    // A model and its fine-tuned form, whose tokenizer cuts texts earlier, share a twin.
    let models = ["--models", "run/final", "tuned/seed-1/final"];
    let planned = [&["compare"], &models[..], &["--tasks", "tasks.yaml", "--dry-run"]].concat();
    let planned = place.program(&planned, "").ok().stdout;
    assert!(planned.contains("models: 2, random twins: 1, "), "{planned}");

    let whole = compare(&place, &["--no-baselines"]).ok();
    let words = ["out: holds `compare.json` of a comparison", "hint: choose another `run.output_dir`"];
    let before = place.tree_of("out");
    for more in [&["--dry-run"][..], &[]] {
        place.run(&["run.output_dir=out"], more).refused(2, &words);
        for runs in [&[][..], &["--seeds", "1,2"], &["--sweep", "learning_rate=1e-4,1e-3"]] {
            let arguments = [&tune[..], &["--output-dir", "out"], runs, more].concat();
            place.program(&arguments, "").refused(2, &words);
        }
    }
    assert_same_tree(&before, &place.tree_of("out"));
    // As if it had been interrupted before it had results.
    fs::remove_file(place.path("out/compare.json")).unwrap();
    let begun = ["out: holds `animals` of a comparison"];
    place.run(&["run.output_dir=out"], &["--dry-run"]).refused(2, &begun);
    assert_eq!(compare(&place, &["--no-baselines"]).ok().stdout, whole.stdout);
}
