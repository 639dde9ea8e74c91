//! A folder in a bucket that several processes want: one of them has it.

use std::fs;
use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::stores::bucket::{bucket, place};
use crate::stores::server::{S3, Server, equip, status};
use crate::stores::upload::uploaded;
use crate::workplace::Workplace;

const CLAIM: &str = "runs/mine/claim.json";

/// Longer than a test, and without a checkpoint.
const ENDLESS: [&str; 3] =
    ["training.max_steps=1000000", "training.save_steps=500000", "run.upload_to=s3://bucket/runs/mine"];

/// A run that is stopped at the end of a test.
struct Running {
    child: Child,
    log: PathBuf,
}

impl Running {
    fn start(server: &S3, place: &Workplace) -> Self {
        let log = place.path("log.txt");
        let mut command = place.command(&ENDLESS, &[]);
        equip(&mut command, &server.endpoint, &place.path("cache")).stderr(File::create(&log).unwrap());
        Self { child: command.spawn().unwrap(), log }
    }

    /// Waits until the run has printed `text`.
    fn wait_for(&mut self, text: &str) {
        let begun = Instant::now();
        while !fs::read_to_string(&self.log).unwrap().contains(text) {
            let printed = || fs::read_to_string(&self.log).unwrap();
            assert!(self.child.try_wait().unwrap().is_none(), "{text}: has ended: {}", printed());
            assert!(begun.elapsed() < Duration::from_secs(120), "{text}: {}", printed());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Stops the run by SIGTERM; returns its exit code and all that it printed.
    fn stop(mut self) -> (Option<i32>, String) {
        Command::new("kill").arg(self.child.id().to_string()).status().unwrap();
        let code = self.child.wait().unwrap().code();
        (code, fs::read_to_string(&self.log).unwrap())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
    }
}

#[test]
fn a_later_process_takes_the_folder_over_and_the_earlier_one_uploads_no_more() {
    let Some(server) = bucket() else { return };
    let (first, second, other) = (place(), place(), place());
    let mut earlier = Running::start(&server, &first);
    while !server.keys().iter().any(|key| key == CLAIM) {
        earlier.wait_for("");
        std::thread::sleep(Duration::from_millis(20));
    }
    let other_rate = [&ENDLESS[..], &["training.learning_rate=1.0e-3"]].concat();
    let refused = server.run(other.command(&other_rate, &[]), &other.path("cache"));
    refused.refused(2, &["`s3://bucket/runs/mine` is claimed by a run on ", "training.learning_rate"]);

    let mut later = Running::start(&server, &second);
    later.wait_for("s3://bucket/runs/mine: is taken over from a run on ");
    // Before its first step a signal ends a run at once.
    earlier.wait_for("step ");
    later.wait_for("step ");
    // It finds out when it uploads again: its last checkpoint, here.
    let (code, printed) = earlier.stop();
    assert_eq!(code, Some(143), "{printed}");
    assert!(printed.contains("uploads there: nothing more is uploaded from here"), "{printed}");
    assert!(uploaded(&server).is_empty(), "{:?}", server.keys());

    let (code, printed) = later.stop();
    assert_eq!(code, Some(143), "{printed}");
    assert_eq!(uploaded(&server), second.checkpoints(), "{printed}");
    assert!(!server.keys().iter().any(|key| key == CLAIM), "it was given up");
}

#[test]
fn of_two_that_find_no_claim_the_second_is_refused() {
    let was_asked = AtomicBool::new(false);
    let claim = json!({"id": "a", "host": "first", "since": "2026-11-28T00:00:00+00:00", "config": {}});
    let store = Server::start(move |request| {
        if request.head.contains("/claim.json ") {
            let is_new = request.head.starts_with("PUT ") && request.header("if-none-match") == Some("*");
            return match () {
                () if is_new => {
                    was_asked.store(true, Ordering::SeqCst);
                    status("412 Precondition Failed", "")
                }
                () if was_asked.load(Ordering::SeqCst) => {
                    request.answer(claim.to_string().as_bytes(), "b", 999)
                }
                () => status("404 Not Found", ""),
            };
        }
        assert!(request.head.starts_with("GET "), "nothing may be uploaded: {}", request.head);
        status("200 OK", "<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>")
    });
    let place = Workplace::new();
    let mut command = place.command(&["training.max_steps=4", ENDLESS[2]], &[]);
    let ended =
        equip(&mut command, &format!("http://{}", store.host), &place.path("cache")).output().unwrap();
    crate::workplace::Finished::from(ended).refused(
        2,
        &["s3://bucket/runs/mine: a run on first since 2026-11-28T00:00:00+00:00 uploads there", "upload_to"],
    );
}

#[test]
fn checkpoints_that_a_lost_machine_left_count_for_the_limit() {
    let Some(server) = bucket() else { return };
    let place = place();
    let sets =
        ["training.lr_scheduler_type=constant", "training.warmup_steps=0", "training.save_total_limit=2"];
    let run = |steps: &str| {
        let command = place.command(&[&sets[..], &[steps, ENDLESS[2]]].concat(), &[]);
        server.run(command, &place.path("cache")).ok()
    };
    run("training.max_steps=20");
    let newest = *uploaded(&server).last().unwrap();
    for key in server.keys() {
        if let Some(name) = key.strip_prefix(&format!("runs/mine/checkpoint-{newest}/")) {
            server.put(&format!("runs/mine/checkpoint-3/{name}"), &server.get(&key));
        }
    }
    assert_eq!(uploaded(&server).first(), Some(&3));
    run("training.max_steps=40");
    assert_eq!(uploaded(&server), place.checkpoints());
    assert!(!server.keys().iter().any(|key| key.contains("checkpoint-3/")), "{:?}", server.keys());
}

#[test]
fn what_others_left_in_the_bucket_stays() {
    let Some(server) = bucket() else { return };
    let theirs = ["runs/mine/checkpoint-500/pytorch_model.bin", "runs/mine/bert/checkpoint-best/model.pt"];
    for key in theirs {
        server.put(key, b"theirs");
    }
    let place = place();
    let run = |sets: &[&str]| server.run(place.command(sets, &[]), &place.path("cache"));
    run(&["training.max_steps=4", ENDLESS[2]]).ok();
    for key in theirs {
        assert_eq!(server.get(key), b"theirs", "{key}");
    }

    // Results without a checkpoint are of a run that has ended.
    server.put("runs/ended/final/model.safetensors", b"theirs");
    let other = "run.upload_to=s3://bucket/runs/ended";
    run(&["training.max_steps=4", "run.output_dir=second", other])
        .refused(2, &["s3://bucket/runs/ended: holds `final/model.safetensors` of another run"]);
    // A variable that is empty, and a folder that is none.
    run(&["run.upload_to=s3://bucket//runs"]).refused(2, &["has an empty part in its path"]);
    run(&["run.output_dir=s3://bucket/runs"]).refused(2, &["is a URL, and a run writes to a disk"]);
    // A claim that is no claim of ours.
    for claim in ["[]", r#"{"id":"x","host":"h","since":"s","config":{"training":5}}"#] {
        server.put("runs/odd/claim.json", claim.as_bytes());
        let ran =
            run(&["training.max_steps=4", "run.output_dir=third", "run.upload_to=s3://bucket/runs/odd"]);
        assert!([Some(0), Some(1), Some(2)].contains(&ran.code), "{ran:#?}");
    }
}
