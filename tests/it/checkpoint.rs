//! `mlmtrain checkpoint`: what it says of whole and of damaged folders, and what it deletes.

use std::collections::BTreeSet;
use std::fs;

use candle_core::Tensor;
use mlmtrain::checkpoint::{TensorFile, write_tensors};
use mlmtrain::fs::FolderLock;
use serde_json::Value;

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
