//! `scripts/vm/`: what the scripts call, and that a machine that vanishes costs no bytes of the result.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::notes::skipped;
use crate::processes;
use crate::workplace::{Finished, Workplace, send};

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

/// Waits until training is some steps ahead of what is logged, by this child or one before it.
fn reach(place: &Workplace, child: &mut Child, steps: u64) {
    let wanted = steps + place.logged_steps().last().unwrap_or(&0);
    while place.logged_steps().last().is_none_or(|&last| last < wanted) {
        assert!(child.try_wait().unwrap().is_none(), "ended before step {wanted}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Whether the machine has this program.
fn has(program: &str) -> bool {
    let found = Command::new("bash").args(["-c", "type -P \"$0\"", program]).stdout(Stdio::null()).status();
    found.unwrap().success()
}

/// Runs a line of bash in the checkout.
fn bash(line: &str) -> Finished {
    let mut command = Command::new("bash");
    command.args(["-c", line]).current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap().into()
}

/// Sends a signal to the script and all that it started.
fn send_to_all(child: &Child, signal: &str) {
    let group = format!("-{}", child.id());
    assert!(Command::new("kill").args([signal, "--", &group]).status().unwrap().success());
}

/// Enough steps to be stopped four times before the last one.
const LONG: [&str; 4] = ["--no-plan", "--", "--set", "training.max_steps=400"];

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
    send_to_all(&child, "-KILL");
    assert_eq!(finish(child).code, None);
    assert_eq!(uploads(&broken), "");

    // The machine is asked to go: the script waits for the checkpoint, uploads it, and leaves the power on.
    let mut child = start(&broken, &LONG);
    reach(&broken, &mut child, 12);
    send(&child, 15);
    let stopped = finish(child);
    assert_eq!(stopped.code, Some(143), "{stopped:#?}");
    assert_eq!(uploads(&broken), "143\n");
    assert!(!broken.path("powered-off").exists() && !broken.run_path("final").exists());

    // Its time is over, says the queue, and it lines up again.
    let mut child = start(&broken, &[&["--requeue-command", "touch again"], &LONG[..]].concat());
    reach(&broken, &mut child, 12);
    send(&child, 10);
    let stopped = finish(child);
    assert!(stopped.code == Some(143) && broken.path("again").exists(), "{stopped:#?}");

    // All processes are asked to go, the program, too: it must not be asked twice.
    let mut child = start(&broken, &LONG);
    reach(&broken, &mut child, 12);
    send_to_all(&child, "-TERM");
    let stopped = finish(child);
    assert!(stopped.code == Some(143) && stopped.stderr.contains("is saved"), "{stopped:#?}");

    let resumed = finish(start(&broken, &LONG)).ok();
    assert!(resumed.stderr.contains("resum"), "{}", resumed.stderr);
    assert_eq!(uploads(&broken), "143\n143\n143\n0\n");
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

/// What the metadata servers of three providers say to who asks as each of them wants; `taken`: that they
/// will take the machine. Azure tells of all machines of a set.
fn answer(head: &[String], taken: bool) -> (u16, &'static str) {
    let has = |line: &str| head.iter().any(|have| have == line);
    let (before, after) = match head.first().map_or("", |line| line.trim_end_matches(" HTTP/1.1")) {
        "PUT /latest/api/token" if has("X-aws-ec2-metadata-token-ttl-seconds: 60") => {
            ((200, "token=="), (200, "token=="))
        }
        "GET /latest/meta-data/spot/instance-action" if has("X-aws-ec2-metadata-token: token==") => {
            ((404, ""), (200, r#"{"action": "terminate", "time": "2026-11-25T01:02:03Z"}"#))
        }
        "GET /computeMetadata/v1/instance/preempted" if has("Metadata-Flavor: Google") => {
            ((200, "FALSE"), (200, "TRUE"))
        }
        "GET /metadata/instance/compute/name?api-version=2021-02-01&format=text" if has("Metadata: true") => {
            ((200, "gpu_1"), (200, "gpu_1"))
        }
        "GET /metadata/scheduledevents?api-version=2020-07-01" if has("Metadata: true") => (
            (
                200,
                r#"{"Events":[{"EventType":"Preempt","Resources":["gpu_0"]},{"EventType":"Freeze","Resources":["gpu_1"]}]}"#,
            ),
            (
                200,
                r#"{"Incarnation":2,"Events":[{"EventId":"A","EventType":"Preempt","Resources":["gpu_0","GPU_1"]}]}"#,
            ),
        ),
        _ => ((400, ""), (400, "")),
    };
    if taken { after } else { before }
}

/// Starts a server that gives these answers for as long as the tests run, and returns its address. The
/// machine will be taken once the file `notice` is there.
fn metadata_server(notice: PathBuf) -> String {
    let serve = move |stream: TcpStream| {
        let lines = BufReader::new(&stream).lines().map_while(Result::ok);
        let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
        let (status, body) = answer(&head, notice.exists());
        let length = body.len();
        write!(&stream, "HTTP/1.1 {status} -\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}")
    };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || listener.incoming().flatten().for_each(|stream| drop(serve(stream))));
    address
}

#[test]
fn a_notice_of_the_provider_stops_the_run_with_a_checkpoint() {
    if !has("curl") {
        return skipped("there is no curl to ask metadata servers with");
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/vm/preempted.sh");
    let place = Workplace::new();
    let address = metadata_server(place.path("notice"));
    let ask = |provider: &str| {
        let mut command = Command::new(script);
        command.arg(provider).env("MLMTRAIN_METADATA", &address).output().unwrap().status.success()
    };
    let said = || ["aws", "gcp", "azure"].map(ask);
    assert_eq!(said(), [false; 3]);

    let command = format!("MLMTRAIN_METADATA={address} {script} aws");
    let endless =
        ["--no-plan", "--preemption-command", &command, "--", "--set", "training.max_steps=1000000"];
    let mut child = start(&place, &endless);
    reach(&place, &mut child, 5);
    fs::write(place.path("notice"), "").unwrap();
    assert_eq!(said(), [true; 3]);
    let stopped = finish(child);
    assert!(stopped.code == Some(143) && stopped.stderr.contains("is saved"), "{stopped:#?}");
    assert!(stopped.stderr.contains("will be taken"), "{}", stopped.stderr);
    assert_eq!(fs::read_to_string(place.path("uploaded")).unwrap(), "143\n");
}

#[test]
fn a_job_that_slurm_requeues_twice_ends_in_the_same_bytes() {
    let missing = ["munged", "slurmctld", "slurmd"].into_iter().find(|program| !has(program));
    if missing.is_some() || fs::metadata("/proc/self").unwrap().uid() != 0 {
        return skipped("a Slurm to run a job in wants root, and Debian's slurm-wlm and munge");
    }
    let program = processes::program();
    let checked = bash(&format!("scripts/check_slurm.sh {}", program.display())).ok();
    assert!(checked.stdout.contains("requeued twice, and the same bytes"), "{checked:#?}");
    let on_two = checked.stdout.contains("requeued twice on two nodes, and the same bytes");
    assert_eq!(on_two, processes::has_mpi(), "{checked:#?}");
}

#[test]
fn the_unit_of_systemd_is_one() {
    if !has("systemd-analyze") {
        return skipped("there is no systemd-analyze to check the unit with");
    }
    let place = Workplace::new();
    let unit = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/vm/mlmtrain@.service"));
    let unit = unit.unwrap().replace("/opt/mlmtrain", env!("CARGO_MANIFEST_DIR"));
    fs::write(place.path("mlmtrain@.service"), unit).unwrap();
    let verified =
        bash(&format!("systemd-analyze verify {}", place.path("mlmtrain@.service").display())).ok();
    assert_eq!(verified.stderr, "");
}

#[test]
fn shellcheck_finds_nothing_in_any_script() {
    if !has("shellcheck") {
        return skipped("there is no shellcheck to read the scripts");
    }
    bash("find scripts .ci -name '*.sh' -o -name '*.sbatch' -o -path .ci/run | xargs -d '\\n' shellcheck")
        .ok();
}
