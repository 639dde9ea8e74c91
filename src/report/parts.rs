//! The parts of the training time of each run, such as steps, evaluation and saving, as a bar.

use crate::pages::report::{Bar, Block};
use crate::pages::text::{Part, Text};
use crate::report::facts::training_seconds;
use crate::report::run::Run;
use crate::report::table::dot;
use crate::report::thinned::Thinned;
use crate::report::units::duration;

/// A part of the training time: CSS class, name, seconds.
type Slice = (&'static str, &'static str, f64);

/// Returns a bar for each run with the parts of its time, and their legend; nothing if no run recorded them.
pub(super) fn bars(runs: &[Run]) -> Vec<Block> {
    let slices: Vec<Option<Vec<Slice>>> = runs.iter().map(slices).collect();
    let Some(first) = slices.iter().flatten().next() else { return Vec::new() };
    let bars = runs.iter().zip(&slices).enumerate().filter_map(|(index, (run, slices))| {
        let slices = slices.as_ref()?;
        let whole: f64 = slices.iter().map(|slice| slice.2).sum();
        let parts = slices.iter().map(|(class, name, seconds)| {
            let text = format!("{name}: {}", duration(*seconds));
            ((*class).to_string(), text, seconds / whole.max(1e-9))
        });
        let name =
            if runs.len() > 1 { Text::from(run.name.as_str()).after_dot(&dot(index)) } else { "all".into() };
        Some(Bar { name, parts: parts.collect(), end: Some(duration(whole).into()) })
    });
    let names = first.iter().map(|(class, name, seconds)| {
        let name = Text::from(*name).after_dot(class);
        if runs.len() > 1 { name } else { name.with(" ".into()).with(Part::Muted(duration(*seconds))) }
    });
    vec![Block::Bars("bars timed", bars.collect()), Block::Legend(names.collect())]
}

/// Returns the seconds of steps, waiting for data, evaluations, probes and saving; `None` if the run recorded
/// no evaluation, probe or saving.
fn slices(run: &Run) -> Option<Vec<Slice>> {
    let [evaluating, saving, probing] = ["perf/eval_seconds", "perf/save_seconds", "perf/probe_seconds"]
        .map(|tag| run.curves.get(tag).map_or(0.0, Thinned::sum));
    if evaluating + saving + probing <= 0.0 {
        return None;
    }
    // The training time ends with the last step, so it does not include an evaluation or probe after that
    // step.
    let [last_eval, last_probe] = ["perf/eval_seconds", "perf/probe_seconds"]
        .map(|tag| seconds_after_last_step(run, tag).unwrap_or(0.0));
    let after = last_eval + last_probe;
    let stepping = (training_seconds(run)? - (evaluating + saving + probing - after)).max(0.0);
    let share = run.results.get("train_data_wait_share").copied();
    let waiting =
        stepping * share.or_else(|| run.latest("perf/data_wait_share")).unwrap_or(0.0).clamp(0.0, 1.0);
    let all = [
        ("kept", "steps", stepping - waiting),
        ("c2", "waiting for data", waiting),
        ("c4", "evaluation", evaluating),
        ("c3", "probes", probing),
        ("c0", "saving", saving),
    ];
    Some(all.into_iter().filter(|slice| slice.2 > 0.0).collect())
}

/// The latest value of `tag`, if it was recorded after the last step.
fn seconds_after_last_step(run: &Run, tag: &str) -> Option<f64> {
    let curve = run.curves.get(tag)?;
    if curve.last_step()? >= run.step? as f64 { curve.last() } else { None }
}
