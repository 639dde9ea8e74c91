//! What a run tells other programs: MLflow, TensorBoard, Prometheus, and whoever wants to know of its end.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::notes;
use crate::workplace::Workplace;

/// Appends to `told.txt` what the command is told.
const NOTIFY: &str = "run.notify_command=echo \"$MLMTRAIN_EVENT $MLMTRAIN_RUN $MLMTRAIN_MESSAGE\" >> told.txt; \
                      echo said";

#[test]
fn the_end_of_a_command_is_told_however_it_ends() {
    let place = Workplace::new();
    let told = || fs::read_to_string(place.path("told.txt")).unwrap_or_default();
    let done = place.run(&[NOTIFY, "training.max_steps=4"], &[]).ok();
    assert_eq!(told().lines().count(), 1);
    assert!(told().starts_with("complete run trained 4 steps; validation loss "), "{}", told());
    assert!(!done.stdout.contains("said") && done.stderr.contains("said\n"), "output is for results");
    let failed = place.run(&[NOTIFY, "data.sources=[{files: [gone.txt]}]", "run.output_dir=other"], &[]);
    assert_ne!(failed.code, Some(0));
    let told = told();
    let (_, last) = told.split_once('\n').unwrap();
    assert!(last.starts_with("failed other ") && last.contains("gone.txt"), "{last}");
    let wrong = ["run.notify_command=exit 3", "run.output_dir=third", "training.max_steps=2"];
    let done = place.run(&wrong, &[]).ok();
    assert!(done.stderr.contains("`run.notify_command` failed: exit status: 3"), "{}", done.stderr);
}

#[test]
fn the_newest_values_lie_in_a_file_for_prometheus() {
    let place = Workplace::new();
    place
        .run(&["run.prometheus_dir=collected", "training.max_steps=4", "training.logging_steps=1"], &[])
        .ok();
    let text = fs::read_to_string(place.path("collected/mlmtrain-run.prom")).unwrap();
    assert!(text.contains("\nmlmtrain_step{run=\"run\"} 4\n"), "{text}");
    assert!(text.contains("\nmlmtrain_eval_loss{run=\"run\"} "), "{text}");
}

#[test]
fn mlflow_and_tensorboard_show_a_run() {
    let python = std::env::var("MLMTRAIN_PYTHON").unwrap_or_else(|_| "python3".to_string());
    let has_both = Command::new(&python)
        .args(["-c", "import mlflow, tensorboard"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if !has_both.is_ok_and(|status| status.success()) {
        notes::skipped("there is no python3 (or MLMTRAIN_PYTHON) with `mlflow` and `tensorboard`");
        return;
    }
    let place = Workplace::new();
    let sets = ["run.tensorboard=true", "run.trackers=[mlflow]", "training.logging_steps=2"];
    place.run(&[&sets[..], &["training.max_steps=8"]].concat(), &[]).ok();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/check_trackers.py");
    let told = Command::new(&python)
        .arg(script)
        .args(["run", "mlruns"])
        .current_dir(place.path(""))
        .output()
        .unwrap();
    let (said, complaint) = (String::from_utf8_lossy(&told.stdout), String::from_utf8_lossy(&told.stderr));
    assert!(said.starts_with("TensorBoard and MLflow read 5 losses"), "{said}{complaint}");
}
