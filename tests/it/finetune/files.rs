//! Examples in several files, or in one that is split; what a run would do; models by their names on the hub.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use crate::finetune::{SETS, rows, workplace};
use crate::material::{examples, tagged};
use crate::workplace::{Finished, Workplace, assert_same_tree};

const MODEL: [&str; 5] = ["finetune", "--task", "classify", "--model", "run/final"];

/// `examples(count)` in files of `each` rows below `folder`.
fn cut(place: &Workplace, folder: &str, count: usize, each: usize) {
    fs::create_dir(place.path(folder)).unwrap();
    let text = examples(count);
    let (header, body) = text.split_once('\n').unwrap();
    let lines: Vec<&str> = body.lines().collect();
    for (number, part) in lines.chunks(each).enumerate() {
        let name = place.path(folder).join(format!("part-{number:02}.csv"));
        fs::write(name, format!("{header}\n{}\n", part.join("\n"))).unwrap();
    }
}

#[test]
fn a_folder_and_a_pattern_are_one_set_in_the_order_of_their_names() {
    let place = workplace();
    cut(&place, "rows", 160, 50);
    fs::write(place.path("rows/README.md"), "no examples").unwrap();
    let run = |train: &str, output: &str| {
        let files = ["--train", train, "--eval", "dev.csv", "--output-dir", output];
        place.program(&[&MODEL[..], &files, SETS].concat(), "")
    };
    run("train.csv", "one").ok();
    run("rows", "folder").ok();
    run("rows/part-*.csv", "pattern").ok();
    let weights = |folder: &str| fs::read(place.path(folder).join("final/model.safetensors")).unwrap();
    assert!(weights("one") == weights("folder") && weights("one") == weights("pattern"));
    let saved = fs::read_to_string(place.path("pattern/config.yaml")).unwrap();
    assert!(saved.contains("train_file: rows/part-*.csv"), "{saved}");
    fs::write(place.path("rows/part-02.csv"), "label,text\nbird,the owl sees\nwolf,\n").unwrap();
    run("rows", "wrong").refused(1, &["rows/part-02.csv:3: text `text` is empty"]);
    fs::write(place.path("rows/part-03.jsonl"), "{}\n").unwrap();
    run("rows", "wrong").refused(2, &["rows: ", "part-03.jsonl` are of two formats", "hint:"]);
    run("none/*.csv", "wrong").refused(2, &["none/*.csv: matches no file", "hint:"]);
    run("none.csv", "wrong").refused(2, &["none.csv: there is no such file"]);
}

/// The texts of the predictions of a run.
fn evaluated(place: &Workplace, output: &str) -> BTreeSet<String> {
    let text = fs::read_to_string(place.path(output).join("predictions.jsonl")).unwrap();
    rows(&text).iter().map(|row| row["text"].as_str().unwrap().to_string()).collect()
}

#[test]
fn one_file_is_split_the_same_way_whatever_the_order_of_its_rows() {
    let place = workplace();
    let run = |train: &str, output: &str, more: &[&str]| {
        let files = ["--train", train, "--output-dir", output];
        place.program(&[&MODEL[..], &files, SETS, more].concat(), "")
    };
    let fifth = ["--eval-fraction", "0.2"];
    let first = run("train.csv", "first", &fifth).ok();
    assert!(first.stderr.contains("training and "), "{}", first.stderr);
    let saved = fs::read_to_string(place.path("first/config.yaml")).unwrap();
    assert!(saved.contains("eval_fraction: 0.2") && saved.contains("eval_file: \"\""), "{saved}");
    let text = fs::read_to_string(place.path("train.csv")).unwrap();
    let (header, body) = text.split_once('\n').unwrap();
    let turned: Vec<&str> = body.lines().rev().collect();
    fs::write(place.path("turned.csv"), format!("{header}\n{}\n", turned.join("\n"))).unwrap();
    run("turned.csv", "turned", &fifth).ok();
    let texts = evaluated(&place, "first");
    assert_eq!(texts, evaluated(&place, "turned"));
    let all: BTreeSet<&str> = body.lines().map(|line| line.split_once(',').unwrap().1).collect();
    assert!(texts.len() >= 2 && texts.len() < all.len(), "{} of {}", texts.len(), all.len());
    // The run is complete, from its own configuration as well, and another share is another run.
    assert!(run("train.csv", "first", &fifth).ok().stdout.contains("complete already"));
    let again = place.program(&["finetune", "--config", "first/config.yaml"], "").ok();
    assert!(again.stdout.contains("complete already"), "{}", again.stdout);
    run("train.csv", "first", &["--eval-fraction", "0.4"]).refused(2, &["--eval-fraction: was `0.2`"]);
    run("train.csv", "both", &["--eval", "dev.csv", "--eval-fraction", "0.2"])
        .refused(2, &["`data.eval_file` and `--eval-fraction` are both given", "keep one of the two"]);
    run("train.csv", "none", &["--eval-fraction", "1.5"]).refused(2, &["`--eval-fraction` is 1.5"]);
    let sweep =
        ["--eval-fraction", "0.2", "--sweep", "learning_rate=0.001,0.005", "--set", "training.max_steps=2"];
    run("train.csv", "grid", &sweep).ok();
    let runs: Vec<_> = fs::read_dir(place.path("grid")).unwrap().map(|entry| entry.unwrap().path()).collect();
    let runs = runs.iter().filter(|path| path.is_dir() && path.join("seed-42").is_dir());
    assert_eq!(
        runs.map(|path| evaluated(&place, &format!("{}/seed-42", path.display())))
            .filter(|t| *t == texts)
            .count(),
        2
    );
}

#[test]
fn tagged_words_and_comparisons_take_a_fraction_too() {
    let place = workplace();
    fs::write(place.path("tags.conll"), tagged(60)).unwrap();
    fs::write(
        place.path("tasks.yaml"),
        "training: {max_steps: 2}\ndata: {eval_fraction: 0.25, max_seq_length: 32}\nseeds: [1]\ntasks:\n  \
         - {name: names, task: token-classify, data: {train_file: tags.conll}}\n  \
         - {name: animals, task: classify, data: {train_file: train.csv}}\n",
    )
    .unwrap();
    let compared = place.program(&["compare", "--models", "run/final", "--tasks", "tasks.yaml"], "").ok();
    assert!(compared.stdout.contains("names") && compared.stdout.contains("animals"), "{}", compared.stdout);
}

#[test]
fn a_dry_run_tells_and_writes_nothing() {
    let place = workplace();
    let before = place.tree_of("");
    let files = ["--train", "train.csv", "--eval", "dev.csv", "--output-dir", "dry"];
    let told = place.program(&[&MODEL[..], &files, SETS, &["--dry-run", "--seeds", "1,2"]].concat(), "").ok();
    for word in [
        "dry run: nothing is written",
        "160 training and 40 evaluation examples, 2 labels",
        "`bird` 80, `fish` 80",
        "longest text",
        "0 of 160 training and 0 of 40 evaluation texts, at 32 tokens",
        "120, 6.0 epochs",
        "at the peak",
        "a checkpoint",
        "dry/seed-2, seed 2",
    ] {
        assert!(told.stdout.contains(word), "`{word}` is not in:\n{}", told.stdout);
    }
    let short = ["--dry-run", "--set", "data.max_seq_length=4"];
    let told = place.program(&[&MODEL[..], &files, &short].concat(), "").ok().stdout;
    assert!(told.contains("160 of 160 training and 40 of 40 evaluation texts, at 4 tokens"), "{told}");
    let sweep = ["--dry-run", "--sweep", "learning_rate=1e-5,3e-5", "--sweep", "seed=1,2,3"];
    let told = place.program(&[&MODEL[..], &files, SETS, &sweep].concat(), "").ok().stdout;
    assert!(
        told.contains("2 settings x 3 seeds = 6 runs; the first, training.learning_rate=1e-5:"),
        "{told}"
    );
    fs::write(place.path("tags.conll"), tagged(30)).unwrap();
    let tags = [
        "finetune",
        "--task",
        "token-classify",
        "--model",
        "run/final",
        "--train",
        "tags.conll",
        "--dry-run",
    ];
    let told = place
        .program(&[&tags[..], &["--eval-fraction", "0.2", "--set", "data.max_seq_length=16"]].concat(), "");
    let told = told.ok().stdout;
    assert!(told.contains("longest sentence") && told.contains("read in windows"), "{told}");
    let long = ["--dry-run", "--set", "data.max_seq_length=4096"];
    place.program(&[&MODEL[..], &files, &long].concat(), "").refused(2, &["--max-seq-length: is 4096"]);
    place
        .program(&[&MODEL[..], &files, &["--dry-run", "--set", "data.max_seq_len=4"]].concat(), "")
        .refused(2, &["unknown key"]);
    fs::remove_file(place.path("tags.conll")).unwrap();
    assert_same_tree(&before, &place.tree_of(""));
}

#[test]
fn a_model_is_found_in_the_cache_of_the_hub_by_its_name() {
    let place = workplace();
    let run = |arguments: &[&str]| -> Finished {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mlmtrain"));
        command.args(arguments).current_dir(place.path("")).env("HF_HOME", place.path("hf"));
        command.env_remove("HF_HUB_CACHE").output().expect("starts").into()
    };
    let finetune =
        ["finetune", "--task", "classify", "--model", "some-org/tiny-roberta", "--output-dir", "hub"];
    let finetune = [&finetune[..], &["--train", "train.csv", "--eval", "dev.csv"], SETS].concat();
    run(&finetune).refused(
        1,
        &[
            "there is no folder `some-org/tiny-roberta`, and nothing is downloaded",
            "hf download some-org/tiny-roberta --include \"*.[jst]*\" --local-dir models/tiny-roberta",
        ],
    );
    let snapshot = place.path("hf/hub/models--some-org--tiny-roberta/snapshots/0123abcd");
    fs::create_dir_all(&snapshot).unwrap();
    for name in ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"] {
        fs::copy(place.path("run/final").join(name), snapshot.join(name)).unwrap();
    }
    let found = run(&finetune).ok();
    assert!(found.stderr.contains("taken from the cache of the Hugging Face hub"), "{}", found.stderr);
    let saved = fs::read_to_string(place.path("hub/config.yaml")).unwrap();
    assert!(saved.contains("model: some-org/tiny-roberta"), "{saved}");
    let predicted =
        run(&["embed", "--model", "some-org/tiny-roberta", "--file", "dev.csv", "--output", "v.npy"]).ok();
    assert!(predicted.stderr.contains("taken from the cache"), "{}", predicted.stderr);
    run(&["evaluate", "--model", "models/none", "--data", "dev.csv"])
        .refused(1, &["models/none: there is no such folder"]);
    run(&["evaluate", "--model", "hub", "--data", "dev.csv"])
        .refused(1, &["hub: there is no `config.json`", "the model of this run is `hub/final`"]);
    fs::write(place.path("header.csv"), "text\n").unwrap();
    let answered = run(&["predict", "--model", "hub/final", "--input", "header.csv"]).ok();
    assert!(answered.stderr.contains("the input has no rows to answer"), "{}", answered.stderr);
}
