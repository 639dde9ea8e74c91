//! Decides what is due after a step (log, evaluate, save, probe), as a pure function of the step.
//!
//! It does not execute any of these and does not look at a clock.

use config::TrainingConfig;

/// Log records of a run that has fewer steps than `logging_steps`.
const RECORDS_OF_A_SHORT_RUN: u64 = 10;

/// Steps between two log records, evaluations, checkpoints and probes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cadence {
    total_steps: u64,
    log_every: u64,
    eval_every: u64,
    /// Steps at the beginning without evaluations: evaluations predict masked tokens, and the model has not
    /// yet learnt that.
    causal_steps: u64,
    save_every: u64,
    /// Steps between probes; 0 for a probe each `eval_every` steps, `None` for no probes.
    probe_every: Option<u64>,
}

/// The actions due after one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is due on its own")]
pub struct Due {
    /// Write a log record.
    pub log: bool,
    /// Evaluate.
    pub eval: bool,
    /// Save a checkpoint.
    pub save: bool,
    /// Probe the weights.
    pub probe: bool,
    /// This is the last step.
    pub last: bool,
}

impl Cadence {
    /// The cadence of a run of `total_steps` updates. A run with fewer steps than `logging_steps` logs about
    /// ten times, so that its loss curve can be seen.
    pub fn new(config: &TrainingConfig, total_steps: u64) -> Self {
        let log_every = if total_steps < config.logging_steps {
            total_steps.div_ceil(RECORDS_OF_A_SHORT_RUN)
        } else {
            config.logging_steps
        };
        let eval_every = config.eval_steps;
        let save_every = config.save_steps;
        let causal_steps = config.causal_steps();
        Self { total_steps, log_every, eval_every, causal_steps, save_every, probe_every: None }
    }

    /// The same cadence with a probe after each `every` steps; 0 for a probe with each evaluation, `None` for
    /// no probes.
    #[must_use]
    pub fn probing(self, every: Option<u64>) -> Self {
        Self { probe_every: every, ..self }
    }

    /// Changes the number of updates after which the run ends.
    pub fn end_after(&mut self, total_steps: u64) {
        self.total_steps = total_steps;
    }

    /// Total number of updates.
    pub fn total_steps(&self) -> u64 {
        self.total_steps
    }

    /// Returns true if a checkpoint is due after `step` updates that are not the last ones.
    pub fn saves_after(&self, step: u64) -> bool {
        is_due(step, self.save_every)
    }

    /// Returns what is due after `step` updates (the first step is 1): everything after the last step, a log
    /// record also after the first, a probe also before the first.
    pub fn after(&self, step: u64) -> Due {
        if step >= self.total_steps {
            return Due::everything();
        }
        // Every evaluation and checkpoint also logs the training loss; otherwise plots would have gaps.
        let is_eval_step = is_due(step, self.eval_every);
        let eval = is_eval_step && step > self.causal_steps;
        let save = self.saves_after(step);
        let probe = match self.probe_every {
            None => false,
            Some(0) => step == 0 || is_eval_step,
            Some(every) => step.is_multiple_of(every),
        };
        Due { log: step == 1 || is_due(step, self.log_every) || eval, eval, save, probe, last: false }
    }
}

/// Returns true if `step` is a positive multiple of `every`; never for 0.
fn is_due(step: u64, every: u64) -> bool {
    every > 0 && step > 0 && step.is_multiple_of(every)
}

impl Due {
    /// Everything at once: due when training ends, whatever the reason.
    pub fn everything() -> Self {
        Self { log: true, eval: true, save: true, probe: true, last: true }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::{PhaseObjective, TrainingPhase};

    fn cadence(logging_steps: u64, eval_steps: u64, save_steps: u64) -> Cadence {
        Cadence::new(
            &TrainingConfig { logging_steps, eval_steps, save_steps, ..TrainingConfig::default() },
            20,
        )
    }

    fn steps(cadence: &Cadence, wanted: impl Fn(Due) -> bool) -> Vec<u64> {
        (0..=20).filter(|&step| wanted(cadence.after(step))).collect()
    }

    #[test]
    fn things_happen_at_their_intervals_and_all_at_the_end() {
        let cadence = cadence(5, 8, 6);
        assert_eq!(steps(&cadence, |due| due.log), [1, 5, 8, 10, 15, 16, 20]);
        assert_eq!(steps(&cadence, |due| due.eval), [8, 16, 20]);
        assert_eq!(steps(&cadence, |due| due.save), [6, 12, 18, 20]);
        assert_eq!(steps(&cadence, |due| due.last), [20]);
    }

    #[test]
    fn a_run_shorter_than_its_log_interval_logs_about_ten_times() {
        let [at_20, at_21, at_500] =
            [20, 21, 500].map(|logging_steps| steps(&cadence(logging_steps, 0, 0), |due| due.log));
        assert_eq!(at_21, [1, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20]);
        assert_eq!(at_500, at_21);
        assert_eq!(at_20, [1, 20], "one that is reached is kept to");
    }

    #[test]
    fn zero_means_only_at_the_end() {
        let cadence = cadence(0, 0, 0);
        assert_eq!(steps(&cadence, |due| due.eval || due.save), [20]);
        assert_eq!(steps(&cadence, |due| due.log), [1, 20]);
        assert_eq!(cadence.after(25), Due::everything());
    }

    #[test]
    fn a_causal_phase_is_probed_and_not_evaluated() {
        let causal = TrainingPhase { objective: PhaseObjective::Causal, ..TrainingPhase::of_length(8, 64) };
        let training = TrainingConfig { phases: vec![causal], eval_steps: 4, ..TrainingConfig::default() };
        let cadence = Cadence::new(&training, 20).probing(Some(0));
        assert_eq!(steps(&cadence, |due| due.eval), [12, 16, 20]);
        assert_eq!(steps(&cadence, |due| due.probe), [0, 4, 8, 12, 16, 20]);
    }

    #[test]
    fn probes_come_before_the_first_step_and_with_evaluations_or_by_their_own_count() {
        for (every, expected) in [(0, &[0, 4, 8][..]), (3, &[0, 3, 6, 9])] {
            let cadence = cadence(10, 4, 0).probing(Some(every));
            let probed: Vec<u64> = (0..10).filter(|&step| cadence.after(step).probe).collect();
            assert_eq!(probed, expected);
        }
        assert!(!cadence(10, 4, 0).after(4).probe, "nothing is probed unasked");
    }
}
