//! Row `disk-full`: the run folder lies on a small disk that is filled while the run is under way, and freed
//! again. Training goes on, the failed save is told, the next one works, and nothing is different at the end.

use std::fs;
use std::fs::File;
use std::io::Write;
use std::path::Path;

use anyhow::Result;

use crate::draw::Draw;
use crate::job::Job;
use crate::mounts::{Mount, hindrance};
use crate::place::Bench;
use crate::sitting::Sitting;
use crate::table::{Control, Outcome};

const SIGCONT: i32 = 18;
const SIGSTOP: i32 = 19;

const DISK_MIB: u64 = 8;

/// What the program says of a save that failed.
const TOLD: &str = "training goes on, but the checkpoint of step";

pub(crate) fn run(bench: &Bench, job: Job) -> Result<Outcome> {
    if let Some(why) = hindrance(&bench.fresh_path("probe-"), &["mount", "umount"]) {
        return Ok(Outcome::NotRun(why));
    }
    let count = bench.count(4, 40);
    let (mut misses, mut told) = (Vec::new(), 0);
    for number in 0..count {
        let mut draw = Draw::new(bench.seed, "disk full", number);
        let fault = fill(bench, job, &mut draw, true)?;
        told += usize::from(fault.is_none());
        misses.extend(fault);
    }
    let mut control = Control::default();
    let never_freed = fill(bench, job, &mut Draw::new(bench.seed, "disk full", 0), false)?;
    control.expect("never freed", never_freed.as_ref());
    Ok(control.outcome(format!("{told} of {count} runs went on and came to the same bytes"), misses))
}

/// Fills the disk of a run, half of the times while a checkpoint is written, and frees it again.
fn fill(bench: &Bench, job: Job, draw: &mut Draw, is_freed: bool) -> Result<Option<String>> {
    let (place, reference) = (bench.place()?, bench.reference(job)?);
    let _disk = Mount::memory(DISK_MIB, &place.run())?;
    let mut sitting = Sitting::start(bench.command(job, &place, &[]), &place)?;
    let first = 4 + draw.below(12) as u64;
    let in_a_save = draw.below(2) == 0;
    let begun = sitting.reach(|| place.last_step() >= first && (!in_a_save || place.is_saving()))?;
    let filler = place.run_path("filler");
    if !begun {
        return Ok(Some("it was over before the disk was full".to_string()));
    }
    fill_up(&filler)?;
    // It stands still while room is made.
    let is_told = sitting.reach_looking_at(|said| said.contains(TOLD))?;
    sitting.send(SIGSTOP)?;
    let steps_before = place.checkpoints();
    if is_freed {
        fs::remove_file(&filler)?;
    }
    sitting.send(SIGCONT)?;
    let ended = sitting.finish()?;
    let fault = if !is_told {
        Some(format!("no failed save was told: {:?} {}", ended.code, ended.stderr))
    } else if let Some(fault) = ended.fault(&[0]) {
        Some(fault)
    } else if place.checkpoints().last() <= steps_before.last() {
        Some(format!("no later save came: {steps_before:?}, {:?}", place.checkpoints()))
    } else {
        reference.difference(&place)
    };
    Ok(fault)
}

/// Writes until nothing more goes in.
fn fill_up(path: &Path) -> Result<()> {
    let mut file = File::create(path)?;
    for size in [1 << 16, 1 << 12, 1] {
        let block = vec![1; size];
        while file.write(&block).is_ok_and(|written| written > 0) {}
    }
    Ok(())
}
