//! What every family does: it learns, is fine-tuned and used, and comes through interruptions.

use std::fs;

use serde_json::Value;

use crate::material::{examples, tagged};
use crate::workplace::{Finished, Workplace};

/// Trains the configuration with `sets` in its place: the loss falls, and the sample text is filled in.
pub(super) fn learns(place: &Workplace, sets: &[&str]) -> Finished {
    let done = place.run(sets, &[]).ok();
    assert!(done.stdout.contains("mask 3:"), "{}", done.stdout);
    let losses = place.series("train/loss");
    let (first, last) = (losses[0].1, losses[losses.len() - 1].1);
    assert!(first > 5.0 && last < first - 1.0, "from {first} to {last}");
    done
}

/// Fine-tunes what was trained, whose parameters `new` begin fresh, and asks for the labels of a text.
pub(super) fn fine_tunes_with(place: &Workplace, new: &str) {
    fs::write(place.path("rows.csv"), examples(24)).unwrap();
    let tuning = ["finetune", "--task", "classify", "--model", "run/final", "--train", "rows.csv"];
    let more = ["--eval", "rows.csv", "--set", "data.max_seq_length=32", "--set", "run.output_dir=tuned"];
    let tuned = place.program(&[&tuning[..], &more, &["--set", "training.max_steps=4"]].concat(), "").ok();
    assert!(tuned.stderr.contains(&format!(": {new}\n")), "{}", tuned.stderr);
    let told = place.program(&["predict", "--model", "tuned/final", "--input", "-"], "the eagle sees\n").ok();
    let told: Value = serde_json::from_str(&told.stdout).unwrap();
    let probabilities = told["probabilities"].as_object().unwrap();
    let sum: f64 = probabilities.values().map(|value| value.as_f64().unwrap()).sum();
    assert!((sum - 1.0).abs() < 1e-5, "{told}");
}

/// Tags words, chooses between sentences and makes vectors with what was trained, which is 32 wide.
pub(super) fn serves_other_tasks(place: &Workplace) {
    fs::write(place.path("tagged.conll"), tagged(24)).unwrap();
    fs::write(place.path("pairs.jsonl"), "{\"good\": \"one fish\", \"bad\": \"fish one\"}\n").unwrap();
    let tuning = ["finetune", "--task", "token-classify", "--model", "run/final", "--train", "tagged.conll"];
    let more =
        ["--eval", "tagged.conll", "--set", "data.max_seq_length=32", "--set", "run.output_dir=tagger"];
    place.program(&[&tuning[..], &more, &["--set", "training.max_steps=4"]].concat(), "").ok();
    let pairs =
        ["evaluate", "--model", "run/final", "--task", "minimal-pairs", "--data", "pairs.jsonl", "--json"];
    let scores: Value = serde_json::from_str(&place.program(&pairs, "").ok().stdout).unwrap();
    assert!(scores["eval_accuracy"].is_number(), "{scores}");
    let embed = ["embed", "--model", "run/final", "--file", "-", "--output", "v.npy"];
    place.program(&embed, "the cat sees\n").ok();
    assert_eq!(fs::read(place.path("v.npy")).unwrap().len(), 128 + 4 * 32);
}

/// Stopped at every few steps and resumed, a run ends in the bytes of an undisturbed one.
pub(super) fn comes_to_the_same_bytes(sets: &[&str]) {
    let place = Workplace::new();
    let sets = sets.iter().flat_map(|set| ["--set", set]);
    let args: Vec<&str> =
        ["verify-resume", "--config", "config.yaml", "--steps", "24"].into_iter().chain(sets).collect();
    let proof = place.program(&args, "").ok();
    assert!(proof.stdout.starts_with("the same bytes after 24 steps: "), "{proof:#?}");
}

/// The pieces of SentencePiece, as the tokenizer class of transformers writes them into a `golden` folder,
/// and what its classifier says of texts; `scripts/make_golden.py` wrote it.
pub(super) fn is_used_and_trained_further(golden: &str) {
    let place = Workplace::new();
    let texts = fs::read_to_string(format!("{golden}/texts.json")).unwrap();
    let rows: Vec<Value> = serde_json::from_str(&texts).unwrap();
    assert!(rows.len() > 2);
    for row in &rows {
        let text = row["text"].as_str().unwrap();
        let encoded =
            place.program(&["tokenizer", "encode", "--tokenizer", golden, "--input", "-"], text).ok();
        let ids: Vec<u64> = serde_json::from_str(encoded.stdout.trim()).unwrap();
        // The command leaves out what stands around a text.
        let wanted: Vec<u64> = serde_json::from_value(row["ids"].clone()).unwrap();
        assert_eq!(ids, wanted[1..wanted.len() - 1], "{text}");
        let told = place.program(&["predict", "--model", golden, "--input", "-"], text).ok();
        let told: Value = serde_json::from_str(&told.stdout).unwrap();
        for (label, wanted) in row["probabilities"].as_array().unwrap().iter().enumerate() {
            let got = told["probabilities"][format!("LABEL_{label}")].as_f64().unwrap();
            assert!((got - wanted.as_f64().unwrap()).abs() < 1e-6, "{text}: {told}");
        }
    }
    fs::write(place.path("rows.csv"), examples(24)).unwrap();
    let tuning = ["finetune", "--task", "classify", "--model", golden, "--train", "rows.csv"];
    let more = ["--eval", "rows.csv", "--set", "data.max_seq_length=32", "--set", "run.output_dir=tuned"];
    place.program(&[&tuning[..], &more, &["--set", "training.max_steps=2"]].concat(), "").ok();
    place.program(&["evaluate", "--model", "tuned/final", "--data", "rows.csv"], "").ok();
}
