//! `mlmtrain bench` as a user starts it: a row of figures that make sense, and errors that say what is
//! possible.

use std::process::{Command, Stdio};

use mlmtrain::instructions;
use mlmtrain::instructions::Instructions;
use serde_json::Value;

fn bench(arguments: &[&str]) -> (Option<i32>, String, String) {
    bench_with(arguments, None)
}

fn bench_with(arguments: &[&str], cap: Option<&str>) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mlmtrain"));
    command.arg("bench").args(arguments).current_dir(env!("CARGO_MANIFEST_DIR")).stdin(Stdio::null());
    command.envs(cap.map(|cap| (instructions::VARIABLE, cap)));
    let output = command.output().expect("starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn of_several_devices_a_missing_one_is_left_out() {
    let arguments =
        ["--model", "tiny", "--batch", "1", "--length", "16", "--steps", "1", "--seconds", "0", "--json"];
    let (code, stdout, stderr) = bench(&[&arguments[..], &["--device", "cpu,cuda:7"]].concat());
    assert_eq!((code, stdout.lines().count()), (Some(1), 1), "{stdout}{stderr}");
    assert!(stderr.contains("cuda:7 is left out: "), "{stderr}");
    assert!(stderr.contains("error: 1 of 2 rows could not be measured"), "{stderr}");
    let (code, stdout, _) = bench(&[&arguments[..], &["--device", "cuda:7"]].concat());
    assert_eq!((code, stdout.as_str()), (Some(2), ""));
}

#[test]
fn a_row_has_figures_that_make_sense() {
    let (code, stdout, stderr) = bench(&[
        "--model",
        "tiny",
        "--batch",
        "1,2",
        "--length",
        "16",
        "--steps",
        "1",
        "--seconds",
        "0",
        "--threads",
        "2",
        "--json",
    ]);
    assert_eq!(code, Some(0), "{stderr}");
    let rows: Vec<Value> = stdout.lines().map(|line| serde_json::from_str(line).expect("is JSON")).collect();
    assert_eq!(rows.len(), 2, "{stdout}");
    for (row, batch) in rows.iter().zip([1.0, 2.0]) {
        let number = |name: &str| row[name].as_f64().unwrap_or_else(|| panic!("{name} in {row}"));
        assert_eq!(
            (&row["model"], &row["compute"], &row["fits"]),
            (&"tiny".into(), &"f32".into(), &true.into())
        );
        assert_eq!(
            (number("batch"), number("length"), number("threads"), number("timed_steps")),
            (batch, 16.0, 2.0, 1.0)
        );
        let step_seconds = number("step_seconds");
        assert!(step_seconds > 0.0 && number("mfu") > 0.0, "{row}");
        assert!((number("tokens_per_second") * step_seconds / (16.0 * batch) - 1.0).abs() < 1e-9, "{row}");
        assert!((number("examples_per_second") * step_seconds / batch - 1.0).abs() < 1e-9, "{row}");
        // 1.5 million parameters with gradients and moments are 24 MB.
        if cfg!(target_os = "linux") {
            assert!((24e6..2e9).contains(&number("peak_memory_bytes")), "{row}");
        }
    }
}

/// The table of fine-tuning that people look for before they rent: by device and batch, with an epoch's
/// price.
#[test]
fn a_classifier_is_timed_and_an_epoch_priced() {
    let arguments = ["--task", "classify", "--model", "tiny", "--batch", "2,1000000", "--length", "16"];
    let few =
        ["--steps", "1", "--seconds", "0", "--device", "cpu", "--examples", "1000", "--usd-per-hour", "36"];
    let (code, stdout, stderr) = bench(&[&arguments[..], &few, &["--json"]].concat());
    assert_eq!(code, Some(0), "{stderr}");
    let rows: Vec<Value> = stdout.lines().map(|line| serde_json::from_str(line).expect("is JSON")).collect();
    let number = |name: &str| rows[0][name].as_f64().unwrap_or_else(|| panic!("{name} in {stdout}"));
    assert_eq!((&rows[0]["task"], &rows[0]["device"]), (&"classify".into(), &"cpu".into()));
    assert!((number("epoch_seconds") * number("examples_per_second") / 1000.0 - 1.0).abs() < 1e-9);
    assert!((number("epoch_usd") * 100.0 / number("epoch_seconds") - 1.0).abs() < 1e-9);
    assert_eq!((&rows[1]["fits"], &rows[1]["epoch_seconds"]), (&false.into(), &Value::Null), "{stdout}");
}

/// The child that measures has the cap, too, and a cap that is higher than the processor raises nothing.
#[test]
fn the_instructions_and_their_cap_are_told() {
    let arguments = ["--model", "tiny", "--batch", "1", "--length", "16", "--steps", "1", "--seconds", "0"];
    let arguments = [&arguments[..], &["--compute", "bf16", "--device", "cpu", "--json"]].concat();
    let machine = instructions::choice().expect("no wrong cap").machine;
    for cap in [Instructions::Avx2, Instructions::Amx] {
        let (code, stdout, stderr) = bench_with(&arguments, Some(cap.name()));
        assert_eq!(code, Some(0), "{stderr}");
        let row: Value = serde_json::from_str(&stdout).expect("is JSON");
        let taken = machine.min(cap).name();
        assert_eq!((&row["instructions"], &row["instructions_cap"]), (&taken.into(), &cap.name().into()));
        assert!(stderr.contains(&format!(" in bf16 by {taken}")), "{stderr}");
        let notes = stderr.matches(&format!("note: MLMTRAIN_CPU={} ", cap.name())).count();
        assert_eq!(notes, usize::from(machine != cap), "{stderr}");
    }
}

#[test]
fn what_is_no_model_is_exit_code_2_and_the_names_of_those_that_are() {
    let (code, stdout, stderr) = bench(&["--model", "tiny,configs/huge.yaml"]);
    assert_eq!((code, stdout.as_str()), (Some(2), ""));
    insta::assert_snapshot!(stderr, @"
    error: --model: `configs/huge.yaml` is neither a model's name nor a file
      hint: take tiny, small, base, large, electra-small, electra-base, distilbert-small, distilbert-base, modernbert-small, modernbert-base, deberta-v3-small, deberta-v3-base, albert-small, albert-base, mpnet-small, mpnet-base, neobert-small, neobert-base, or the path of a model folder or of a configuration of `pretrain` or `finetune`
    ");
}

#[test]
fn what_cannot_fit_is_said_without_trying() {
    let (code, stdout, stderr) =
        bench(&["--model", "large", "--batch", "1000000", "--length", "512", "--quiet"]);
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    let lines: Vec<&str> = stdout.lines().collect();
    assert!(lines.len() == 2 && lines[1].contains("out of memory: needs about "), "{stdout}");
}

#[test]
fn the_most_rows_of_a_gpu_grow_with_it_and_with_gradient_checkpointing() {
    let sizes = "1GiB,2GiB,16GiB";
    let (code, table, stderr) = bench(&["--model", "tiny", "--length", "64,256", "--most-rows-on", sizes]);
    assert_eq!(code, Some(0), "{stderr}");
    let lines: Vec<Vec<usize>> = table.lines().skip(1).map(numbers_at_the_end).collect();
    assert_eq!(lines.len(), 4, "two lengths, without and with: {lines:?}");
    for line in &lines {
        assert_eq!(line[0], 0, "a GiB is left to CUDA");
        assert!(0 < line[1] && line[1] < line[2], "{line:?}");
    }
    for pair in lines.chunks(2) {
        assert!(pair[0][2] < pair[1][2], "{pair:?}");
    }
    assert!(lines[2][2] < lines[0][2], "longer rows are fewer: {lines:?}");
}

/// The last three columns.
fn numbers_at_the_end(line: &str) -> Vec<usize> {
    let cells: Vec<&str> = line.split_whitespace().collect();
    cells[cells.len() - 3..].iter().map(|cell| cell.parse().expect("a number of rows")).collect()
}
