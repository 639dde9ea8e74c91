//! `run.upload_to`: a machine that vanishes, a new one with an empty disk, and a bucket of somebody else.

use std::collections::BTreeSet;
use std::fs;
use std::process::Child;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::processes;
use crate::stores::bucket::{bucket, place};
use crate::stores::server::{S3, Server, equip, status};
use crate::workplace::{Finished, Workplace};

const LONG: [&str; 3] =
    ["training.max_steps=640", "training.save_total_limit=2", "run.upload_to=s3://bucket/runs/mine"];

fn start(server: &S3, place: &Workplace, sets: &[&str]) -> Child {
    equip(&mut place.command(sets, &[]), &server.endpoint, &place.path("cache")).spawn().unwrap()
}

fn finish(child: Child) -> Finished {
    child.wait_with_output().unwrap().into()
}

/// The steps of the checkpoints that are whole in the bucket.
pub(super) fn uploaded(server: &S3) -> Vec<u64> {
    let step = |key: &String| {
        key.strip_prefix("runs/mine/checkpoint-")?.strip_suffix("/manifest.json")?.parse().ok()
    };
    let mut steps: Vec<u64> = server.keys().iter().filter_map(step).collect();
    steps.sort_unstable();
    steps
}

/// Every object of a folder is as its manifest says, and all that the manifest names are there.
fn assert_whole(server: &S3, folder: &str) {
    let manifest: Value = serde_json::from_slice(&server.get(&format!("{folder}/manifest.json"))).unwrap();
    for file in manifest["files"].as_array().unwrap() {
        let bytes = server.get(&format!("{folder}/{}", file["name"].as_str().unwrap()));
        assert_eq!(bytes.len() as u64, file["bytes"].as_u64().unwrap(), "{folder}: {file}");
    }
}

#[test]
fn a_checkpoint_that_lacks_a_file_is_passed_over() {
    let Some(server) = bucket() else { return };
    let sets = ["training.save_total_limit=2", LONG[2]];
    let first = place();
    server.run(first.command(&sets, &[]), &first.path("cache")).ok();
    let steps = uploaded(&server);
    server.delete(&format!("runs/mine/checkpoint-{}/trainer/state.json", steps[1]));
    let second = place();
    let ran = server.run(second.command(&sets, &[]), &second.path("cache")).ok();
    let words =
        [format!("checkpoint-{}: lacks files", steps[1]), format!("resuming after step {}", steps[0])];
    assert!(words.iter().all(|word| ran.stderr.contains(word)), "{words:?} {}", ran.stderr);
    let weights = |place: &Workplace| fs::read(place.run_path("final/model.safetensors")).unwrap();
    assert!(weights(&first) == weights(&second));
}

#[test]
fn a_new_machine_with_an_empty_disk_ends_in_the_same_bytes() {
    let Some(server) = bucket() else { return };
    let straight = place();
    server.run(straight.command(&LONG[..2], &[]), &straight.path("cache")).ok();

    // The machine vanishes after a checkpoint has left it.
    let first = place();
    let mut child = start(&server, &first, &LONG);
    while uploaded(&server).is_empty() && child.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill().unwrap();
    assert_eq!(finish(child).code, None, "it was killed on the way");
    let left = uploaded(&server);
    for step in &left {
        assert_whole(&server, &format!("runs/mine/checkpoint-{step}"));
    }

    // Others may not take its place: another configuration, other data on their disk, a start afresh.
    let other = place();
    let mut sets = LONG.to_vec();
    sets.push("training.learning_rate=1.0e-3");
    let before = server.keys();
    let refused = finish(start(&server, &other, &sets));
    refused.refused(
        2,
        &["`s3://bucket/runs/mine` holds another run", "training.learning_rate", "run.upload_to"],
    );
    let fresh =
        equip(&mut other.command(&LONG, &["--resume", "never"]), &server.endpoint, &other.path("cache"))
            .output()
            .unwrap();
    Finished::from(fresh).refused(2, &["s3://bucket/runs/mine: holds checkpoints of another run"]);
    assert!(server.keys() == before && other.checkpoints().is_empty());

    // One that is half there is taken for none.
    let newest = *left.last().unwrap();
    server.put("runs/mine/checkpoint-9/model.safetensors", b"half");
    let second = place();
    let ended = finish(start(&server, &second, &LONG)).ok();
    assert!(
        ended.stderr.contains("restoring: ") && ended.stderr.contains("resuming after step"),
        "{}",
        ended.stderr
    );
    assert!(second.logged_steps().first() == Some(&1), "the records came along");
    assert!(newest < 640 && ended.stderr.contains(&format!("after step {newest} ")), "{}", ended.stderr);
    let weights = |place: &Workplace, name: &str| fs::read(place.run_path(name)).unwrap();
    for name in ["final/model.safetensors", "checkpoint-640/trainer/optimizer.safetensors"] {
        assert!(weights(&second, name) == weights(&straight, name), "{name}: the bytes differ");
    }
    assert_eq!(second.metrics(), straight.metrics());
    // The bucket holds what the disk holds, and no more.
    assert_eq!(uploaded(&server), second.checkpoints());
    assert_whole(&server, "runs/mine/final");
    assert!(server.get("runs/mine/final/model.safetensors") == weights(&second, "final/model.safetensors"));
    for name in ["metrics.jsonl", "config.yaml", "all_results.json"] {
        assert!(server.get(&format!("runs/mine/{name}")) == weights(&second, name), "{name}");
    }
    let is_foreign =
        |key: &String| key.contains(".lock") || key.contains("/data/") || key.contains("checkpoint-9/");
    assert!(!server.keys().iter().any(is_foreign), "{:?}", server.keys());

    // A third machine finds it complete.
    let third = place();
    let complete = finish(start(&server, &third, &LONG)).ok();
    assert!(complete.stdout.contains("this run is complete"), "{}", complete.stdout);
}

/// The manifests of checkpoints in a bucket, and how many were deleted there.
#[derive(Default)]
struct Manifests {
    there: BTreeSet<String>,
    deleted: usize,
}

#[test]
fn a_slow_bucket_is_never_without_a_whole_checkpoint_again() {
    let manifests: Arc<Mutex<Manifests>> = Arc::default();
    let account = Arc::clone(&manifests);
    let place = Arc::new(Workplace::new());
    let saving = Arc::clone(&place);
    let store = Server::start(move |request| {
        let manifest = |text: &str| {
            let start = text.find("runs/mine/checkpoint-")?;
            Some(text[start..start + text[start..].find("/manifest.json")?].to_string())
        };
        let mut account = account.lock().unwrap();
        if request.head.starts_with("PUT ") {
            // Until a checkpoint is uploaded, several others are saved, and it is deleted.
            let (newest, begun) = (saving.checkpoints().pop(), Instant::now());
            while saving.checkpoints().pop() == newest && begun.elapsed() < Duration::from_millis(50) {
                std::thread::sleep(Duration::from_millis(1));
            }
            account.there.extend(manifest(request.head.lines().next().unwrap()));
            return status("200 OK\r\nETag: \"a\"", "");
        }
        if request.head.contains("/claim.json ") {
            return status("404 Not Found", "");
        }
        if !request.head.starts_with("POST ") {
            let nothing = "<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>";
            return status("200 OK", nothing);
        }
        if let Some(manifest) = manifest(&request.body) {
            account.there.remove(&manifest);
            account.deleted += 1;
            assert!(!account.there.is_empty(), "after {manifest} was deleted there is none");
        }
        status("200 OK", "<DeleteResult><Deleted><Key>a</Key></Deleted></DeleteResult>")
    });
    let sets = ["training.max_steps=800", "training.save_steps=4", LONG[1], LONG[2]];
    let mut command = place.command(&sets, &[]);
    let ended: Finished =
        equip(&mut command, &format!("http://{}", store.host), &place.path("cache")).output().unwrap().into();
    ended.ok();
    let manifests = manifests.lock().unwrap();
    assert!(manifests.deleted > 0, "nothing was deleted");
    assert_eq!(manifests.there.len(), place.checkpoints().len());
}

#[test]
fn a_store_that_refuses_stops_no_training_and_is_told() {
    let store = Server::start(|request| {
        let is_claim = request.head.contains("/claim.json ");
        if is_claim && request.head.starts_with("PUT ") {
            status("200 OK\r\nETag: \"a\"", "")
        } else if is_claim {
            status("404 Not Found", "")
        } else if request.head.starts_with("GET ") {
            status("200 OK", "<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>")
        } else {
            status("403 Forbidden", "<Error><Code>ExpiredToken</Code></Error>")
        }
    });
    let place = Workplace::new();
    let mut command = place.command(&["training.max_steps=16", "run.upload_to=s3://bucket/runs/mine"], &[]);
    let ended: Finished =
        equip(&mut command, &format!("http://{}", store.host), &place.path("cache")).output().unwrap().into();
    assert_eq!(ended.code, Some(1), "{ended:#?}");
    assert!(
        ended.stdout.starts_with("trained 16 steps") && place.run_path("final").exists(),
        "{}",
        ended.stdout
    );
    // Whether it is told while the run goes on, too, depends on how soon the run ends.
    for told in [
        "error: the upload to `s3://bucket/runs/mine` is incomplete; the same command uploads the rest",
        "access is denied",
    ] {
        assert!(ended.stderr.contains(told), "{}", ended.stderr);
    }
    assert!(!ended.stderr.contains("planted"), "{}", ended.stderr);
    // A place that cannot be written to is refused before anything is done.
    let refused = place.run(&["run.upload_to=https://host/runs"], &[]);
    refused.refused(2, &["`run.upload_to` is `https://host/runs`, and is no folder of a bucket"]);
}

#[test]
fn what_several_processes_upload_goes_on_on_an_empty_disk() {
    let Some(server) = bucket() else { return };
    if processes::cannot() {
        return;
    }
    // A rate that does not know of the end, since the second machine goes farther.
    let sets = [
        "training.max_steps=16",
        "training.lr_scheduler_type=constant",
        "training.warmup_steps=0",
        "training.gradient_accumulation_steps=2",
        "run.threads=1",
        "run.tensorboard=false",
    ];
    let alone = place();
    server.run(alone.command(&sets, &[]), &alone.path("cache")).ok();

    let sets = [&sets[..], &LONG[2..]].concat();
    let two = |place: &Workplace, steps: &str| {
        let command = place.command(&[&sets[..], &[steps]].concat(), &[]);
        let mut mpirun = processes::launcher(place, 2, command.get_args());
        Finished::from(equip(&mut mpirun, &server.endpoint, &place.path("cache")).output().unwrap()).ok()
    };
    let (first, second) = (place(), place());
    two(&first, "training.max_steps=8");
    assert_eq!(uploaded(&server).last(), Some(&8));
    let ended = two(&second, "training.max_steps=16");
    assert!(ended.stderr.contains("resuming after step 8"), "{}", ended.stderr);
    assert_whole(&server, "runs/mine/final");
    let weights = |place: &Workplace| fs::read(place.run_path("final/model.safetensors")).unwrap();
    assert!(weights(&second) == weights(&alone));
}
