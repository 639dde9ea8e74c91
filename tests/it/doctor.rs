//! `mlmtrain doctor` as a user starts it: what it says of this machine agrees with what a run does.

use std::process::{Command, Stdio};

use mlmtrain::instructions;
use mlmtrain::instructions::Instructions;
use mlmtrain::precision::Hardware;
use serde_json::Value;

fn doctor(arguments: &[&str], variables: &[(&str, &str)]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mlmtrain"));
    command.arg("doctor").args(arguments).stdin(Stdio::null()).envs(variables.iter().copied());
    let output = command.output().expect("starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert_eq!(
        (output.status.code(), text(&output.stderr).as_str()),
        (Some(0), ""),
        "{}",
        text(&output.stdout)
    );
    text(&output.stdout)
}

fn object(variables: &[(&str, &str)]) -> Value {
    serde_json::from_str(&doctor(&["--json"], variables)).expect("is one object")
}

#[test]
fn it_tells_what_the_library_finds() {
    let machine = object(&[]);
    let choice = instructions::choice().expect("no wrong cap");
    assert_eq!(machine["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(machine["processor"]["instructions"], choice.machine.name());
    assert_eq!(machine["processor"]["in_use"], choice.in_use().name());
    let run = &machine["run"];
    assert_eq!(run["compute"], run["compute_auto"]);
    if run["device"] == "cpu" {
        assert_eq!(run["compute"], Hardware::cpu().best().name());
    }
    let threads = std::thread::available_parallelism().map_or(0, usize::from);
    assert_eq!(run["threads"], threads);
    assert!(machine["disk"][0]["free_bytes"].is_u64(), "{machine}");
}

#[test]
fn the_cap_and_what_follows_from_it_are_told() {
    let machine = instructions::choice().expect("no wrong cap").machine;
    let capped = object(&[("MLMTRAIN_CPU", "avx2")]);
    let taken = machine.min(Instructions::Avx2).name();
    assert_eq!(capped["processor"]["cap"], "avx2");
    assert_eq!(capped["processor"]["instructions"], machine.name());
    assert_eq!(capped["processor"]["products"][1]["instructions"], taken);
    assert_eq!(capped["processor"]["products"][1]["widened"], true);
    if capped["run"]["device"] == "cpu" {
        assert_eq!(capped["run"]["compute"], "f32");
    }
}

#[test]
fn the_tables_have_every_part_and_a_machine_among_several_is_refused() {
    let text = doctor(&[], &[("WORLD_SIZE", "4")]);
    for part in ["processor", "memory", "GPUs", "CUDA libraries", "free disk", "a run would take"] {
        assert!(text.lines().any(|line| line == part), "{part}: {text}");
    }
    assert!(
        text.contains("it would be refused: `WORLD_SIZE` says that this is one of 4 processes"),
        "{text}"
    );
}

/// A library where a user has it, by the environment of the program.
#[test]
fn a_library_in_a_virtual_environment_is_found() {
    let environment = tempfile::tempdir().expect("a temporary folder");
    let folder = environment.path().join("lib/python3.12/site-packages/nvidia/cu13/lib");
    std::fs::create_dir_all(&folder).expect("a writable folder");
    for name in ["libcublas.so.13", "libcublasLt.so.13", "libcurand.so.10"] {
        std::fs::write(folder.join(name), "").expect("a writable folder");
    }
    let path = environment.path().canonicalize().expect("it is there").display().to_string();
    let machine = object(&[("VIRTUAL_ENV", &path), ("LD_LIBRARY_PATH", ""), ("CUDA_VISIBLE_DEVICES", "")]);
    let found = machine["cuda_libraries"]["found"].as_array().expect("a list");
    let there: Vec<&Value> = found.iter().filter(|library| library["name"] != "libcuda.so.1").collect();
    assert_eq!(there.len(), 3);
    for library in there {
        assert!(library["path"].as_str().is_some_and(|found| found.starts_with(&path)), "{library}");
    }
}
