//! Rows `kill` and `kill-ahead`: `kill -9` at random moments, half of them in the middle of a save, each run
//! again and again until it is complete. Its joined records and final weights must be those of an undisturbed
//! run. In the first one training waits for each save, in the second it goes on meanwhile, and the checkpoint
//! that is being written may be lost.

use std::fs;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::compare;
use crate::compare::Reference;
use crate::draw::{Draw, on_all_cores};
use crate::job::{Job, SAVE_STEPS};
use crate::place::{Bench, Place};
use crate::sitting::Sitting;
use crate::table::{Control, Outcome};

/// A run that is killed this often is then left to come to its end.
const KILLS_OF_A_RUN: usize = 10;

/// What came of one run.
#[derive(Default)]
struct Chain {
    kills: usize,
    in_a_save: usize,
    faults: Vec<String>,
}

/// What is done to a run folder after a kill.
type Sabotage = fn(&Place) -> Result<bool>;

/// How checkpoints are written.
#[derive(Clone, Copy)]
struct Saving {
    sets: &'static [&'static str],
    /// Steps by which the last whole checkpoint may be older than one that training waited for.
    lag: u64,
}

const WAITING: Saving = Saving { sets: &[], lag: 0 };
const AHEAD: Saving = Saving { sets: &["training.save_in_background=true"], lag: SAVE_STEPS };

pub(crate) fn run(bench: &Bench, job: Job) -> Result<Outcome> {
    killed(bench, job, WAITING)
}

pub(crate) fn while_training(bench: &Bench, job: Job) -> Result<Outcome> {
    killed(bench, job, AHEAD)
}

fn killed(bench: &Bench, job: Job, saving: Saving) -> Result<Outcome> {
    let reference = bench.reference(job)?;
    let runs = bench.count(10, 100) / KILLS_OF_A_RUN;
    let chains = on_all_cores(runs, |number| {
        chain(bench, job, saving, &reference, &mut Draw::new(bench.seed, "kill", number), None)
    })?;
    let (kills, in_a_save) = chains.iter().fold((0, 0), |(a, b), c| (a + c.kills, b + c.in_a_save));
    let mut misses: Vec<String> = chains.into_iter().flat_map(|chain| chain.faults).collect();
    if kills < runs * KILLS_OF_A_RUN || 5 * in_a_save < 2 * kills {
        misses.push("fewer kills, or fewer of them in a save, than were asked for".to_string());
    }
    let mut control = Control::default();
    let sabotages: [(&str, Sabotage); 2] = [("no cursor", no_cursor), ("checkpoints gone", no_checkpoints)];
    for (name, sabotage) in sabotages {
        let mut draw = Draw::new(bench.seed, "kill control", 0);
        let chain = chain(bench, job, saving, &reference, &mut draw, Some(sabotage))?;
        control.expect(name, chain.faults.first());
    }
    let lost = misses.len();
    Ok(control.outcome(format!("{kills} kills, {in_a_save} in a save: {lost} lost or different"), misses))
}

/// One run, killed again and again, then left to end; after one of the kills `sabotage` has its way.
fn chain(
    bench: &Bench,
    job: Job,
    saving: Saving,
    reference: &Reference,
    draw: &mut Draw,
    mut sabotage: Option<Sabotage>,
) -> Result<Chain> {
    let (mut found, mut place) = (Chain::default(), bench.place()?);
    let wanted = if sabotage.is_some() { 1 } else { KILLS_OF_A_RUN };
    let mut sittings = 0;
    while found.kills < wanted || sabotage.is_some() {
        sittings += 1;
        if sittings > 30 * KILLS_OF_A_RUN {
            bail!("runs end before they can be killed");
        }
        let mut sitting = Sitting::start(bench.command(job, &place, saving.sets), &place)?;
        let aims_at_a_save = sabotage.is_none() && 2 * found.in_a_save <= found.kills;
        let runs = if aims_at_a_save {
            in_a_save(&mut sitting, &place, draw)?
        } else {
            sitting.wait(draw.duration(Duration::from_secs_f64(reference.seconds)))?
        };
        if !runs {
            // It was complete: look at it, and go on with another.
            found.faults.extend(sitting.finish()?.fault(&[0]));
            found.faults.extend(reference.difference(&place));
            place = bench.place()?;
            continue;
        }
        let ended = sitting.kill()?;
        if ended.signal.is_none() {
            continue;
        }
        found.kills += 1;
        found.in_a_save += usize::from(place.is_saving());
        if let Some(act) = sabotage
            && act(&place)?
        {
            sabotage = None;
        }
        found.faults.extend(compare::loss(
            &place.run(),
            place.last_step().saturating_sub(saving.lag),
            SAVE_STEPS,
        )?);
    }
    found.faults.extend(bench.finish(job, &place, saving.sets)?.fault(&[0]));
    found.faults.extend(reference.difference(&place));
    let left =
        place.names().into_iter().filter(|name| name.starts_with(".tmp-") || name.starts_with(".old-"));
    found.faults.extend(left.map(|name| format!("`{name}` is left behind")));
    Ok(found)
}

/// Waits for one of the first few saves of a sitting, and for a moment inside it.
fn in_a_save(sitting: &mut Sitting, place: &Place, draw: &mut Draw) -> Result<bool> {
    for _ in 0..draw.below(4) {
        if !sitting.reach(|| place.is_saving())? || !sitting.reach(|| !place.is_saving())? {
            return Ok(false);
        }
    }
    loop {
        if !sitting.reach(|| place.is_saving())? || !sitting.wait(draw.duration(Duration::from_millis(2)))? {
            return Ok(false);
        }
        // A quick save is over by now: then it is the next one.
        if place.is_saving() {
            return Ok(true);
        }
    }
}

/// The newest checkpoint forgets where the data were; it is asked for once two checkpoints are there.
fn no_cursor(place: &Place) -> Result<bool> {
    match compare::newest(&place.run())?.0 {
        Some(step) if step > 8 => {
            compare::forget_cursor(&place.run_path(&format!("checkpoint-{step}")))?;
            Ok(true)
        }
        _ => Ok(false),
    }
}

/// The checkpoints go, as they would where a save was not durable.
fn no_checkpoints(place: &Place) -> Result<bool> {
    let steps = place.checkpoints();
    for step in &steps {
        fs::remove_dir_all(place.run_path(&format!("checkpoint-{step}")))?;
    }
    Ok(steps.first().is_some_and(|&step| step > SAVE_STEPS))
}
