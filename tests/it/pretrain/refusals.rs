//! What a run refuses: each error names the place and ends with the right exit code, and nothing is changed.

use std::fs;

use crate::workplace::{Workplace, assert_same_tree, corpus};

#[test]
fn a_used_folder_is_refused_where_a_fresh_run_is_asked_for() {
    let place = Workplace::new();
    place.run(&["training.max_steps=3"], &[]).ok();
    let before = place.tree();
    place.run(&["training.max_steps=5"], &["--resume", "never"]).refused(
        2,
        &[
            "run/checkpoint-3: is at step 3 of a run, and `--resume never` begins a new one",
            "hint: leave out",
        ],
    );
    assert_same_tree(&before, &place.tree());
}

#[test]
fn what_a_run_began_with_cannot_change_under_it() {
    let place = Workplace::new();
    place.run(&["training.max_steps=3"], &[]).ok();
    let before = place.tree();
    let changed = ["model.roberta.hidden_size=48", "training.max_steps=5", "training.learning_rate=1e-4"];
    place.run(&changed, &[]).refused(
        2,
        &[
            "model.roberta.hidden_size: was `32` when this run began and is `48` now",
            "training.learning_rate",
            "hint:",
        ],
    );
    place.run(&["tokenizer.vocab_size=420"], &[]).refused(2, &["tokenizer.vocab_size: was `"]);
    place.run(&changed, &["--dry-run"]).refused(2, &["model.roberta.hidden_size: was `32`"]);
    assert_same_tree(&before, &place.tree());
    let dry = place.run(&["training.max_steps=5"], &["--dry-run"]).ok();
    assert!(dry.stdout.contains("run, resumes after step 3"), "{}", dry.stdout);
}

#[test]
fn nothing_is_prepared_in_the_folder_of_another_run() {
    let place = Workplace::new();
    place.run(&["training.max_steps=3"], &[]).ok();
    fs::remove_dir_all(place.path("run/data")).expect("removes");
    let before = place.tree();
    place.run(&["training.learning_rate=1e-4"], &[]).refused(2, &["training.learning_rate: was"]);
    assert_same_tree(&before, &place.tree());
    let config = "task: classify\nmodel: m\ndata: {train_file: a.csv, eval_file: b.csv}\n";
    fs::write(place.path("run/config.yaml"), config).expect("writes");
    let before = place.tree();
    place.run(&[], &[]).refused(2, &["holds `config.yaml` of a run of another kind"]);
    assert_same_tree(&before, &place.tree());
}

#[test]
fn a_dry_run_refuses_prepared_data_that_the_run_refuses() {
    let place = Workplace::new();
    let done = place.run(&["training.max_steps=3", "data.prepared_dir=prepared"], &[]).ok();
    let worse = "warning: the model is worse than guessing by frequency alone: its loss on masked words is ";
    assert!(done.stderr.contains(worse), "after three steps: {}", done.stderr);
    let dry = place.run(&["training.max_steps=3", "data.prepared_dir=prepared"], &["--dry-run"]).ok();
    assert!(dry.stdout.contains("complete already, at step 3: prints its results"), "{}", dry.stdout);
    let before = place.tree();
    let other = ["run.output_dir=other", "data.prepared_dir=prepared"];
    let bert = "model={bert: {hidden_size: 32, num_hidden_layers: 2, num_attention_heads: 2, \
                intermediate_size: 64, max_position_embeddings: 34}}";
    for (set, words) in [
        ("tokenizer.vocab_size=420", "hint: set the old values again, choose another `data.prepared_dir`"),
        ("tokenizer.algorithm=wordpiece", "`tokenizer.algorithm` was"),
        (
            bert,
            "hint: one text for several families is prepared once with `data.save_text: true`; choose another",
        ),
    ] {
        let sets = [&other[..], &[set, "run.sample_text=null"]].concat();
        for more in [&["--dry-run"][..], &[]] {
            place.run(&sets, more).refused(2, &["prepared: was prepared with other settings", words]);
        }
    }
    fs::remove_dir_all(place.path("other")).ok();
    assert_same_tree(&before, &place.tree());
}

#[test]
fn a_corpus_that_is_missing_or_empty_is_named() {
    let place = Workplace::new();
    fs::remove_file(place.path("corpus.txt")).expect("removes");
    let missing = place.run(&[], &[]);
    missing.refused(2, &["corpus.txt"]);
    let unmatched = place.run(&["data.sources.0.files.0=texts/*.txt"], &[]);
    unmatched.refused(2, &["texts/*.txt"]);
    for text in ["", "\n\n \n"] {
        fs::write(place.path("corpus.txt"), text).expect("writes");
        place.run(&[], &[]).refused(1, &["data.sources: hold no text"]);
    }
}

#[test]
fn a_corpus_of_one_document_cannot_be_split() {
    let place = Workplace::new();
    fs::write(place.path("corpus.txt"), corpus(1)).expect("writes");
    place.run(&[], &[]).refused(1, &["document", "hint:"]);
}

#[test]
fn a_sample_with_the_mask_of_another_family_is_told_before_the_training() {
    let place = Workplace::new();
    let refused = place.run(&["run.sample_text=the [MASK] sleeps"], &[]);
    refused.refused(2, &["`run.sample_text` has `[MASK]`, and the mask of RoBERTa is `<mask>`"]);
    assert!(place.checkpoints().is_empty() && !place.run_path("metrics.jsonl").exists());
}

#[test]
fn a_corpus_smaller_than_a_batch_is_read_over_and_over() {
    let place = Workplace::new();
    fs::write(place.path("corpus.txt"), corpus(6)).expect("writes");
    let sets = [
        "data.validation_fraction=0.4",
        "training.per_device_train_batch_size=32",
        "training.max_steps=4",
        "tokenizer.vocab_size=300",
    ];
    place.run(&sets, &[]).ok();
    assert!(place.json("checkpoint-4/trainer_state.json")["epoch"].as_f64().expect("is a number") > 2.0);
}

#[test]
fn a_run_folder_that_cannot_be_is_named() {
    let place = Workplace::new();
    fs::write(place.path("taken"), "a file").expect("writes");
    let refused = place.run(&["run.output_dir=taken"], &[]);
    refused.refused(1, &["taken"]);
}
