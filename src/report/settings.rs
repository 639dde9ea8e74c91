//! The settings of a sweep with their means over seeds, its learning curve, and the candidates of a tuning.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::Result;
use serde_json::Value;

use crate::fs;
use crate::pages::chart::Chart;
use crate::pages::report::{Block, Drawing, Figure};
use crate::pages::table::{Row, Table};
use crate::pages::text::Text;
use crate::report::run::{Run, unit_of};
use crate::report::sweep::{Setting, Sweep};
use crate::report::units::{Unit, score_title, tag_title};
use crate::report::{find, sweep};
use crate::scores::{mean, measured, sample_std};
use crate::trials::curve::{Point, curves};
use crate::trials::tune;
use crate::trials::tune::Overview;

/// Reads the sweep that all these runs are of; `None` if they are no sweep.
pub(super) fn sweep_of(runs: &[Run]) -> Result<Option<Sweep>> {
    let folders: BTreeSet<PathBuf> = runs
        .iter()
        .filter_map(|run| Some(fs::canonical(&run.path).parent()?.parent()?.to_path_buf()))
        .collect();
    match folders.first() {
        Some(folder) if runs.len() > 1 && folders.len() == 1 => sweep::read(folder),
        _ => Ok(None),
    }
}

/// Returns the table of the tuning that all these runs are of; empty if they are not of one.
pub(super) fn tuning(runs: &[Run]) -> Result<Vec<Block>> {
    let folders: BTreeSet<PathBuf> = runs.iter().filter_map(|run| above(&run.path)).collect();
    let found = match folders.first() {
        Some(folder) if runs.len() > 1 && folders.len() == 1 => tune::overview(folder)?,
        _ => None,
    };
    let Some(Overview { table, metric, .. }) = found else { return Ok(Vec::new()) };
    let note = format!("{metric} at each step that candidates are compared at; the best of them continue.");
    Ok(vec![Block::Table(table), Block::note(note)])
}

/// The folder that contains a run, or the run with several seeds that it belongs to.
fn above(run: &Path) -> Option<PathBuf> {
    let run = fs::canonical(run);
    let whole: &Path = if find::is_seed(&run) { run.parent()? } else { &run };
    Some(whole.parent()?.to_path_buf())
}

/// The table of all settings, the best one marked, and the learning curve.
pub(super) fn section(sweep: &Sweep, runs: &[Run]) -> Vec<Block> {
    let keys: BTreeSet<&str> =
        sweep.settings.iter().flat_map(|setting| setting.setting.keys()).map(String::as_str).collect();
    let scored = sweep.settings.iter().flat_map(|setting| &setting.runs);
    let names: BTreeSet<&str> = scored.flat_map(|run| run.scores.keys()).map(String::as_str).collect();
    let mut names: Vec<&str> = names.into_iter().collect();
    names.sort_by_key(|name| *name != sweep.metric);
    let mut header: Vec<String> =
        keys.iter().map(|key| key.rsplit('.').next().unwrap_or(key).to_string()).collect();
    header.push("seeds".to_string());
    header.extend(names.iter().map(|name| score_title(without_eval(name))));
    let rows: Vec<Row> = sweep
        .settings
        .iter()
        .map(|setting| {
            let values = keys.iter().map(|key| value_text(setting.setting.get(*key)));
            let scores = names.iter().map(|name| text(setting, name, unit_of(runs, name)));
            values.chain([seeds(setting)]).chain(scores).collect()
        })
        .collect();
    let best = sweep.best.as_ref();
    let best = best.and_then(|best| sweep.settings.iter().position(|known| known.setting == best.setting));
    let header = header.iter().map(|title| Text::name(title));
    let table = Block::Table(Table::new(header, rows).with_best(best));
    let note = Block::note("Mean ± standard deviation over the seeds.");
    [table, note].into_iter().chain(curve(sweep, runs)).collect()
}

/// The chart of the learning curve; `None` if the sweep is not one.
fn curve(sweep: &Sweep, runs: &[Run]) -> Option<Block> {
    let name = without_eval(&sweep.metric);
    let unit = unit_of(runs, name);
    let points: Vec<Point> = sweep.learning_curve.iter().filter_map(sweep::Point::measured).collect();
    if points.iter().filter(|point| !point.scores.is_empty()).count() < 2 {
        return None;
    }
    let has_floor = points.iter().any(|point| point.floor.is_some());
    let title = format!("{} by training examples", tag_title(&format!("eval/{name}")));
    let chart = Chart {
        title: title.clone(),
        x: "share of the training examples, %".to_string(),
        y: unit.axis().to_string(),
        curves: curves(&points, unit.factor(), "var(--s0)"),
        x_is_logarithmic: true,
        ..Chart::default()
    };
    let floor = if has_floor { "; dashed: without a network" } else { "" };
    let note = Some(format!("Line: mean; band: ± 1 deviation; dots: seeds{floor}.").into());
    Some(Block::Charts(
        "charts",
        vec![Figure { caption: title.into(), drawing: Drawing::Curves(chart), note }],
    ))
}

/// The number of seeds, and of those that diverged.
fn seeds(setting: &Setting) -> String {
    let diverged = setting.runs.iter().filter(|run| run.scores.is_empty()).count();
    let lost = if diverged > 0 { format!(" ({diverged} diverged)") } else { String::new() };
    format!("{}{lost}", setting.runs.len())
}

/// The mean of a score with its deviation.
fn text(setting: &Setting, name: &str, unit: Unit) -> String {
    let values: Vec<f64> = setting.runs.iter().filter_map(|run| *run.scores.get(name)?).collect();
    match values.as_slice() {
        [] => "–".to_string(),
        [value] => unit.text(*value),
        several => measured(mean(several), |mean| {
            format!("{} ± {}", unit.text(mean), unit.deviation(sample_std(several), mean))
        }),
    }
}

fn without_eval(name: &str) -> &str {
    name.strip_prefix("eval_").unwrap_or(name)
}

/// A value of the configuration; `5.0` is written as `5`.
fn value_text(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => "–".to_string(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(number)) if number.is_f64() => {
            number.as_f64().map_or(String::new(), |number| format!("{number}"))
        }
        Some(other) => other.to_string(),
    }
}
