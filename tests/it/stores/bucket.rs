//! Whole runs whose text, model and labelled files lie in a bucket.

use std::fs;
use std::process::Command;

use crate::material::{CONFIG, corpus, examples};
use crate::notes;
use crate::stores::server::S3;
use crate::workplace::Workplace;

/// A server with the corpus of the tests in two objects and a folder that is none, or a note.
pub(super) fn bucket() -> Option<S3> {
    let server = S3::start();
    if server.is_none() {
        notes::skipped("there is no `moto_server` on the PATH or in the folder of MLMTRAIN_STORES");
    }
    let server = server?;
    let text = corpus(400);
    let half = text.find("story 200.").unwrap();
    server.put("corpus/part-1.txt", &text.as_bytes()[..half]);
    server.put("corpus/part-2.txt", &text.as_bytes()[half..]);
    server.put("corpus/", b"");
    server.put("other.txt", b"not asked for");
    Some(server)
}

/// A place whose configuration names the bucket, and has no text itself.
pub(super) fn place() -> Workplace {
    let place = Workplace::new();
    fs::remove_file(place.path("corpus.txt")).unwrap();
    fs::write(place.path("config.yaml"), CONFIG.replace("corpus.txt", "\"s3://bucket/corpus/*.txt\""))
        .unwrap();
    place
}

/// A command with other arguments than a configuration.
fn program(place: &Workplace, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mlmtrain"));
    command.args(arguments).current_dir(place.path(""));
    command
}

#[test]
fn a_model_is_pretrained_and_fine_tuned_from_a_bucket_as_from_files() {
    let Some(server) = bucket() else { return };
    let local = Workplace::new();
    fs::create_dir(local.path("corpus")).unwrap();
    let text = corpus(400);
    let (one, two) = text.split_at(text.find("story 200.").unwrap());
    fs::write(local.path("corpus/part-1.txt"), one).unwrap();
    fs::write(local.path("corpus/part-2.txt"), two).unwrap();
    fs::write(local.path("config.yaml"), CONFIG.replace("corpus.txt", "corpus/*.txt")).unwrap();
    local.run(&[], &[]).ok();

    let place = place();
    let cache = place.path("cache");
    let ran = server.run(place.command(&[], &[]), &cache).ok();
    assert!(ran.stderr.contains("downloading: done"), "{}", ran.stderr);
    let weights = |place: &Workplace| fs::read(place.run_path("final/model.safetensors")).unwrap();
    assert!(weights(&place) == weights(&local), "the bytes of the models differ");
    // What is saved names the bucket, and neither the cache nor who asked.
    for name in ["config.yaml", "data/settings.json", "checkpoint-40/trainer/config.json"] {
        let saved = fs::read_to_string(place.run_path(name)).unwrap();
        assert!(saved.contains("s3://bucket/corpus/*.txt"), "{name}: {saved}");
        assert!(!saved.contains("views") && !saved.contains("planted"), "{name}: {saved}");
    }
    // Shards that are there need no bucket; the run is the same one.
    let again = place.run(&[], &[]).ok();
    assert!(again.stdout.contains("this run is complete"), "{}", again.stdout);

    // The model goes to the bucket, and is fine-tuned and asked from there.
    for entry in fs::read_dir(place.run_path("final")).unwrap().flatten() {
        server.put(&format!("models/tiny/{}", entry.file_name().display()), &fs::read(entry.path()).unwrap());
    }
    server.put("rows/train.csv", examples(48).as_bytes());
    server.put("rows/eval.csv", examples(12).as_bytes());
    let (train, eval) = ("s3://bucket/rows/train.csv", "s3://bucket/rows/eval.csv");
    let tune = [
        "finetune",
        "--task",
        "classify",
        "--model",
        "s3://bucket/models/tiny/",
        "--train",
        train,
        "--eval",
        eval,
    ];
    let more = [
        "--output-dir",
        "tuned",
        "--set",
        "data.max_seq_length=32",
        "--set",
        "training.max_steps=8",
        "--set",
        "run.threads=2",
    ];
    server.run(program(&place, &[&tune[..], &more].concat()), &cache).ok();
    let saved = fs::read_to_string(place.path("tuned/config.yaml")).unwrap();
    assert!(saved.contains("s3://bucket/models/tiny") && saved.contains(eval), "{saved}");
    let score = ["evaluate", "--model", "tuned/final", "--data", eval, "--json"];
    let scored = server.run(program(&place, &score), &cache).ok().stdout;
    assert!(scored.contains("accuracy"), "{scored}");

    // What is not there is named as it was asked for.
    let missing = server.run(
        program(&place, &["evaluate", "--model", "tuned/final", "--data", "s3://bucket/none.csv"]),
        &cache,
    );
    missing.refused(2, &["s3://bucket/none.csv: there is no such object", "hint:"]);
    let broken = server.run(
        program(&place, &["evaluate", "--model", "tuned/final", "--data", "s3://bucket/other.txt"]),
        &cache,
    );
    assert!(
        broken.stderr.contains("s3://bucket/other.txt") && !broken.stderr.contains("views"),
        "{}",
        broken.stderr
    );
}

/// A file of tasks that lies in a bucket, and names rows that do, too.
#[test]
fn probes_from_a_bucket_score_as_from_files() {
    let Some(server) = bucket() else { return };
    let tasks = |of: &str| {
        format!(
            "data: {{train_file: {of}train.csv, eval_file: {of}eval.csv, max_seq_length: 32}}\n\
             training: {{max_steps: 6}}\ntasks:\n  - name: animals\n"
        )
    };
    let (local, place) = (Workplace::new(), Workplace::new());
    for (name, rows) in [("train.csv", examples(24)), ("eval.csv", examples(9))] {
        fs::write(local.path(name), &rows).unwrap();
        server.put(&format!("rows/{name}"), rows.as_bytes());
    }
    fs::write(local.path("tasks.yaml"), tasks("")).unwrap();
    server.put("tasks.yaml", tasks("s3://bucket/rows/").as_bytes());
    let every = "evaluation.probe_steps=20";
    local.run(&["evaluation.probes=tasks.yaml", every], &[]).ok();
    let away = ["evaluation.probes=s3://bucket/tasks.yaml", every];
    server.run(place.command(&away, &[]), &place.path("cache")).ok();
    let scores = local.series("eval/animals");
    assert!(scores.len() == 3 && place.series("eval/animals") == scores, "{scores:?}");
    let saved = fs::read_to_string(place.run_path("config.yaml")).unwrap();
    assert!(saved.contains("s3://bucket/tasks.yaml"), "{saved}");
}
