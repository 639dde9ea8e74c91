//! The care of pretraining in fine-tuning: one run a folder, the same inputs to its end, damage that is told.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::finetune::{FLAGS, SETS, finetune, rows, workplace};
use crate::material::examples;
use crate::workplace::{Workplace, assert_same_tree, send};

const SHORT: [&str; 4] = ["--output-dir", "cls", "--set", "training.max_steps=6"];

/// Starts a fine-tuning that takes long, and waits for `file`.
fn start_endless(place: &Workplace, more: &[&str], file: &str) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mlmtrain"));
    command
        .args([FLAGS, SETS, more, &["--output-dir", "cls", "--set", "training.max_steps=1000000"]].concat());
    command.current_dir(place.path("")).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    while !place.path(file).exists() {
        assert!(child.try_wait().unwrap().is_none(), "it ended before `{file}` was there");
        std::thread::sleep(Duration::from_millis(2));
    }
    child
}

#[test]
fn one_folder_takes_one_run_whatever_its_seeds() {
    let place = workplace();
    let mut first = start_endless(&place, &["--seeds", "1,2"], "cls/seed-1/metrics.jsonl");
    for seeds in ["3", "2,3"] {
        finetune(&place, &["--output-dir", "cls", "--seeds", seeds])
            .refused(2, &["cls: is in use by another run (pid ", "hint:"]);
    }
    assert!(!place.path("cls/config.yaml").exists(), "those that are refused write nothing");
    send(&first, 15);
    assert_eq!(first.wait().unwrap().code(), Some(128 + 15));
    finetune(&place, &["--output-dir", "cls", "--seeds", "3"])
        .refused(2, &["cls: holds `seed-1` of a run with several seeds"]);
    fs::remove_dir_all(place.path("cls")).unwrap();
    let mut single = start_endless(&place, &["--seeds", "3"], "cls/metrics.jsonl");
    let config = fs::read(place.path("cls/config.yaml")).unwrap();
    finetune(&place, &["--output-dir", "cls", "--seeds", "1,2"])
        .refused(2, &["cls: is in use by another run"]);
    assert!(fs::read(place.path("cls/config.yaml")).unwrap() == config);
    send(&single, 15);
    assert_eq!(single.wait().unwrap().code(), Some(128 + 15));
}

#[test]
fn a_run_goes_on_with_the_examples_and_the_model_that_it_began_with() {
    let place = workplace();
    let constant = ["--set", "training.lr_scheduler_type=constant", "--set", "training.warmup_steps=0"];
    finetune(&place, &[&SHORT[..], &constant].concat()).ok();
    let before = place.tree_of("cls");
    let more = [&["--output-dir", "cls", "--set", "training.max_steps=8"], &constant[..]].concat();
    let train = fs::read_to_string(place.path("train.csv")).unwrap();
    let refused = |name: &str, content: &str, place_of: &str| {
        let original = fs::read(place.path(name)).unwrap();
        fs::write(place.path(name), content).unwrap();
        finetune(&place, &more).refused(2, &[&format!("{place_of}: its content is not"), "hint: restore it"]);
        fs::write(place.path(name), original).unwrap();
    };
    let swapped = train.replace("bird,", "other,").replace("fish,", "bird,").replace("other,", "fish,");
    refused("train.csv", &swapped, "data.train_file");
    refused("train.csv", &examples(120), "data.train_file");
    refused("dev.csv", &examples(30), "data.eval_file");
    let other = train + "frog,\"the frog sees the horse\"\n";
    refused("train.csv", &other, "--labels");
    // Another model of the same shape: one step less. Its folder has hashes of its own.
    place.run(&["training.max_steps=19", "run.output_dir=other", "run.sample_text=null"], &[]).ok();
    fs::rename(place.path("run/final"), place.path("run/kept")).unwrap();
    fs::rename(place.path("other/final"), place.path("run/final")).unwrap();
    finetune(&place, &more).refused(2, &["model: its content is not"]);
    fs::remove_dir_all(place.path("run/final")).unwrap();
    fs::rename(place.path("run/kept"), place.path("run/final")).unwrap();
    assert_same_tree(&before, &place.tree_of("cls"));
    assert!(finetune(&place, &more).ok().stderr.contains("resuming after step 6"));
}

#[test]
fn a_complete_run_without_its_final_model_or_its_best_checkpoint_ends_well() {
    let place = workplace();
    // Nothing is learnt, so that the first evaluation stays the best.
    let more = [
        &SHORT[..],
        &["--set", "training.learning_rate=1e-30", "--set", "training.load_best_model_at_end=true"],
        &["--set", "training.eval_steps=2"],
    ]
    .concat();
    finetune(&place, &more).ok();
    let model = fs::read(place.path("cls/final/model.safetensors")).unwrap();
    fs::remove_dir_all(place.path("cls/final")).unwrap();
    let again = finetune(&place, &more).ok();
    assert!(again.stderr.contains("the final model is made again"), "{}", again.stderr);
    assert!(fs::read(place.path("cls/final/model.safetensors")).unwrap() == model);
    // As if the save of the best step had failed.
    fs::remove_dir_all(place.path("cls/checkpoint-2")).unwrap();
    fs::remove_dir_all(place.path("cls/final")).unwrap();
    let without = finetune(&place, &more).ok();
    assert!(without.stderr.contains("the best checkpoint cannot be used"), "{}", without.stderr);
    assert!(finetune(&place, &more).ok().stdout.contains("complete already"));
}

#[test]
fn damaged_weights_are_not_used() {
    let place = workplace();
    finetune(&place, &SHORT).ok();
    for folder in ["cls/final", "cls/checkpoint-6"] {
        for name in ["model.safetensors", "config.json", "tokenizer.json"] {
            let path = place.path(folder).join(name);
            let whole = fs::read(&path).unwrap();
            let mut damaged = whole.clone();
            let middle = damaged.len() / 2;
            damaged[middle] ^= 1;
            fs::write(&path, damaged).unwrap();
            let place_of = format!("{folder}/{name}: has SHA-256");
            let words = [place_of.as_str(), "hint: restore the file"];
            place.program(&["predict", "--model", folder, "--input", "-"], "an owl\n").refused(1, &words);
            place.program(&["evaluate", "--model", folder, "--data", "dev.csv"], "").refused(1, &words);
            let base = ["finetune", "--task", "classify", "--model", folder, "--train", "train.csv"];
            let base = [&base[..], &["--eval", "dev.csv", "--output-dir", "next"]].concat();
            place.program(&base, "").refused(1, &words);
            fs::write(&path, whole).unwrap();
        }
    }
    place.program(&["predict", "--model", "cls/final", "--input", "-"], "an owl\n").ok();
}

#[test]
fn weights_that_are_no_numbers_are_refused() {
    let place = workplace();
    finetune(&place, &SHORT).ok();
    let path = place.path("cls/final/model.safetensors");
    let mut bytes = fs::read(&path).unwrap();
    let data_start = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    for value in bytes[data_start..].chunks_exact_mut(4) {
        value.copy_from_slice(&f32::NAN.to_le_bytes());
    }
    fs::write(&path, bytes).unwrap();
    // A folder of another program has no hashes.
    fs::remove_file(place.path("cls/final/manifest.json")).unwrap();
    let words = ["cls/final/model.safetensors: ", "are not finite", "hint: "];
    place.program(&["predict", "--model", "cls/final", "--input", "-"], "an owl\n").refused(1, &words);
    place.program(&["evaluate", "--model", "cls/final", "--data", "dev.csv"], "").refused(1, &words);
}

#[test]
fn files_of_an_older_encoding_give_what_they_give_as_utf8() {
    let place = workplace();
    let data = examples(160).replace("owl", "\u{f6}wl");
    let latin: Vec<u8> = data.chars().map(|character| character as u8).collect();
    let scores = |name: &str, bytes: &[u8], encoding: &[&str]| {
        fs::write(place.path("train.csv"), bytes).unwrap();
        fs::write(place.path("dev.csv"), bytes).unwrap();
        let set = encoding.iter().map(|name| format!("data.encoding={name}")).collect::<Vec<_>>();
        let set: Vec<&str> = set.iter().flat_map(|set| ["--set", set]).collect();
        finetune(&place, &[&["--output-dir", name], &set[..]].concat()).ok();
        let model = format!("{name}/final");
        let flags: Vec<&str> = encoding.iter().flat_map(|name| ["--encoding", name]).collect();
        let evaluate = ["evaluate", "--json", "--model", &model, "--data", "dev.csv"];
        let predict = ["predict", "--model", &model, "--input", "dev.csv"];
        [&evaluate[..], &predict].map(|command| place.program(&[command, &flags].concat(), "").ok().stdout)
    };
    let as_utf8 = scores("utf8", data.as_bytes(), &[]);
    assert_eq!(scores("latin", &latin, &["latin1"]), as_utf8);
    assert!(as_utf8[1].contains("\u{f6}wl"), "{}", as_utf8[1]);
    let config = fs::read_to_string(place.path("latin/config.yaml")).unwrap();
    assert!(config.contains("encoding: windows-1252"), "{config}");
    let refused = place.program(&["predict", "--model", "utf8/final", "--input", "dev.csv"], "");
    refused.refused(1, &["is not UTF-8 text", "hint: name its true encoding"]);
    let evaluate = ["evaluate", "--model", "utf8/final", "--data", "dev.csv", "--encoding", "latin-99"];
    place.program(&evaluate, "").refused(2, &["--encoding", "windows-1252"]);
}

#[test]
fn a_label_does_not_drive_the_terminal() {
    let place = workplace();
    let data = examples(160).replace("bird", "\u{1b}[31mbird");
    fs::write(place.path("train.csv"), &data).unwrap();
    fs::write(place.path("dev.csv"), &data).unwrap();
    let report = finetune(&place, &SHORT).ok();
    assert!(
        report.stdout.contains(r"\u{1b}[31mbird") && !report.stdout.contains('\u{1b}'),
        "{}",
        report.stdout
    );
    let predicted = place.program(&["predict", "--model", "cls/final", "--input", "dev.csv"], "").ok();
    assert_eq!(rows(&predicted.stdout).len(), 160);
    fs::write(place.path("dev.csv"), "label,text\n\u{1b}[2Jowl,an owl\n").unwrap();
    let refused = finetune(&place, &["--output-dir", "other"]);
    refused.refused(1, &["dev.csv:2: unknown label"]);
    assert!(!refused.stderr.contains('\u{1b}'), "{}", refused.stderr);
}
