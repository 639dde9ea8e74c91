//! `scripts/vm/train-local.sh`: what it calls, and that a machine that vanishes costs no bytes of the result.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Child;
use std::process::Command;
use std::process::Stdio;
use std::time::Duration;

use crate::workplace::Finished;
use crate::workplace::Workplace;
use crate::workplace::send;

/// The script on the configuration of the place, in a process group of its own. Its data command brings the
/// corpus, its upload leaves the exit code of training, and powering off is only written down.
fn start(place: &Workplace, more: &[&str]) -> Child {
    let corpus = place.path("corpus.txt");
    if corpus.exists() {
        fs::rename(corpus, place.path("far-away")).unwrap();
    }
    let mut command = Command::new("bash");
    command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/vm/train-local.sh"));
    command.args(["--program", env!("CARGO_BIN_EXE_mlmtrain"), "--config", "config.yaml"]);
    command.args(["--data-command", "cp far-away corpus.txt", "--power-off"]);
    command.args(["--upload-command", "echo $MLMTRAIN_EXIT_CODE >> uploaded"]).args(more);
    command.env("MLMTRAIN_POWER_OFF", "touch powered-off").current_dir(place.path("")).process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn finish(child: Child) -> Finished {
    child.wait_with_output().unwrap().into()
}

/// Waits until training is some steps ahead.
fn reach(place: &Workplace, child: &mut Child, step: u64) {
    while place.logged_steps().last().is_none_or(|&last| last < step) {
        assert!(child.try_wait().unwrap().is_none(), "ended before step {step}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Enough steps to be stopped twice before the last one.
const LONG: [&str; 4] = ["--no-plan", "--", "--set", "training.max_steps=120"];

#[test]
fn a_run_that_was_stopped_and_killed_ends_in_the_same_bytes() {
    let model = |place: &Workplace| fs::read(place.run_path("final/model.safetensors")).unwrap();
    let uploads = |place: &Workplace| fs::read_to_string(place.path("uploaded")).unwrap_or_default();
    let straight = Workplace::new();
    finish(start(&straight, &LONG)).ok();
    assert_eq!(uploads(&straight), "0\n");
    assert!(straight.path("powered-off").exists());

    let broken = Workplace::new();
    // The machine vanishes: everything is killed, and nothing is uploaded.
    let mut child = start(&broken, &LONG);
    reach(&broken, &mut child, 12);
    let group = format!("-{}", child.id());
    assert!(Command::new("kill").args(["-KILL", "--", &group]).status().unwrap().success());
    assert_eq!(finish(child).code, None);
    assert_eq!(uploads(&broken), "");

    // The machine is asked to go: the script waits for the checkpoint, uploads it, and leaves the power on.
    let mut child = start(&broken, &LONG);
    reach(&broken, &mut child, 40);
    send(&child, 15);
    let stopped = finish(child);
    assert_eq!(stopped.code, Some(143), "{stopped:#?}");
    assert_eq!(uploads(&broken), "143\n");
    assert!(!broken.path("powered-off").exists() && !broken.run_path("final").exists());

    let resumed = finish(start(&broken, &LONG)).ok();
    assert!(resumed.stderr.contains("resum"), "{}", resumed.stderr);
    assert_eq!(uploads(&broken), "143\n0\n");
    assert!(broken.path("powered-off").exists());
    assert!(model(&broken) == model(&straight), "the bytes of the models differ");
}

#[test]
fn what_fails_first_decides_the_exit_code_and_what_cannot_be_uploaded_keeps_the_machine() {
    // A wrong key is told before the data is fetched.
    let place = Workplace::new();
    let wrong = finish(start(&place, &["--", "--set", "training.max_stesp=3"]));
    assert_eq!(wrong.code, Some(2), "{wrong:#?}");
    assert!(wrong.stderr.contains("did you mean `max_steps`") && !place.path("corpus.txt").exists());

    let failed = finish(start(&place, &["--data-command", "exit 7"]));
    assert_eq!(failed.code, Some(7), "{failed:#?}");

    // The plan is printed, and three steps are trained.
    let short = ["--upload-command", "exit 9", "--price", "0.5", "--", "--set", "training.max_steps=3"];
    let kept = finish(start(&place, &short));
    assert_eq!(kept.code, Some(1), "{kept:#?}");
    assert!(kept.stdout.contains("USD") && kept.stdout.contains("trained 3 steps"), "{}", kept.stdout);
    assert!(!place.path("powered-off").exists());

    let refused = finish(start(&place, &["--confg", "a"]));
    assert!(refused.code == Some(2) && refused.stderr.contains("`--confg` is no option"), "{refused:#?}");
}
