//! Row `planted-nan`: the model that a classifier begins with has a token whose embedding overflows, so each
//! batch with it has a loss that is not finite. The step is skipped, once for each time that the text comes
//! around, and all else is learnt; where every batch has it, the run ends with 76 and `replay` finds the
//! tensor. Both also under `kill -9`.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::compare::Reference;
use crate::draw::Draw;
use crate::job::{Job, STEPS};
use crate::place::{Bench, Place};
use crate::sitting::Sitting;
use crate::table::{Control, Outcome};
use crate::{compare, material};

/// A byte that stands in no text of the runs, and is a token of its own.
const RARE: &str = "~";

/// Examples of the training file, and how many a step takes.
const EXAMPLES: usize = 160;
const ROWS: usize = 8;

/// Finite, but the sum of squares of a normalisation is not.
const HUGE: f32 = 3e38;

pub(crate) fn run(bench: &Bench, job: Job) -> Result<Outcome> {
    let count = bench.count(2, 20);
    let mut misses = Vec::new();
    for number in 0..count {
        let mut draw = Draw::new(bench.seed, "planted", number);
        let example = draw.below(EXAMPLES);
        misses.extend(skipped(bench, job, Some(example), &mut draw)?);
    }
    misses.extend(diverged(bench, job)?);
    let mut control = Control::default();
    let nothing = skipped(bench, job, None, &mut Draw::new(bench.seed, "planted", 0))?;
    control.expect("no such text", nothing.as_ref());
    Ok(control.outcome(
        format!("{} of {} runs ended so", count + 1 - misses.len().min(count + 1), count + 1),
        misses,
    ))
}

/// What is wrong with a run in which one example has the token, and with the same run killed in its middle.
fn skipped(bench: &Bench, job: Job, example: Option<usize>, draw: &mut Draw) -> Result<Option<String>> {
    let (straight, killed) = (bench.place()?, bench.place()?);
    for place in [&straight, &killed] {
        plant(place, |number| Some(number) == example)?;
    }
    let ended = bench.finish(job, &straight, &[])?;
    if let Some(fault) = ended.fault(&[0]) {
        return Ok(Some(fault));
    }
    let state = compare::read_json(&straight.run_path(&format!("checkpoint-{STEPS}/trainer/state.json")))?;
    let skips = state["skipped_steps"].as_u64().context("a state counts what was skipped")?;
    // Whole rounds, and the beginning of another, in which it may come or not.
    let rounds = (STEPS as usize * ROWS / EXAMPLES) as u64;
    if !(rounds..=rounds + 1).contains(&skips) {
        return Ok(Some(format!("{skips} steps were skipped, not {rounds} or one more")));
    }
    if !ended.stderr.contains("skipped") {
        return Ok(Some(format!("does not say what was skipped: {}", ended.stderr)));
    }
    let reference = Reference::of(&straight, ended.seconds)?;
    let mut sitting = Sitting::start(bench.command(job, &killed, &[]), &killed)?;
    let step = 1 + draw.below(STEPS as usize - 2) as u64;
    if sitting.reach(|| killed.last_step() >= step)? {
        sitting.kill()?;
    }
    let ended = bench.finish(job, &killed, &[])?;
    Ok(ended.fault(&[0]).or(reference.difference(&killed)))
}

/// What is wrong with a run in which every example has the token.
fn diverged(bench: &Bench, job: Job) -> Result<Option<String>> {
    let place = bench.place()?;
    plant(&place, |_| true)?;
    let ended = bench.finish(job, &place, &[])?;
    if let Some(fault) = ended.fault(&[76]) {
        return Ok(Some(fault));
    }
    let Some(folder) = place.names().into_iter().find(|name| name.starts_with("diverged-")) else {
        return Ok(Some("left no step to do again".to_string()));
    };
    let mut command = Command::new(&bench.program);
    command.arg("replay").arg(place.run_path(&folder));
    let replayed = Sitting::start(command, &place)?.finish()?;
    let found = fs::read_to_string(place.path("out"))?;
    Ok(replayed.fault(&[0]).or((!found.contains("embeddings")).then(|| format!("replay says: {found}"))))
}

/// Makes the embedding of the rare token overflow, and writes it into the chosen examples.
fn plant(place: &Place, is_chosen: impl Fn(usize) -> bool) -> Result<()> {
    let base = place.path("base");
    let tokenizer = compare::read_json(&base.join("tokenizer.json"))?;
    let id = tokenizer["model"]["vocab"][RARE].as_u64().context("a byte is a token")? as usize;
    let path = base.join("model.safetensors");
    let mut bytes = fs::read(&path)?;
    let header_bytes = u64::from_le_bytes(bytes[..8].try_into()?) as usize;
    let header: Value = serde_json::from_slice(&bytes[8..8 + header_bytes])?;
    let entries = header.as_object().context("a header is an object")?;
    let (_, words) = entries
        .iter()
        .find(|(name, _)| name.ends_with("word_embeddings.weight"))
        .context("a model has word embeddings")?;
    let number = |value: &Value| value.as_u64().map(|number| number as usize).context("a number");
    let (start, width) = (number(&words["data_offsets"][0])?, number(&words["shape"][1])?);
    let row = 8 + header_bytes + start + 4 * width * id;
    for value in bytes[row..row + 4 * width].chunks_exact_mut(4) {
        value.copy_from_slice(&HUGE.to_le_bytes());
    }
    fs::write(&path, bytes)?;
    // Its hashes no longer hold: without them it is anybody's model.
    fs::remove_file(base.join("manifest.json"))?;
    let examples = material::examples(EXAMPLES);
    let mut lines: Vec<String> = examples.lines().map(str::to_string).collect();
    // The first line names the columns.
    for (number, line) in lines.iter_mut().skip(1).enumerate() {
        if is_chosen(number) {
            *line = line.replacen("the ", &format!("the {RARE} "), 1);
        }
    }
    Ok(fs::write(place.path("train.csv"), lines.join("\n") + "\n")?)
}
