//! Probes: additional measurements of a model during training. They do not change the run.

use std::path::Path;
use std::time::Instant;

use anyhow::Result;

use crate::tasks::run::Scores;
use crate::telemetry::Record;
use crate::train::Trainer;
use crate::train::state::TrainState;
use ops::memory;

/// Measures the current weights, from a model folder written for this purpose.
pub trait Probe: Sync {
    /// The names of its scores.
    fn names(&self) -> &[String];

    /// Steps between two measurements; 0 means with each evaluation.
    fn every(&self) -> u64;

    /// Returns the scores of the model in a folder, as far as they could be measured; `None` if a signal
    /// interrupted the probe.
    fn scores(&self, model: &Path) -> Result<Option<Scores>>;
}

impl Trainer<'_> {
    /// Probes the weights on rank 0, unless the records of this step contain the scores already; false if a
    /// signal interrupted the probe. A failing probe is reported and does not stop training.
    pub(super) fn probe(&mut self, state: &TrainState) -> Result<bool> {
        let Some(probe) = self.probe else { return Ok(true) };
        let is_done = if self.folder.writes() { self.probe_here(probe, state)? } else { true };
        // A probe may take longer than the timeout for the other processes in a step.
        self.rules.world.wait_for_all()?;
        self.rules.world.agree(is_done)
    }

    /// Probes the weights in this process, or takes the scores from the records of the step.
    fn probe_here(&mut self, probe: &dyn Probe, state: &TrainState) -> Result<bool> {
        let known = self.folder.recorded(state.step)?;
        if probe.names().iter().any(|name| known.contains_key(&eval_tag(name))) {
            let scores =
                probe.names().iter().filter_map(|name| Some((name.clone(), *known.get(&eval_tag(name))?)));
            self.probed = scores.collect();
            return Ok(true);
        }
        memory::give_back_freed_blocks();
        let start = Instant::now();
        let weights = self.evaluated_weights();
        let layout = self.task.parameters().layout();
        let scores = self.folder.with_model(layout, &weights, state.step, |model| probe.scores(model));
        memory::give_back_freed_blocks();
        match scores {
            Ok(None) => return Ok(false),
            Ok(Some(scores)) => {
                let seconds = ("perf/probe_seconds".to_string(), start.elapsed().as_secs_f64());
                let values =
                    scores.iter().map(|(name, value)| (eval_tag(name), *value)).chain([seconds]).collect();
                self.folder.record_aside(&Record { step: state.step, epoch: state.epoch, values });
                self.probed = scores;
            }
            Err(e) => {
                let text = format!("training goes on, but the probe of step {} failed: {e:#}", state.step);
                self.folder.warn(&text);
            }
        }
        Ok(true)
    }
}

/// Tag of an evaluation's score in the records.
fn eval_tag(name: &str) -> String {
    format!("eval/{name}")
}
