//! Effects of `decay_from` on the other keys, and the check that the other keys agree with those of the
//! checkpoint's run.

use crate::data::DataConfig;
use crate::decay::DecayFrom;
use crate::phases::{SourceWeight, TrainingPhase};
use crate::pretrain::PretrainConfig;
use crate::resume::{compare_for_resume, diff, shown};
use crate::training::SchedulerType;
use base::error::{Problem, Problems};

impl PretrainConfig {
    /// Sets the schedule of the decay: `lr_decay_steps` after the step of the checkpoint, from the learning
    /// rate that the checkpoint had. A value below 1 is a share of all steps, as elsewhere. Only if the
    /// checkpoint has weights alone (no step) may there be a warm-up first.
    pub fn settle_decay(&mut self) -> Result<(), Problem> {
        let Some(DecayFrom { step, initial_learning_rate, .. }) = self.decay_from else { return Ok(()) };
        let training = &mut self.training;
        let done = step.unwrap_or(0);
        let given = training.lr_decay_steps;
        let decay =
            if given < 1.0 { (done as f64 * given / (1.0 - given)).ceil() as u64 } else { given as u64 };
        if decay == 0 {
            let message = format!("is {given}, which is no step: a decay takes at least one");
            let hint =
                "say over how many steps the learning rate falls: `--set training.lr_decay_steps=1000`";
            return Err(Problem::usage(message).at("training.lr_decay_steps").hint(hint));
        }
        let warmup = match training.warmup_steps {
            _ if step.is_some() => 0.0,
            share if share < 1.0 => (decay as f64 * share).ceil(),
            steps => steps,
        };
        training.lr_scheduler_type = SchedulerType::WarmupStableDecay;
        training.warmup_steps = warmup;
        training.lr_decay_steps = decay as f64;
        training.max_steps = (done + warmup as u64 + decay) as i64;
        if let Some(learning_rate) = initial_learning_rate {
            training.learning_rate = learning_rate;
            training.phases.iter_mut().for_each(|phase| phase.learning_rate = None);
        }
        Ok(())
    }
}

/// Refuses a run `child` that decays from a checkpoint after `step` steps of `parent` and differs from
/// `parent` in more than the schedule, the cadence and the phases after that step.
pub fn compare_for_decay(parent: &PretrainConfig, child: &PretrainConfig, step: u64) -> Result<(), Problems> {
    let mut adjusted = child.clone();
    adjusted.decay_from.clone_from(&parent.decay_from);
    let own = &mut adjusted.training;
    let its = &parent.training;
    own.learning_rate = its.learning_rate;
    own.lr_scheduler_type = its.lr_scheduler_type;
    own.warmup_steps = its.warmup_steps;
    own.lr_decay_steps = its.lr_decay_steps;
    own.decay_type = its.decay_type;
    own.min_lr_ratio = its.min_lr_ratio;
    own.lr_power = its.lr_power;
    own.phases.clone_from(&its.phases);
    for (source, its) in adjusted.data.sources.iter_mut().zip(&parent.data.sources) {
        source.weight = its.weight;
    }
    let mut problems = Vec::new();
    if compare_for_resume(parent, &adjusted).is_err() {
        for change in diff(parent, &adjusted).into_iter().filter(|change| !change.is_free()) {
            let was = shown(&change.old);
            let is = shown(&change.new);
            problems.push(
                Problem::usage(format!("is {is}, and was {was} in the run of the checkpoint"))
                    .at(change.path)
                    .hint("restore it: only the schedule, the cadence and later phases may be new"),
            );
        }
    }
    if steps_until(parent, step) != steps_until(child, step) {
        let message = format!("differ from those of the checkpoint's run before its step {step}");
        let hint = "keep the phases that it went through, and write new ones behind them";
        problems.push(Problem::usage(message).at("training.phases").hint(hint));
    }
    if problems.is_empty() { Ok(()) } else { Err(Problems(problems)) }
}

/// Returns the objective, rows, data and RoPE base of the steps before `until`: pairs of the first step and
/// the values from there on, one for each change.
fn steps_until(config: &PretrainConfig, until: u64) -> Vec<(u64, TrainingPhase)> {
    let PretrainConfig { training, data: DataConfig { sources, max_seq_length, .. }, .. } = config;
    let theta = config.model().map(|model| model.encoder.global_rope_theta);
    let changes = training.changes(|phase| {
        let of_all = TrainingPhase::of_length(0, *max_seq_length);
        let phase = phase.unwrap_or(&of_all);
        let rows = phase.per_device_train_batch_size.unwrap_or(training.rows_at_once());
        let micro = phase.gradient_accumulation_steps.unwrap_or(training.gradient_accumulation_steps);
        let weights = sources.iter().zip(phase.weights(sources));
        TrainingPhase {
            // Rows of a whole update: the number of micro-batches may change.
            per_device_train_batch_size: Some(rows.saturating_mul(micro)),
            global_rope_theta: phase.global_rope_theta.or(theta),
            objective: phase.objective,
            sources: weights
                .map(|(source, weight)| SourceWeight { name: source.display_name(), weight })
                .collect(),
            ..TrainingPhase::of_length(0, phase.max_seq_length)
        }
    });
    changes.into_iter().filter(|(from, _)| *from < until).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn config(training: &Value, weight: f64) -> PretrainConfig {
        let sources = json!([{"files": ["web.txt"]}, {"files": ["news.txt"], "weight": weight}]);
        let all = json!({"data": {"sources": sources}, "model": {"roberta": {}}, "training": training});
        serde_json::from_value(all).unwrap()
    }

    /// Returns max_steps, warmup_steps, lr_decay_steps and learning_rate.
    fn schedule(config: &PretrainConfig) -> (i64, f64, f64, f64) {
        let training = &config.training;
        (training.max_steps, training.warmup_steps, training.lr_decay_steps, training.learning_rate)
    }

    /// Compares a decay from step 600 with its parent, a run of 1000 steps with a constant learning rate.
    fn compared(training: &Value, weight: f64) -> Result<(), String> {
        let parent = config(&json!({"max_steps": 1000, "lr_scheduler_type": "constant"}), 1.0);
        let child = config(training, weight);
        compare_for_decay(&parent, &child, 600).map_err(|problems| problems.to_string())
    }

    fn settled(training: &Value, step: Option<u64>) -> Result<PretrainConfig, Problem> {
        let mut config = config(training, 1.0);
        let found =
            DecayFrom { step, initial_learning_rate: step.map(|_| 0.5), ..DecayFrom::new("a".into()) };
        config.decay_from = Some(found);
        config.settle_decay().map(|()| config)
    }

    #[test]
    fn the_schedule_begins_at_the_step_and_the_rate_of_the_checkpoint() {
        let given = json!({"lr_decay_steps": 20, "warmup_steps": 7, "learning_rate": 0.25});
        assert_eq!(schedule(&settled(&given, Some(600)).unwrap()), (620, 0.0, 20.0, 0.5));
        assert_eq!(schedule(&settled(&given, None).unwrap()), (27, 7.0, 20.0, 0.25));
        // By default the decay takes a tenth of all steps, of which 600 are done. A second call changes
        // nothing.
        let tenth = json!({"learning_rate": 0.25});
        let mut again = settled(&tenth, Some(600)).unwrap();
        again.settle_decay().unwrap();
        assert_eq!(schedule(&again), (667, 0.0, 67.0, 0.5));
        let refused = settled(&tenth, None).unwrap_err().to_string();
        assert!(refused.starts_with("training.lr_decay_steps: is 0.1, which is no step"), "{refused}");
    }

    #[test]
    fn only_the_schedule_and_later_phases_may_be_new() {
        let schedule = json!({"max_steps": 700, "lr_scheduler_type": "warmup_stable_decay", "save_steps": 5,
            "decay_type": "1-sqrt", "phases": [{"until_step": 600, "max_seq_length": 128}]});
        assert_eq!(compared(&schedule, 1.0), Ok(()));
        let mut mixed = schedule.clone();
        mixed["phases"][0]["sources"] = json!([{"name": "news", "weight": 1}]);
        assert_eq!(compared(&mixed, 3.0), Ok(()), "what follows the step may be another mix");
        assert_eq!(
            compared(&schedule, 3.0).unwrap_err().lines().next(),
            Some("training.phases: differ from those of the checkpoint's run before its step 600")
        );
        let error = compared(&json!({"max_steps": 700, "weight_decay": 0.5}), 1.0).unwrap_err();
        assert!(
            error.starts_with("training.weight_decay: is `0.5`, and was `0.0` in the run of the checkpoint"),
            "{error}"
        );
    }
}
