//! Nothing is replaced that the program did not write: data that it reads, files of others, runs of before. And what
//! is not finite is no result.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::material::{examples, tagged};
use crate::workplace::{Finished, Workplace};

/// A workplace with a pretrained model in `run/final` and a classifier in `cls/final`.
fn with_classifier() -> Workplace {
    let place = Workplace::new();
    place.run(&["training.max_steps=2", "run.sample_text=null"], &[]).ok();
    fs::write(place.path("train.csv"), examples(16)).unwrap();
    fs::write(place.path("dev.csv"), examples(8)).unwrap();
    let tune = ["finetune", "--task", "classify", "--model", "run/final", "--train", "train.csv"];
    let more = [
        "--eval",
        "dev.csv",
        "--output-dir",
        "cls",
        "--set",
        "training.max_steps=2",
        "--set",
        "data.max_seq_length=32",
    ];
    place.program(&[&tune[..], &more].concat(), "").ok();
    place
}

#[test]
fn files_to_write_replace_neither_inputs_nor_files_of_others() {
    let place = with_classifier();
    let gold = fs::read(place.path("dev.csv")).unwrap();
    fs::hard_link(place.path("dev.csv"), place.path("hard.csv")).unwrap();
    std::os::unix::fs::symlink(place.path("dev.csv"), place.path("link.csv")).unwrap();
    let evaluate = |more: &[&str]| {
        place.program(&[&["evaluate", "--model", "cls/final", "--data", "dev.csv"], more].concat(), "")
    };
    for flag in ["--predictions", "--dump-logits"] {
        for name in ["dev.csv", "./dev.csv", "hard.csv", "link.csv", "cls/final/config.json"] {
            for more in [&[][..], &["--overwrite"]] {
                evaluate(&[&[flag, name], more].concat())
                    .refused(2, &[flag, name, "which this command reads"]);
            }
        }
        evaluate(&[flag, "cls"]).refused(2, &["is a folder"]);
        evaluate(&[flag, "/dev/null", "--overwrite"]).refused(2, &["is a device or a pipe"]);
        fs::write(place.path("theirs.txt"), "theirs").unwrap();
        evaluate(&[flag, "theirs.txt"]).refused(2, &["exists already", "`--overwrite`"]);
        assert_eq!(fs::read_to_string(place.path("theirs.txt")).unwrap(), "theirs");
        evaluate(&[flag, "theirs.txt", "--overwrite"]).ok();
    }
    evaluate(&["--predictions", "p", "--dump-logits", "./p"])
        .refused(2, &["is also the file of `--predictions`"]);
    assert_eq!(fs::read(place.path("dev.csv")).unwrap(), gold);
    assert!(Path::new("/dev/null").metadata().is_ok_and(|found| !found.is_file()));

    fs::write(place.path("t.txt"), "the owl\nthe fox\n").unwrap();
    fs::write(place.path("v.npy"), "theirs").unwrap();
    let embed = |output: &str, more: &[&str]| {
        let all = ["embed", "--model", "run/final", "--file", "t.txt", "--output", output];
        place.program(&[&all[..], more].concat(), "")
    };
    embed("v.npy", &[]).refused(2, &["--output v.npy: exists already"]);
    embed("v.npy", &["--overwrite"]).ok();
    fs::rename(place.path("t.txt"), place.path("t.npy")).unwrap();
    let onto = ["embed", "--model", "run/final", "--file", "t.npy", "--format", "text", "--output", "t.npy"];
    place.program(&[&onto[..], &["--overwrite"]].concat(), "").refused(2, &["which this command reads"]);

    place
        .program(&["report", "run", "-o", "run/final/config.json"], "")
        .refused(2, &["which this command reads"]);
    place.program(&["report", "run", "-o", "theirs.txt"], "").refused(2, &["exists already"]);
    place.program(&["report", "run"], "").ok();
    place.program(&["report", "run"], "").ok();
    let log = ["--log-file", "dev.csv", "runs", "."];
    place.program(&log, "").refused(2, &["--log-file", "dev.csv", "is no log"]);
    let both = [
        "--log-file",
        "n.txt",
        "evaluate",
        "--model",
        "cls/final",
        "--data",
        "dev.csv",
        "--predictions",
        "n.txt",
    ];
    place.program(&[&both[..], &["--overwrite"]].concat(), "").refused(2, &["which this command reads"]);
    assert_eq!(fs::read(place.path("dev.csv")).unwrap(), gold);
}

#[test]
fn a_used_folder_is_left_alone_also_without_checkpoints() {
    let place = Workplace::new();
    let sets = ["training.max_steps=3", "run.sample_text=null", "training.eval_steps=0"];
    place.run(&sets, &[]).ok();
    fs::write(place.run_path("final/notes.txt"), "mine").unwrap();
    fs::write(place.path("train.csv"), examples(16)).unwrap();
    let tune = ["finetune", "--task", "classify", "--model", "run/final", "--train", "train.csv"];
    let more = [
        "--eval",
        "train.csv",
        "--output-dir",
        "run",
        "--set",
        "training.max_steps=2",
        "--set",
        "data.max_seq_length=32",
    ];
    let kind = "run: holds `config.yaml` of a run of another kind";
    place.program(&[&tune[..], &more].concat(), "").refused(2, &[kind]);
    for entry in fs::read_dir(place.path("run")).unwrap().flatten() {
        if entry.file_name().to_string_lossy().starts_with("checkpoint-") {
            fs::remove_dir_all(entry.path()).unwrap();
        }
    }
    let before = place.tree();
    let other = ["training.max_steps=4", "run.sample_text=null", "training.learning_rate=1.0e-3"];
    for more in [&[][..], &["--resume", "never"]] {
        place.run(&sets, more).refused(2, &["run: holds `final`", "run.output_dir"]);
        place.run(&other, more).refused(2, &["run: holds `final`"]);
    }
    assert_eq!(place.tree(), before);
    // Another command, and several seeds, find the same.
    place.program(&[&tune[..], &more].concat(), "").refused(2, &["run: holds `final`"]);
    place.program(&[&tune[..], &more, &["--seeds", "1,2"]].concat(), "").refused(2, &["run: holds `final`"]);
    assert_eq!(place.tree(), before);

    // What was begun and has no checkpoint yet begins again, as the same run and no other.
    fs::remove_dir_all(place.run_path("final")).unwrap();
    for name in ["all_results.json", "eval_results.json", "train_results.json"] {
        fs::remove_file(place.run_path(name)).unwrap();
    }
    place.run(&other, &[]).refused(2, &["training.learning_rate"]);
    place.run(&sets, &["--resume", "never"]).refused(2, &["run: holds `config.yaml` of another run"]);
    let again = place.run(&[&sets[..], &["training.save_steps=1"]].concat(), &[]).ok();
    assert!(again.stderr.contains("are kept as `run/metrics-kept-1.jsonl`"), "{}", again.stderr);
    assert!(fs::read_to_string(place.run_path("metrics-kept-1.jsonl")).unwrap().lines().count() >= 3);
    // A configuration of the user's own in its place is none of a run.
    fs::create_dir(place.path("mine")).unwrap();
    fs::copy(place.path("config.yaml"), place.path("mine/config.yaml")).unwrap();
    let into = [&sets[..], &["run.output_dir=mine", "data.prepared_dir=run/data"]].concat();
    place.run(&into, &[]).refused(2, &["mine: holds `config.yaml` that no run has written"]);
    place.run(&into, &[]).refused(2, &["mine: holds `config.yaml` that no run has written"]);
    assert_eq!(
        fs::read(place.path("mine/config.yaml")).unwrap(),
        fs::read(place.path("config.yaml")).unwrap()
    );
}

#[test]
fn a_final_model_with_files_of_others_is_kept() {
    let place = Workplace::new();
    let run = |steps: &str| {
        place
            .run(&[steps, "run.sample_text=null", "training.lr_scheduler_type=constant_with_warmup"], &[])
            .ok()
    };
    run("training.max_steps=3");
    fs::create_dir(place.run_path("final/.git")).unwrap();
    fs::write(place.run_path("final/.git/HEAD"), "mine").unwrap();
    let more = run("training.max_steps=5");
    assert!(more.stderr.contains("it is kept as `run/final-kept-1`"), "{}", more.stderr);
    assert_eq!(fs::read_to_string(place.run_path("final-kept-1/.git/HEAD")).unwrap(), "mine");
    assert!(!place.run_path("final/.git").exists() && place.run_path("final/config.json").exists());
    run("training.max_steps=6");
    assert!(!place.run_path("final-kept-2").exists(), "what the program wrote is replaced");
}

/// Fills every tensor of a model folder with this number, as nobody who trains would.
fn fill(folder: &Path, value: f32) {
    let path = folder.join("model.safetensors");
    let mut bytes = fs::read(&path).unwrap();
    let header = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    bytes[8 + header..].chunks_exact_mut(4).for_each(|four| four.copy_from_slice(&value.to_le_bytes()));
    fs::write(&path, bytes).unwrap();
    let _ = fs::remove_file(folder.join("manifest.json"));
}

#[test]
fn outputs_that_are_not_finite_are_errors() {
    let place = with_classifier();
    fs::write(place.path("train.conll"), tagged(8)).unwrap();
    let tune = ["finetune", "--task", "token-classify", "--model", "run/final", "--train", "train.conll"];
    let more = [
        "--eval",
        "train.conll",
        "--output-dir",
        "ner",
        "--set",
        "training.max_steps=2",
        "--set",
        "data.max_seq_length=32",
    ];
    place.program(&[&tune[..], &more].concat(), "").ok();
    for folder in ["run/final", "cls/final", "ner/final"] {
        fill(&place.path(folder), 1e30);
        let verified = place.program(&["checkpoint", "verify", folder], "");
        assert_eq!(verified.code, Some(1), "{verified:?}");
        assert!(verified.stdout.contains("BAD") && verified.stdout.contains("is not finite"), "{verified:?}");
    }
    let not_finite = &["the outputs of the model are not finite here", "hint: "];
    let refused = |arguments: &[&str], input: &str| place.program(arguments, input).refused(1, not_finite);
    refused(&["predict", "--model", "cls/final", "--input", "-"], "the owl\n");
    refused(&["predict", "--model", "ner/final", "--input", "-"], "the owl\n");
    refused(&["predict", "--model", "run/final", "--input", "-"], "the <mask> runs\n");
    refused(&["evaluate", "--model", "cls/final", "--data", "dev.csv", "--predictions", "p.jsonl"], "");
    refused(&["evaluate", "--model", "ner/final", "--data", "train.conll", "--predictions", "p.jsonl"], "");
    refused(&["evaluate", "--model", "run/final", "--data", "corpus.txt"], "");
    refused(&["embed", "--model", "run/final", "--file", "-", "--output", "v.npy"], "the owl\n");
    fs::write(place.path("pairs.jsonl"), "{\"good\": \"the owl runs\", \"bad\": \"the owl owl\"}\n").unwrap();
    let pairs = ["evaluate", "--model", "run/final", "--task", "minimal-pairs", "--data", "pairs.jsonl"];
    refused(&pairs, "");
    assert!(!place.path("p.jsonl").exists() && !place.path("v.npy").exists());
}

#[test]
fn a_run_that_ends_in_trouble_is_not_trained() {
    let place = Workplace::new();
    for (number, (rate, steps)) in [("1e30", 8), ("1e30", 2), ("1e12", 8)].into_iter().enumerate() {
        let output = format!("run.output_dir=run{number}");
        let sets = [
            output.as_str(),
            &format!("training.learning_rate={rate}"),
            &format!("training.max_steps={steps}"),
            "training.warmup_steps=0",
            "training.lr_scheduler_type=constant",
            "data.prepared_dir=data",
            "run.sample_text=null",
        ];
        place.run(&sets, &[]).refused(76, &["training diverges: ", "hint: "]);
        // And again, from whatever was left.
        place.run(&sets, &[]).refused(76, &["training diverges: "]);
        assert!(!place.path(&format!("run{number}/final")).exists());
    }
    fs::write(place.path("train.csv"), examples(32)).unwrap();
    let tune =
        ["finetune", "--task", "classify", "--model", "model", "--train", "train.csv", "--eval", "train.csv"];
    let fine = ["training.max_steps=2", "run.sample_text=null", "data.prepared_dir=data"];
    place.run(&fine, &[]).ok();
    fs::rename(place.run_path("final"), place.path("model")).unwrap();
    let more = [
        "--set",
        "training.learning_rate=1e30",
        "--set",
        "training.max_steps=4",
        "--output-dir",
        "cls",
        "--set",
        "data.max_seq_length=32",
    ];
    place.program(&[&tune[..], &more].concat(), "").refused(76, &["training diverges: "]);
    let results: Option<Value> = fs::read(place.path("cls/all_results.json"))
        .ok()
        .and_then(|bytes| serde_json::from_slice(&bytes).ok());
    assert_eq!(results, None);
}

#[test]
fn files_of_others_in_folders_of_a_run_stay() {
    let place = Workplace::new();
    let sets = ["data.prepared_dir=prepared", "training.max_steps=4", "training.save_steps=2"];
    place.run(&sets, &[]).ok();
    let theirs = ["prepared/documents/mine.txt", "run/.tmp-backup/mine.txt"].map(|name| place.path(name));
    for path in &theirs {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "precious").unwrap();
    }
    place.run(&[&sets[..], &["run.output_dir=second"]].concat(), &[]).ok();
    place.run(&[&["training.max_steps=8", "training.lr_scheduler_type=constant"], &sets[..1]].concat(), &[]);
    for path in &theirs {
        assert_eq!(fs::read_to_string(path).unwrap(), "precious", "{}", path.display());
    }
}

#[test]
fn a_configuration_replaces_nothing_that_it_was_made_from() {
    let place = with_classifier();
    fs::create_dir(place.path("texts")).unwrap();
    fs::copy(place.path("corpus.txt"), place.path("texts/a.txt")).unwrap();
    let of_text = ["init", "--text", "texts/*.txt", "--budget", "5m", "--device", "H100"];
    let of_labels = ["init", "--train", "train.csv", "--model", "cls/final"];
    for (arguments, output) in [(&of_text[..], "texts/a.txt"), (&of_labels[..], "cls/final/config.json")] {
        let before = fs::read(place.path(output)).unwrap();
        let refused = place.program(&[arguments, &["--output", output, "--overwrite"]].concat(), "");
        refused.refused(2, &["--output", output, "which this command reads"]);
        assert_eq!(fs::read(place.path(output)).unwrap(), before);
    }
}

#[test]
fn a_run_whose_folder_another_run_has_taken_writes_no_more() {
    let place = Workplace::new();
    let endless = ["training.max_steps=1000000", "training.save_steps=20", "run.seed=1"];
    let mut first = place.command(&endless, &[]);
    let first = first.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let begun = Instant::now();
    while place.checkpoints().is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(120), "no checkpoint");
        std::thread::sleep(Duration::from_millis(5));
    }
    let signal = |name: &str| {
        let id = first.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &id]).status().unwrap().success());
    };
    // It writes nothing in between.
    signal("STOP");
    fs::rename(place.path("run"), place.path("moved")).unwrap();
    place.run(&["training.max_steps=4", "run.seed=2"], &[]).ok();
    signal("CONT");
    let ended: Finished = first.wait_with_output().unwrap().into();
    ended.refused(1, &["run: was removed while this run was computing, and another run is there now"]);
    assert_eq!(place.checkpoints(), [4]);
    let state = fs::read_to_string(place.run_path("config.yaml")).unwrap();
    assert!(state.contains("seed: 2"), "{state}");
}
