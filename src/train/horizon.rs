//! How far a run gets where money or a day limits it.
//!
//! The schedule is not cut off: from a new plan on, what is left of it passes in the steps that there is time
//! for, so that the learning rate ends where it would have ended. The clock is read by whoever asks.

use std::time::SystemTime;

use serde::Deserialize;
use serde::Serialize;

use crate::config::RunSection;
use crate::error::Problem;
use crate::quantity::parse_moment;

/// Steps of a sitting before it is known how long one takes.
const STEPS_TO_KNOW: u64 = 8;

/// It is looked again after this share of the time that is left.
const LOOK_SHARE: f64 = 0.1;

/// What a plan may be wrong by before there is a new one, as a share of the steps that are left.
const TOLERANCE: f64 = 0.02;

/// What it may be off before it is told again, as a share of all steps.
const NEWS: f64 = 0.05;

/// Share of the limit that is kept back, so that a last step that takes longer is still done.
const MARGIN: f64 = 0.01;

/// A plan in the place of the configuration's, as a checkpoint keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Horizon {
    /// Steps done when it was made.
    step: u64,
    /// Where the schedule of the configuration stood then.
    scheduled: u64,
    /// Steps of the run in all.
    total_steps: u64,
}

impl Horizon {
    /// Steps of the run in all.
    pub fn total_steps(&self) -> u64 {
        self.total_steps
    }

    /// The step of a schedule of `planned` steps that stands for the one after `step`.
    pub fn scheduled(&self, step: u64, planned: u64) -> u64 {
        let left = u128::from(planned.saturating_sub(self.scheduled));
        let (done, steps) = (step.saturating_sub(self.step), self.total_steps.saturating_sub(self.step));
        self.scheduled + (left * u128::from(done) / u128::from(steps.max(1))) as u64
    }

    /// The plan of a run that goes on after `step`, where `is_limited` still holds or not: one that had come to
    /// its end goes on as one that is given more steps does, one without a limit has all its steps again.
    pub fn resumed(self, step: u64, planned: u64, is_limited: bool) -> Option<Self> {
        if step >= self.total_steps {
            return None;
        }
        let all = || Self { step, scheduled: self.scheduled(step, planned), total_steps: planned.max(step) };
        Some(if is_limited { self } else { all() })
    }
}

/// Seconds of training, over all sittings, after which a run ends by `run.budget_usd` and `run.deadline`, where
/// it took `elapsed_seconds` before `now`; `None` where neither is given.
pub fn limit_seconds(
    run: &RunSection,
    elapsed_seconds: f64,
    now: SystemTime,
) -> Result<Option<f64>, Problem> {
    let affordable = run.budget_usd.zip(run.usd_per_hour).map(|(usd, per_hour)| usd / per_hour * 3600.0);
    let until = run.deadline.as_deref().map(parse_moment).transpose();
    let until = until.map_err(|e| Problem::usage(e.to_string()).at("run.deadline"))?;
    let left = until.map(|until| until.duration_since(now).map(|left| left.as_secs_f64()));
    let left = left.transpose().map_err(|_| {
        let given = run.deadline.as_deref().unwrap_or_default();
        Problem::usage(format!("{given} has passed"))
            .at("run.deadline")
            .hint("give a later one, or remove it")
    })?;
    Ok(affordable.into_iter().chain(left.map(|left| elapsed_seconds + left)).reduce(f64::min))
}

/// Looks from time to time how many steps there is time for.
#[derive(Debug, Clone)]
pub struct Pace {
    limit_seconds: f64,
    planned: u64,
    /// Step and time when steps began to be counted.
    began: Option<(u64, f64)>,
    next_look_seconds: f64,
    /// The steps in all that were told last.
    told_steps: u64,
}

impl Pace {
    /// For a run of `planned` steps that may take so many seconds, over all sittings.
    pub fn new(planned: u64, limit_seconds: f64) -> Self {
        Self { limit_seconds, planned, began: None, next_look_seconds: 0.0, told_steps: planned }
    }

    /// Whether that there are so many steps is worth telling: it is much more or less than what was told.
    pub fn is_news(&mut self, total_steps: u64) -> bool {
        let is_news = total_steps.abs_diff(self.told_steps) as f64 > NEWS * self.told_steps as f64;
        if is_news {
            self.told_steps = total_steps;
        }
        is_news
    }

    /// A new plan, where the present one does not fit the time that is left. `elapsed_seconds` is after `step`
    /// steps, over all sittings; `ending_seconds` what the end of the run takes besides steps.
    pub fn look(
        &mut self,
        step: u64,
        elapsed_seconds: f64,
        ending_seconds: f64,
        present: Option<Horizon>,
    ) -> Option<Horizon> {
        // The first step is slower than the others.
        let &mut (first, since) = self.began.get_or_insert((step, elapsed_seconds));
        let done = step.saturating_sub(first);
        if done < STEPS_TO_KNOW || elapsed_seconds < self.next_look_seconds {
            return None;
        }
        let end_seconds = self.limit_seconds * (1.0 - MARGIN) - ending_seconds;
        let left_seconds = (end_seconds - elapsed_seconds).max(0.0);
        self.next_look_seconds = elapsed_seconds + LOOK_SHARE * left_seconds;
        let step_seconds = (elapsed_seconds - since) / done as f64;
        let affordable = step.saturating_add((left_seconds / step_seconds.max(1e-9)) as u64);
        let total_steps = affordable.min(self.planned).max(step);
        let now = present.map_or(self.planned, |plan| plan.total_steps);
        let tolerance = (TOLERANCE * now.saturating_sub(step) as f64) as u64;
        if total_steps.abs_diff(now) <= tolerance {
            return None;
        }
        let scheduled = present.map_or(step, |plan| plan.scheduled(step, self.planned));
        Some(Horizon { step, scheduled, total_steps })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::TrainingConfig;
    use crate::optim::schedule::Schedule;

    /// Steps that a run of `planned` steps makes in `limit` seconds, and its learning rates; a step takes
    /// `seconds(step)`.
    fn walked(planned: u64, limit: f64, seconds: impl Fn(u64) -> f64) -> (f64, Vec<f64>) {
        let config = TrainingConfig { learning_rate: 1.0, warmup_steps: 0.0, ..TrainingConfig::default() };
        let schedule = Schedule::new(&config, planned);
        let (mut pace, mut plan, mut elapsed) = (Pace::new(planned, limit), None::<Horizon>, 0.0);
        let mut rates = Vec::new();
        let mut step = 0;
        while step < plan.map_or(planned, |plan| plan.total_steps()) {
            rates.push(schedule.lr_at(plan.map_or(step, |plan| plan.scheduled(step, planned))));
            step += 1;
            elapsed += seconds(step);
            plan = pace.look(step, elapsed, 0.0, plan).or(plan);
        }
        (elapsed, rates)
    }

    #[test]
    fn what_does_not_fit_is_shortened_and_the_rate_still_falls_to_zero() {
        // Twice as slow as there is time for; slower and slower; evaluations in between; quick only later.
        let paces: [fn(u64) -> f64; 4] = [
            |_| 2.0,
            |step| 1.5 + step as f64 / 1000.0,
            |step| if step.is_multiple_of(100) { 60.0 } else { 1.4 },
            |step| if step < 300 { 3.0 } else { 0.9 },
        ];
        for (index, seconds) in paces.into_iter().enumerate() {
            let (elapsed, rates) = walked(1000, 1000.0, seconds);
            assert!((950.0..=1000.0).contains(&elapsed), "{index}: {elapsed} s");
            assert!(rates.windows(2).all(|pair| pair[1] <= pair[0]), "{index}: it only falls");
            let last = rates[rates.len() - 1];
            assert!(last < 0.06, "{index}: {last} after {} steps", rates.len());
        }
        let (elapsed, rates) = walked(1000, 1000.0, |_| 0.9);
        assert_eq!((elapsed.round(), rates.len()), (900.0, 1000), "what fits stays as it is");
    }

    #[test]
    fn a_run_that_goes_on_keeps_its_plan_or_has_all_steps_again() {
        let plan = Horizon { step: 100, scheduled: 100, total_steps: 500 };
        assert_eq!(
            (plan.scheduled(100, 900), plan.scheduled(300, 900), plan.scheduled(500, 900)),
            (100, 500, 900)
        );
        assert_eq!(plan.resumed(300, 900, true), Some(plan));
        let all = Horizon { step: 300, scheduled: 500, total_steps: 900 };
        assert_eq!(plan.resumed(300, 900, false), Some(all));
        assert_eq!(plan.resumed(500, 900, true), None, "its end was reached");
    }

    #[test]
    fn money_and_a_day_are_seconds_and_the_nearer_holds() {
        let run = |budget_usd: Option<f64>, deadline: Option<&str>| RunSection {
            usd_per_hour: Some(2.0),
            budget_usd,
            deadline: deadline.map(str::to_string),
            ..RunSection::default()
        };
        let day = SystemTime::UNIX_EPOCH + Duration::from_secs(86_400);
        let limit = |run: RunSection| limit_seconds(&run, 30.0, day);
        assert_eq!(limit(run(None, None)).unwrap(), None);
        assert_eq!(limit(run(Some(1.0), None)).unwrap(), Some(1800.0));
        assert_eq!(limit(run(None, Some("1970-01-02T02:10:00+02:00"))).unwrap(), Some(630.0));
        assert_eq!(limit(run(Some(0.1), Some("1970-01-02T01:00:00Z"))).unwrap(), Some(180.0));
        let passed = limit(run(Some(1.0), Some("1970-01-01T23:59:59Z"))).unwrap_err();
        assert!(passed.to_string().starts_with("run.deadline: 1970-01-01T23:59:59Z has passed"), "{passed}");
    }
}
