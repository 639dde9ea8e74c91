//! Tests of the rows that flags make, of their format, and of the outcomes of a child that failed.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use clap::Parser;
use serde_json::json;

use super::*;
use crate::commands::bench::job::{Timed, failure};
use crate::commands::cli::{Cli, Command};
use crate::families::{HeadKind, named_model};
use crate::interop::HubConfig;
use crate::precision::Hardware;

fn parse(line: &str) -> Result<BenchArgs, String> {
    match Cli::try_parse_from(["mlmtrain", "bench"].into_iter().chain(line.split_whitespace())) {
        Ok(Cli { command: Command::Bench(args), .. }) => Ok(args),
        Ok(other) => panic!("{other:?}"),
        Err(e) => Err(e.to_string()),
    }
}

fn labels(line: &str) -> Vec<String> {
    rows(&parse(line).unwrap()).unwrap().iter().map(|(model, case)| label(model, case)).collect()
}

#[test]
fn rows_are_every_combination_in_the_order_of_the_flags() {
    assert_eq!(
        labels("--model tiny,base --batch 8,16 --compute f32,bf16"),
        [
            "tiny 8 x 128 f32",
            "tiny 8 x 128 bf16",
            "tiny 16 x 128 f32",
            "tiny 16 x 128 bf16",
            "base 8 x 128 f32",
            "base 8 x 128 bf16",
            "base 16 x 128 f32",
            "base 16 x 128 bf16"
        ]
    );
    assert_eq!(
        labels("--model tiny --length 32,512 --model large --compute f16"),
        ["tiny 8 x 32 f16", "tiny 8 x 512 f16", "large 8 x 32 f16", "large 8 x 512 f16"]
    );
}

#[test]
fn a_configuration_gives_the_values_without_flags() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/configs/quickstart.yaml");
    let compute = Hardware::cpu().best().name();
    assert_eq!(labels(&format!("--model {file}")), [format!("{file} 32 x 64 {compute}")]);
    assert_eq!(labels(&format!("--model {file} --batch 4")), [format!("{file} 4 x 64 {compute}")]);
    let (_, case) = rows(&parse(&format!("--model {file}")).unwrap()).unwrap().remove(0);
    assert_eq!(case.model.encoder.vocab_size, 4096);
    // If the share of masked tokens grows during a run, the largest steps are the last ones.
    let folder = tempfile::tempdir().unwrap();
    let growing = folder.path().join("growing.yaml");
    let text = std::fs::read_to_string(file).unwrap();
    let text = text.replacen("\nmlm:\n", "\nmlm:\n  mlm_probability_end: 0.4\n", 1);
    std::fs::write(&growing, text).unwrap();
    let (_, case) = rows(&parse(&format!("--model {}", growing.display())).unwrap()).unwrap().remove(0);
    let TimedTask::Pretraining { masked_share, .. } = case.task else { panic!("{:?}", case.task) };
    assert_eq!(masked_share.to_bits(), 0.4f64.to_bits());
}

/// `--task classify` takes its model from a name, from a pretraining configuration, or from a folder.
#[test]
fn classifiers_have_the_shape_of_a_name_a_configuration_or_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let model = named_model("distilbert-small").unwrap();
    let config = HubConfig::new(model.clone(), HeadKind::MaskedLm, None).to_json();
    std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/configs/quickstart.yaml");
    let models = format!("tiny,{file},{}", folder.path().display());
    let cases = rows(&parse(&format!("--task classify --labels 7 --model {models}")).unwrap()).unwrap();
    assert_eq!(cases.iter().map(|(_, case)| case.length).collect::<Vec<_>>(), [128, 64, 128]);
    for (_, case) in &cases {
        assert_eq!(case.task, TimedTask::Classification { labels: 7 });
    }
    assert_eq!(cases[2].1.model, model);
}

#[test]
fn errors_name_the_possible_values() {
    insta::assert_snapshot!(wrong("--model huge"), @"
    --model: `huge` is neither a model's name nor a file
      hint: take tiny, small, base, large, electra-small, electra-base, distilbert-small, distilbert-base, modernbert-small, modernbert-base, deberta-v3-small, deberta-v3-base, albert-small, albert-base, mpnet-small, mpnet-base, neobert-small, neobert-base, or the path of a model folder or of a configuration of `pretrain` or `finetune`
    ");
    insta::assert_snapshot!(wrong("--model base --length 128,1024"), @"
    --length: rows of 1024 tokens are longer than the 512 positions of `base`
      hint: take at most 512
    ");
    insta::assert_snapshot!(wrong("--model tiny --labels 2"), @"
    --labels: is for `--task classify`
      hint: leave it out
    ");
    insta::assert_snapshot!(wrong("--model tiny --task classify --short"), @"
    --short: is for pretraining: a row of classification is one text
      hint: leave it out
    ");
    for line in [
        "",
        "--model tiny --batch 0",
        "--model tiny --batch 8,",
        "--model tiny --seconds -1",
        "--model tiny --seconds nan",
        "--model tiny --labels 0",
        "--model tiny --examples 0",
        "--model tiny --usd-per-hour 2",
        "--model tiny --examples 9 --usd-per-hour -1",
        "--model tiny --device cpu,gpu",
    ] {
        assert!(parse(line).is_err(), "{line}");
    }
    let message = parse("--model tiny --compute fp16").unwrap_err();
    assert!(message.contains("f32, bf16, f16"), "{message}");
}

/// A model's name, its case, and an outcome on a machine of 240 GFLOP/s in f32.
type Sample = (&'static str, Case, Outcome);

/// The error of the rows of a command line.
fn wrong(line: &str) -> String {
    rows(&parse(line).unwrap()).unwrap_err().to_string()
}

fn machine() -> Machine {
    Machine {
        threads: 2,
        device: "cpu".to_string(),
        name: "the CPU".to_string(),
        instructions: vec![(ComputeType::F32, "avx2".to_string())],
        instructions_cap: Some("avx2".to_string()),
        flops_per_second: vec![(ComputeType::F32, 240e9)],
        bytes_per_second: Some(30e9),
        memory_bytes: None,
        notes: Vec::new(),
    }
}

fn sample(name: &'static str, compute: ComputeType, step_flops: f64, median_seconds: f64) -> Sample {
    let (_, case) = rows(&parse(&format!("--model {name} --batch 32")).unwrap()).unwrap().remove(0);
    let case = Case { compute, ..case };
    let timed = Timed {
        median_seconds,
        least_seconds: median_seconds / 1.25,
        steps: 5,
        step_flops,
        peak_memory_bytes: Some(150_000_000),
    };
    let outcome = Outcome::Done(Measured::new(&case, &timed, &machine()).unwrap());
    (name, case, outcome)
}

fn samples() -> Vec<Sample> {
    let tiny = sample("tiny", ComputeType::F32, 15e9, 0.125);
    let base = sample("base", ComputeType::Bf16, 2.3e12, 16.0);
    let no_room = Outcome::DoesNotFit("needs about 9GiB, 5.5GiB are free".to_string());
    let large = ("large", base.1.clone(), no_room);
    let failed = ("tiny", tiny.1.clone(), Outcome::Failed("no \u{1b}[2J".to_string()));
    vec![tiny, base, large, failed]
}

fn row<'a>(sample: &'a Sample, machine: &'a Machine) -> Row<'a> {
    let (model, case, outcome) = sample;
    Row { model, case, machine, outcome: outcome.clone() }
}

fn table(epoch: Option<Epoch>) -> String {
    let samples = samples();
    let machine = machine();
    let table = Table::new(samples.iter().map(|(model, ..)| *model), epoch);
    let lines = samples.iter().map(|sample| table.line(&row(sample, &machine)));
    std::iter::once(table.header()).chain(lines).collect::<Vec<_>>().join("\n")
}

#[test]
fn steps_faster_than_the_peak_have_no_share_of_it() {
    for (step_flops, share) in [(24e9, Some(1.0)), (25e9, None)] {
        let (_, _, outcome) = sample("tiny", ComputeType::F32, step_flops, 0.1);
        let Outcome::Done(measured) = outcome else { panic!("{outcome:?}") };
        assert_eq!(measured.mfu, share);
        assert_eq!(is_above_peak(&measured, machine().peak(ComputeType::F32)), share.is_none());
    }
}

#[test]
fn the_table_is_aligned() {
    insta::assert_snapshot!(table(None), @r"
    model device  batch  length  compute  examples/s    tokens/s      step     MFU  peak memory
    tiny  cpu        32     128  f32             256      32,768  125.0 ms  50.0 %     143.1MiB
    base  cpu        32     128  bf16            2.0         256   16.00 s       -     143.1MiB
    large cpu        32     128  bf16     out of memory: needs about 9GiB, 5.5GiB are free
    tiny  cpu        32     128  f32      failed: no \u{1b}[2J
    ");
    insta::assert_snapshot!(table(Some(Epoch { examples: 120_000, usd_per_hour: Some(0.6) })), @r"
    model device  batch  length  compute  examples/s    tokens/s      step     MFU  peak memory  min/epoch  cents/epoch
    tiny  cpu        32     128  f32             256      32,768  125.0 ms  50.0 %     143.1MiB        7.8          7.8
    base  cpu        32     128  bf16            2.0         256   16.00 s       -     143.1MiB      1,000        1,000
    large cpu        32     128  bf16     out of memory: needs about 9GiB, 5.5GiB are free
    tiny  cpu        32     128  f32      failed: no \u{1b}[2J
    ");
    let without_price = table(Some(Epoch { examples: 120_000, usd_per_hour: None }));
    assert!(without_price.contains("min/epoch") && !without_price.contains("cents"), "{without_price}");
}

#[test]
fn a_row_is_one_object() {
    let samples = samples();
    let machine = machine();
    let epoch = Some(Epoch { examples: 2560, usd_per_hour: Some(3.6) });
    let objects: Vec<serde_json::Value> =
        samples.iter().map(|sample| row(sample, &machine).to_json(epoch)).collect();
    let predicted = samples[0].1.predicted_bytes(false).unwrap();
    assert_eq!(
        objects[0],
        json!({
            "model": "tiny", "task": "pretrain", "batch": 32, "length": 128, "compute": "f32", "device": "cpu",
            "threads": 2, "fits": true, "instructions": "avx2", "instructions_cap": "avx2",
            "examples_per_second": 256.0, "tokens_per_second": 32768.0, "step_seconds": 0.125, "least_step_seconds": 0.1,
            "timed_steps": 5, "flops_per_second": 1.2e11, "mfu": 0.5, "peak_memory_bytes": 150_000_000,
            "predicted_memory_bytes": predicted, "epoch_seconds": 10.0, "epoch_usd": 0.01, "problem": null
        })
    );
    assert_eq!((&objects[1]["mfu"], &objects[1]["compute"]), (&json!(null), &json!("bf16")));
    assert_eq!((&objects[2]["fits"], &objects[2]["tokens_per_second"]), (&json!(false), &json!(null)));
    assert_eq!(&objects[2]["epoch_seconds"], &json!(null));
    assert_eq!((&objects[3]["fits"], &objects[3]["problem"]), (&json!(null), &json!("no \u{1b}[2J")));
    assert!(objects.iter().all(|object| !object.to_string().contains('\n')));
}

#[test]
fn a_child_out_of_memory_is_not_a_failure() {
    let killed = ExitStatus::from_raw(9);
    let aborted = ExitStatus::from_raw(6);
    let error = ExitStatus::from_raw(1 << 8);
    assert_eq!(failure_text(killed, ""), "out of memory");
    assert_eq!(failure_text(aborted, "memory allocation of 8589934592 bytes failed\n"), "out of memory");
    assert_eq!(
        failure_text(error, "error: linear: no implementation for BF16\n  hint: wait\n"),
        "linear: no implementation for BF16"
    );
    assert!(failure_text(aborted, "thread 'main' panicked").ends_with(": thread 'main' panicked"));
}

fn failure_text(status: ExitStatus, errors: &str) -> String {
    match failure(status, errors) {
        Ended::OutOfMemory => "out of memory".to_string(),
        Ended::Failed(message) => message,
        other => panic!("{other:?}"),
    }
}

/// Typed by hand, `bench-job` names the command to use instead.
#[test]
fn the_hidden_command_is_not_for_people() {
    let Ok(Cli { command: Command::BenchJob(args), .. }) =
        Cli::try_parse_from(["mlmtrain", "bench-job", "hello"])
    else {
        panic!()
    };
    let message = run_job(&args).unwrap_err().to_string();
    assert!(message.starts_with("`bench-job` is for `mlmtrain bench` to start"), "{message}");
}

#[test]
fn a_fine_tuned_folder_is_timed_as_a_classifier() {
    let folder = tempfile::tempdir().unwrap();
    let labels = vec!["a".to_string(), "b".to_string(), "c".to_string()];
    let model = named_model("tiny").unwrap();
    let config = HubConfig::new(model, HeadKind::SequenceClassification, Some(labels)).to_json();
    std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    let flags = format!("--model {}", folder.path().display());
    for (more, task) in [
        ("", TimedTask::Classification { labels: 3 }),
        ("--labels 7", TimedTask::Classification { labels: 7 }),
        ("--task pretrain", pretraining()),
    ] {
        let rows = rows(&parse(&format!("{flags} {more}")).unwrap()).unwrap();
        assert_eq!(rows[0].1.task, task, "{more}");
    }
}
