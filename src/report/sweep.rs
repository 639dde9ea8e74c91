//! Reads `sweep.json`: the settings of a sweep, the runs of each, and the points of a learning curve.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Result;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::error::Problem;
use crate::fs;
use crate::trials::curve;
use crate::trials::sweep::{RESULTS, RESULTS_CAP_BYTES};

/// Content of `sweep.json`.
#[derive(Debug, Deserialize)]
pub(super) struct Sweep {
    /// The score that the settings are ranked by.
    pub(super) metric: String,
    pub(super) settings: Vec<Setting>,
    pub(super) best: Option<Best>,
    #[serde(default)]
    pub(super) learning_curve: Vec<Point>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Best {
    pub(super) setting: Map<String, Value>,
}

/// A setting and its runs, one for each seed.
#[derive(Debug, Deserialize)]
pub(super) struct Setting {
    pub(super) setting: Map<String, Value>,
    pub(super) runs: Vec<SeedRun>,
}

#[derive(Debug, Deserialize)]
pub(super) struct SeedRun {
    pub(super) folder: PathBuf,
    /// Scores of the run; empty if training diverged.
    pub(super) scores: BTreeMap<String, Option<f64>>,
}

/// The scores with one share of the training examples.
#[derive(Debug, Deserialize)]
pub(super) struct Point {
    share: f64,
    examples: usize,
    /// A score that was not measured is null.
    scores: Vec<Option<f64>>,
    floor: Option<f64>,
}

impl Point {
    /// The point with the scores that were measured; `None` for a share that a logarithmic axis cannot show.
    pub(super) fn measured(&self) -> Option<curve::Point> {
        let scores = self.scores.iter().flatten().copied().collect();
        let &Self { share, examples, floor, .. } = self;
        (share > 0.0).then_some(curve::Point { share, examples, scores, floor })
    }
}

/// Reads `sweep.json` in the folder of a sweep; `None` without that file.
pub(super) fn read(folder: &Path) -> Result<Option<Sweep>> {
    let path = folder.join(RESULTS);
    if !fs::exists(&path) {
        return Ok(None);
    }
    let text = fs::read_text_capped(&path, RESULTS_CAP_BYTES)?;
    Ok(Some(
        serde_json::from_str(&text)
            .map_err(|e| Problem::new(format!("is broken: {e}")).at(path.display()))?,
    ))
}

/// Sorts the runs of the sweep in `folder` in the order of the sweep. Without a readable sweep, the order
/// stays.
pub(super) fn sort(runs: &mut [PathBuf], folder: &Path) {
    let Ok(Some(sweep)) = read(folder) else { return };
    let order: Vec<PathBuf> =
        sweep.settings.iter().flat_map(|setting| &setting.runs).map(|run| below_sweep(&run.folder)).collect();
    runs.sort_by_key(|run| {
        let place = below_sweep(run);
        order.iter().position(|known| *known == place).unwrap_or(order.len())
    });
}

/// The last two folders of a run: those of its setting and of its seed.
fn below_sweep(run: &Path) -> PathBuf {
    let parts: Vec<_> = run.components().collect();
    parts[parts.len().saturating_sub(2)..].iter().collect()
}
