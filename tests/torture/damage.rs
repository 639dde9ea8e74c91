//! Row `damage`: a bit is flipped in each KiB of a checkpoint, and each of its files is cut off in each of
//! its KiB. All of it is found, and the older checkpoint used.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::compare;
use crate::draw::Draw;
use crate::job::{Job, STEPS};
use crate::place::{Bench, Place};
use crate::readers::reseal;
use crate::table::{Control, Outcome};

const OLDER: u64 = STEPS - 2;

pub(crate) fn run(bench: &Bench, job: Job) -> Result<Outcome> {
    let place = bench.place()?;
    bench.finish(job, &place, &["training.save_total_limit=2"])?.ok()?;
    let folder = place.run_path(&format!("checkpoint-{STEPS}"));
    let (mut draw, mut count, mut misses) = (Draw::new(bench.seed, "damage", 0), 0, Vec::new());
    for file in files_below(&folder)? {
        let whole = fs::read(&file)?;
        for damaged in damages(&whole, &mut draw) {
            count += 1;
            fs::write(&file, damaged)?;
            misses.extend(unfound(&place.run(), &file)?);
        }
        fs::write(&file, whole)?;
    }
    let runs = bench.count(2, 20);
    for number in 0..runs {
        misses.extend(goes_on(bench, job, &mut Draw::new(bench.seed, "damage run", number))?);
    }
    let mut control = Control::default();
    control.expect("hashes made to match", unhashed(&place, &folder, &mut draw)?.as_ref());
    let found = count + runs - misses.len();
    Ok(control.outcome(format!("{found} of {} found, {runs} of them by whole runs", count + runs), misses))
}

/// The file with a bit flipped in each KiB, then cut off in each.
fn damages(whole: &[u8], draw: &mut Draw) -> Vec<Vec<u8>> {
    let mut damaged = Vec::new();
    for start in (0..whole.len()).step_by(1024) {
        let length = (whole.len() - start).min(1024);
        let mut flipped = whole.to_vec();
        flipped[start + draw.below(length)] ^= 1 << draw.below(8);
        damaged.push(flipped);
        damaged.push(whole[..start + draw.below(length)].to_vec());
    }
    damaged
}

/// What is wrong with how a damaged file is met: it is to be refused by its name, and the older one found.
fn unfound(run: &Path, file: &Path) -> Result<Option<String>> {
    let (newest, refused) = compare::newest(run)?;
    let name = file.file_name().context("a file has a name")?.to_string_lossy().into_owned();
    let is_found = newest == Some(OLDER) && refused.iter().any(|why| why.contains(&name));
    Ok((!is_found).then(|| format!("damage in {name}: {newest:?} is used, refused: {refused:?}")))
}

/// A whole run after a flip: it says so, goes on from the older one, and ends in the same bytes.
fn goes_on(bench: &Bench, job: Job, draw: &mut Draw) -> Result<Option<String>> {
    let place = bench.place()?;
    bench.finish(job, &place, &[])?.ok()?;
    fs::remove_file(place.run_path("all_results.json"))?;
    let files = files_below(&place.run_path(&format!("checkpoint-{STEPS}")))?;
    let file = &files[draw.below(files.len())];
    let mut bytes = fs::read(file)?;
    let at = draw.below(bytes.len());
    bytes[at] ^= 1 << draw.below(8);
    fs::write(file, bytes)?;
    let ended = bench.finish(job, &place, &[])?;
    if let Some(fault) = ended.fault(&[0]) {
        return Ok(Some(fault));
    }
    if !ended.stderr.contains(&format!("resuming after step {OLDER} of")) {
        return Ok(Some(format!("byte {at} of {} was not found: {}", file.display(), ended.stderr)));
    }
    Ok(bench.reference(job)?.difference(&place))
}

/// Flips in the weights with a manifest that vouches for them: as if there were no hashes.
fn unhashed(place: &Place, folder: &Path, draw: &mut Draw) -> Result<Option<String>> {
    let file = folder.join("model.safetensors");
    let mut bytes = fs::read(&file)?;
    let half = bytes.len() / 2;
    bytes[half + draw.below(half)] ^= 1;
    fs::write(&file, bytes)?;
    reseal(folder, "model.safetensors")?;
    unfound(&place.run(), &file)
}

fn files_below(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = mlmtrain::fs::files_below(folder)?;
    files.sort();
    Ok(files)
}
