//! Row `secrets`: a secret in the environment, in a URL, in values whose keys say what they are. It is in
//! nothing that the program prints or writes.

use std::fs;
use std::path::Path;

use anyhow::Result;

use crate::job::Job;
use crate::place::{Bench, Place};
use crate::sitting::{SIGTERM, Sitting};
use crate::table::{Control, Outcome};

const SECRET: &str = "hunter2-planted-e7c1";

/// Variables that carry secrets in the wild.
const VARIABLES: [&str; 5] =
    ["HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "WANDB_API_KEY", "PASSWORD", "DATABASE_URL"];

/// Keys that do not exist, and would be told with their values.
const UNKNOWN: [&str; 3] = ["hub_token", "api_key", "password"];

pub(crate) fn run(bench: &Bench, job: Job) -> Result<Outcome> {
    let (mut count, mut misses) = (0, Vec::new());
    let data = if job == Job::Finetune { "data.train_file" } else { "data.sources.0.files.0" };
    let url = format!("{data}=https://me:{SECRET}@example.com/corpus.csv");
    let model = format!(
        "{}=s3://me:{SECRET}@bucket/model",
        if job == Job::Finetune { "model" } else { "model.path" }
    );
    let unknown = UNKNOWN.map(|key| format!("run.{key}={SECRET}"));
    let cases = [vec![], vec![url], vec![model]].into_iter().chain(unknown.map(|set| vec![set]));
    for sets in cases {
        count += 1;
        misses.extend(hits(bench, job, &sets, count % 2 == 0)?);
    }
    let mut control = Control::default();
    // What is no secret by its name is kept: a run folder of that name is told.
    let told = hits(bench, job, &[format!("run.output_dir=run/{SECRET}")], false)?;
    control.expect("told as a folder", told.first());
    Ok(control.outcome(format!("{count} runs: {} hits", misses.len()), misses))
}

/// Files of a run in which the secret stands, its outputs included.
fn hits(bench: &Bench, job: Job, sets: &[String], is_stopped: bool) -> Result<Vec<String>> {
    let place = bench.place()?;
    let sets: Vec<&str> = sets.iter().map(String::as_str).collect();
    let mut command = bench.command(job, &place, &sets);
    for variable in VARIABLES {
        command.env(variable, SECRET);
    }
    let mut sitting = Sitting::start(command, &place)?;
    if is_stopped && sitting.reach(|| place.last_step() > 5)? {
        sitting.send(SIGTERM)?;
    }
    let ended = sitting.finish()?;
    let fault = ended.fault(&[0, 1, 2, 128 + SIGTERM]);
    let mut found: Vec<String> = fault.into_iter().collect();
    search(&place, &place.path(""), &mut found)?;
    Ok(found)
}

fn search(place: &Place, folder: &Path, found: &mut Vec<String>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            search(place, &path, found)?;
        } else if fs::read(&path)?.windows(SECRET.len()).any(|window| window == SECRET.as_bytes()) {
            let name = path.strip_prefix(place.path("")).unwrap_or(&path).display().to_string();
            found.push(format!("the secret stands in `{name}`"));
        }
    }
    Ok(())
}
