//! `gs://` as Google's client speaks it: its XML protocol is nearly S3's, and the server is one of that. What
//! a machine of Google's knows of itself, whose role it has, is a stand-in.

use std::process::Command;

use crate::material::examples;
use crate::stores::bucket::{bucket, place};
use crate::stores::server::{Server, status};
use crate::stores::upload::uploaded;
use crate::workplace::Workplace;

#[test]
fn a_run_goes_on_from_a_bucket_of_googles_on_another_machine() {
    let Some(server) = bucket() else { return };
    // The server takes from a token which service is meant, and asks no more of whoever may do anything.
    let token = "Credential=planted/20260101/us-east-1/s3/aws4_request";
    let token = format!(r#"{{"access_token": "{token}", "expires_in": 3600, "token_type": "Bearer"}}"#);
    let role = Server::start(move |_| status("200 OK", &token));
    let statement =
        r#"{"Effect": "Allow", "Principal": "*", "Action": "s3:*", "Resource": "arn:aws:s3:::bucket/*"}"#;
    server.put("?policy", format!(r#"{{"Version": "2012-10-17", "Statement": [{statement}]}}"#).as_bytes());
    let on_google = |place: &Workplace, sets: &[&str]| -> Command {
        let mut sets = sets.to_vec();
        sets.push("data.sources.0.files=[\"gs://bucket/corpus/*.txt\"]");
        let mut command = place.command(&sets, &[]);
        command.env("GOOGLE_BASE_URL", &server.endpoint).env("XDG_CACHE_HOME", place.path("cache"));
        command.env("GCE_METADATA_HOST", &role.host).env("GCE_METADATA_IP", &role.host);
        command
    };
    let weights = |place: &Workplace| std::fs::read(place.run_path("final/model.safetensors")).unwrap();
    let straight = place();
    assert!(on_google(&straight, &["training.max_steps=240"]).output().unwrap().status.success());

    let upload =
        ["training.max_steps=240", "training.save_total_limit=2", "run.upload_to=gs://bucket/runs/mine"];
    let first = place();
    let mut child = on_google(&first, &upload).spawn().unwrap();
    while uploaded(&server).is_empty() && child.try_wait().unwrap().is_none() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    child.kill().unwrap();
    assert_eq!(child.wait_with_output().unwrap().status.code(), None, "it was killed on the way");
    let second = place();
    let ended = on_google(&second, &upload).output().unwrap();
    let told = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success() && told.contains("resuming after step"), "{told}");
    assert!(!told.contains("planted"), "{told}");
    assert!(weights(&second) == weights(&straight), "the bytes of the models differ");
    assert!(server.get("runs/mine/final/model.safetensors") == weights(&straight));

    // The model is fine-tuned from there, too.
    for (name, rows) in [("train", 48), ("eval", 12)] {
        server.put(&format!("rows/{name}.csv"), examples(rows).as_bytes());
    }
    let mut tune = Command::new(env!("CARGO_BIN_EXE_mlmtrain"));
    let rows = ["--train", "gs://bucket/rows/train.csv", "--eval", "gs://bucket/rows/eval.csv"];
    tune.args(["finetune", "--model", "gs://bucket/runs/mine/final/", "--output-dir", "tuned"]).args(rows);
    tune.args(["--set", "data.max_seq_length=32", "--set", "training.max_steps=8"]);
    tune.current_dir(second.path("")).env("XDG_CACHE_HOME", second.path("cache"));
    tune.env("GOOGLE_BASE_URL", &server.endpoint);
    tune.env("GCE_METADATA_HOST", &role.host).env("GCE_METADATA_IP", &role.host);
    let tuned = tune.output().unwrap();
    assert!(tuned.status.success(), "{}", String::from_utf8_lossy(&tuned.stderr));
    assert!(second.json("../tuned/all_results.json")["eval_accuracy"].is_number());

    // A machine without a role.
    let nobody = Server::start(|_| status("403 Forbidden", ""));
    let third = place();
    let mut command = on_google(&third, &[]);
    command.env("GCE_METADATA_HOST", &nobody.host).env("GCE_METADATA_IP", &nobody.host);
    let refused = command.output().unwrap();
    let told = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(1) && told.contains("there are no credentials"), "{told}");
}
