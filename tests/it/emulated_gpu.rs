//! The program as it is built for GPUs, on a GPU that is none (`tests/emulated_gpu`): training comes to the numbers
//! of the CPU, in one process and in several that add up by NCCL.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use sha2::{Digest, Sha256};

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
    libraries: &'a Path,
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

/// The algorithms of a run of one process, by their products.
fn algorithms(place: &Workplace) -> Value {
    place.json("products.json")["ranks"][0]["chosen"].clone()
}

/// Changes `products.json` of a run, and its hash with it.
fn forge(place: &Workplace, change: impl FnOnce(&mut Value)) {
    let mut content = place.json("products.json");
    change(&mut content["ranks"]);
    let ranks = serde_json::to_vec(&content["ranks"]).expect("is JSON");
    let digits: Vec<String> = Sha256::digest(&ranks).iter().map(|byte| format!("{byte:02x}")).collect();
    content["sha256"] = digits.concat().into();
    fs::write(place.run_path("products.json"), serde_json::to_vec(&content).expect("is JSON"))
        .expect("writes");
}

/// Algorithm 1 adds up from the end, and the library never proposes it first: what it computes shows that a
/// resumed run has it from the file.
fn use_algorithm_1(ranks: &mut Value) {
    for algorithm in ranks[0]["chosen"].as_object_mut().expect("is an object").values_mut() {
        *algorithm = algorithm_1();
    }
}

fn algorithm_1() -> Value {
    format!("{:016x}{:0112}", 1, 0).into()
}

/// Trains up to a step, on one GPU with these variables, and returns what the program says.
fn train_to(step: u64, place: &Workplace, libraries: &Path, variables: &[(&str, &str)]) -> String {
    let steps = format!("training.max_steps={step}");
    let sets = [&SETS[..], &[&steps]].concat();
    Gpus { place, libraries, variables, sets: &sets }.run(1).stderr
}

/// A run of six steps that was resumed after three, when its folder was changed, and what the second sitting says.
fn resumed(libraries: &Path, change: impl FnOnce(&Workplace)) -> (Workplace, String) {
    let place = Workplace::new();
    train_to(3, &place, libraries, &[]);
    change(&place);
    let said = train_to(6, &place, libraries, &[]);
    (place, said)
}

#[test]
fn a_resumed_run_uses_the_algorithms_of_the_run_so_far() {
    let Some(libraries) = libraries() else { return };
    let (plain, said) = resumed(&libraries, |_| {});
    assert!(!said.contains("products.json"), "{said}");
    let (other, _) = resumed(&libraries, |place| forge(place, use_algorithm_1));
    let of_file = algorithms(&other);
    let kept = of_file.as_object().expect("is an object").values().filter(|one| **one == algorithm_1());
    assert!(kept.count() > 10, "they were not chosen anew: {of_file}");
    assert_ne!(other.series("train/loss"), plain.series("train/loss"), "and computed the products");
    assert_near(&plain, &other, 1e-4, "sums from the end");

    // Chosen by time: another sitting would find others to be the fastest.
    let timed = [("MLMTRAIN_PRODUCTS", "timed")];
    let place = Workplace::new();
    train_to(3, &place, &libraries, &timed);
    let of_first_half = algorithms(&place);
    train_to(6, &place, &libraries, &timed);
    let of_whole = algorithms(&place);
    for (product, algorithm) in of_first_half.as_object().expect("is an object") {
        assert_eq!(of_whole[product], *algorithm, "{product}");
    }
    assert_near(&plain, &place, 1e-4, "timed");

    // Each of several processes has its own.
    let place = Workplace::new();
    Gpus { place: &place, libraries: &libraries, variables: &[], sets: &SETS }.run(2);
    let ranks = place.json("products.json")["ranks"].clone();
    for rank in [0, 1] {
        assert_eq!(ranks[rank]["device"], format!("emulated GPU {rank}"));
    }
    assert_eq!(ranks.as_array().map(Vec::len), Some(2));
}

/// It costs a line, and algorithms are chosen as if there were none.
#[test]
fn stored_algorithms_that_cannot_be_used_are_chosen_anew() {
    type Change = fn(&Workplace);
    let unusable: [(&str, Change); 3] = [
        ("is not used: its algorithms are of cuBLASLt 130000 on `H200`, this is", |place| {
            forge(place, |ranks| {
                use_algorithm_1(ranks);
                ranks[0]["device"] = "H200".into();
            });
        }),
        ("is not used: its algorithms are of cuBLASLt 120000 on `emulated GPU 0`, this is", |place| {
            forge(place, |ranks| {
                use_algorithm_1(ranks);
                ranks[0]["library"] = "cuBLASLt 120000".into();
            });
        }),
        ("products.json: is not a list of algorithms: EOF", |place| {
            let whole = fs::read(place.run_path("products.json")).expect("is there");
            fs::write(place.run_path("products.json"), &whole[..whole.len() / 2]).expect("writes");
        }),
    ];
    let Some(libraries) = libraries() else { return };
    let (plain, _) = resumed(&libraries, |_| {});
    for (words, change) in unusable {
        let (place, said) = resumed(&libraries, change);
        assert!(said.contains(words) && said.contains("chosen anew"), "`{words}` is not in:\n{said}");
        assert_eq!(place.metrics(), plain.metrics(), "{words}");
        // The kinds of products may differ, because the alignment of matrices in memory is a part of them.
        let chosen = algorithms(&place);
        let stored = chosen.as_object().expect("is an object").values().filter(|one| **one == algorithm_1());
        assert_eq!(stored.count(), 0, "{words}: {chosen}");
    }
}
