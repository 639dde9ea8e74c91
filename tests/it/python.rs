//! The Python package of the wheel, from the source tree and with the built program: its own tests, which
//! `scripts/build-wheel.sh` runs as well, and what it hears.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::notes::skipped;
use crate::workplace::{CONFIG, Finished, Workplace};

#[test]
fn the_package_passes_its_own_tests() {
    let python = std::env::var("MLMTRAIN_PYTHON").unwrap_or_else(|_| "python3".to_string());
    let is_new =
        Command::new(&python).args(["-c", "import sys; sys.exit(sys.version_info < (3, 9))"]).status();
    if !is_new.is_ok_and(|status| status.success()) {
        return skipped("there is no python3 (or MLMTRAIN_PYTHON) of version 3.9 or newer");
    }
    let wheel = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/wheel");
    let mut tests = Command::new(&python);
    tests.arg(wheel.join("test_mlmtrain.py")).env("MLMTRAIN_PROGRAM", env!("CARGO_BIN_EXE_mlmtrain"));
    tests.env("PYTHONPATH", wheel.join("python")).env("PYTHONDONTWRITEBYTECODE", "1");
    let told = Finished::from(tests.output().unwrap()).ok();
    assert!(told.stderr.ends_with("\nOK\n"), "{}", told.stderr);
}

/// What other readers than Python's package rely on.
#[test]
fn events_are_json_lines_and_hold_no_secret() {
    let place = Workplace::new();
    let told = place.run(&["training.max_steps=3", "run.tensorboard=false"], &["--events"]).ok();
    let events: Vec<Value> = told.stderr.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |kind: &str| events.iter().filter(|event| event["event"] == kind).collect::<Vec<_>>();
    assert_eq!(of("run").len(), 1);
    assert_eq!(of("run")[0]["folder"], "run");
    let losses = of("metrics").iter().filter(|event| event["record"]["train/loss"].is_f64()).count();
    assert_eq!(losses, 3, "{}", told.stderr);
    assert_eq!(of("step").last().unwrap()["step"], 3);
    assert!(of("stage").len() > 1 && of("note").len() > 1 && of("error").is_empty(), "{}", told.stderr);

    let config = CONFIG.replace("[corpus.txt]", "['${WORD_TOKEN}']");
    fs::write(place.path("config.yaml"), config).unwrap();
    let mut command = place.command(&["run.output_dir=other"], &["--events"]);
    command.env("WORD_TOKEN", "se\"cret");
    let told = Finished::from(command.output().unwrap());
    let last: Value = serde_json::from_str(told.stderr.lines().last().unwrap()).unwrap();
    assert_eq!((told.code, &last["event"]), (Some(2), &"error".into()), "{told:#?}");
    assert!(last["text"].as_str().unwrap().contains("${WORD_TOKEN}"), "{}", told.stderr);
    assert!(!told.stderr.contains("cret"), "{}", told.stderr);
}
