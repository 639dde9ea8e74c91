//! The state of a run between steps, as a checkpoint stores it, apart from parameters and moments.
//!
//! It has no random state: randomness is a pure function of (seed, step, sample).

use anyhow::Result;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::tasks::Term;
use crate::train::divergence::Divergence;
use crate::train::horizon::Horizon;
use crate::train::step::StepOutcome;
use crate::train::stopping::{BestScore, required};
use base::error::Problem;
use base::scores::Better;
use data::batches::{Cursor, StepBatches};
use model::precision::LossScaleState;

/// Progress of a run. A missing or extra field in a checkpoint is an error, never a default.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainState {
    /// Steps done, including skipped ones.
    pub step: u64,
    /// Passes over the training data, with a fraction.
    pub epoch: f64,
    /// Position of the next batch in the data.
    pub cursor: Cursor,
    /// Training tokens processed by the model.
    pub num_input_tokens_seen: u64,
    /// Floating-point operations of training.
    pub total_flos: f64,
    /// Wall-clock seconds of training, over all sittings of the run.
    pub elapsed_seconds: f64,
    /// Best evaluation so far.
    pub best: BestScore,
    /// The scores of the latest evaluation, so that a complete run can report them again; null for a score
    /// that is not finite.
    pub last_eval: Vec<(String, Option<f64>)>,
    /// The step of the latest evaluation, so that no evaluation is repeated, and one that a signal
    /// interrupted is done after a resume.
    #[serde(deserialize_with = "required")]
    pub last_eval_step: Option<u64>,
    /// Losses since the last log record, by term, so that a record after a resume covers the same steps.
    #[serde(deserialize_with = "one_or_several")]
    pub window: Vec<LossWindow>,
    /// The loss scale of the next step; `None` if the loss is not scaled.
    #[serde(deserialize_with = "required")]
    pub loss_scale: Option<LossScaleState>,
    /// Steps without an update, because their gradients overflowed or a loss was not finite.
    pub skipped_steps: u64,
    /// Loss history for the detection of divergence.
    pub divergence: Divergence,
    /// A shorter plan, if a budget or a deadline allows fewer steps than configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub horizon: Option<Horizon>,
    /// True if training ended and was not interrupted.
    pub finished: bool,
}

/// Sum and number of the losses since the last log record.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LossWindow {
    sum: f64,
    count: u64,
}

/// Reads a list, or the single window that the first version wrote.
fn one_or_several<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<LossWindow>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Windows {
        One(LossWindow),
        Several(Vec<LossWindow>),
    }
    Ok(match Windows::deserialize(deserializer)? {
        Windows::One(window) => vec![window],
        Windows::Several(windows) => windows,
    })
}

impl LossWindow {
    /// Returns the mean loss of a target, and empties the window; NaN if there was no target.
    pub fn take_mean(&mut self) -> f64 {
        let mean = self.sum / self.count as f64;
        *self = Self::default();
        mean
    }
}

impl TrainState {
    /// The state at the beginning of a run.
    pub fn new(cursor: Cursor, better: Better) -> Self {
        Self {
            step: 0,
            epoch: 0.0,
            cursor,
            num_input_tokens_seen: 0,
            total_flos: 0.0,
            elapsed_seconds: 0.0,
            best: BestScore::new(better),
            last_eval: Vec::new(),
            last_eval_step: None,
            window: Vec::new(),
            loss_scale: None,
            skipped_steps: 0,
            divergence: Divergence::default(),
            horizon: None,
            finished: false,
        }
    }

    /// The state at the beginning of another run that starts from here: with the same position in the data,
    /// and with its own scores and clock.
    #[must_use]
    pub fn of_another_run(&self, better: Better) -> Self {
        Self {
            step: self.step,
            epoch: self.epoch,
            num_input_tokens_seen: self.num_input_tokens_seen,
            total_flos: self.total_flos,
            loss_scale: self.loss_scale,
            skipped_steps: self.skipped_steps,
            divergence: self.divergence.clone(),
            ..Self::new(self.cursor.clone(), better)
        }
    }

    /// The JSON of a checkpoint; an error if it could not be read back unchanged, since JSON has no numbers
    /// that are not finite.
    pub fn to_json(&self) -> Result<Value> {
        let value = serde_json::to_value(self)?;
        if Self::deserialize(&value).is_ok_and(|read| read == *self) {
            return Ok(value);
        }
        let message = format!("the state of step {} holds a number that is not finite", self.step);
        Err(Problem::new(message).hint("lower `training.learning_rate`").into())
    }

    /// Records the scores of an evaluation. A score that is not finite is kept as null, since JSON has no
    /// such numbers.
    pub fn evaluated(&mut self, scores: &[(String, f64)], best_metric: &str) {
        let score = scores.iter().find(|(name, _)| name == best_metric).map_or(f64::NAN, |(_, score)| *score);
        self.best.observe(self.step, score);
        let kept = scores.iter().map(|(name, value)| (name.clone(), Some(*value).filter(|v| v.is_finite())));
        self.last_eval = kept.collect();
        self.last_eval_step = Some(self.step);
    }

    /// The scores of the latest evaluation; NaN for one that is not finite.
    pub fn last_scores(&self) -> Vec<(String, f64)> {
        self.last_eval.iter().map(|(name, value)| (name.clone(), value.unwrap_or(f64::NAN))).collect()
    }

    /// The loss of an evaluation after the last step, if there was one.
    pub fn eval_loss(&self) -> Option<f64> {
        let (_, loss) = self.last_eval.iter().find(|(name, _)| name == "loss")?;
        loss.filter(|_| self.last_eval_step == Some(self.step))
    }

    /// Records a finished step.
    pub fn advance(&mut self, batches: &StepBatches, outcome: &StepOutcome) {
        self.step += 1;
        self.skipped_steps += u64::from(outcome.skipped.is_some());
        self.epoch = batches.epoch;
        self.cursor = batches.cursor_after.clone();
        self.num_input_tokens_seen += outcome.tokens as u64;
        self.total_flos += outcome.flops;
        self.window.resize(outcome.losses.len(), LossWindow::default());
        let finite = outcome.losses.iter().all(|loss| loss.sum.is_finite());
        for (window, loss) in self.window.iter_mut().zip(&outcome.losses).filter(|_| finite) {
            window.sum += loss.sum;
            window.count += loss.count as u64;
        }
    }
}

/// The mean loss since the last record as `train/loss`, and the mean of each term if there are several.
pub(super) fn loss_values(terms: &[Term], windows: &mut [LossWindow]) -> Vec<(String, f64)> {
    let means: Vec<(&Term, f64)> = terms.iter().zip(windows.iter_mut().map(LossWindow::take_mean)).collect();
    let all = means.iter().map(|(term, mean)| term.weight * mean).sum();
    let mut values = vec![("train/loss".to_string(), all)];
    if means.len() > 1 {
        values.extend(means.iter().map(|(term, mean)| (format!("train/{}_loss", term.name), *mean)));
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::rng::{Purpose, Stream};

    #[test]
    fn a_state_comes_back_from_its_text_to_the_last_bit() {
        let stream = Stream::new(3, Purpose::Test, 0);
        for index in 0..2_000 {
            let mut state = TrainState::new(Cursor::default(), Better::Lower);
            // Sums of losses and scores have all their digits, and a fast float parser may be off by one unit
            // in the last place.
            let sum = stream.normal(index) * 10f64.powi(index as i32 % 40 - 20);
            state.window = vec![LossWindow { sum, count: 1 }];
            state.best.observe(index, stream.uniform(index));
            state.last_eval = vec![("loss".to_string(), Some(9.0 * stream.uniform(index + 1_000_000)))];
            let text = serde_json::to_vec_pretty(&state.to_json().unwrap()).unwrap();
            let value: Value = serde_json::from_slice(&text).unwrap();
            assert_eq!(serde_json::from_value::<TrainState>(value).unwrap(), state);
        }
    }

    #[test]
    fn a_score_that_is_not_finite_is_null_and_nothing_unreadable_is_written() {
        let mut state = TrainState { step: 3, ..TrainState::new(Cursor::default(), Better::Lower) };
        let scores = [("loss", 710.0), ("perplexity", f64::INFINITY), ("accuracy", f64::NAN)]
            .map(|(name, value)| (name.to_string(), value));
        state.evaluated(&scores, "perplexity");
        assert_eq!((state.best.step(), state.last_eval_step), (None, Some(3)));
        let kept: Vec<Option<f64>> = state.last_eval.iter().map(|(_, value)| *value).collect();
        assert_eq!(kept, [Some(710.0), None, None]);
        let json = state.to_json().unwrap();
        assert_eq!(serde_json::from_value::<TrainState>(json).unwrap(), state);
        state.last_eval[1].1 = Some(f64::INFINITY);
        let message = state.to_json().unwrap_err().to_string();
        assert!(message.starts_with("the state of step 3 holds a number that is not finite"), "{message}");
    }

    #[test]
    fn each_field_must_be_there() {
        let state = TrainState::new(Cursor::default(), Better::Lower);
        let whole = state.to_json().unwrap();
        let fields: Vec<String> = whole.as_object().unwrap().keys().cloned().collect();
        for field in fields {
            let mut short = whole.clone();
            short.as_object_mut().unwrap().remove(&field);
            let message = serde_json::from_value::<TrainState>(short).unwrap_err().to_string();
            assert!(message.contains(&format!("missing field `{field}`")), "{message}");
        }
        for nested in ["best", "cursor", "divergence"] {
            let fields: Vec<String> = whole[nested].as_object().unwrap().keys().cloned().collect();
            for field in fields {
                let mut short = whole.clone();
                short[nested].as_object_mut().unwrap().remove(&field);
                assert!(serde_json::from_value::<TrainState>(short).is_err(), "{nested}.{field}");
            }
        }
    }
}
