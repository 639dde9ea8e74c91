//! A folder with a made-up corpus and a small configuration, and the built program run inside it.
//!
//! Paths in configurations are relative to the folder, so that two runs in two folders leave the same bytes.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use sha2::{Digest, Sha256};
use tempfile::TempDir;

pub(super) use crate::material::{CONFIG, corpus};

/// The output folder of a configuration, relative to the workplace.
pub(super) const RUN: &str = "run";

/// Hashes of files.
pub(super) type Tree = BTreeMap<PathBuf, [u8; 32]>;

/// What a finished program left.
#[derive(Debug)]
pub(super) struct Finished {
    /// Exit code; `None` when a signal ended it.
    pub(super) code: Option<i32>,
    /// Standard output.
    pub(super) stdout: String,
    /// Standard error.
    pub(super) stderr: String,
}

impl From<Output> for Finished {
    fn from(output: Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self { code: output.status.code(), stdout: text(&output.stdout), stderr: text(&output.stderr) }
    }
}

impl Finished {
    /// The run ended well.
    #[track_caller]
    pub(super) fn ok(self) -> Self {
        assert_eq!(self.code, Some(0), "{self:#?}");
        self
    }

    /// The run ended with `code` and an error that holds all of `words`.
    #[track_caller]
    pub(super) fn refused(&self, code: i32, words: &[&str]) {
        assert_eq!(self.code, Some(code), "{self:#?}");
        assert_eq!(self.stdout, "", "an error is no result");
        assert!(!self.stderr.contains("panicked"), "{}", self.stderr);
        let error = self.stderr.find("error: ").map(|at| &self.stderr[at..]).unwrap_or_default();
        for word in words {
            assert!(error.contains(word), "`{word}` is not in:\n{}", self.stderr);
        }
    }
}

/// A temporary folder with `corpus.txt` and `config.yaml`.
pub(super) struct Workplace {
    folder: TempDir,
}

impl Workplace {
    pub(super) fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        fs::write(folder.path().join("corpus.txt"), corpus(400)).expect("writes");
        fs::write(folder.path().join("config.yaml"), CONFIG).expect("writes");
        Self { folder }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A file of the run folder.
    pub(super) fn run_path(&self, name: &str) -> PathBuf {
        self.path(RUN).join(name)
    }

    /// The built program with these arguments, `input` on its standard input.
    pub(super) fn program(&self, arguments: &[&str], input: &str) -> Finished {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mlmtrain"));
        command.args(arguments).current_dir(self.folder.path());
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("starts");
        let mut stdin = child.stdin.take().expect("is piped");
        // A program that refuses its arguments closes its input before it is written.
        let _ = std::io::Write::write_all(&mut stdin, input.as_bytes());
        drop(stdin);
        child.wait_with_output().expect("ends").into()
    }

    /// `pretrain --config config.yaml`, then each of `sets` behind a `--set`, then `more`.
    pub(super) fn command(&self, sets: &[&str], more: &[&str]) -> Command {
        self.subcommand("pretrain", sets, more)
    }

    /// The same with another subcommand that takes a configuration.
    pub(super) fn subcommand(&self, name: &str, sets: &[&str], more: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mlmtrain"));
        command
            .args([name, "--config", "config.yaml"])
            .args(sets.iter().flat_map(|set| ["--set", set]))
            .args(more);
        command
            .current_dir(self.folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    pub(super) fn run(&self, sets: &[&str], more: &[&str]) -> Finished {
        self.command(sets, more).output().expect("starts").into()
    }

    pub(super) fn start(&self, sets: &[&str]) -> Child {
        self.command(sets, &[]).spawn().expect("starts")
    }

    /// Starts a run and waits until it says that `step` steps are done; `None` if it came to its end
    /// meanwhile.
    pub(super) fn start_and_reach(&self, step: u64, sets: &[&str]) -> Option<Child> {
        let mut child = self.start(sets);
        while child.try_wait().expect("can be asked").is_none() {
            if self.logged_steps().last().is_some_and(|&last| last >= step) {
                return Some(child);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        None
    }

    /// Steps with a training record, as they stand in `metrics.jsonl`.
    pub(super) fn logged_steps(&self) -> Vec<u64> {
        let text = fs::read_to_string(self.run_path("metrics.jsonl")).unwrap_or_default();
        let records = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        records.filter(|r| !r["train/loss"].is_null()).filter_map(|r| r["step"].as_u64()).collect()
    }

    /// The records of `metrics.jsonl` without what depends on time.
    pub(super) fn metrics(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.run_path("metrics.jsonl")).expect("is there");
        let mut records: Vec<Value> =
            text.lines().map(|line| serde_json::from_str(line).expect("is JSON")).collect();
        for record in &mut records {
            record.as_object_mut().expect("is an object").retain(|tag, _| !tag.starts_with("perf/"));
        }
        records
    }

    /// The values of one tag of `metrics.jsonl`, with their steps.
    pub(super) fn series(&self, tag: &str) -> Vec<(u64, f64)> {
        let value = |record: Value| Some((record["step"].as_u64()?, record[tag].as_f64()?));
        self.metrics().into_iter().filter_map(value).collect()
    }

    pub(super) fn json(&self, name: &str) -> Value {
        let bytes = fs::read(self.run_path(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
        serde_json::from_slice(&bytes).unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    /// Steps of the checkpoints, ascending.
    pub(super) fn checkpoints(&self) -> Vec<u64> {
        let names =
            fs::read_dir(self.path(RUN)).into_iter().flatten().flatten().map(|entry| entry.file_name());
        let mut steps: Vec<u64> =
            names.filter_map(|name| name.to_str()?.strip_prefix("checkpoint-")?.parse().ok()).collect();
        steps.sort_unstable();
        steps
    }

    /// Changes a JSON file of a checkpoint of the run, and signs the change as a broken writer would: hash
    /// and seal are right.
    pub(super) fn forge(&self, checkpoint: &str, name: &str, change: impl Fn(&mut Value)) {
        let hash = |bytes: &[u8]| -> String {
            Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat()
        };
        let mut content = self.json(&format!("{checkpoint}/{name}"));
        change(&mut content);
        let bytes = serde_json::to_vec_pretty(&content).expect("is JSON");
        let mut manifest = self.json(&format!("{checkpoint}/manifest.json"));
        let entries = manifest["files"].as_array_mut().expect("a list");
        let entry = entries.iter_mut().find(|entry| entry["name"] == name).expect("is named");
        (entry["bytes"], entry["sha256"]) = (bytes.len().into(), hash(&bytes).into());
        manifest["seal"] = "".into();
        manifest["seal"] = hash(&serde_json::to_vec_pretty(&manifest).expect("is JSON")).into();
        let folder = self.run_path(checkpoint);
        fs::write(folder.join(name), bytes).expect("writes");
        let manifest = serde_json::to_vec_pretty(&manifest).expect("is JSON");
        fs::write(folder.join("manifest.json"), manifest).expect("writes");
    }

    /// Hash of every file under the run folder but the lock, which names the process that had it last.
    pub(super) fn tree(&self) -> Tree {
        self.tree_of(RUN)
    }

    /// The same of another folder of runs.
    pub(super) fn tree_of(&self, folder: &str) -> Tree {
        let mut files = Tree::new();
        hash_tree(&self.path(folder), &mut files);
        files.retain(|path, _| !path.ends_with(".lock"));
        files
    }
}

/// Two trees hold the same files with the same bytes; says which ones differ.
#[track_caller]
pub(super) fn assert_same_tree(before: &Tree, after: &Tree) {
    let differing: Vec<_> =
        before.keys().chain(after.keys()).filter(|path| before.get(*path) != after.get(*path)).collect();
    assert!(differing.is_empty(), "changed, new or gone: {differing:?}");
}

fn hash_tree(folder: &Path, files: &mut Tree) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.path().is_dir() {
            hash_tree(&entry.path(), files);
        } else {
            let hash = Sha256::digest(fs::read(entry.path()).expect("reads"));
            files.insert(entry.path(), hash.into());
        }
    }
}

/// Asks a process to end, as a terminal or a scheduler does.
pub(super) fn send(child: &Child, signal: i32) {
    let status = Command::new("kill")
        .arg(format!("-{signal}"))
        .arg(child.id().to_string())
        .status()
        .expect("`kill` starts");
    assert!(status.success(), "signal {signal} was not delivered");
}
