//! Whether a disturbed run came to the same end as an undisturbed one, and what its folder holds in between.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use mlmtrain::checkpoint::CheckpointStore;
use mlmtrain::train::checkpoint_files::Resumed;
use serde_json::Value;

use crate::place::Place;
use crate::readers::reseal;

/// What an undisturbed run left.
#[derive(Debug, PartialEq)]
pub(crate) struct Reference {
    /// How long it took.
    pub(crate) seconds: f64,
    /// `metrics.jsonl` without what depends on the speed of the machine.
    metrics: Vec<String>,
    /// Weights and moments of the final model and the last checkpoint.
    tensors: BTreeMap<String, Vec<u8>>,
    /// Where the run stood at its end, without its seconds.
    state: Value,
}

impl Reference {
    pub(crate) fn of(place: &Place, seconds: f64) -> Result<Self> {
        let last = place.checkpoints().last().copied().context("there is no checkpoint")?;
        let mut tensors = BTreeMap::new();
        for folder in ["final".to_string(), format!("checkpoint-{last}")] {
            read_tensors(&place.run(), &folder, &mut tensors)?;
        }
        let mut state = read_json(&place.run_path(&format!("checkpoint-{last}/trainer/state.json")))?;
        state.as_object_mut().context("a state is an object")?.remove("elapsed_seconds");
        Ok(Self { seconds, metrics: metrics(place)?, tensors, state })
    }

    /// The first thing that is not the same in `place`.
    pub(crate) fn difference(&self, place: &Place) -> Option<String> {
        let found = match Self::of(place, 0.0) {
            Ok(found) => found,
            Err(e) => return Some(format!("the run left no whole end: {e:#}")),
        };
        let lines = self.metrics.iter().zip(&found.metrics).position(|(wanted, found)| wanted != found);
        if let Some(line) =
            lines.or((self.metrics.len() != found.metrics.len()).then_some(self.metrics.len()))
        {
            let text = |lines: &Vec<String>| lines.get(line).cloned().unwrap_or("nothing".to_string());
            let (wanted, found) = (text(&self.metrics), text(&found.metrics));
            return Some(format!("line {} of metrics.jsonl: {found}, not {wanted}", line + 1));
        }
        if self.tensors.keys().ne(found.tensors.keys()) {
            return Some(format!("other files: {:?}", found.tensors.keys()));
        }
        let differing = self.tensors.iter().find(|(name, bytes)| found.tensors.get(*name) != Some(bytes));
        if let Some((name, _)) = differing {
            return Some(format!("`{name}` has other bytes"));
        }
        (self.state != found.state).then(|| format!("the state is {}, not {}", found.state, self.state))
    }
}

fn read_tensors(run: &Path, name: &str, tensors: &mut BTreeMap<String, Vec<u8>>) -> Result<()> {
    let folder = run.join(name);
    for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
        let entry = entry?;
        let name = format!("{name}/{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            read_tensors(run, &name, tensors)?;
        } else if name.ends_with(".safetensors") {
            tensors.insert(name, fs::read(entry.path())?);
        }
    }
    Ok(())
}

fn metrics(place: &Place) -> Result<Vec<String>> {
    let text = fs::read_to_string(place.run_path("metrics.jsonl")).context("metrics.jsonl")?;
    let line = |line: &str| {
        let mut record: Value =
            serde_json::from_str(line).with_context(|| format!("metrics.jsonl: `{line}`"))?;
        record.as_object_mut().context("a record is an object")?.retain(|tag, _| !tag.starts_with("perf/"));
        Ok(record.to_string())
    };
    text.lines().map(line).collect()
}

pub(crate) fn read_json(path: &Path) -> Result<Value> {
    let bytes = fs::read(path).with_context(|| path.display().to_string())?;
    serde_json::from_slice(&bytes).with_context(|| path.display().to_string())
}

/// The step of the newest checkpoint that can be gone on from, as the program itself finds it, and why newer
/// ones were refused.
pub(crate) fn newest(run: &Path) -> Result<(Option<u64>, Vec<String>)> {
    let (found, refused) = CheckpointStore::new(run).newest(Resumed::read)?;
    Ok((found.map(|resumed| resumed.checkpoint.step()), refused))
}

/// The step whose checkpoint must be there: a save ends before the next step is logged.
pub(crate) fn promised(last_step: u64, save_steps: u64) -> u64 {
    last_step.saturating_sub(1) / save_steps * save_steps
}

/// What is lost of a run that was cut off after it had logged `last_step`.
pub(crate) fn loss(run: &Path, last_step: u64, save_steps: u64) -> Result<Option<String>> {
    let promised = promised(last_step, save_steps);
    let (newest, refused) = newest(run)?;
    let is_lost = promised > 0 && newest.is_none_or(|newest| newest < promised);
    Ok(is_lost.then(|| format!("step {promised} was saved, {newest:?} is left: {}", refused.join(", "))))
}

/// Changes a JSON part of a checkpoint, with hashes and seal as a writer would have made them that never
/// wrote what is gone.
pub(crate) fn forge(checkpoint: &Path, name: &str, change: impl FnOnce(&mut Value)) -> Result<()> {
    let path = checkpoint.join(name);
    let mut content = read_json(&path)?;
    change(&mut content);
    fs::write(&path, serde_json::to_vec_pretty(&content)?)?;
    reseal(checkpoint, name)
}

/// A checkpoint without one field of the state: a writer that forgot it, and a reader that takes the
/// beginning of a run for it.
pub(crate) fn forget_cursor(checkpoint: &Path) -> Result<()> {
    forge(checkpoint, "trainer/state.json", |state| {
        let fields = state["cursor"].as_object_mut().into_iter().flatten();
        fields.for_each(|(_, value)| *value = 0.into());
    })
}
