//! Phases that change the angles of a ModernBERT and the mix of its sources: what is trained, said and
//! written, and stopped in between.

use std::fs;

use serde_json::Value;

use crate::pretrain::modernbert::MODERNBERT;
use crate::workplace::{Finished, Workplace, corpus};

const SOURCES: &str = "data.sources=[{files: [corpus.txt], document: paragraph}, \
     {name: books, files: [books.txt], document: paragraph}]";

/// Three phases of lengths, angles and mixes; behind the last one the configuration's own.
const PHASES: &str = "training.phases=[\
     {until_step: 10, max_seq_length: 16, global_rope_theta: 50, learning_rate: 5.0e-3}, \
     {until_step: 24, max_seq_length: 16, global_rope_theta: 500, sources: [{name: books, weight: 0}]}, \
     {until_step: 30, max_seq_length: 32, sources: [{name: corpus, weight: 0.1}, {name: books, weight: 3}]}]";

const SETS: [&str; 5] =
    [MODERNBERT[0], MODERNBERT[1], SOURCES, PHASES, "training.lr_scheduler_type=constant_with_warmup"];

fn workplace() -> Workplace {
    let place = Workplace::new();
    fs::write(place.path("books.txt"), corpus(120).replace("story", "chapter")).unwrap();
    place
}

fn theta(place: &Workplace, folder: &str) -> Option<f64> {
    let config: Value =
        serde_json::from_slice(&fs::read(place.path(folder).join("config.json")).unwrap()).unwrap();
    config["global_rope_theta"].as_f64()
}

#[test]
fn each_phase_has_its_angles_and_its_mix_and_every_folder_names_its_own() {
    let place = workplace();
    let dry: Finished = place.command(&SETS, &["--dry-run"]).output().expect("starts").into();
    let dry = dry.ok();
    for words in [
        "update 10            8 rows, at most 128 tokens; learning rate up to 0.005; global_rope_theta 50; \
         corpus x 1, books x 1",
        "update 24            8 rows, at most 128 tokens; learning rate up to 0.003; global_rope_theta 500; \
         corpus x 1, books x 0",
        "global_rope_theta 160000; corpus x 0.1, books x 3",
    ] {
        assert!(dry.stdout.contains(words), "`{words}` is not in:\n{}", dry.stdout);
    }
    let done = place.run(&SETS, &[]).ok();
    for words in [
        "from step 1: rows of 16 tokens, global_rope_theta 50, tokens of corpus 7",
        "from step 11: rows of 16 tokens, global_rope_theta 500, tokens of corpus 100 %, books 0 %",
        "from step 25: rows of 32 tokens, global_rope_theta 160000, tokens of corpus 1",
        "from step 31: rows of 32 tokens",
    ] {
        assert!(done.stderr.contains(words), "`{words}` is not in:\n{}", done.stderr);
    }
    let folders =
        ["run/checkpoint-8", "run/checkpoint-16", "run/checkpoint-24", "run/checkpoint-32", "run/final"];
    assert_eq!(
        folders.map(|folder| theta(&place, folder)),
        [50.0, 500.0, 500.0, 160_000.0, 160_000.0].map(Some)
    );
    let shares = place.series("data/books_share");
    let share = |step: u64| shares[step as usize - 1].1;
    assert!(share(1) > 0.1 && share(10) < 0.3 && share(11) == 0.0 && share(24) == 0.0, "{shares:?}");
    assert!(share(25) > 0.8 && share(31).to_bits() == share(1).to_bits(), "{shares:?}");
    let rates = place.series("train/learning_rate");
    assert_eq!((rates[9], rates[10]), ((10, 5e-3), (11, 3e-3)));
    place.program(&["checkpoint", "verify", "run/checkpoint-16"], "").ok();
}

#[test]
fn the_angles_are_those_that_the_model_is_trained_with() {
    let weights = |theta: &str| {
        let place = workplace();
        let phases =
            format!("training.phases=[{{until_step: 3, max_seq_length: 32, global_rope_theta: {theta}}}]");
        place.run(&[MODERNBERT[0], MODERNBERT[1], &phases, "training.max_steps=3"], &[]).ok();
        fs::read(place.run_path("final/model.safetensors")).unwrap()
    };
    let plain = workplace();
    plain.run(&[MODERNBERT[0], MODERNBERT[1], "training.max_steps=3"], &[]).ok();
    let plain = fs::read(plain.run_path("final/model.safetensors")).unwrap();
    assert!(weights("160000") == plain, "the model's own angles change nothing");
    assert!(weights("20") != plain);
}

#[test]
fn a_run_that_is_stopped_goes_on_across_the_borders_of_phases_with_the_same_bytes() {
    for packing in ["segments", "best_fit"] {
        let place = workplace();
        let packing = format!("data.packing.mode={packing}");
        let sets = SETS.iter().copied().chain([packing.as_str()]).flat_map(|set| ["--set", set]);
        let args: Vec<&str> =
            ["verify-resume", "--config", "config.yaml", "--steps", "32"].into_iter().chain(sets).collect();
        let proof = place.program(&args, "").ok();
        assert!(proof.stdout.starts_with("the same bytes after 32 steps: "), "{proof:#?}");
    }
}

#[test]
fn a_causal_phase_comes_first_without_evaluations_and_resumes_to_the_same_bytes() {
    const CAUSAL: [&str; 2] = [
        "training.phases=[{until_step: 12, max_seq_length: 32, objective: causal}]",
        "mlm.mlm_probability_end=0.05",
    ];
    let place = Workplace::new();
    let dry: Finished = place.command(&CAUSAL, &["--dry-run"]).output().expect("starts").into();
    assert!(dry.ok().stdout.contains("tokens; causal\n"), "the dry run names the objective");
    let done = place.run(&CAUSAL, &[]).ok();
    for words in [
        "from step 1: rows of 32 tokens, each token predicted from those before it",
        "from step 13: rows of 32 tokens, masked tokens predicted",
    ] {
        assert!(done.stderr.contains(words), "`{words}` is not in:\n{}", done.stderr);
    }
    let evaluated: Vec<u64> = place.series("eval/loss").into_iter().map(|(step, _)| step).collect();
    assert!(evaluated.iter().all(|step| *step > 12) && evaluated.len() > 1, "{evaluated:?}");
    let sets = CAUSAL.iter().flat_map(|set| ["--set", set]);
    let args: Vec<&str> =
        ["verify-resume", "--config", "config.yaml", "--steps", "20"].into_iter().chain(sets).collect();
    let proof = place.program(&args, "").ok();
    assert!(proof.stdout.starts_with("the same bytes after 20 steps: "), "{proof:#?}");
}

#[test]
fn what_a_phase_cannot_change_is_refused_by_name() {
    let place = workplace();
    let refused = |phase: &str, words: &[&str]| {
        let phase = format!("training.phases=[{{until_step: 3, max_seq_length: 32, {phase}}}]");
        place.run(&[SOURCES, &phase], &[]).refused(2, words);
    };
    refused(
        "mlm_probability: 0.3",
        &[
            "unknown key `mlm_probability` in `training.phases.0`",
            "a phase does not change it; what it can change:",
        ],
    );
    refused("global_rope_theta: 100", &["RoBERTa has no `global_rope_theta`"]);
    refused("sources: [{name: web, weight: 1}]", &["`web` is the name of no source", "`corpus`, `books`"]);
    let longer = ["data.max_seq_length=64", "training.phases=[{until_step: 3, max_seq_length: 32}]"];
    let longer = [&MODERNBERT[..], &longer].concat();
    place.run(&longer, &[]).refused(2, &["max_position_embeddings", "hint:"]);
    assert!(!place.path("run").exists());
}
