//! `mlmtrain checkpoint`: what it says of whole and of damaged folders, and what it deletes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use candle_core::Tensor;
use mlmtrain::checkpoint::{TensorFile, write_tensors};
use mlmtrain::fs::FolderLock;
use serde_json::Value;

use crate::material::{examples, tagged};
use crate::pretrain::electra;
use crate::workplace::{Workplace, assert_same_tree};

/// A run with checkpoints 8, 16, 24, 32 and 40.
fn trained() -> Workplace {
    let place = Workplace::new();
    place.run(&["run.sample_text=null"], &[]).ok();
    assert_eq!(place.checkpoints(), [8, 16, 24, 32, 40]);
    place
}

fn flip_a_bit(place: &Workplace, name: &str) {
    let path = place.run_path(name);
    let mut bytes = fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&path, bytes).unwrap();
}

fn best_of(place: &Workplace) -> u64 {
    place.json("checkpoint-40/trainer_state.json")["best_global_step"].as_u64().unwrap()
}

#[test]
fn a_list_has_a_line_for_each_checkpoint_and_the_reasons_of_the_damaged_ones() {
    let place = trained();
    let before = place.tree();
    let right = place.program(&["checkpoint", "list", "run"], "").ok().stdout;
    assert_same_tree(&before, &place.tree());
    assert_eq!(right.lines().count(), 7, "{right}");
    assert_eq!((right.matches(" yes").count(), right.matches(" best ").count()), (6, 1), "{right}");
    let line = |text: &str, step: &str| {
        text.lines().find(|line| line.trim_start().starts_with(step)).unwrap().to_string()
    };
    let loss = place.series("eval/loss").into_iter().find(|(step, _)| *step == 16).unwrap().1;
    assert!(line(&right, "16").ends_with(&format!(" {loss:.4}")), "{right}");
    assert!(line(&right, "8 ").ends_with(" -"), "step 8 was not evaluated: {right}");
    assert!(line(&right, &best_of(&place).to_string()).contains(" best "), "{right}");
    flip_a_bit(&place, "checkpoint-24/trainer/optimizer.safetensors");
    fs::remove_file(place.run_path("checkpoint-40/manifest.json")).unwrap();
    let list = place.program(&["checkpoint", "list", "run", "--json"], "").ok().stdout;
    let list: Value = serde_json::from_str(&list).unwrap();
    let rows = list["checkpoints"].as_array().unwrap();
    let valid: Vec<bool> = rows.iter().map(|row| row["valid"].as_bool().unwrap()).collect();
    assert_eq!(valid, [true, true, false, true, false, true], "{list}");
    let fault = |row: usize| rows[row]["fault"].as_str().unwrap_or_default();
    assert!(fault(2).contains("checkpoint-24/trainer/optimizer.safetensors: has SHA-256"), "{list}");
    assert!(fault(4).contains("checkpoint-40: there is no `manifest.json`"), "{list}");
    assert_eq!((&rows[5]["step"], &rows[1]["eval_loss"]), (&Value::Null, &Value::from(loss)), "{list}");
    assert!(rows[0]["bytes"].as_u64().unwrap() > 10_000 && rows[0]["age_seconds"].is_u64(), "{list}");
}

#[test]
fn verify_looks_at_all_of_a_run_and_names_what_is_damaged() {
    let place = trained();
    let before = place.tree();
    let right = place.program(&["checkpoint", "verify", "run"], "").ok();
    assert_same_tree(&before, &place.tree());
    let lines: Vec<&str> = right.stdout.lines().collect();
    assert_eq!(lines.len(), 6, "{right:#?}");
    assert!(
        lines[0].starts_with("ok    run/checkpoint-8  step 8, ") && lines[5].starts_with("ok    run/final ")
    );
    flip_a_bit(&place, "checkpoint-16/model.safetensors");
    flip_a_bit(&place, "final/config.json");
    fs::rename(place.run_path("checkpoint-24"), place.run_path("checkpoint-25")).unwrap();
    place.forge("checkpoint-32", "trainer/state.json", |state| state["step"] = 33.into());
    fs::remove_file(place.run_path("checkpoint-40/manifest.json")).unwrap();
    let found = place.program(&["checkpoint", "verify", "run"], "");
    assert_eq!(found.code, Some(1), "{found:#?}");
    for words in [
        "ok    run/checkpoint-8 ",
        "BAD   run/checkpoint-16/model.safetensors: has SHA-256 ",
        "BAD   run/checkpoint-25: holds step 24",
        "BAD   run/checkpoint-32/trainer/state.json: is of step 33, its checkpoint of step 32",
        "BAD   run/checkpoint-40: there is no `manifest.json`",
        "BAD   run/final/config.json: has SHA-256 ",
    ] {
        assert!(found.stdout.contains(words), "`{words}` is not in:\n{}", found.stdout);
    }
    assert!(found.stderr.contains("run/checkpoint-16: 5 of 6 folders are damaged"), "{}", found.stderr);
    let json = place.program(&["checkpoint", "verify", "run/checkpoint-8", "run/final", "--json"], "");
    let verdicts: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!((json.code, &verdicts["damaged"]), (Some(1), &Value::from(1)), "{verdicts}");
    let folders = verdicts["folders"].as_array().unwrap();
    assert_eq!((&folders[0]["valid"], &folders[0]["step"]), (&true.into(), &8.into()), "{verdicts}");
    assert_eq!(folders[1]["path"], "run/final");
    assert_eq!(place.program(&["checkpoint", "verify", "run/checkpoint-8"], "").code, Some(0));
}

/// Replaces a tensor of a file, which is right otherwise.
fn change_tensor(place: &Workplace, file: &str, name: &str, change: impl Fn(&Tensor) -> Tensor) {
    let path = place.path(file);
    let mut tensors = TensorFile::open(&path).unwrap().tensors().unwrap();
    let changed = change(&tensors[name]);
    tensors.insert(name.to_string(), changed);
    let mut bytes = Vec::new();
    write_tensors(&mut bytes, &tensors.into_iter().collect::<Vec<_>>()).unwrap();
    fs::write(path, bytes).unwrap();
}

#[test]
fn a_folder_of_others_is_checked_by_its_tensors() {
    let place = trained();
    fs::create_dir(place.path("model")).unwrap();
    for name in ["config.json", "model.safetensors"] {
        fs::copy(place.run_path("final").join(name), place.path("model").join(name)).unwrap();
    }
    let verify = || place.program(&["checkpoint", "verify", "model"], "");
    let right = verify().ok().stdout;
    assert!(right.starts_with("ok    model  ") && right.contains("no manifest"), "{right}");
    let weights = "model/model.safetensors";
    let good = fs::read(place.path(weights)).unwrap();
    let bad = |words: &str| {
        let found = verify();
        assert_eq!(found.code, Some(1), "{found:#?}");
        assert!(found.stdout.contains(words), "`{words}` is not in:\n{}", found.stdout);
    };
    let query = "roberta.encoder.layer.1.attention.self.query.weight";
    change_tensor(&place, weights, query, |tensor| tensor.affine(f64::INFINITY, 0.0).unwrap());
    bad(&format!(
        "BAD   model/model.safetensors: 1024 of the 1024 values of tensor `{query}` are not finite"
    ));
    fs::write(place.path(weights), &good).unwrap();
    change_tensor(&place, weights, "lm_head.bias", |tensor| tensor.narrow(0, 0, 7).unwrap());
    bad("BAD   model/model.safetensors: tensor `lm_head.bias` is [7], the model of `config.json` wants [");
    fs::write(place.path(weights), &good[..good.len() - 9]).unwrap();
    bad("BAD   model/model.safetensors: is not a valid safetensors file");
    fs::write(place.path(weights), &good).unwrap();
    verify().ok();
}

#[test]
fn both_models_of_an_electra_and_their_moments_fit() {
    let place = Workplace::new();
    place.run(&electra::sets(&["training.max_steps=3", "run.sample_text=null"]), &[]).ok();
    let right = place.program(&["checkpoint", "verify", "run", "run/final/generator"], "").ok().stdout;
    assert_eq!(right.lines().filter(|line| line.starts_with("ok    ")).count(), 3, "{right}");
    flip_a_bit(&place, "final/generator/model.safetensors");
    let found = place.program(&["checkpoint", "verify", "run/final/generator"], "");
    assert!(found.code == Some(1) && found.stdout.contains("has SHA-256"), "{found:#?}");
}

#[test]
fn a_folder_that_is_no_run_and_no_model_is_a_wrong_command_line() {
    let place = Workplace::new();
    fs::create_dir(place.path("empty")).unwrap();
    for folder in ["empty", "nowhere", "corpus.txt"] {
        let verify = place.program(&["checkpoint", "verify", folder], "");
        verify.refused(2, &[&format!("{folder}: holds no checkpoint and no model"), "hint: "]);
        place.program(&["checkpoint", "list", folder], "").refused(2, &["holds no checkpoints"]);
        place
            .program(&["checkpoint", "prune", folder, "--keep", "1"], "")
            .refused(2, &["holds no checkpoints"]);
    }
    assert_eq!(fs::read_dir(place.path("empty")).unwrap().count(), 0, "not even a lock is left");
    assert_eq!(place.program(&["checkpoint", "prune", "run", "--keep", "0"], "").code, Some(2));
}

#[test]
fn prune_keeps_the_newest_whole_ones_and_the_best() {
    let place = trained();
    let before = place.tree();
    let dry = place.program(&["checkpoint", "prune", "run", "--keep", "2", "--dry-run"], "").ok().stdout;
    assert_same_tree(&before, &place.tree());
    let kept: BTreeSet<u64> = [32, 40, best_of(&place)].into();
    assert!(dry.contains("would go  run/checkpoint-8, ") && dry.contains("would be freed"), "{dry}");
    {
        let _held = FolderLock::take(&place.path("run")).unwrap();
        let refused = place.program(&["checkpoint", "prune", "run", "--keep", "2"], "");
        refused.refused(2, &["run: is in use by another run"]);
    }
    let done = place.program(&["checkpoint", "prune", "run", "--keep", "2"], "").ok().stdout;
    assert!(
        done.contains("keep    run/checkpoint-32") && done.contains("deleted   run/checkpoint-8"),
        "{done}"
    );
    assert_eq!(BTreeSet::from_iter(place.checkpoints()), kept);
    let again = place.program(&["checkpoint", "prune", "run", "--keep", "2"], "").ok().stdout;
    assert!(again.contains("0 checkpoints deleted"), "{again}");
    assert!(place.run(&["run.sample_text=null"], &[]).ok().stdout.contains("this run is complete"));
}

#[test]
fn prune_counts_no_damaged_one_and_deletes_nothing_where_none_is_whole() {
    let place = trained();
    flip_a_bit(&place, "checkpoint-40/model.safetensors");
    let done = place.program(&["checkpoint", "prune", "run", "--keep", "1"], "").ok();
    assert!(done.stderr.contains("warning: run/checkpoint-40/model.safetensors: has SHA-256"), "{done:#?}");
    assert!(done.stderr.contains("; it stays"), "{done:#?}");
    let best = place.json("checkpoint-32/trainer_state.json")["best_global_step"].as_u64().unwrap();
    assert_eq!(BTreeSet::from_iter(place.checkpoints()), [best, 32, 40].into());
    for step in place.checkpoints() {
        fs::remove_file(place.run_path(&format!("checkpoint-{step}/trainer/state.json"))).unwrap();
    }
    let before = place.tree();
    let refused = place.program(&["checkpoint", "prune", "run", "--keep", "1"], "");
    refused.refused(1, &["run: none of the checkpoints is whole, so nothing is deleted", "hint: "]);
    assert_same_tree(&before, &place.tree());
}

#[test]
fn a_run_keeps_to_its_bytes_and_keeps_the_newest_and_the_best() {
    let place = trained();
    let whole = place.program(&["checkpoint", "list", "run", "--json"], "").ok().stdout;
    let list: Value = serde_json::from_str(&whole).unwrap();
    let bytes = list["checkpoints"][4]["bytes"].as_u64().unwrap();
    let run = |most: u64| {
        let place = Workplace::new();
        place.run(&["run.sample_text=null", &format!("training.save_total_bytes={most}")], &[]).ok();
        BTreeSet::from_iter(place.checkpoints())
    };
    let best = best_of(&place);
    assert_eq!(run(1), [40, best].into());
    // Half of one more, because the log in a checkpoint grows with the steps.
    let three = run(3 * bytes + bytes / 2);
    assert_eq!(three, if best == 40 || best == 32 { [24, 32, 40].into() } else { [best, 32, 40].into() });
}

/// The tensors of a file of the workplace.
fn tensors(place: &Workplace, name: &str) -> BTreeMap<String, Tensor> {
    TensorFile::open(&place.path(name)).unwrap().tensors().unwrap()
}

/// Asserts that the file of weights in `averaged` has the mean of those in the other folders.
fn assert_mean(place: &Workplace, averaged: &str, folders: &[&str], file: &str) {
    let mean = tensors(place, &format!("{averaged}/{file}"));
    let sources: Vec<_> = folders.iter().map(|folder| tensors(place, &format!("{folder}/{file}"))).collect();
    assert!(!mean.is_empty() && sources.iter().all(|source| source.keys().eq(mean.keys())));
    for (name, found) in &mean {
        let values = |tensor: &Tensor| tensor.flatten_all().unwrap().to_vec1::<f32>().unwrap();
        let of_sources: Vec<Vec<f32>> = sources.iter().map(|source| values(&source[name])).collect();
        for (index, found) in values(found).iter().enumerate() {
            let sum: f64 = of_sources.iter().map(|values| f64::from(values[index])).sum();
            let mean = (sum / folders.len() as f64) as f32;
            assert_eq!(found.to_bits(), mean.to_bits(), "{name}, value {index}");
        }
    }
}

#[test]
fn an_average_is_the_mean_of_the_weights_and_a_model_folder() {
    let place = trained();
    let average = |arguments: &str| {
        let arguments = format!("checkpoint average {arguments}");
        place.program(&arguments.split(' ').collect::<Vec<_>>(), "")
    };
    let before = place.tree();
    let done = average("run --last 3 --output averaged").ok().stdout;
    assert_eq!(done, "average of 3 checkpoints (steps 24, 32, 40): averaged\n");
    assert_same_tree(&before, &place.tree());
    let last = ["run/checkpoint-24", "run/checkpoint-32", "run/checkpoint-40"];
    assert_mean(&place, "averaged", &last, "model.safetensors");
    for name in ["config.json", "tokenizer.json", "tokenizer_config.json"] {
        let read = |folder: &str| fs::read(place.path(folder).join(name)).unwrap();
        assert!(read("averaged") == read("run/final"), "{name}");
    }
    assert!(!place.path("averaged/trainer").exists() && !place.path("averaged/trainer_state.json").exists());
    place.program(&["checkpoint", "verify", "averaged"], "").ok();
    let evaluate = ["evaluate", "--data", "corpus.txt", "--json", "--model"];
    let loss = |model: &str| {
        let scored = place.program(&[&evaluate[..], &[model]].concat(), "").ok().stdout;
        serde_json::from_str::<Value>(&scored).unwrap()["eval_loss"].as_f64().unwrap()
    };
    assert!((loss("averaged") - loss("run/final")).abs() < 0.5);
    let all = average("run --output run/all").ok().stdout;
    assert!(all.starts_with("average of 5 checkpoints (steps 8, 16, 24, 32, 40)"), "{all}");
    // Two of the same values have them as their mean.
    average("run/final run/checkpoint-40 --output same").ok();
    let weights = |folder: &str| fs::read(place.path(folder).join("model.safetensors")).unwrap();
    assert!(weights("same") == weights("run/final"));
}

#[test]
fn what_has_no_mean_is_refused_and_leaves_nothing() {
    let place = trained();
    let sets = |more: &[&str]| place.run(&[&["training.max_steps=8"], more].concat(), &[]).ok();
    sets(&["run.output_dir=wide", "model.roberta.intermediate_size=48"]);
    sets(&["run.output_dir=other", "tokenizer.vocab_size=300"]);
    sets(&["run.output_dir=words", "tokenizer.lowercase=true"]);
    sets(&["run.output_dir=seeded", "run.seed=8"]);
    let refused = |code: i32, arguments: &str, words: &[&str]| {
        let arguments = format!("checkpoint average {arguments}");
        place.program(&arguments.split(' ').collect::<Vec<_>>(), "").refused(code, words);
        assert!(!place.path("new").exists(), "{arguments}");
    };
    let with = |other: &str| format!("run/final {other} --output new");
    refused(2, &with("wide/final"), &["another model", "`intermediate_size` is 48, there it is 64"]);
    refused(2, &with("other/final"), &["another model", "`vocab_size`"]);
    refused(
        2,
        &with("words/final"),
        &["holds another tokenizer than `run/final`", "average checkpoints of one"],
    );
    refused(
        2,
        "run seeded --output new",
        &["is of another run than `run/checkpoint-40`: its `run.seed` differs"],
    );
    refused(2, &with("run/final"), &["run/final: is named twice"]);
    refused(2, &with("corpus.txt"), &["corpus.txt: is no checkpoint and no final model of a run"]);
    refused(2, "run/final --output new", &["1 checkpoints are named, a mean needs 2"]);
    refused(2, "run --last 9 --output new", &["5 checkpoints are named, a mean needs 9", "save_total_limit"]);
    refused(2, "run --output other", &["--output other: exists already, and is not replaced"]);
    flip_a_bit(&place, "checkpoint-32/model.safetensors");
    refused(1, "run --last 2 --output new", &["run/checkpoint-32/model.safetensors: has SHA-256"]);
    let names = fs::read_dir(place.path("")).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(names.into_iter().all(|name| !name.to_string_lossy().starts_with(".tmp-")));
}

#[test]
fn both_models_of_an_electra_are_averaged_and_scored() {
    let place = Workplace::new();
    place.run(&electra::sets(&["run.sample_text=null"]), &[]).ok();
    place.program(&["checkpoint", "average", "run", "--last", "2", "--output", "averaged"], "").ok();
    for model in ["generator", "discriminator"] {
        let file = format!("{model}/model.safetensors");
        assert_mean(&place, "averaged", &["run/checkpoint-32", "run/checkpoint-40"], &file);
    }
    let evaluate = ["evaluate", "--data", "corpus.txt", "--json", "--model", "averaged"];
    let scored: Value = serde_json::from_str(&place.program(&evaluate, "").ok().stdout).unwrap();
    assert!(scored["eval_discriminator_loss"].is_number(), "{scored}");
}

#[test]
fn classifiers_and_taggers_are_averaged_and_scored() {
    let place = Workplace::new();
    place.run(&["training.max_steps=8", "run.sample_text=null"], &[]).ok();
    for (name, count) in [("train", 64), ("dev", 16)] {
        fs::write(place.path(&format!("{name}.csv")), examples(count)).unwrap();
        fs::write(place.path(&format!("{name}.conll")), tagged(count)).unwrap();
    }
    for (task, ending, score) in
        [("classify", "csv", "eval_accuracy"), ("token-classify", "conll", "eval_overall_f1")]
    {
        let flags = format!("finetune --task {task} --train train.{ending} --eval dev.{ending}");
        let more = format!("--model run/final --output-dir {task} --max-steps 6 --set training.save_steps=2");
        let line = format!("{flags} {more}");
        place.program(&line.split(' ').collect::<Vec<_>>(), "").ok();
        let averaged = format!("{task}-averaged");
        place.program(&["checkpoint", "average", task, "--output", &averaged], "").ok();
        let folders = [2, 4, 6].map(|step| format!("{task}/checkpoint-{step}"));
        assert_mean(&place, &averaged, &folders.each_ref().map(String::as_str), "model.safetensors");
        let data = format!("dev.{ending}");
        let evaluate = ["evaluate", "--model", &averaged, "--data", &data, "--json"];
        let scored: Value = serde_json::from_str(&place.program(&evaluate, "").ok().stdout).unwrap();
        assert!(scored[score].is_number(), "{scored}");
    }
}
