//! Changes at the boundaries of phases: the RoPE base, the reset of the loss history, and the summary of each
//! phase. Objective, rows and data of the steps are chosen elsewhere.

use config::{PhaseObjective, TrainingConfig, TrainingPhase, value_at};

/// The boundaries of the phases of a run, and the RoPE base of each.
#[derive(Debug, Clone, PartialEq)]
pub struct Phases {
    /// Numbers of steps done at which the objective, the rows, the RoPE base or the data change.
    borders: Vec<u64>,
    /// `global_rope_theta` from a number of steps on; empty if no phase sets it.
    thetas: Vec<(u64, f64)>,
    /// Summary of the objective, the rows and the RoPE base of each phase, for people.
    texts: Vec<(u64, String)>,
}

impl Phases {
    /// The phases of a run whose rows have `max_seq_length` tokens and whose RoPE base is `theta`, except
    /// where a phase sets other values.
    pub fn new(training: &TrainingConfig, max_seq_length: usize, theta: f64) -> Self {
        let changes = training.changes(|phase| {
            let length = phase.map_or(max_seq_length, |phase| phase.max_seq_length);
            let objective = phase.map_or(PhaseObjective::MaskedLm, |phase| phase.objective);
            let sources = phase.map(|phase| phase.sources.clone()).unwrap_or_default();
            (length, rope_base(phase, theta), objective, sources)
        });
        let has_thetas = training.phases.iter().any(|phase| phase.global_rope_theta.is_some());
        let thetas = training.changes(|phase| rope_base(phase, theta));
        let is_causal_first = training.causal_steps() > 0;
        let texts = changes.iter().map(|(from, (length, theta, objective, _))| {
            let theta = if has_thetas { format!(", global_rope_theta {theta}") } else { String::new() };
            let objective = match objective {
                PhaseObjective::Causal => ", each token predicted from those before it",
                PhaseObjective::MaskedLm if is_causal_first => ", masked tokens predicted",
                PhaseObjective::MaskedLm => "",
            };
            (*from, format!("rows of {length} tokens{objective}{theta}"))
        });
        Self {
            borders: changes.iter().map(|(from, _)| *from).filter(|from| *from > 0).collect(),
            texts: texts.collect(),
            thetas: if has_thetas { thetas } else { Vec::new() },
        }
    }

    /// Returns true if the step after `steps_done` has another objective, other rows, another RoPE base or
    /// other data than the one before it, so that their losses are not comparable.
    pub fn is_border(&self, steps_done: u64) -> bool {
        self.borders.contains(&steps_done)
    }

    /// The RoPE base in the step after `steps_done`; `None` if it never changes.
    pub fn theta_at(&self, steps_done: u64) -> Option<f64> {
        (!self.thetas.is_empty()).then(|| *value_at(&self.thetas, steps_done))
    }

    /// The RoPE base with which the model of `step` was last trained.
    pub fn theta_of(&self, step: u64) -> Option<f64> {
        self.theta_at(step.saturating_sub(1))
    }

    /// Summary of the phase that the step after `steps_done` belongs to; `None` if the run has no boundaries.
    pub fn text_at(&self, steps_done: u64) -> Option<&str> {
        (!self.borders.is_empty()).then(|| value_at(&self.texts, steps_done).as_str())
    }
}

/// The RoPE base of a phase; `default` outside of phases and if the phase sets none.
fn rope_base(phase: Option<&TrainingPhase>, default: f64) -> f64 {
    phase.and_then(|phase| phase.global_rope_theta).unwrap_or(default)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_has_the_rope_base_of_its_last_step() {
        let mut phases =
            [(10, 64), (20, 64), (30, 128)].map(|(until, length)| TrainingPhase::of_length(until, length));
        phases[1].global_rope_theta = Some(5.0);
        let training = TrainingConfig { phases: phases.to_vec(), ..TrainingConfig::default() };
        let phases = Phases::new(&training, 128, 7.0);
        assert_eq!([0, 9, 10, 20, 30].map(|step| phases.is_border(step)), [false, false, true, true, false]);
        assert_eq!([0, 9, 10, 19, 20].map(|step| phases.theta_at(step)), [7.0, 7.0, 5.0, 5.0, 7.0].map(Some));
        assert_eq!(
            [0, 10, 11, 20, 21].map(|step| phases.theta_of(step)),
            [7.0, 7.0, 5.0, 5.0, 7.0].map(Some)
        );
        assert_eq!(phases.text_at(10), Some("rows of 64 tokens, global_rope_theta 5"));
    }

    #[test]
    fn a_change_of_the_objective_is_a_border() {
        let mut phases = [10, 20].map(|until| TrainingPhase::of_length(until, 64));
        phases[0].objective = PhaseObjective::Causal;
        let training = TrainingConfig { phases: phases.to_vec(), ..TrainingConfig::default() };
        let phases = Phases::new(&training, 64, 7.0);
        assert_eq!([10, 20].map(|step| phases.is_border(step)), [true, false]);
        let texts = [0, 10].map(|step| phases.text_at(step).unwrap().to_string());
        assert_eq!(
            texts,
            [
                "rows of 64 tokens, each token predicted from those before it",
                "rows of 64 tokens, masked tokens predicted"
            ]
        );
    }

    #[test]
    fn a_run_without_phases_has_nothing_to_report() {
        let phases = Phases::new(&TrainingConfig::default(), 128, 7.0);
        assert_eq!((phases.text_at(0), phases.theta_at(0), phases.is_border(0)), (None, None, false));
    }
}
