//! Runs that are stopped: by a signal, by a crash, by a damaged disk. The same command goes on, and the
//! numbers are those of a run that was never disturbed, to the last bit.

use std::collections::BTreeSet;
use std::fs;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;

use crate::workplace::{Finished, Workplace, send};

const SIGINT: i32 = 2;
const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;

/// Sends `signal` when `step` steps are done, and tries again should the run be over before it.
fn stop_at(place: &Workplace, step: u64, signal: i32, sets: &[&str]) -> Finished {
    for _ in 0..5 {
        if let Some(child) = place.start_and_reach(step, sets) {
            send(&child, signal);
            let finished: Finished = child.wait_with_output().expect("ends").into();
            if finished.code != Some(0) {
                return finished;
            }
        }
        fs::remove_dir_all(place.path("run")).expect("removes");
    }
    panic!("five runs were over before signal {signal} came");
}

/// Everything that must be the same in `place` as in a run that was never disturbed.
#[track_caller]
fn assert_same_run(place: &Workplace, undisturbed: &Workplace) {
    assert_eq!(place.metrics(), undisturbed.metrics());
    for name in [
        "final/model.safetensors",
        "checkpoint-40/model.safetensors",
        "checkpoint-40/trainer/optimizer.safetensors",
    ] {
        let read =
            |place: &Workplace| fs::read(place.run_path(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(read(place) == read(undisturbed), "`{name}` differs");
    }
    assert_eq!(
        place.json("checkpoint-40/trainer_state.json"),
        undisturbed.json("checkpoint-40/trainer_state.json")
    );
    let scores = |place: &Workplace| {
        let mut scores = place.json("eval_results.json");
        scores.as_object_mut().expect("is an object").remove("eval_runtime");
        scores
    };
    assert_eq!(scores(place), scores(undisturbed));
}

#[test]
fn a_signal_saves_the_last_step_and_the_same_command_goes_on_as_if_nothing_had_been() {
    let (place, undisturbed) = (Workplace::new(), Workplace::new());
    undisturbed.run(&[], &[]).ok();
    // The second sitting is stopped as well, with a log record that spans both.
    for (step, signal) in [(5, SIGTERM), (19, SIGINT)] {
        let stopped = stop_at(&place, step, signal, &[]);
        assert_eq!(stopped.code, Some(128 + signal), "{stopped:#?}");
        let saved = *place.checkpoints().last().expect("was saved");
        assert_eq!(
            place.logged_steps().last(),
            Some(&saved),
            "the last finished step is the one that was saved"
        );
        let by = if signal == SIGINT { "Ctrl-C".to_string() } else { format!("signal {signal}") };
        assert!(
            stopped.stderr.contains(&format!("stopped by {by}; step {saved} is saved")),
            "{}",
            stopped.stderr
        );
        let confirmed = format!("{by}: stopping at the next safe point, then saving; a second signal");
        assert!(stopped.stderr.contains(&confirmed), "{}", stopped.stderr);
        assert_eq!(stopped.stdout, "", "there is nothing to report yet");
    }
    let last = place.run(&[], &[]).ok();
    assert!(last.stderr.contains("resuming after step"), "{}", last.stderr);
    assert_same_run(&place, &undisturbed);
}

#[test]
fn a_signal_within_an_update_gives_it_up_and_the_same_command_repeats_it() {
    let sets =
        ["training.gradient_accumulation_steps=64", "training.max_steps=8", "training.logging_steps=1"];
    let (place, undisturbed) = (Workplace::new(), Workplace::new());
    undisturbed.run(&sets, &[]).ok();
    let stopped = stop_at(&place, 3, SIGTERM, &sets);
    assert_eq!(stopped.code, Some(128 + SIGTERM), "{stopped:#?}");
    place.run(&sets, &[]).ok();
    assert_eq!(place.metrics(), undisturbed.metrics());
    let model = |place: &Workplace| fs::read(place.run_path("final/model.safetensors")).expect("was written");
    assert!(model(&place) == model(&undisturbed));
}

#[test]
fn half_types_go_on_as_if_nothing_had_been_and_learn_as_f32_does() {
    let loss = |place: &Workplace| place.json("eval_results.json")["eval_loss"].as_f64().expect("a number");
    let whole = Workplace::new();
    whole.run(&[], &[]).ok();
    let f16 = [
        "precision.compute=f16",
        "precision.loss_scale.init_scale=1024",
        "precision.loss_scale.growth_interval=4",
    ];
    for sets in [&["precision.compute=bf16"][..], &f16] {
        let (place, undisturbed) = (Workplace::new(), Workplace::new());
        undisturbed.run(sets, &[]).ok();
        let stopped = stop_at(&place, 11, SIGTERM, sets);
        assert_eq!(stopped.code, Some(128 + SIGTERM), "{stopped:#?}");
        place.run(sets, &[]).ok();
        assert_same_run(&place, &undisturbed);
        assert!(
            (loss(&place) - loss(&whole)).abs() < 0.1,
            "{sets:?}: {} in f32, {} here",
            loss(&whole),
            loss(&place)
        );
        let scales: BTreeSet<u64> =
            place.series("train/loss_scale").iter().map(|(_, scale)| *scale as u64).collect();
        assert_eq!(
            scales.len() > 1,
            sets.len() > 1,
            "the loss scale of f16 grows, bf16 has none: {scales:?}"
        );
    }
}

#[test]
fn a_log_record_that_spans_an_interruption_is_the_same() {
    let (place, undisturbed) = (Workplace::new(), Workplace::new());
    undisturbed.run(&["training.logging_steps=10"], &[]).ok();
    // Logging may change between sittings; the first one logs each step, so that the test sees where it is.
    stop_at(&place, 3, SIGTERM, &["training.logging_steps=10", "training.save_steps=1"]);
    place.run(&["training.logging_steps=10"], &[]).ok();
    assert_eq!(place.metrics(), undisturbed.metrics());
}

#[test]
fn a_run_that_is_killed_again_and_again_comes_to_the_same_end() {
    let (place, undisturbed) = (Workplace::new(), Workplace::new());
    undisturbed.run(&["training.save_steps=2"], &[]).ok();
    let mut kills = 0;
    for sitting in 0..12u64 {
        let mut child = place.start(&["training.save_steps=2"]);
        // Spread over starting, training and saving; later ones wait longer, so that the run gets on.
        std::thread::sleep(Duration::from_millis(60 + (sitting * 7919) % 240 + 20 * sitting));
        if child.try_wait().expect("can be asked").is_none() {
            send(&child, SIGKILL);
            kills += 1;
        }
        child.wait().expect("ends");
    }
    assert!(kills > 0, "each run was over before it could be killed");
    place.run(&["training.save_steps=2"], &[]).ok();
    assert_same_run(&place, &undisturbed);
    let leftovers = place.tree().into_keys().filter(|path| path.to_string_lossy().contains("/.tmp-")).count();
    assert_eq!(leftovers, 0, "what a killed save left behind is tidied away");
}

#[test]
fn a_crash_after_the_last_checkpoint_loses_no_final_model() {
    let (place, undisturbed) = (Workplace::new(), Workplace::new());
    undisturbed.run(&[], &[]).ok();
    place.run(&[], &[]).ok();
    fs::remove_dir_all(place.run_path("final")).expect("removes");
    fs::remove_file(place.run_path("all_results.json")).expect("removes");
    let again = place.run(&[], &[]).ok();
    assert!(again.stdout.contains("trained 40 steps"), "{}", again.stdout);
    assert_same_run(&place, &undisturbed);
}

#[test]
fn a_damaged_checkpoint_is_passed_over_and_said_so() {
    let (place, undisturbed) = (Workplace::new(), Workplace::new());
    undisturbed.run(&[], &[]).ok();
    stop_at(&place, 20, SIGTERM, &[]);
    let steps = place.checkpoints();
    let (newest, older) = (steps[steps.len() - 1], steps[steps.len() - 2]);
    let model = place.run_path(&format!("checkpoint-{newest}/model.safetensors"));
    let mut bytes = fs::read(&model).expect("reads");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&model, bytes).expect("writes");
    let resumed = place.run(&[], &[]).ok();
    assert!(
        resumed.stderr.contains(&format!("warning: run/checkpoint-{newest}/model.safetensors: has SHA-256")),
        "{}",
        resumed.stderr
    );
    assert!(
        resumed.stderr.contains(&format!("resuming after step {older} of `run/checkpoint-{older}`")),
        "{}",
        resumed.stderr
    );
    assert_same_run(&place, &undisturbed);
}

#[test]
fn a_state_that_cannot_be_read_is_passed_over_and_said_so() {
    let (place, undisturbed) = (Workplace::new(), Workplace::new());
    undisturbed.run(&[], &[]).ok();
    place.run(&[], &[]).ok();
    // Hashes and seal are right each time: the state was written so.
    let changes: [(&str, Change); 4] = [
        ("is not the state of a run of this version", |state| state["best"]["best"][1] = Value::Null),
        ("missing field `loss_scale`", |state| forget(state, "loss_scale")),
        ("missing field `last_eval_step`", |state| forget(state, "last_eval_step")),
        ("is of step 41, its checkpoint of step 40", |state| state["step"] = 41.into()),
    ];
    for (why, change) in changes {
        fs::remove_file(place.run_path("all_results.json")).expect("removes");
        place.forge("checkpoint-40", "trainer/state.json", change);
        let resumed = place.run(&[], &[]).ok();
        for words in [why, "an older checkpoint is used", "resuming after step 32 of"] {
            assert!(resumed.stderr.contains(words), "`{words}` is not in:\n{}", resumed.stderr);
        }
        assert_same_run(&place, &undisturbed);
    }
}

type Change = fn(&mut Value);

fn forget(state: &mut Value, field: &str) {
    state.as_object_mut().expect("is an object").remove(field).expect("is there");
}

#[test]
fn a_chosen_checkpoint_is_gone_on_from() {
    let (place, undisturbed) = (Workplace::new(), Workplace::new());
    undisturbed.run(&[], &[]).ok();
    place.run(&["training.max_steps=16"], &[]).ok();
    let resumed = place.run(&["training.max_steps=16"], &["--resume", "run/checkpoint-8"]).ok();
    assert!(resumed.stderr.contains("resuming after step 8"), "{}", resumed.stderr);
    assert!(resumed.stdout.contains("trained 16 steps"), "{}", resumed.stdout);
    let other = place.run(&[], &["--resume", "run/no-such-checkpoint"]);
    other.refused(1, &["run/no-such-checkpoint", "there is no"]);
}

#[test]
fn a_complete_run_with_more_steps_goes_on() {
    let place = Workplace::new();
    place.run(&["training.max_steps=10"], &[]).ok();
    let more = place.run(&["training.max_steps=14"], &[]).ok();
    assert!(more.stderr.contains("`training.max_steps` was 10 and is 14 now"), "{}", more.stderr);
    assert!(more.stdout.contains("trained 14 steps"), "{}", more.stdout);
    assert_eq!(place.logged_steps(), (1..=14).collect::<Vec<_>>());
    assert_eq!(place.json("final/config.json")["model_type"], "roberta");
    let less = place.run(&["training.max_steps=12"], &[]).ok();
    assert!(less.stdout.contains("this run is complete (14 steps)"), "{}", less.stdout);
}

#[test]
fn two_runs_in_one_folder_are_refused() {
    let place = Workplace::new();
    let endless = ["training.max_steps=100000"];
    let mut first = place.start_and_reach(1, &endless).expect("is not over after one step");
    let config = fs::read(place.run_path("config.yaml")).expect("is there");
    place.run(&["training.max_steps=3"], &[]).refused(2, &["run: is in use by another run (pid ", "hint:"]);
    assert!(
        fs::read(place.run_path("config.yaml")).expect("is there") == config,
        "the second one writes nothing"
    );
    send(&first, SIGTERM);
    assert_eq!(first.wait().expect("ends").code(), Some(128 + SIGTERM));
}

#[test]
fn a_second_signal_ends_at_once() {
    let place = Workplace::new();
    // A step takes long: were the second signal not heeded, the end of the step would save it.
    let sets = ["training.max_steps=100", "training.gradient_accumulation_steps=60"];
    let child = place.start_and_reach(1, &sets).expect("a hundred steps take long");
    send(&child, SIGTERM);
    send(&child, SIGINT);
    let ended: Finished = child.wait_with_output().expect("ends").into();
    assert_eq!(ended.code, Some(128 + SIGINT), "{ended:#?}");
    assert_eq!(place.checkpoints(), Vec::<u64>::new(), "nothing is saved");
}

#[test]
fn a_closed_terminal_hurts_nobody() {
    let place = Workplace::new();
    let mut command = place.command(&["training.max_steps=100000", "training.logging_steps=1"], &[]);
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let mut child = command.stderr(writer).stdout(Stdio::null()).spawn().expect("starts");
    drop((reader, command));
    while place.logged_steps().len() < 3 {
        assert!(child.try_wait().expect("can be asked").is_none(), "a closed standard error stops nothing");
        std::thread::sleep(Duration::from_millis(2));
    }
    send(&child, SIGTERM);
    assert_eq!(child.wait().expect("ends").code(), Some(128 + SIGTERM));
    assert!(!place.checkpoints().is_empty());
}
