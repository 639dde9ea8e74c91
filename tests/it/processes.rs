//! Several processes, started by `mpirun`: the same model for any number of them, and an end for all when one
//! is lost.

use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

use serde_json::Value;

use crate::notes::skipped;
use crate::pretrain::electra;
use crate::workplace::{Finished, Workplace, assert_same_tree};

/// Eight micro-batches an update; dropout is on by default.
const SETS: [&str; 5] = [
    "run.threads=1",
    "training.per_device_train_batch_size=2",
    "training.gradient_accumulation_steps=8",
    "training.max_steps=16",
    "run.tensorboard=false",
];

const STATE: &str = "checkpoint-16/trainer/optimizer.safetensors";

/// The program that is one of many: the one that is tested, or another build of it, which MLMTRAIN_MPI names.
/// One process alone is always the one that is tested.
pub(crate) fn program() -> PathBuf {
    std::env::var_os("MLMTRAIN_MPI").map_or_else(|| env!("CARGO_BIN_EXE_mlmtrain").into(), PathBuf::from)
}

/// Whether this program can be one of many.
pub(crate) fn has_mpi() -> bool {
    let told = Command::new(program()).arg("--version").output().expect("starts");
    String::from_utf8_lossy(&told.stdout).contains("processes: MPI")
}

/// Says what is missing where this program cannot be one of many here.
pub(crate) fn cannot() -> bool {
    if !has_mpi() {
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

/// What so many processes with these arguments come to.
fn many<A: AsRef<OsStr>>(place: &Workplace, size: usize, arguments: impl IntoIterator<Item = A>) -> Finished {
    launcher(place, size, arguments).output().expect("starts").into()
}

/// What starts so many processes with these arguments.
pub(crate) fn launcher<A: AsRef<OsStr>>(
    place: &Workplace,
    size: usize,
    arguments: impl IntoIterator<Item = A>,
) -> Command {
    let mut mpirun = Command::new("mpirun");
    mpirun.args(["--oversubscribe", "--allow-run-as-root", "--bind-to", "none", "-np", &size.to_string()]);
    mpirun.arg(program()).args(arguments).current_dir(place.path(".")).stdin(Stdio::null());
    mpirun
}

fn together(place: &Workplace, size: usize, sets: &[&str]) -> Finished {
    start(place, &[(size, sets)]).wait_with_output().expect("ends").into()
}

/// Sends a signal to the last of the processes that `mpirun` started, after step `step`.
fn signal_last(place: &Workplace, mpirun: &mut Child, step: u64, signal: &str) {
    kill(&reach(place, mpirun, step), signal);
}

/// The last of the processes that `mpirun` started for the script, after step `step`: that is its first
/// child, before the one that watches it.
fn rank_of(place: &Workplace, script: &mut Child, step: u64) -> String {
    reach(place, script, step);
    last_child(children(&script.id().to_string()).first().expect("has one"))
}

/// The process that this one started last, after step `step`, and one that those before it have not come to:
/// one that was just started trains nothing yet.
fn reach(place: &Workplace, started: &mut Child, step: u64) -> String {
    let before = place.logged_steps().last().copied().unwrap_or(0);
    let step = step.max(before + 1);
    while place.logged_steps().last().is_none_or(|&last| last < step) {
        assert!(started.try_wait().expect("can be asked").is_none(), "it came to its end before step {step}");
        std::thread::sleep(Duration::from_millis(2));
    }
    last_child(&started.id().to_string())
}

/// The process that this one started last.
fn last_child(parent: &str) -> String {
    children(parent).last().expect("has one").clone()
}

fn children(parent: &str) -> Vec<String> {
    let told = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).expect("has processes");
    told.split_whitespace().map(str::to_string).collect()
}

fn kill(process: &str, signal: &str) {
    assert!(Command::new("kill").args([signal, process]).status().expect("starts").success());
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
    for words in ["2 processes work together", "rank 1 has talked to others for "] {
        assert!(log.contains(words), "`{words}` is not in:\n{log}");
    }
    assert_same(&alone, &two, &files, "two");

    let lost = Workplace::new();
    let mut mpirun = start(&lost, &[(4, &SETS)]);
    signal_last(&lost, &mut mpirun, 9, "-KILL");
    let ended = Finished::from(mpirun.wait_with_output().expect("ends"));
    assert!(ended.code != Some(0) && !lost.run_path("final").exists(), "{ended:?}");
    together(
        &lost,
        2,
        &[&SETS[..], &["distributed.overlap=false", "distributed.shard_optimizer=true"]].concat(),
    )
    .ok();
    assert_same(&alone, &lost, &files, "four, then two");

    // What is divided is the same in the end, for an update of tensors as a whole, too.
    let sharded = ["distributed.shard_optimizer=true"];
    let four = Workplace::new();
    together(&four, 4, &[&SETS[..], &sharded].concat()).ok();
    assert_same(&alone, &four, &files, "four, with moments that are divided");
    for optim in ["training.optim=lamb", "training.optim=muon"] {
        let sets = [&SETS[..], &[optim]].concat();
        let (one, two) = (Workplace::new(), Workplace::new());
        one.run(&sets, &[]).ok();
        together(&two, 2, &[&sets[..], &sharded].concat()).ok();
        assert_same(&one, &two, &files, &format!("{optim} on two, with moments that are divided"));
    }

    // Each process has the whole average, whoever updates which weights.
    let averaged = [&SETS[..], &["training.weight_average={decay: 0.9, every: 3}"]].concat();
    let (one, two) = (Workplace::new(), Workplace::new());
    one.run(&averaged, &[]).ok();
    together(&two, 2, &[&averaged[..], &sharded].concat()).ok();
    let trained = "checkpoint-16/trainer/weights.safetensors";
    assert_same(&one, &two, &[files[0], STATE, trained], "an average on two");

    let (one, three) = (Workplace::new(), Workplace::new());
    // The settings of prepared data say when each file was written.
    let written = SystemTime::now();
    for place in [&one, &three] {
        let corpus = fs::File::options().append(true).open(place.path("corpus.txt")).expect("opens");
        corpus.set_modified(written).expect("sets the time");
    }
    let prepare = ["prepare", "--config", "config.yaml", "--set", "data.keep_documents=true"];
    one.program(&prepare, "").ok();
    many(&three, 3, prepare).ok();
    let prepared = |place: &Workplace| {
        let relative = |path: PathBuf| path.strip_prefix(place.path(".")).expect("is below").to_owned();
        place.tree_of("run/data").into_iter().map(|(path, hash)| (relative(path), hash)).collect()
    };
    assert_same_tree(&prepared(&one), &prepared(&three));

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

/// Batches and evaluation are divided; scores and predictions are those of one process.
#[test]
fn fine_tuning_in_several_processes_leaves_the_same_bytes() {
    if cannot() {
        return;
    }
    let samples = concat!(env!("CARGO_MANIFEST_DIR"), "/configs/samples");
    let topics =
        ["classify".to_string(), format!("{samples}/topics-train.csv"), format!("{samples}/topics-dev.csv")];
    let entities = [
        "token-classify".to_string(),
        format!("{samples}/entities-train.conll"),
        format!("{samples}/entities-dev.conll"),
    ];
    let place = Workplace::new();
    place.run(&SETS, &[]).ok();
    let model = place.run_path("final");
    for [task, train, eval] in [topics, entities] {
        let arguments = |output: &str| {
            let sets = [
                "seeds=[3]",
                "data.max_seq_length=16",
                "run.threads=1",
                "training.per_device_train_batch_size=4",
                "training.per_device_eval_batch_size=5",
                "training.gradient_accumulation_steps=4",
                "training.num_train_epochs=1",
                &format!("run.output_dir={}", place.path(output).display()),
            ]
            .map(str::to_string);
            let sets = sets.into_iter().flat_map(|set| ["--set".to_string(), set]);
            let model = model.display().to_string();
            let named = ["--task", &task, "--model", &model, "--train", &train, "--eval", &eval];
            let named = named.map(str::to_string);
            ["finetune".to_string()].into_iter().chain(named).chain(sets).collect::<Vec<String>>()
        };
        let alone = arguments(&format!("{task}-1"));
        place.program(&alone.iter().map(String::as_str).collect::<Vec<_>>(), "").ok();
        many(&place, 4, arguments(&format!("{task}-4"))).ok();
        let [one, four] = ["1", "4"].map(|size| {
            let read =
                |file: &str| fs::read(place.path(&format!("{task}-{size}")).join(file)).expect("is there");
            let scores: Value = serde_json::from_slice(&read("eval_results.json")).expect("is JSON");
            let mut scores = scores.as_object().expect("has names").clone();
            scores.retain(|name, _| !name.ends_with("runtime") && !name.ends_with("per_second"));
            assert!(scores.contains_key("eval_loss"), "{scores:?}");
            (scores, ["final/model.safetensors", "predictions.jsonl"].map(read))
        });
        assert_eq!(one.0, four.0, "{task}");
        assert!(one.1 == four.1, "{task}: model or predictions");
    }
}

/// Kills the last of the processes when the first run of their sweep is kept, and waits until all have ended.
fn kill_after_a_run(place: &Workplace, mut mpirun: Command) {
    let mut started = mpirun.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("starts");
    let kept = || {
        let folders = fs::read_dir(place.path("out")).into_iter().flatten().flatten();
        let seeds = folders.flat_map(|folder| fs::read_dir(folder.path()).into_iter().flatten().flatten());
        seeds.filter(|seed| seed.path().join("cell.json").exists()).count()
    };
    while kept() == 0 {
        assert!(
            started.try_wait().expect("can be asked").is_none(),
            "it came to its end before a run was kept"
        );
        std::thread::sleep(Duration::from_millis(2));
    }
    kill(&last_child(&started.id().to_string()), "-KILL");
    assert!(!started.wait().expect("ends").success());
    assert!(kept() < 4, "it was killed when all runs were kept");
}

/// Each run is trained by one process, and all tables are those of one; also of two that go on where three
/// were killed.
#[test]
fn runs_of_sweeps_and_comparisons_are_dealt_out() {
    if cannot() {
        return;
    }
    let samples = concat!(env!("CARGO_MANIFEST_DIR"), "/configs/samples");
    let data = [format!("{samples}/topics-train.csv"), format!("{samples}/topics-dev.csv")];
    let sets = ["--set", "data.max_seq_length=16", "--set", "training.max_steps=6", "--threads", "1"];
    let places = [Workplace::new(), Workplace::new(), Workplace::new()];
    for (place, size) in places.iter().zip([1, 3, 2]) {
        place.run(&SETS, &[]).ok();
        let start = |arguments: &[&str]| match size {
            1 => place.program(arguments, "").ok(),
            _ => many(place, size, arguments).ok(),
        };
        let named = [
            "finetune",
            "--task",
            "classify",
            "--model",
            "run/final",
            "--train",
            &data[0],
            "--eval",
            &data[1],
        ];
        let grid = ["--output-dir", "out", "--sweep", "learning_rate=1e-3,1e-2", "--sweep", "seed=1,2"];
        let sweep = [&named[..], &grid, &sets].concat();
        if size == 2 {
            kill_after_a_run(place, launcher(place, 3, &sweep));
        }
        let swept = start(&sweep);
        assert_eq!(swept.stdout.matches("best run: ").count(), 1, "the first one tells: {}", swept.stdout);
        fs::write(
            place.path("tasks.yaml"),
            format!("tasks: [{{name: topics, data: {{train_file: {}, eval_file: {}}}}}]", data[0], data[1]),
        )
        .expect("writes");
        let named = ["compare", "--models", "run/final", "--tasks", "tasks.yaml", "--output-dir", "compared"];
        start(&[&named[..], &["--seeds", "1,2"], &sets].concat());
    }
    let swept = ["out/sweep.json", "out/sweep.md", "out/best/final/model.safetensors", "out/best/cell.json"];
    for file in [&swept[..], &["compared/compare.json", "compared/compare.html"]].concat() {
        let [one, three, killed] =
            places.each_ref().map(|place| fs::read(place.path(file)).expect("is there"));
        assert!(one == three, "`{file}` of three processes");
        assert!(one == killed, "`{file}` of two after three were killed");
    }
    let kept = fs::read_dir(places[1].path("out")).expect("is there").flatten().filter(|entry| {
        let seeds = fs::read_dir(entry.path()).into_iter().flatten().flatten();
        seeds.filter(|seed| seed.path().join("final").exists()).count() > 0
    });
    assert_eq!(kept.count(), 1, "the weights of the best run alone are kept");
}

/// The script that starts two processes, with each of these settings.
fn cluster(place: &Workplace, restarts: &str, sets: &[&str]) -> Child {
    let launch = "mpirun --oversubscribe --allow-run-as-root --bind-to none -np 2";
    launched(place, launch, restarts, sets)
}

/// The script that starts processes by the line `launch`.
fn launched(place: &Workplace, launch: &str, restarts: &str, sets: &[&str]) -> Child {
    let mut script = Command::new("bash");
    script.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/vm/train-cluster.sh"));
    script
        .args(["--config", "config.yaml", "--pause", "0", "--restarts", restarts])
        .args(["--requeue-command", "touch requeued"])
        .arg("--program")
        .arg(program());
    script.args(["--launch", launch, "--"]);
    script.args(sets.iter().flat_map(|set| ["--set", set])).current_dir(place.path("."));
    script.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts")
}

#[test]
fn the_script_starts_processes_again_and_stops_them_with_a_checkpoint() {
    if cannot() {
        return;
    }
    // Long enough to be stopped four times, also where steps are quick.
    let sets = [&SETS[..], &["training.max_steps=48"]].concat();
    let files = ["final/model.safetensors", "checkpoint-48/trainer/optimizer.safetensors"];
    let alone = Workplace::new();
    alone.run(&sets, &[]).ok();

    let place = Workplace::new();
    let nothing = launched(&place, "true", "1", &sets);
    let nothing = Finished::from(nothing.wait_with_output().expect("ends"));
    let failed_starts = nothing.stderr.matches("is not complete").count();
    assert_eq!((nothing.code, failed_starts), (Some(1), 2), "{nothing:?}");

    let mut script = cluster(&place, "0", &sets);
    kill(&rank_of(&place, &mut script, 3), "-KILL");
    let ended = Finished::from(script.wait_with_output().expect("ends"));
    assert!(ended.code != Some(0) && ended.stderr.contains("0 restarts did not bring it"), "{ended:?}");

    let mut script = cluster(&place, "5", &sets);
    reach(&place, &mut script, 10);
    kill(&script.id().to_string(), "-TERM");
    let stopped = Finished::from(script.wait_with_output().expect("ends"));
    assert!(stopped.code != Some(0) && !stopped.stderr.contains("start 2"), "{stopped:?}");
    assert!(place.logged_steps().len() < 48 && !place.path("requeued").exists(), "{stopped:?}");

    let mut script = cluster(&place, "5", &sets);
    reach(&place, &mut script, 20);
    kill(&script.id().to_string(), "-USR1");
    let stopped = Finished::from(script.wait_with_output().expect("ends"));
    assert!(stopped.code != Some(0) && place.path("requeued").exists(), "{stopped:?}");

    let mut script = cluster(&place, "5", &sets);
    kill(&rank_of(&place, &mut script, 32), "-KILL");
    let ended = Finished::from(script.wait_with_output().expect("ends")).ok();
    assert!(ended.stderr.contains("start 2") && !ended.stderr.contains("start 3"), "{ended:?}");
    assert_same(&alone, &place, &files, "killed twice and stopped once");

    let wrong = cluster(&place, "5", &["training.learning_rate=fast"]);
    let wrong = Finished::from(wrong.wait_with_output().expect("ends"));
    assert!(wrong.code == Some(2) && !wrong.stderr.contains("start 2"), "{wrong:?}");
}

#[test]
fn advice_is_for_several_processes() {
    let place = Workplace::new();
    let words = ["there is one process", "mpirun -np 4"];
    place.program(&["advise-network", "--config", "config.yaml"], "").refused(2, &words);
    if cannot() {
        return;
    }
    let advise = |more: &[&str]| {
        let all = ["advise-network", "--config", "config.yaml", "--seconds", "0.2", "--set", "run.threads=1"];
        many(&place, 2, [&all[..], more].concat()).ok().stdout
    };
    let found: Value = serde_json::from_str(&advise(&["--json"])).expect("one JSON object");
    let number = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("{found}"));
    assert_eq!(found["processes"], 2);
    for rate in ["f32", "bf16"] {
        assert!(number(&found["values_per_second"][rate]) > 1e5, "{found}");
    }
    assert!(
        number(&found["message_seconds"]) > 0.0 && number(&found["micro_batch_seconds"]) > 0.0,
        "{found}"
    );
    for row in found["predicted"].as_array().expect("a list") {
        let efficiency = number(&row["efficiency"]);
        assert!(0.0 < efficiency && efficiency < 1.0, "{row}");
    }
    let shown = advise(&[]);
    assert!(shown.contains("2 processes: ") && shown.contains("micro-batches each"), "{shown}");
    assert!(!place.path("run").exists(), "nothing was written");
}
