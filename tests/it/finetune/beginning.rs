//! What somebody meets who fine-tunes for the first time: lengths that fit the model, flags, missing files,
//! and what is said at the end.

use std::fs;

use serde_json::Value;

use crate::finetune::{FLAGS, workplace};
use crate::material::{examples, tagged};
use crate::workplace::{Finished, Workplace};

const TWO_STEPS: [&str; 2] = ["--max-steps", "2"];

const NOTE: &str = "note: `data.max_seq_length` is 32: it is not given, and the model takes no more";

fn finetune(place: &Workplace, more: &[&str]) -> Finished {
    place.program(&[FLAGS, &TWO_STEPS, more].concat(), "")
}

fn yaml(place: &Workplace, folder: &str) -> String {
    fs::read_to_string(place.path(folder).join("config.yaml")).unwrap()
}

#[test]
fn a_length_that_is_not_given_is_what_the_model_takes() {
    let place = workplace();
    let told = finetune(&place, &["--output-dir", "a"]).ok();
    assert_eq!(told.stderr.matches(NOTE).count(), 1, "{}", told.stderr);
    assert!(yaml(&place, "a").contains("  max_seq_length: 32\n"));
    let again = finetune(&place, &["--output-dir", "a"]).ok();
    assert!(again.stdout.contains("(complete already)"), "{}", again.stdout);
    // Given, it is no news, also in a file; and one that is too long stays an error.
    for given in [&["--max-seq-length", "32"][..], &["--set", "data.max_seq_length=32"]] {
        let told = finetune(&place, &[&["--output-dir", "a"], given].concat()).ok();
        assert!(!told.stderr.contains("max_seq_length"), "{}", told.stderr);
    }
    finetune(&place, &["--output-dir", "b", "--max-seq-length", "33"])
        .refused(2, &["--max-seq-length: is 33, the model takes 32 tokens", "set it to 32 or less"]);
    let config = "model: run/final\nrun: {output_dir: c}\ntraining: {max_steps: 2}\n\
                  data: {train_file: train.csv, eval_file: dev.csv}\n";
    fs::write(place.path("tune.yaml"), config).unwrap();
    let told = place.program(&["finetune", "--config", "tune.yaml"], "").ok();
    assert!(told.stderr.contains(NOTE) && yaml(&place, "c").contains("  max_seq_length: 32\n"));
    let planned = ["finetune", "--config", "tune.yaml", "--set", "run.usd_per_hour=0.08", "--dry-run"];
    let planned = place.program(&planned, "").ok();
    assert!(planned.stdout.contains("rows of at most 32 tokens") && planned.stderr.contains(NOTE));
    // This machine is measured, and each GPU predicted.
    let (_, compute) = planned.stdout.split_once("  compute              ").unwrap();
    let here = format!("  here                 {}, ", compute.split_whitespace().next().unwrap());
    for gpu in [here.as_str(), "  on a rented GPU      h100: bf16, ", " l4: bf16, ", " t4: f16, "] {
        let (_, rest) = planned.stdout.split_once(gpu).expect("a line for the GPU");
        assert!(rest.lines().next().is_some_and(|line| line.contains(" seconds, $")), "{rest}");
    }
    let shown = place.program(&["config", "show", "tune.yaml"], "").ok().stdout;
    assert!(shown.contains("max_seq_length: null"), "{shown}");
    // The settings of a sweep, and taggers.
    let sweep = ["--output-dir", "d", "--sweep", "learning_rate=1e-4,1e-3"];
    let told = finetune(&place, &sweep).ok();
    assert_eq!(told.stderr.matches(NOTE).count(), 1, "{}", told.stderr);
    assert!(yaml(&place, "d/best").contains("  max_seq_length: 32\n"));
    finetune(&place, &sweep).ok();
    finetune(&place, &[&sweep[..], &["--dry-run"]].concat()).ok();
    fs::write(place.path("train.conll"), tagged(20)).unwrap();
    let tags = ["finetune", "--task", "token-classify", "--model", "run/final", "--train", "train.conll"];
    let more = ["--eval-fraction", "0.2", "--output-dir", "e"];
    let told = place.program(&[&tags[..], &more, &TWO_STEPS].concat(), "").ok();
    assert!(told.stderr.contains(NOTE) && yaml(&place, "e").contains("  max_seq_length: 32\n"));
    // Models that are compared: as much as all of them take.
    let tasks = "seeds: [1]\ntraining: {max_steps: 2}\ntasks:\n  - name: animals\n    \
                 data: {train_file: train.csv, eval_file: dev.csv}\n";
    fs::write(place.path("tasks.yaml"), tasks).unwrap();
    let longer = ["run.output_dir=long", "training.max_steps=2", "run.sample_text=null"];
    let positions = ["model.roberta.max_position_embeddings=66", "data.max_seq_length=64"];
    place.run(&[longer, ["data.prepared_dir=long/data", positions[0], positions[1]]].concat(), &[]).ok();
    let compare =
        ["compare", "--models", "long/final", "run/final", "--tasks", "tasks.yaml", "--output-dir", "f"];
    let told = place.program(&compare, "").ok();
    assert!(told.stderr.contains(&format!("animals: {NOTE}")), "{}", told.stderr);
    place.program(&compare, "").ok();
}

#[test]
fn flags_stand_for_the_keys_of_the_same_meaning_and_settings_go_before_them() {
    let place = workplace();
    let flags = [
        "--learning-rate",
        "3e-3",
        "--epochs",
        "2",
        "--batch-size",
        "16",
        "--max-seq-length",
        "24",
        "--warmup",
        "0.1",
        "--dropout",
        "0.05",
        "--precision",
        "f32",
    ];
    let all =
        [FLAGS, &flags, &["--output-dir", "a", "--set", "training.per_device_train_batch_size=8"]].concat();
    place.program(&all, "").ok();
    let written = yaml(&place, "a");
    for line in [
        "learning_rate: 0.003",
        "num_train_epochs: 2.0",
        "max_steps: -1",
        "per_device_train_batch_size: 8",
        "max_seq_length: 24",
        "warmup_steps: 0.1",
        "hidden_dropout_prob: 0.05",
        "attention_probs_dropout_prob: 0.05",
        "compute: f32",
    ] {
        assert!(
            written.contains(&format!(" {line}\n")) || written.contains(&format!("\n{line}\n")),
            "{line}: {written}"
        );
    }
    let told: Value = serde_json::from_slice(&fs::read(place.path("a/final/config.json")).unwrap()).unwrap();
    assert_eq!(told["hidden_dropout_prob"], 0.05);
    let refused = |more: &[&str], words: &[&str]| {
        place.program(&[FLAGS, &["--output-dir", "b"], more].concat(), "").refused(2, words);
    };
    refused(&["--learning-rate", "fast"], &["--learning-rate: `training.learning_rate` wants a number"]);
    refused(&["--warmup", "-1"], &["--warmup: `training.warmup_steps`"]);
    refused(&["--precision", "f8"], &["--precision: `precision.compute`", "`bf16`"]);
    refused(
        &["--epochs", "1", "--max-steps", "3"],
        &["'--epochs <N>' cannot be used with '--max-steps <N>'"],
    );
    refused(&["--weight-decay", "0.1"], &["'--set training.weight_decay=VALUE'"]);
    // In pretraining, where the table of the model has the dropout, and the file a number of steps.
    let more = ["--dropout", "0", "--epochs", "1", "--learning-rate", "1e-3", "--batch-size", "auto"];
    let sets = ["run.output_dir=p", "training.train_batch_size=16", "training.max_train_time=1s"];
    place.run(&sets, &more).ok();
    let written = yaml(&place, "p");
    for line in [
        "hidden_dropout_prob: 0.0",
        "attention_probs_dropout_prob: 0.0",
        "max_steps: -1",
        "num_train_epochs: 1.0",
        "learning_rate: 0.001",
        "per_device_train_batch_size: auto",
    ] {
        assert!(written.contains(&format!(" {line}\n")), "{line}: {written}");
    }
    place
        .run(&["run.output_dir=q"], &["--model", "run/final", "--dropout", "0.1"])
        .refused(2, &["--dropout: ", "folder"]);
}

#[test]
fn scores_of_a_run_that_its_time_limit_ended_say_so() {
    let place = workplace();
    let limit = ["--max-steps", "1000000", "--set", "training.max_train_time=1s", "--output-dir", "t"];
    let told = place.program(&[FLAGS, &limit].concat(), "").ok().stdout;
    assert!(told.contains("  (`training.max_train_time` ended it at step "), "{told}");
    assert!(told.contains(" of 1000000)"), "{told}");
}

#[test]
fn missing_files_are_named_all_at_once_as_a_missing_configuration_is() {
    let place = workplace();
    fs::remove_file(place.path("train.csv")).unwrap();
    fs::remove_file(place.path("dev.csv")).unwrap();
    let both = ["train.csv: there is no such file", "dev.csv: there is no such file", "hint: check the path"];
    finetune(&place, &["--output-dir", "a"]).refused(2, &both);
    finetune(&place, &["--output-dir", "a", "--dry-run"]).refused(2, &both);
    finetune(&place, &["--output-dir", "a", "--sweep", "seed=1,2"]).refused(2, &both);
    assert!(!place.path("a").exists());
    let one = ["none.csv: there is no such file", "hint: check the path"];
    for (command, flag, more) in [
        ("evaluate", "--data", &[][..]),
        ("predict", "--input", &[]),
        ("embed", "--file", &["--output", "vectors.npy"]),
    ] {
        let all = [&[command, "--model", "run/final", flag, "none.csv"], more].concat();
        place.program(&all, "").refused(2, &one);
    }
    let all = ["tokenizer", "encode", "--tokenizer", "run/final", "--input", "none.csv"];
    place.program(&all, "").refused(2, &one);
    let sources = "data.sources=[{files: [a.txt, 'b/*.txt']}, {files: [corpus.txt, c.txt]}]";
    let missing = ["no file matches `a.txt`", "no file matches `b/*.txt`", "no file matches `c.txt`"];
    place.run(&[sources, "run.output_dir=b"], &[]).refused(2, &missing);
}

#[test]
fn a_run_ends_with_the_next_commands_and_they_work() {
    let place = workplace();
    let again = place.run(&["training.max_steps=20", "run.sample_text=null"], &[]).ok();
    let tuned = finetune(&place, &["--output-dir", "my runs"]).ok();
    let split = ["--output-dir", "split", "--eval-fraction", "0.5"];
    let flags: Vec<&str> =
        FLAGS.iter().copied().filter(|flag| !["--eval", "dev.csv"].contains(flag)).collect();
    let split = place.program(&[&flags[..], &TWO_STEPS, &split].concat(), "").ok();
    fs::copy(place.path("dev.csv"), place.path("test.csv")).unwrap();
    for (told, count) in [(again, 2), (tuned, 2), (split, 2)] {
        let (_, next) = told.stderr.split_once("next:\n").expect("something comes next");
        let commands: Vec<&str> = next.lines().map(str::trim).collect();
        assert_eq!(commands.len(), count, "{next}");
        for command in commands {
            let mut shell = std::process::Command::new("sh");
            let program = env!("CARGO_BIN_EXE_mlmtrain");
            let line = command.replace("mlmtrain ", &format!("'{program}' ")) + " > said";
            let short = if line.contains(" finetune ") { line + " --max-steps 2" } else { line };
            let ended =
                Finished::from(shell.args(["-c", &short]).current_dir(place.path("")).output().unwrap());
            assert_eq!(ended.code, Some(0), "{command}: {ended:#?}");
        }
    }
    let quiet = place.program(&[&["-q"], FLAGS, &TWO_STEPS, &["--output-dir", "my runs"]].concat(), "").ok();
    assert!(!quiet.stderr.contains("next:"), "{}", quiet.stderr);
}

#[test]
fn a_model_that_learnt_nothing_says_so() {
    let place = workplace();
    let warned = |told: &Finished, how: &str| {
        let line = told.stderr.lines().find(|line| line.contains("learnt nothing")).unwrap_or_default();
        assert!(line.contains("warning: ") && line.contains(how), "{}", told.stderr);
    };
    // Hardly any training example has the second label.
    let rows = examples(120);
    let skewed = rows.lines().enumerate().filter(|(at, row)| *at < 4 || !row.starts_with("fish"));
    let skewed: Vec<&str> = skewed.map(|(_, row)| row).collect();
    fs::write(place.path("skewed.csv"), skewed.join("\n")).unwrap();
    let same = "all 40 examples get the same label";
    let flags: Vec<&str> =
        FLAGS.iter().map(|word| if *word == "train.csv" { "skewed.csv" } else { word }).collect();
    let told = place.program(&[&flags[..], &["--output-dir", "a", "--max-steps", "9"]].concat(), "").ok();
    warned(&told, same);
    warned(&place.program(&["evaluate", "--model", "a/final", "--data", "dev.csv", "--json"], "").ok(), same);
    let sweep = ["--output-dir", "sweep", "--max-steps", "9", "--sweep", "weight_decay=0,0.01"];
    let told = place.program(&[&flags[..], &sweep].concat(), "").ok();
    warned(&told, &format!("weight_decay=0, seed=42; weight_decay=0.01, seed=42: {same}"));
    assert!(told.stdout.contains("a tie: 0 and 0.01 have the same mean"), "{}", told.stdout);
    assert!(!told.stdout.contains("* "), "none of them is marked: {}", told.stdout);
    fs::write(place.path("one.csv"), examples(1)).unwrap();
    let told = place.program(&["evaluate", "--model", "a/final", "--data", "one.csv"], "").ok();
    assert!(!told.stderr.contains("learnt nothing"), "{}", told.stderr);
    let told = place
        .program(&[FLAGS, &["--output-dir", "b", "--learning-rate", "5e-3", "--epochs", "6"]].concat(), "");
    assert!(!told.ok().stderr.contains("learnt nothing"));
}

#[test]
fn runs_of_several_seeds_are_listed_with_their_mean_and_a_sweep_once() {
    let place = workplace();
    finetune(&place, &["--output-dir", "runs/seeds", "--seeds", "1,2"]).ok();
    finetune(&place, &["--output-dir", "runs/sweep", "--sweep", "learning_rate=1e-4,1e-3"]).ok();
    let list = || -> Vec<Value> {
        let lines = place.program(&["runs", "--json"], "").ok().stdout;
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let rows = list();
    let of = |key: &str| rows.iter().map(|row| row[key].as_str().unwrap_or_default()).collect::<Vec<&str>>();
    let sweep = |rate: &str| format!("runs/sweep/learning_rate={rate}/seed-42");
    assert_eq!(
        of("path"),
        ["runs/seeds", "runs/seeds/seed-1", "runs/seeds/seed-2", &sweep("1e-3"), &sweep("1e-4")]
    );
    assert_eq!(of("state"), ["complete"; 5]);
    let mean = f64::midpoint(rows[1]["score"].as_f64().unwrap(), rows[2]["score"].as_f64().unwrap());
    assert!(
        (rows[0]["score"].as_f64().unwrap() - mean).abs() < 1e-9 && rows[0]["spread"].is_f64(),
        "{rows:#?}"
    );
    assert_eq!(rows[0]["metric"], "accuracy");
    // One of its seeds is not done.
    fs::remove_file(place.path("runs/seeds/seed-2/all_results.json")).unwrap();
    assert_eq!((&list()[0]["state"], &list()[1]["state"]), (&"stopped".into(), &"complete".into()));
}
