//! The program as it is built for GPUs, on a GPU that is none (`tests/emulated_gpu`): training comes to the numbers
//! of the CPU, in one process and in several that add up by NCCL.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::notes::skipped;
use crate::pretrain::electra;
use crate::processes;
use crate::processes::program;
use crate::workplace::{Finished, Workplace};

/// Four micro-batches an update, and dropout, which is on by default.
const SETS: [&str; 6] = [
    "run.threads=1",
    "run.tensorboard=false",
    "training.per_device_train_batch_size=2",
    "training.gradient_accumulation_steps=4",
    "training.max_steps=6",
    "training.save_steps=3",
];

const SHARDED: [&str; 2] = ["distributed.shard_optimizer=true", "distributed.wire=bf16"];

/// What stands for the libraries of CUDA; `None`, and a note, where the program does not want them or they were not
/// built.
fn libraries() -> Option<PathBuf> {
    let told = Command::new(program()).arg("--version").output().expect("starts");
    let folder = std::env::var_os("MLMTRAIN_EMULATED_GPU").map(PathBuf::from);
    if !String::from_utf8_lossy(&told.stdout).contains("NCCL") {
        skipped("this build has no NCCL (`--features nccl`), and MLMTRAIN_MPI names none that has");
        return None;
    }
    if folder.is_none() {
        skipped("MLMTRAIN_EMULATED_GPU names no folder that `tests/emulated_gpu/build.sh` has filled");
    }
    folder
}

/// Processes of one run with these variables, by number.
struct Gpus<'a> {
    place: &'a Workplace,
    libraries: &'a PathBuf,
    variables: &'a [(&'a str, &'a str)],
    sets: &'a [&'a str],
}

impl Gpus<'_> {
    fn command(&self, start: Command) -> Command {
        let mut command = start;
        let arguments = self.place.command(self.sets, &["--set", "run.device=cuda"]);
        command.args(arguments.get_args()).current_dir(self.place.path("."));
        command.env("LD_LIBRARY_PATH", self.libraries).env("EMULATED_GPUS", "4");
        command.envs(self.variables.iter().copied());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Processes of which variables alone tell.
    fn start(&self, size: usize) -> Vec<Child> {
        let start = |rank: usize| {
            let mut command = self.command(Command::new(program()));
            if size > 1 {
                let numbers = [("RANK", rank), ("LOCAL_RANK", rank), ("WORLD_SIZE", size)];
                command.envs(numbers.map(|(name, number)| (name, number.to_string())));
            }
            command.spawn().expect("starts")
        };
        (0..size).map(start).collect()
    }

    /// What the first of so many says, when all have ended well.
    fn run(&self, size: usize) -> Finished {
        let ended = self.start(size).into_iter().map(|child| child.wait_with_output().expect("ends"));
        let mut ended = ended.map(|output| Finished::from(output).ok()).collect::<Vec<_>>().into_iter();
        let first = ended.next().expect("there is one");
        assert!(first.stderr.contains("on GPU 0 `emulated GPU 0`"), "{first:?}");
        first
    }
}

/// By how much the losses of two runs differ at most.
#[track_caller]
fn assert_near(one: &Workplace, other: &Workplace, most: f64, what: &str) {
    for tag in ["train/loss", "eval/loss"] {
        let [one, other] = [one, other].map(|place| place.series(tag));
        assert!(!one.is_empty() && one.len() == other.len(), "{what}: {one:?}, {other:?}");
        for (one, other) in one.iter().zip(&other) {
            let is_near = one.0 == other.0 && (one.1 - other.1).abs() <= most;
            assert!(is_near, "{what}: {tag} {one:?}, {other:?}");
        }
    }
}

fn on_cpu(sets: &[&str]) -> Workplace {
    let place = Workplace::new();
    place.run(sets, &["--set", "run.device=cpu"]).ok();
    place
}

#[test]
fn one_that_is_none_trains_like_the_cpu() {
    let Some(libraries) = libraries() else { return };
    let cpu = on_cpu(&SETS);
    for (compute, order, most) in [("f32", "late", 1e-4), ("bf16", "early", 2e-2), ("f16", "late", 2e-3)] {
        let place = Workplace::new();
        let compute_set = format!("precision.compute={compute}");
        let sets = [&SETS[..], &[&compute_set]].concat();
        let variables = [("EMULATED_GPU", order)];
        Gpus { place: &place, libraries: &libraries, variables: &variables, sets: &sets }.run(1);
        assert_near(&cpu, &place, most, compute);
    }
}

#[test]
fn several_meet_and_add_up_by_nccl() {
    let Some(libraries) = libraries() else { return };
    let cpu = on_cpu(&SETS);
    // The second way is without a folder that all see, and NCCL's own.
    let apart = [("NCCL_COMM_ID", "127.0.0.1:50000"), ("EMULATED_GPU", "early")];
    let sharded = [&SETS[..], &SHARDED].concat();
    let one_by_one = [&SETS[..], &["distributed.overlap=false"]].concat();
    for (size, variables, sets, most) in [
        (2, &[][..], &SETS[..], 1e-4),
        (2, &apart[..], &sharded, 1e-3),
        (4, &[][..], &sharded, 1e-3),
        (2, &[][..], &one_by_one, 1e-4),
    ] {
        let place = Workplace::new();
        let done = Gpus { place: &place, libraries: &libraries, variables, sets }.run(size);
        let words = format!("{size} processes work together");
        assert!(done.stderr.contains(&words), "`{words}` is not in:\n{}", done.stderr);
        assert_near(&cpu, &place, most, &format!("{size} processes with {sets:?}"));
    }

    let sets = electra::sets(&sharded);
    let (cpu, place) = (on_cpu(&sets), Workplace::new());
    Gpus { place: &place, libraries: &libraries, variables: &[], sets: &sets }.run(2);
    assert_near(&cpu, &place, 1e-2, "ELECTRA");
}

#[test]
fn several_that_mpi_brings_together_add_up_by_nccl() {
    let Some(libraries) = libraries() else { return };
    if processes::cannot() {
        return;
    }
    let sets = [&SETS[..], &["training.optim=lamb", "distributed.shard_optimizer=true"]].concat();
    let (cpu, place) = (on_cpu(&sets), Workplace::new());
    let gpus = Gpus { place: &place, libraries: &libraries, variables: &[], sets: &sets };
    let mut mpirun = Command::new("mpirun");
    mpirun.args(["--oversubscribe", "--allow-run-as-root", "--bind-to", "none", "-np", "2"]).arg(program());
    Finished::from(gpus.command(mpirun).output().expect("starts")).ok();
    assert_near(&cpu, &place, 1e-4, "LAMB");
}

#[test]
fn where_one_of_several_is_killed_the_others_end_and_fewer_go_on() {
    let Some(libraries) = libraries() else { return };
    let (cpu, place) = (on_cpu(&SETS), Workplace::new());
    let gpus = |sets: &[&str], size: usize| {
        Gpus { place: &place, libraries: &libraries, variables: &[], sets }.start(size)
    };
    let mut started = gpus(&[&SETS[..], &["distributed.timeout=15s"]].concat(), 2);
    while !place.run_path("checkpoint-3").exists() {
        assert!(started[0].try_wait().expect("can be asked").is_none(), "it came to its end before step 3");
        std::thread::sleep(Duration::from_millis(2));
    }
    started[1].kill().expect("can be killed");
    let ended = started.into_iter().map(|child| child.wait_with_output().expect("ends"));
    let ended: Vec<Finished> = ended.map(Finished::from).collect();
    ended[0].refused(75, &["rank 0 of 2 has waited 15 s for the others in step"]);
    for child in gpus(&SETS, 1) {
        Finished::from(child.wait_with_output().expect("ends")).ok();
    }
    assert_near(&cpu, &place, 1e-4, "two, then one");
}
