//! Measures the speed of a candidate.

use std::time::{Duration, Instant};

use anyhow::Result;

use crate::train::End;
use crate::train::signals::stopped_by;
use crate::train::trial::{Pause, Trial};
use crate::trials::equipment::Equipment;
use crate::trials::tune::rungs::Speed;
use crate::trials::tune::{Trained, Trainee};

/// Steps of the first, short measurement.
const FIRST_STEPS: u64 = 3;

/// Share of the budget that the second measurement may take, and its most steps.
const MEASURED_SHARE: f64 = 0.02;
const MOST_STEPS: u64 = 500;

/// Trains a candidate for some steps, and resumes it for some more: this shows what a start and a resume take
/// in addition to their steps.
pub(super) fn speed_of<C>(
    config: &C,
    budget: Duration,
    trainee: &impl Trainee<C>,
    with: Equipment<'_>,
) -> Result<Speed> {
    let first = sitting(config, FIRST_STEPS, trainee, with)?;
    let planned_steps = first.planned_steps;
    let step_seconds = first.train_seconds / first.step.max(1) as f64;
    let fitting = MEASURED_SHARE * budget.as_secs_f64() / step_seconds.max(1e-9);
    let more = (fitting as u64).clamp(FIRST_STEPS, MOST_STEPS);
    let start_seconds = (first.seconds - first.train_seconds).max(0.0);
    if first.step + more >= planned_steps {
        return Ok(Speed { planned_steps, step_seconds, start_seconds, resume_seconds: start_seconds });
    }
    let second = sitting(config, first.step + more, trainee, with)?;
    let train_seconds = second.train_seconds - first.train_seconds;
    let step_seconds = train_seconds / (second.step - first.step).max(1) as f64;
    let resume_seconds = (second.seconds - train_seconds).max(0.0);
    Ok(Speed { planned_steps, step_seconds, start_seconds, resume_seconds })
}

/// The times of a sitting.
struct Sitting {
    /// Steps done, over all sittings.
    step: u64,
    planned_steps: u64,
    /// Seconds of the steps, over all sittings.
    train_seconds: f64,
    /// Seconds of this sitting.
    seconds: f64,
}

/// Trains a candidate up to `step`, with all steps of its configuration.
fn sitting<C>(config: &C, step: u64, trainee: &impl Trainee<C>, with: Equipment<'_>) -> Result<Sitting> {
    let began = Instant::now();
    let trial = Trial { steps: 1, of: 1, pause: Pause::AfterStep(step) };
    let trained = trainee.train(config, trial, with)?;
    if let Some(End::Signal(signal)) = trained.end {
        return Err(stopped_by(signal, "the speed is measured again").into());
    }
    let Trained { step, planned_steps, results, .. } = trained;
    let train_seconds = results.get("train_runtime").copied().unwrap_or_default();
    Ok(Sitting { step, planned_steps, train_seconds, seconds: began.elapsed().as_secs_f64() })
}
