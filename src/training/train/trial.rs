//! A run that stops at fixed steps with a checkpoint, so that several runs can be compared before they end.

use crate::train::StopRules;
use crate::train::horizon::Horizon;

/// How long a run is compared with its configuration, and the step that this sitting ends at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trial {
    /// Steps of the whole run, for every [`Trial::of`] steps that the configuration plans. The schedule is
    /// compressed to them.
    pub steps: u64,
    /// Steps of the configuration that [`Trial::steps`] is measured against.
    pub of: u64,
    /// The end of this sitting.
    pub pause: Pause,
}

/// The step at which a sitting ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pause {
    /// After this step.
    AfterStep(u64),
    /// After the whole run divided by this number, rounded down.
    AfterPart(u64),
}

impl Trial {
    /// Steps of the whole run, at least 1, of a configuration that plans `planned` steps.
    pub fn total_steps(self, planned: u64) -> u64 {
        let steps = u128::from(planned) * u128::from(self.steps) / u128::from(self.of.max(1));
        u64::try_from(steps).unwrap_or(planned).clamp(1, planned.max(1))
    }

    /// The step at which this sitting ends.
    pub fn pause_step(self, planned: u64) -> u64 {
        let total = self.total_steps(planned);
        match self.pause {
            Pause::AfterStep(step) => step.min(total),
            Pause::AfterPart(part) => (total / part.max(1)).max(1),
        }
    }

    /// The plan of the run; `None` if it has all steps of its configuration.
    pub(super) fn horizon(self, planned: u64) -> Option<Horizon> {
        let total = self.total_steps(planned);
        (total < planned).then(|| Horizon::from_start(total))
    }
}

impl StopRules {
    /// The same rules with the pause of `trial` in a run that plans `planned` steps.
    pub(super) fn pausing(self, trial: Option<Trial>, planned: u64) -> Self {
        Self { pause_step: trial.map(|trial| trial.pause_step(planned)), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::rng::{Purpose, Stream};

    #[test]
    fn pauses_of_growing_parts_never_come_earlier_and_the_last_is_the_end() {
        let stream = Stream::new(5, Purpose::Test, 0);
        for draw in 0..2_000 {
            let of = 1 + stream.below(3 * draw, 100_000);
            let steps = 1 + stream.below(3 * draw + 1, of);
            let planned = 1 + stream.below(3 * draw + 2, 100_000);
            let pauses = [27, 9, 3, 1]
                .map(|part| Trial { steps, of, pause: Pause::AfterPart(part) }.pause_step(planned));
            let trial = Trial { steps, of, pause: Pause::AfterStep(5) };
            assert!(pauses[0] >= 1 && pauses.is_sorted(), "{pauses:?}");
            assert_eq!(pauses[3], trial.total_steps(planned));
            assert!(pauses[3] <= planned && trial.pause_step(planned) <= 5);
            assert_eq!(trial.horizon(planned).is_none(), pauses[3] == planned);
        }
    }

    #[test]
    fn a_run_of_the_measured_length_has_exactly_the_steps_that_were_decided() {
        for (steps, of) in [(600, 3000), (1, 7), (7, 7), (999_999, 1_000_003)] {
            let trial = Trial { steps, of, pause: Pause::AfterPart(1) };
            assert_eq!((trial.total_steps(of), trial.pause_step(of)), (steps, steps));
        }
    }
}
