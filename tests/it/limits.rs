//! Limits of the system that a run meets: sizes of files, open files, a pipe where a file is wanted.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::workplace::{Finished, Workplace};

/// The program under a limit of the shell.
fn limited(place: &Workplace, limit: &str, arguments: &[&str]) -> Finished {
    let script = format!("ulimit {limit} && exec \"$0\" \"$@\"");
    let mut command = Command::new("sh");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_mlmtrain")]).args(arguments);
    command.current_dir(place.path("")).stdin(Stdio::null()).output().expect("starts").into()
}

#[test]
fn a_limit_on_the_size_of_files_ends_with_a_word() {
    let place = Workplace::new();
    // Blocks of 512 bytes or of a KiB: less than the moments of this model take.
    let ended = limited(&place, "-f 60", &["pretrain", "--config", "config.yaml"]);
    ended.refused(74, &["hint: free some"]);
}

#[test]
fn too_many_open_files_are_no_reason_to_remove_shards() {
    let place = Workplace::new();
    let sets = ["--set", "data.shard_tokens=1024"];
    let prepare = [&["prepare", "--config", "config.yaml"], &sets[..]].concat();
    place.program(&prepare, "").ok();
    let shards = fs::read_dir(place.run_path("data/shards")).unwrap().count();
    assert!(shards > 14, "{shards}");
    let ended = limited(&place, "-n 14", &prepare);
    ended.refused(1, &["Too many open files"]);
    assert!(!ended.stderr.contains("remove the folder"), "{}", ended.stderr);
}

#[test]
fn a_pipe_in_the_place_of_a_file_hangs_nobody() {
    let place = Workplace::new();
    place.run(&["training.max_steps=2"], &[]).ok();
    let verify = ["shards", "verify", "run/data"];
    let predict = ["predict", "--model", "run/final", "--input", "corpus.txt"];
    refuses_a_pipe(&place, "run/data/shards/manifest.json", &verify);
    refuses_a_pipe(&place, "run/final/manifest.json", &predict);
    // A folder that another program wrote has none.
    fs::remove_file(place.path("run/final/manifest.json")).unwrap();
    for name in ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"] {
        refuses_a_pipe(&place, &format!("run/final/{name}"), &predict);
    }
}

#[test]
fn a_step_that_the_memory_cannot_hold_is_refused_before_anything_is_trained() {
    let place = Workplace::new();
    place.run(&["training.max_steps=1"], &["--dry-run"]).ok();
    // Billions of tokens at once: more than any machine holds.
    let ended = place.run(&["training.per_device_train_batch_size=50000000"], &[]);
    ended.refused(2, &["of memory at its peak", "are free", "hint: smaller micro-batches"]);
    assert!(!place.run_path("metrics.jsonl").exists());
}

#[test]
fn a_disk_that_will_not_hold_all_checkpoints_is_told_at_the_start() {
    let place = Workplace::new();
    let many = ["training.max_steps=2000000000", "training.save_steps=1", "training.max_train_time=1s"];
    let keeps = |limit: &str| place.run(&[&many[..], &[limit]].concat(), &[]).ok().stderr;
    let told = keeps("training.save_total_limit=1000000000");
    assert!(told.contains("checkpoints and results of this run will take up to"), "{told}");
    let untold = keeps("training.save_total_limit=1");
    assert!(!untold.contains("will take up to"), "{untold}");
}

/// Puts a pipe without a writer in the place of `file` for one call, which must end, and name it.
#[track_caller]
fn refuses_a_pipe(place: &Workplace, file: &str, arguments: &[&str]) {
    let (path, aside) = (place.path(file), place.path("aside"));
    fs::rename(&path, &aside).unwrap();
    assert!(Command::new("mkfifo").arg(&path).status().expect("starts").success());
    let mut command = Command::new(env!("CARGO_BIN_EXE_mlmtrain"));
    command.args(arguments).current_dir(place.path("")).stdin(Stdio::null()).stdout(Stdio::null());
    let (mut child, started) = (command.stderr(Stdio::piped()).spawn().expect("starts"), Instant::now());
    while child.try_wait().expect("can be asked").is_none() {
        if started.elapsed() > Duration::from_secs(60) {
            child.kill().expect("can be killed");
            panic!("{arguments:?} waits for the pipe {file}");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let ended: Finished = child.wait_with_output().expect("ends").into();
    ended.refused(1, &[file, "is no file, but a pipe or a device"]);
    fs::rename(&aside, &path).unwrap();
}

#[test]
fn text_and_configuration_may_come_through_pipes_of_the_shell() {
    let place = Workplace::new();
    place.run(&["training.max_steps=2"], &[]).ok();
    let run = |script: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", script, env!("CARGO_BIN_EXE_mlmtrain")]).current_dir(place.path(""));
        Finished::from(command.stdin(Stdio::null()).output().expect("starts"))
    };
    let config = run("cat config.yaml | \"$0\" config check /dev/stdin").ok();
    assert!(!config.stdout.contains("error"), "{}", config.stdout);
    let prepare = "cat corpus.txt | \"$0\" prepare --config config.yaml --set run.output_dir=other \
                   --set 'data.sources=[{files: [/dev/stdin], format: text, document: paragraph}]'";
    run(prepare).ok();
    let ids = run("cat corpus.txt | \"$0\" tokenizer encode --tokenizer run/final --input /dev/stdin").ok();
    assert!(ids.stdout.lines().count() > 100, "{}", ids.stdout);
    let scored = run("cat corpus.txt | \"$0\" evaluate --model run/final --data /dev/stdin").ok();
    assert!(scored.stdout.contains("loss"), "{}", scored.stdout);
}
