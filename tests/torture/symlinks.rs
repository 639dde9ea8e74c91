//! Row `symlinks`: somebody who may write to the run folder plants links there, before and under the run,
//! under names that the program uses. Nothing outside the run folder is written to or removed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use anyhow::Result;

use crate::draw::Draw;
use crate::job::Job;
use crate::place::{Bench, Place};
use crate::sitting::Sitting;
use crate::table::{Control, Outcome};

/// Names below the run folder that the program writes to; `N` is a step, `P` the process.
const NAMES: [&str; 20] = [
    ".lock",
    ".tmp-P-config.yaml",
    ".tmp-P-machine.json",
    ".tmp-P-metrics.jsonl",
    ".tmp-P-all_results.json",
    ".tmp-checkpoint-N",
    ".tmp-checkpoint-N/trainer",
    ".tmp-checkpoint-N/model.safetensors",
    ".tmp-checkpoint-N/trainer/state.json",
    ".tmp-checkpoint-N/manifest.json",
    ".tmp-final",
    ".tmp-final/model.safetensors",
    ".old-checkpoint-N",
    "checkpoint-N",
    "checkpoint-N/model.safetensors",
    "config.yaml",
    "machine.json",
    "metrics.jsonl",
    "all_results.json",
    "final",
];

pub(crate) fn run(bench: &Bench, job: Job) -> Result<Outcome> {
    let count = bench.count(6, 60);
    let (mut misses, mut planted) = (Vec::new(), 0);
    for number in 0..count {
        let mut draw = Draw::new(bench.seed, "symlinks", number);
        let (links, faults) = race(bench, job, &mut draw, number % 2 == 0, false)?;
        planted += links;
        misses.extend(faults);
    }
    if planted < 10 * count {
        misses.push(format!("only {planted} links were planted"));
    }
    let mut control = Control::default();
    let followed = race(bench, job, &mut Draw::new(bench.seed, "symlinks", 0), true, true)?.1;
    control.expect("a link followed", followed.first());
    let figure = format!("{count} runs, {planted} links: {} changes outside", misses.len());
    Ok(control.outcome(figure, misses))
}

/// A run while links are planted; says how many were, and what changed outside.
fn race(
    bench: &Bench,
    job: Job,
    draw: &mut Draw,
    is_before: bool,
    follows: bool,
) -> Result<(usize, Vec<String>)> {
    let place = bench.place()?;
    let outside = place.path("outside");
    fs::create_dir_all(outside.join("trainer"))?;
    for name in ["file", "model.safetensors", "trainer/state.json"] {
        fs::write(outside.join(name), "not yours")?;
    }
    let before = tree(&outside)?;
    let mut links = 0;
    if is_before {
        fs::create_dir_all(place.run())?;
        let name = NAMES[draw.below(NAMES.len())];
        links += usize::from(plant(&place, &outside, name, 2, 0, draw.below(16) as u64));
    }
    let mut sitting = Sitting::start(bench.command(job, &place, &[]), &place)?;
    let (is_over, planted, process) = (AtomicBool::new(false), AtomicUsize::new(0), sitting.id());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let (name, step) = (NAMES[draw.below(NAMES.len())], 2 * draw.below(26) as u64);
                let hit = plant(&place, &outside, name, step, process, draw.below(16) as u64);
                planted.fetch_add(usize::from(hit), Ordering::Relaxed);
                std::thread::sleep(std::time::Duration::from_micros(100));
            }
        });
        let end = sitting.reach(|| false);
        is_over.store(true, Ordering::Relaxed);
        end
    })?;
    links += planted.into_inner();
    if follows {
        fs::write(outside.join("file"), "written to")?;
    }
    // How it ends is its own business, as long as it does not panic or hang.
    let ended = sitting.finish()?;
    let mut faults: Vec<String> = ended.fault(&[0, 1, 2, 74]).into_iter().collect();
    let after = tree(&outside)?;
    let names: BTreeSet<&PathBuf> = before.keys().chain(after.keys()).collect();
    let changed = names.into_iter().filter(|name| before.get(*name) != after.get(*name));
    faults.extend(changed.map(|name| format!("`{}` outside was changed", name.display())));
    Ok((links, faults))
}

/// Puts a link under a name, at times in the place of the file that is there.
fn plant(place: &Place, outside: &Path, name: &str, step: u64, process: u32, draw: u64) -> bool {
    let (to_file, replaces) = (draw.is_multiple_of(2), draw < 4);
    let name = name.replace('N', &step.to_string()).replace('P', &process.to_string());
    let target = if to_file { outside.join("file") } else { outside.to_path_buf() };
    let link = place.run_path(&name);
    // Below a link that was planted before, it would itself write outside.
    let real = |path: &Path| path.canonicalize().ok();
    let is_inside =
        link.parent().and_then(real).zip(real(&place.run())).is_some_and(|(a, b)| a.starts_with(b));
    if is_inside && replaces && link.is_file() {
        // The program may have been quicker.
        let _ = fs::remove_file(&link);
    }
    is_inside && symlink(target, link).is_ok()
}

fn tree(folder: &Path) -> Result<BTreeMap<PathBuf, Vec<u8>>> {
    let mut files = BTreeMap::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.is_symlink() {
                files.insert(path, b"a link".to_vec());
            } else if path.is_dir() {
                files.insert(path.clone(), Vec::new());
                folders.push(path);
            } else {
                files.insert(path.clone(), fs::read(&path)?);
            }
        }
    }
    Ok(files)
}
