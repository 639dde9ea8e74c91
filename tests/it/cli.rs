//! The built program: exit codes, and what goes to standard output and to standard error.

use std::fs::{File, OpenOptions};
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn mlmtrain(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mlmtrain"));
    command.args(arguments).current_dir(env!("CARGO_MANIFEST_DIR")).stdin(Stdio::null());
    command
}

fn run(arguments: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = mlmtrain(arguments).output().expect("starts");
    (
        status.code(),
        String::from_utf8_lossy(&stdout).into_owned(),
        String::from_utf8_lossy(&stderr).into_owned(),
    )
}

#[test]
fn a_right_configuration_is_said_to_be_right() {
    let (code, stdout, stderr) = run(&["config", "check", "configs/quickstart.yaml"]);
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    insta::assert_snapshot!(stdout, @"configs/quickstart.yaml: OK (configuration of `pretrain`)");
}

#[test]
fn a_wrong_configuration_is_exit_code_2_and_all_its_problems() {
    let sets = [
        "--set",
        "training.warmpu_steps=5",
        "--set",
        "data.max_seq_length=65",
        "--set",
        "training.adam_beta2=2",
    ];
    let (code, stdout, stderr) = run(&[&["config", "check", "configs/quickstart.yaml"][..], &sets].concat());
    assert_eq!((code, stdout.as_str()), (Some(2), ""));
    insta::assert_snapshot!(stderr, @r#"
    error: --set data.max_seq_length: `data.max_seq_length` 65 is longer than the 64 positions of the model (`model.roberta.max_position_embeddings` 66, the first 2 of which RoBERTa leaves unused)
      hint: shorten the sequences or set `max_position_embeddings: 67`
    error: --set training.adam_beta2: `training.adam_beta2` is 2, it must be at least 0 and below 1
      hint: `0.999` is usual
    error: --set training.warmpu_steps: unknown key `warmpu_steps` in `training`
      hint: did you mean `warmup_steps`?
    "#);
}

#[test]
fn help_and_version_are_results_and_a_wrong_command_line_is_not() {
    let (code, stdout, stderr) = run(&["--version"]);
    let more = if mlmtrain::distributed::MPI {
        "processes: MPI\nbuilt without the features: cuda, nccl\n"
    } else {
        "built without the features: cuda, nccl, mpi\n"
    };
    let version = concat!("mlmtrain ", env!("CARGO_PKG_VERSION"), "\n").to_string() + more;
    assert_eq!((code, stdout, stderr.as_str()), (Some(0), version, ""));
    let (code, stdout, _) = run(&["finetune", "--help"]);
    assert!(code == Some(0) && stdout.contains("Examples:"), "{stdout}");
    let (code, stdout, stderr) = run(&["pretrian"]);
    assert_eq!((code, stdout.as_str()), (Some(2), ""));
    assert!(stderr.contains("'pretrain'"), "{stderr}");
}

#[test]
fn a_wrong_cap_on_instructions_is_exit_code_2_and_those_that_are_right() {
    let mut command = mlmtrain(&["config", "check", "configs/quickstart.yaml"]);
    let output = command.env("MLMTRAIN_CPU", "sse9").output().expect("starts");
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(2), &b""[..]));
    insta::assert_snapshot!(String::from_utf8_lossy(&output.stderr), @"
    error: MLMTRAIN_CPU: `sse9` is not a set of instructions
      hint: set it to one of `avx2`, `avx512`, `avx512-bf16`, `amx`, or unset it to use all that the processor has
    ");
}

#[test]
fn completions_name_the_subcommands() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let (code, stdout, stderr) = run(&["completions", shell]);
        assert!(code == Some(0) && stdout.contains("pretrain") && stderr.is_empty(), "{shell}");
    }
}

#[test]
fn the_schema_is_json() {
    for of in ["pretrain", "finetune"] {
        let (code, stdout, _) = run(&["config", "schema", of]);
        assert_eq!(code, Some(0));
        let schema: serde_json::Value = serde_json::from_str(&stdout).expect("is JSON");
        assert_eq!(schema["type"], "object");
    }
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    for arguments in [&["config", "schema"][..], &["completions", "bash"], &["--help"]] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let output = mlmtrain(arguments).stdout(writer).stderr(Stdio::piped()).output().expect("starts");
        assert_eq!(
            (output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()),
            (Some(0), ""),
            "{arguments:?}"
        );
    }
}

#[test]
fn a_full_disk_behind_standard_output_is_exit_code_74() {
    if !Path::new("/dev/full").exists() {
        return;
    }
    let full = || OpenOptions::new().write(true).open("/dev/full").expect("opens");
    for arguments in [&["config", "show", "configs/quickstart.yaml"][..], &["--help"]] {
        let output = mlmtrain(arguments).stdout(full()).stderr(Stdio::piped()).output().expect("starts");
        assert_eq!(output.status.code(), Some(74), "{arguments:?}");
        let told = String::from_utf8_lossy(&output.stderr);
        if arguments[0] == "config" {
            assert!(told.contains("free some room") && !told.contains("continue"), "{told}");
        }
    }
    let unheard = mlmtrain(&["config", "check", "no.yaml"])
        .stderr(full())
        .stdout(File::create("/dev/null").expect("opens"))
        .status();
    assert_eq!(
        unheard.expect("starts").code(),
        Some(2),
        "an error that cannot be printed keeps its exit code"
    );
}
