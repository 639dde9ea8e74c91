//! Several processes, started by `mpirun`: the same model for any number of them, and an end for all when one
//! is lost.

use std::fs;
use std::path::PathBuf;
use std::process::Child;
use std::process::Command;
use std::process::Stdio;
use std::time::Duration;

use crate::notes::skipped;
use crate::pretrain::electra;
use crate::workplace::Finished;
use crate::workplace::Workplace;

/// Eight micro-batches an update; dropout is on by default.
const SETS: [&str; 5] = [
    "run.threads=1",
    "training.per_device_train_batch_size=2",
    "training.gradient_accumulation_steps=8",
    "training.max_steps=16",
    "run.tensorboard=false",
];

const STATE: &str = "checkpoint-16/trainer/optimizer.safetensors";

/// The program that is one of many: the one that is tested, or another build of it, which MLMTRAIN_MPI names. One
/// process alone is always the one that is tested.
fn program() -> PathBuf {
    std::env::var_os("MLMTRAIN_MPI").map_or_else(|| env!("CARGO_BIN_EXE_mlmtrain").into(), PathBuf::from)
}

/// Says what is missing where this program cannot be one of many here.
fn cannot() -> bool {
    let told = Command::new(program()).arg("--version").output().expect("starts");
    if !String::from_utf8_lossy(&told.stdout).contains("processes: MPI") {
        skipped("this build has no MPI (`--features mpi`), and MLMTRAIN_MPI names none that has");
        return true;
    }
    let is_missing = Command::new("mpirun").arg("--version").stdout(Stdio::null()).status().is_err();
    if is_missing {
        skipped("there is no mpirun to start several processes with");
    }
    is_missing
}

/// So many processes with each of these settings.
fn start(place: &Workplace, groups: &[(usize, &[&str])]) -> Child {
    let mut mpirun = Command::new("mpirun");
    mpirun.args(["--oversubscribe", "--allow-run-as-root", "--bind-to", "none"]);
    for (number, (size, sets)) in groups.iter().enumerate() {
        let alone = place.command(sets, &[]);
        mpirun.args((number > 0).then_some(":")).args(["-np", &size.to_string()]);
        mpirun.arg(program()).args(alone.get_args());
    }
    let mpirun = mpirun.current_dir(place.path(".")).stdin(Stdio::null());
    mpirun.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts")
}

fn together(place: &Workplace, size: usize, sets: &[&str]) -> Finished {
    start(place, &[(size, sets)]).wait_with_output().expect("ends").into()
}

/// Sends a signal to the last of the processes that `mpirun` started, after step `step`.
fn signal_last(place: &Workplace, mpirun: &mut Child, step: u64, signal: &str) {
    while place.logged_steps().last().is_none_or(|&last| last < step) {
        assert!(mpirun.try_wait().expect("can be asked").is_none(), "it came to its end before step {step}");
        std::thread::sleep(Duration::from_millis(2));
    }
    let children = format!("/proc/{0}/task/{0}/children", mpirun.id());
    let children = fs::read_to_string(children).expect("has processes");
    let last = children.split_whitespace().last().expect("has one");
    assert!(Command::new("kill").args([signal, last]).status().expect("starts").success());
}

fn assert_same(one: &Workplace, other: &Workplace, files: &[&str], what: &str) {
    for file in files {
        let [one, other] = [one, other].map(|place| fs::read(place.run_path(file)).expect("reads"));
        assert!(one == other, "{what}: `{file}`");
    }
    assert_eq!(one.metrics(), other.metrics(), "{what}");
}

#[test]
fn any_number_of_processes_leaves_the_same_bytes() {
    if cannot() {
        return;
    }
    let files = ["final/model.safetensors", STATE];
    let alone = Workplace::new();
    alone.run(&SETS, &[]).ok();
    let two = Workplace::new();
    let done = together(&two, 2, &SETS).ok();
    assert_eq!(done.stdout.matches("trained 16 steps").count(), 1, "the first one tells: {}", done.stdout);
    let log = fs::read_to_string(two.run_path("rank-1.log")).expect("each process has a log");
    assert!(log.contains("2 processes train together"), "{log}");
    assert_same(&alone, &two, &files, "two");

    let lost = Workplace::new();
    let mut mpirun = start(&lost, &[(4, &SETS)]);
    signal_last(&lost, &mut mpirun, 9, "-KILL");
    let ended = Finished::from(mpirun.wait_with_output().expect("ends"));
    assert!(ended.code != Some(0) && !lost.run_path("final").exists(), "{ended:?}");
    together(&lost, 2, &[&SETS[..], &["distributed.overlap=false"]].concat()).ok();
    assert_same(&alone, &lost, &files, "four, then two");

    // Other ways to travel change bits, and little else.
    for way in ["distributed.wire=bf16", "distributed.sum=fast"] {
        let place = Workplace::new();
        together(&place, 2, &[&SETS[..], &[way]].concat()).ok();
        let last = |place: &Workplace| place.series("train/loss").last().expect("has records").1;
        let apart = (last(&place) - last(&alone)).abs();
        assert!(apart < 0.01, "{way}: losses are {apart} apart");
    }

    let sets = electra::sets(&SETS);
    let (alone, four) = (Workplace::new(), Workplace::new());
    alone.run(&sets, &[]).ok();
    together(&four, 4, &sets).ok();
    let files = ["final/generator/model.safetensors", "final/discriminator/model.safetensors", STATE];
    assert_same(&alone, &four, &files, "ELECTRA, four");
}

#[test]
fn processes_that_differ_or_hang_end_all() {
    if cannot() {
        return;
    }
    let place = Workplace::new();
    let other = [SETS.as_slice(), &["training.learning_rate=1e-4"]].concat();
    let ended = start(&place, &[(1, &SETS), (1, &other)]).wait_with_output().expect("ends");
    let ended = Finished::from(ended);
    ended.refused(2, &["the configuration of rank 1 differs from that of rank 0"]);

    let few = [SETS.as_slice(), &["training.gradient_accumulation_steps=1"]].concat();
    together(&place, 2, &few).refused(2, &["training.gradient_accumulation_steps", "2 processes"]);

    let long = [SETS.as_slice(), &["training.max_steps=100000", "distributed.timeout=1s"]].concat();
    let mut mpirun = start(&place, &[(2, &long)]);
    signal_last(&place, &mut mpirun, 3, "-STOP");
    let ended = Finished::from(mpirun.wait_with_output().expect("ends"));
    ended.refused(75, &["rank 0 of 2 has waited 1 s for the others in step"]);
}
