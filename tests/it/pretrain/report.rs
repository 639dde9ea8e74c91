//! What an undisturbed run says and leaves: report, records, checkpoints that are model folders.

use std::fs;
use std::fs::OpenOptions;
use std::path::Path;
use std::process::Command;

use mlmtrain::quantity::format_amount;
use serde_json::Value;

use crate::workplace::{Workplace, assert_same_tree};

/// The first run trains and reports, the second one has nothing to do and touches nothing.
#[test]
fn a_run_trains_and_reports_and_the_second_one_changes_nothing() {
    let place = Workplace::new();
    let first = place.run(&[], &[]).ok();
    for row in [
        "trained 40 steps",
        "validation loss",
        "perplexity",
        "masked accuracy",
        "unigram baseline",
        "tokens/s",
        "run/final",
        "mask 1:",
        "mask 3:",
    ] {
        assert!(first.stdout.contains(row), "`{row}` is not in:\n{}", first.stdout);
    }
    let results = place.json("all_results.json");
    let value = |name: &str| results[name].as_f64().unwrap_or_else(|| panic!("{name} is not in {results}"));
    assert!(value("eval_loss") < 400f64.ln() - 1.5 && value("eval_unigram_loss") > 2.0, "{results}");
    assert!((value("eval_perplexity") - value("eval_loss").exp()).abs() < 1e-9);
    assert!((0.0..=1.0).contains(&value("eval_accuracy")) && value("train_tokens_per_second") > 0.0);
    assert!(value("eval_runtime") > 0.0 && value("train_runtime") > 0.0, "{results}");
    assert!(value("train_num_input_tokens_seen") > 40.0 * 8.0 * 16.0);

    let before = place.tree();
    let second = place.run(&[], &[]).ok();
    assert!(second.stdout.contains("this run is complete (40 steps)"), "{}", second.stdout);
    assert_same_tree(&before, &place.tree());
    let rows =
        |text: &str| text.lines().filter(|line| line.starts_with("  ")).map(String::from).collect::<Vec<_>>();
    assert_eq!(rows(&second.stdout), rows(&first.stdout), "it reports the same again");

    records_are_complete(&place);
    checkpoints_are_model_folders(&place);
}

fn records_are_complete(place: &Workplace) {
    let losses = place.series("train/loss");
    assert_eq!(losses.iter().map(|(step, _)| *step).collect::<Vec<_>>(), (1..=40).collect::<Vec<u64>>());
    assert!(losses[39].1 < losses[0].1 - 0.5, "the loss falls: {losses:?}");
    for tag in ["train/grad_norm", "train/learning_rate", "train/epoch"] {
        assert_eq!(place.series(tag).len(), 40, "{tag}");
    }
    for tag in ["eval/loss", "eval/perplexity", "eval/accuracy"] {
        assert_eq!(
            place.series(tag).iter().map(|(step, _)| *step).collect::<Vec<_>>(),
            [16, 32, 40],
            "{tag}"
        );
    }
    let sittings: Vec<_> = fs::read_dir(place.run_path("runs")).expect("is there").flatten().collect();
    assert_eq!(sittings.len(), 1);
    let events: Vec<_> = fs::read_dir(sittings[0].path()).expect("is a folder").flatten().collect();
    assert!(events[0].file_name().to_string_lossy().starts_with("events.out.tfevents."), "{events:?}");
    let bytes = fs::read(events[0].path()).expect("reads");
    for tag in ["train/loss", "eval/loss", "perf/tokens_per_second"] {
        assert!(
            bytes.windows(tag.len()).any(|window| window == tag.as_bytes()),
            "`{tag}` is no TensorBoard tag"
        );
    }
    assert!(
        fs::read_to_string(place.run_path("config.yaml")).expect("is there").contains("learning_rate: 0.003")
    );
    for name in ["train_results.json", "eval_results.json"] {
        assert!(place.json(name).is_object());
    }
}

fn checkpoints_are_model_folders(place: &Workplace) {
    assert_eq!(place.checkpoints(), [8, 16, 24, 32, 40]);
    for name in ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"] {
        let read = |folder: &str| {
            fs::read(place.run_path(folder).join(name)).unwrap_or_else(|e| panic!("{folder}/{name}: {e}"))
        };
        assert_eq!(read("final"), read("checkpoint-40"), "the final model is the last one: {name}");
    }
    for name in
        ["trainer/optimizer.safetensors", "trainer/state.json", "trainer/config.json", "manifest.json"]
    {
        assert!(place.run_path("checkpoint-8").join(name).is_file(), "{name}");
    }
    let state = place.json("checkpoint-40/trainer_state.json");
    assert_eq!((&state["global_step"], &state["max_steps"]), (&Value::from(40), &Value::from(40)));
    assert_eq!(state["log_history"].as_array().expect("is a list").len(), 43);
    let model = place.json("final/config.json");
    assert_eq!((&model["model_type"], &model["hidden_size"]), (&"roberta".into(), &32.into()));
}

#[test]
fn two_hundred_steps_learn_more_than_how_frequent_words_are() {
    let place = Workplace::new();
    let sets = [
        "training.max_steps=200",
        "training.learning_rate=1e-2",
        "training.eval_steps=0",
        "training.save_steps=0",
        "training.logging_steps=20",
    ];
    let no_dropout = ["model.roberta.hidden_dropout_prob=0", "model.roberta.attention_probs_dropout_prob=0"];
    place.run(&[&sets[..], &no_dropout].concat(), &[]).ok();
    let results = place.json("all_results.json");
    let (loss, baseline) = (
        results["eval_loss"].as_f64().expect("a number"),
        results["eval_unigram_loss"].as_f64().expect("a number"),
    );
    assert!(loss < baseline - 0.1, "validation loss {loss}, unigram baseline {baseline}");
}

#[test]
fn a_dry_run_writes_nothing() {
    let place = Workplace::new();
    let plan = place.run(&["training.max_train_time=90s"], &["--dry-run"]).ok();
    assert!(plan.stdout.contains("\n  time limit           90s; if time runs out first"), "{}", plan.stdout);
    assert!(
        plan.stdout.starts_with("dry run: nothing is written") && plan.stdout.contains("to be made"),
        "{}",
        plan.stdout
    );
    assert!(plan.stdout.contains("MiB at the peak: "), "{}", plan.stdout);
    assert!(!place.path("run").exists());
}

#[test]
fn a_batch_that_fits_is_found_and_the_rows_of_an_update_are_kept() {
    let place = Workplace::new();
    let auto = ["training.per_device_train_batch_size=auto", "training.train_batch_size=16"];
    let plan = place.run(&auto, &["--dry-run"]).ok();
    for words in
        ["micro-batches of 16 rows, 1 an update, need about ", "update               16 rows, at most "]
    {
        assert!(plan.stdout.contains(words), "{}", plan.stdout);
    }
    let run = place.run(&[&auto[..], &["training.max_steps=2"]].concat(), &[]).ok();
    assert!(run.stderr.contains("micro-batches of 16 rows, 1 an update"), "{}", run.stderr);
    // It goes on with the same rows in two pieces, and with no others.
    let cut = |rows: &str| {
        [
            format!("training.per_device_train_batch_size={rows}"),
            "training.gradient_accumulation_steps=2".to_string(),
        ]
    };
    let more = |rows: &str| {
        place.run(&[&cut(rows).each_ref().map(String::as_str)[..], &["training.max_steps=3"]].concat(), &[])
    };
    more("4").refused(2, &["training.per_device_train_batch_size", "restore the value"]);
    assert!(more("8").ok().stderr.contains("resuming after step 2"));
    place.run(&auto[..1], &["--dry-run"]).refused(2, &["`training.train_batch_size` is missing"]);
}

#[test]
fn types_and_threads_are_said_before_anything_is_done() {
    let place = Workplace::new();
    assert!(
        place.run(&[], &["--dry-run"]).ok().stdout.contains("f32 on the CPU, 2 threads"),
        "as the file says"
    );
    let half = place.run(&["precision.compute=f16"], &["--dry-run", "--threads", "1"]).ok();
    for words in [
        "f16 on the CPU, 1 thread\n",
        "note: `precision.compute: f16` is slow here: on a CPU it is for checking",
    ] {
        assert!(half.stdout.contains(words), "{}", half.stdout);
    }
    let run = place.run(&["training.max_steps=1"], &["--threads", "1"]).ok();
    assert!(run.stderr.starts_with("computing in f32 on the CPU, 1 thread\n"), "{}", run.stderr);
    let unused =
        place.run(&["precision.compute=bf16", "precision.loss_scale.growth_interval=100"], &["--dry-run"]);
    unused.refused(2, &["precision.loss_scale", "only f16 scales the loss", "hint:"]);
}

#[test]
fn quiet_means_only_the_report() {
    let place = Workplace::new();
    let short = ["training.max_steps=2"];
    let run = place.run(&short, &["-q"]).ok();
    assert!(run.stdout.contains("trained 2 steps"), "{}", run.stdout);
    assert!(!run.stdout.contains("\n  cost "), "without a price there is no cost: {}", run.stdout);
    // A run of two steps has learnt nothing, and silence hides no warning.
    assert!(run.stderr.lines().all(|line| line.starts_with("warning: the model is worse")), "{}", run.stderr);
}

#[test]
fn a_machine_with_a_price_has_a_cost_at_the_end() {
    let place = Workplace::new();
    let run = place.run(&["training.max_steps=2", "run.usd_per_hour=36000"], &[]).ok();
    let seconds = place.json("train_results.json")["train_runtime"].as_f64().expect("is a number");
    let row = format!("\n  cost                 ${}\n", format_amount(10.0 * seconds));
    assert!(run.stdout.contains(&row), "`{row}` is not in:\n{}", run.stdout);
}

#[test]
fn on_a_terminal_the_report_begins_on_a_line_of_its_own() {
    let place = Workplace::new();
    let program = env!("CARGO_BIN_EXE_mlmtrain");
    // `script` (util-linux) lends a terminal; where it is not installed there is nothing to see.
    let command = format!("{program} pretrain --config config.yaml --set training.max_steps=2");
    let output = Command::new("script")
        .args(["-qec", &command, "/dev/null"])
        .env("TERM", "xterm")
        .current_dir(place.path(""))
        .output();
    let Ok(output) = output else { return };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && text.contains("\u{1b}[2K"), "there is a bar: {text:?}");
    let report = text.find("trained 2 steps").expect("is reported");
    assert!(text[..report].ends_with(['\n', '\r', 'K']), "{:?}", &text[..report]);
}

#[test]
fn a_standard_output_that_is_closed_or_full_loses_no_run() {
    let place = Workplace::new();
    let short = ["training.max_steps=2"];
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let closed = place.command(&short, &[]).stdout(writer).output().expect("starts");
    assert_eq!(closed.status.code(), Some(0), "{}", String::from_utf8_lossy(&closed.stderr));
    assert!(place.run_path("final/model.safetensors").is_file());
    if !Path::new("/dev/full").exists() {
        return;
    }
    let full = || OpenOptions::new().write(true).open("/dev/full").expect("opens");
    let both =
        place.command(&["training.max_steps=4"], &[]).stdout(full()).stderr(full()).output().expect("starts");
    assert_eq!(both.status.code(), Some(74), "the report could not be written");
    assert_eq!(place.checkpoints().last(), Some(&4), "the run was");
}

#[test]
fn bert_trains_too() {
    let place = Workplace::new();
    let config = fs::read_to_string(place.path("config.yaml")).expect("reads");
    fs::write(place.path("config.yaml"), config.replace("roberta:", "bert:")).expect("writes");
    let sets = ["training.max_steps=20", "run.sample_text=the [MASK] sleeps."];
    let run = place.run(&sets, &[]).ok();
    assert!(run.stdout.contains("mask 1:"), "{}", run.stdout);
    let losses = place.series("train/loss");
    assert!(losses[19].1 < losses[0].1 - 0.3, "{losses:?}");
    assert_eq!(place.json("final/config.json")["model_type"], "bert");
}
