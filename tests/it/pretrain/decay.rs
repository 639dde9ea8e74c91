//! `--decay-from`: the learning rate of a checkpoint is brought down, in a run of its own.

use std::fs;

use crate::workplace::{Finished, Workplace, assert_same_tree, send};

const SIGTERM: i32 = 15;

/// A run at a constant rate.
const STABLE: [&str; 4] = [
    "run.output_dir=stable",
    "training.lr_scheduler_type=constant_with_warmup",
    "training.warmup_steps=4",
    "training.max_steps=24",
];

/// The last steps of a decay.
const DECAY: [&str; 3] =
    ["training.lr_decay_steps=10", "training.decay_type=1-sqrt", "training.save_steps=4"];

fn with_stable_run(sets: &[&str]) -> Workplace {
    let place = Workplace::new();
    place.run(&[&STABLE, sets].concat(), &[]).ok();
    place
}

fn decay(place: &Workplace, from: &str, sets: &[&str]) -> Finished {
    place.run(&[&DECAY, sets].concat(), &["--decay-from", from])
}

fn bytes(place: &Workplace, name: &str) -> Vec<u8> {
    fs::read(place.path(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

#[test]
fn a_decayed_checkpoint_is_that_of_a_run_that_decays_by_itself() {
    let place = with_stable_run(&[]);
    let parent = place.tree_of("stable");
    let done = decay(&place, "stable/checkpoint-24", &[]).ok();
    assert!(
        done.stderr.contains(
            "`stable/checkpoint-24`: the learning rate 0.003 falls to 0 over 10 steps (1-sqrt) from step 24 \
             on; weights, moments and the place in the data go on"
        ),
        "{}",
        done.stderr
    );
    assert!(done.stdout.contains("trained 34 steps"), "{}", done.stdout);
    assert_same_tree(&parent, &place.tree_of("stable"));
    let config = fs::read_to_string(place.run_path("config.yaml")).unwrap();
    let hash = place.program(&["checkpoint", "verify", "run"], "").ok();
    assert!(hash.stdout.contains("checkpoint-34"), "{}", hash.stdout);
    for words in [
        "checkpoint: stable/checkpoint-24\n",
        "  sha256: ",
        "  step: 24\n",
        "  initial_learning_rate: 0.003\n",
    ] {
        assert!(config.contains(words), "`{words}` is not in:\n{config}");
    }
    let rates = place.series("train/learning_rate");
    assert_eq!(rates[0], (25, 3e-3));
    assert!(rates.is_sorted_by(|a, b| a.1 > b.1), "{rates:?}");

    let whole = [
        "run.output_dir=whole",
        "training.lr_scheduler_type=warmup_stable_decay",
        "training.warmup_steps=4",
        "training.max_steps=34",
    ];
    place.run(&[&DECAY[..], &whole].concat(), &[]).ok();
    for name in ["final/model.safetensors", "checkpoint-34/trainer/optimizer.safetensors"] {
        let of = |run: &str| bytes(&place, &format!("{run}/{name}"));
        assert!(of("run") == of("whole"), "`{name}` differs");
    }
    // Its steps are what remains to the saved configuration, too.
    let again = place.program(&["pretrain", "--config", "run/config.yaml"], "").ok();
    assert!(again.stdout.contains("this run is complete (34 steps)"), "{}", again.stdout);
    decay(&place, "run/checkpoint-28", &["run.output_dir=twice"]).refused(
        2,
        &["run/checkpoint-28`: its learning rate has fallen already after step 28", "stable part"],
    );
}

#[test]
fn a_decay_that_is_stopped_goes_on_without_its_parent_and_to_the_same_bytes() {
    let (place, undisturbed) = (with_stable_run(&[]), with_stable_run(&[]));
    let sets = ["training.phases=[{until_step: 8, max_seq_length: 16}]"];
    decay(&undisturbed, "stable/checkpoint-16", &sets).refused(2, &["training.phases", "before its step 16"]);
    decay(&undisturbed, "stable/checkpoint-16", &[]).ok();
    let more = ["--decay-from", "stable/checkpoint-16"];
    let mut child = place.command(&DECAY, &more).spawn().expect("starts");
    while child.try_wait().expect("can be asked").is_none() && place.logged_steps().last() < Some(&19) {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    send(&child, SIGTERM);
    child.wait_with_output().expect("ends");
    // The data lie in the run of the parent; its checkpoints are wanted no more.
    for step in [8, 16, 24] {
        fs::remove_dir_all(place.path(&format!("stable/checkpoint-{step}"))).unwrap();
    }
    decay(&place, "stable/checkpoint-16", &[]).ok();
    assert_eq!(place.metrics(), undisturbed.metrics());
    assert!(
        bytes(&place, "run/final/model.safetensors") == bytes(&undisturbed, "run/final/model.safetensors")
    );
    let longer = [&DECAY[..], &["training.lr_decay_steps=12"]].concat();
    place.run(&longer, &more).refused(2, &["training.lr_decay_steps: was `10.0` when this run began"]);
}

#[test]
fn the_mix_may_change_where_the_decay_begins() {
    const SOURCES: &str = "data.sources=[{files: [corpus.txt], document: paragraph}, \
         {name: books, files: [books.txt], document: paragraph, weight: 0.5}]";
    let place = Workplace::new();
    fs::write(place.path("books.txt"), crate::workplace::corpus(80).replace("story", "chapter")).unwrap();
    place.run(&[&STABLE[..], &[SOURCES]].concat(), &[]).ok();
    let better =
        ["training.phases=[{until_step: 24, max_seq_length: 32, sources: [{name: corpus, weight: 1}]}]"];
    let sources = SOURCES.replace("document: paragraph}, ", "document: paragraph, weight: 0}, ");
    let done = decay(&place, "stable/checkpoint-24", &[&better[..], &[&sources]].concat()).ok();
    assert!(
        done.stderr.contains("from step 25: rows of 32 tokens, tokens of corpus 0 %, books 100 %"),
        "{}",
        done.stderr
    );
    let cursor = place.json("checkpoint-34/trainer/state.json")["cursor"].clone();
    assert_eq!((&cursor["mix"], cursor["positions"].as_array().unwrap().len()), (&1.into(), 2), "{cursor}");
}

#[test]
fn weights_of_somebody_else_are_brought_down_with_fresh_moments() {
    let place = with_stable_run(&[]);
    fs::rename(place.path("stable/final"), place.path("theirs")).unwrap();
    let config = fs::read_to_string(place.path("config.yaml")).unwrap();
    decay(&place, "theirs", &[]).refused(2, &["tokenizer: is another one than that of `theirs`", "--model"]);
    fs::write(place.path("config.yaml"), config.replace("tokenizer: {vocab_size: 400}\n", "")).unwrap();
    let share = ["training.lr_decay_steps=0.1"];
    decay(&place, "theirs", &share).refused(2, &["training.lr_decay_steps: is 0.1, which is no step"]);
    let done = decay(&place, "theirs", &["training.warmup_steps=2"]).ok();
    assert!(
        done.stderr.contains("it has weights only: moments are fresh, and the data begin anew"),
        "{}",
        done.stderr
    );
    assert!(done.stdout.contains("trained 12 steps"), "{}", done.stdout);
    let rates: Vec<f64> = place.series("train/learning_rate").into_iter().map(|(_, rate)| rate).collect();
    assert_eq!((rates[0], rates[2]), (0.0, 3e-3));
    let saved = fs::read_to_string(place.run_path("config.yaml")).unwrap();
    assert!(saved.contains("checkpoint: theirs\n") && saved.contains("path: theirs\n"), "{saved}");
}

#[test]
fn what_cannot_be_brought_down_is_named() {
    let place = with_stable_run(&["training.save_steps=2"]);
    let refused = |from: &str, sets: &[&str], words: &[&str]| {
        decay(&place, from, sets).refused(2, words);
        assert!(!place.path("run").join("config.yaml").exists(), "nothing is begun");
    };
    refused(
        "stable/checkpoint-2",
        &[],
        &["its learning rate still rises after step 2", "behind the warm-up"],
    );
    refused("stable", &[], &["is neither a checkpoint nor a model folder", "`stable/checkpoint-24`"]);
    refused("nowhere", &[], &["`nowhere` is neither", "hint:"]);
    let other = ["tokenizer.vocab_size=420", "training.weight_decay=0.5"];
    refused(
        "stable/checkpoint-24",
        &other,
        &[
            "tokenizer.vocab_size: is `420`, and was `400` in the run of the checkpoint",
            "training.weight_decay",
        ],
    );
    refused("stable/checkpoint-24", &["decay_from.sha256=00"], &["decay_from.sha256: is `00`"]);
    fs::rename(place.path("stable/data"), place.path("elsewhere")).unwrap();
    let gone = decay(&place, "stable/checkpoint-24", &[]);
    gone.refused(1, &["stable/data: the tokenizer and the shards of the checkpoint's run are not there"]);
    decay(&place, "stable/checkpoint-24", &["data.prepared_dir=elsewhere"]).ok();
}
