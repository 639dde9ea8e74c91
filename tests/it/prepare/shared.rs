//! One prepared folder for several runs: the first one makes it, the others wait, and reading it needs no
//! lock.

use std::fs;

use crate::workplace::{Finished, Workplace};

const SHARED: &str = "data.prepared_dir=shared";

#[test]
fn runs_that_start_together_share_what_the_first_one_makes() {
    let place = Workplace::new();
    let outputs: Vec<String> = (0..4).map(|run| format!("run.output_dir=run-{run}")).collect();
    let start = |output: &String| {
        place.command(&[SHARED, output, "training.max_steps=2"], &[]).spawn().expect("starts")
    };
    let runs: Vec<_> = outputs.iter().map(start).collect();
    let ended: Vec<Finished> =
        runs.into_iter().map(|run| run.wait_with_output().expect("ends").into()).collect();
    let made = ended.into_iter().map(Finished::ok).filter(|run| run.stderr.contains("made `shared`"));
    assert_eq!(made.count(), 1);
}

#[test]
fn a_lock_that_cannot_be_taken_hinders_no_reader() {
    let place = Workplace::new();
    place.program(&["prepare", "--config", "config.yaml", "--set", SHARED], "").ok();
    // Not even the superuser can lock this.
    fs::remove_file(place.path("shared/.lock")).expect("removes");
    fs::create_dir(place.path("shared/.lock")).expect("creates");
    place.run(&[SHARED, "training.max_steps=2"], &[]).ok();
}

#[test]
fn every_file_of_the_tokenizer_is_held_against_its_hash() {
    let place = Workplace::new();
    place.run(&["training.max_steps=2"], &[]).ok();
    for name in ["vocab.json", "merges.txt", "tokenizer_config.json", "tokenizer.json"] {
        let path = place.run_path("data/tokenizer").join(name);
        let whole = fs::read(&path).expect("reads");
        fs::write(&path, [&whole[..], b" "].concat()).expect("writes");
        let word = format!("run/data/tokenizer/{name}: has ");
        place.run(&["training.max_steps=4"], &[]).refused(1, &[&word]);
        let verified = place.program(&["shards", "verify", "run/data"], "");
        assert!(
            verified.code == Some(1) && verified.stdout.contains(&format!("BAD   {word}")),
            "{verified:?}"
        );
        fs::write(&path, whole).expect("writes");
    }
    place.run(&["training.max_steps=4"], &[]).ok();
}
