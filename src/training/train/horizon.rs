//! Limits the number of steps of a run by a budget in dollars or a deadline.
//!
//! The schedule is not cut off but compressed: from a new plan on, its remaining part is spread over the
//! steps for which there is time, so that the learning rate ends where it would have ended. Callers read the
//! clock.

use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use base::error::Problem;
use base::quantity::parse_moment;
use config::RunSection;

/// Steps of a sitting before the time of one step is considered known.
const STEPS_TO_KNOW: u64 = 8;

/// Re-estimate after this fraction of the remaining time.
const LOOK_SHARE: f64 = 0.1;

/// Deviation of a plan, as a share of the remaining steps, above which there is a new plan.
const TOLERANCE: f64 = 0.02;

/// Change in the total number of steps, as a share of it, above which it is reported again.
const NEWS_SHARE: f64 = 0.05;

/// Share of the time limit kept in reserve, so that a slow last step still fits.
const MARGIN: f64 = 0.01;

/// A plan that replaces the number of steps of the configuration; saved in checkpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Horizon {
    /// Steps done when the plan was made.
    step: u64,
    /// Step of the configured schedule that was reached when the plan was made.
    scheduled: u64,
    /// Total number of steps of the run.
    total_steps: u64,
}

impl Horizon {
    /// The plan of a run that has `total_steps` from its start.
    pub(super) fn from_start(total_steps: u64) -> Self {
        Self { step: 0, scheduled: 0, total_steps }
    }

    /// Total number of steps of the run.
    pub fn total_steps(&self) -> u64 {
        self.total_steps
    }

    /// The step of a schedule of `planned` steps to use after `step` steps of this plan.
    pub fn scheduled(&self, step: u64, planned: u64) -> u64 {
        let left = u128::from(planned.saturating_sub(self.scheduled));
        let done = step.saturating_sub(self.step);
        let steps = self.total_steps.saturating_sub(self.step);
        self.scheduled + (left * u128::from(done) / u128::from(steps.max(1))) as u64
    }

    /// The plan of a run resumed after `step` steps. `is_limited` is true if it still has a time limit;
    /// without one, all `planned` steps are done. A run that had reached the end of its plan resumes without
    /// one.
    pub fn resumed(self, step: u64, planned: u64, is_limited: bool) -> Option<Self> {
        if step >= self.total_steps {
            return None;
        }
        if is_limited {
            return Some(self);
        }
        Some(Self { step, scheduled: self.scheduled(step, planned), total_steps: planned.max(step) })
    }
}

/// Seconds of training, over all sittings, after which a run ends by `run.budget_usd` and `run.deadline`,
/// where it took `elapsed_seconds` before `now`; `None` if neither is given.
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

/// Estimates from time to time for how many steps there is time.
#[derive(Debug, Clone)]
pub struct Pace {
    limit_seconds: f64,
    planned: u64,
    /// Step count and elapsed seconds when timing began.
    began: Option<(u64, f64)>,
    next_look_seconds: f64,
    /// The total number of steps that was last reported.
    reported_steps: u64,
}

impl Pace {
    /// The pace of a run of `planned` steps that may take `limit_seconds`, over all sittings.
    pub fn new(planned: u64, limit_seconds: f64) -> Self {
        Self { limit_seconds, planned, began: None, next_look_seconds: 0.0, reported_steps: planned }
    }

    /// Returns true if `total_steps` differs enough from the number reported last, and records it as
    /// reported.
    pub fn is_news(&mut self, total_steps: u64) -> bool {
        let change = total_steps.abs_diff(self.reported_steps) as f64;
        let is_news = change > NEWS_SHARE * self.reported_steps as f64;
        if is_news {
            self.reported_steps = total_steps;
        }
        is_news
    }

    /// Returns a new plan if the present one does not fit the remaining time. `elapsed_seconds` is the time
    /// of `step` steps over all sittings; `ending_seconds` is what the end of the run takes in addition to
    /// its steps.
    pub fn look(
        &mut self,
        step: u64,
        elapsed_seconds: f64,
        ending_seconds: f64,
        present: Option<Horizon>,
    ) -> Option<Horizon> {
        // The first step of a sitting is not timed: it is slower than the others.
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
    use config::TrainingConfig;
    use model::optim::schedule::Schedule;

    /// Runs `planned` steps or as many as `limit` seconds allow; step `s` takes `seconds(s)`. Returns the
    /// elapsed seconds and the learning rate of each step.
    fn walked(planned: u64, limit: f64, seconds: impl Fn(u64) -> f64) -> (f64, Vec<f64>) {
        let config = TrainingConfig { learning_rate: 1.0, warmup_steps: 0.0, ..TrainingConfig::default() };
        let schedule = Schedule::new(&config, planned);
        let mut pace = Pace::new(planned, limit);
        let mut plan = None::<Horizon>;
        let mut elapsed = 0.0;
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
        // Twice as slow as there is time for; slower and slower; slow evaluations in between; slow at first.
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
    fn a_resumed_run_keeps_its_plan_or_has_all_steps_again() {
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
        for (budget_usd, deadline, expected) in [
            (None, None, None),
            (Some(1.0), None, Some(1800.0)),
            (None, Some("1970-01-02T02:10:00+02:00"), Some(630.0)),
            (Some(0.1), Some("1970-01-02T01:00:00Z"), Some(180.0)),
        ] {
            assert_eq!(limit(budget_usd, deadline).unwrap(), expected);
        }
        let passed = limit(Some(1.0), Some("1970-01-01T23:59:59Z")).unwrap_err();
        assert!(passed.to_string().starts_with("run.deadline: 1970-01-01T23:59:59Z has passed"), "{passed}");
    }

    /// The limit of a run that took 30 seconds until the second day of 1970, at 2 dollars an hour.
    fn limit(budget_usd: Option<f64>, deadline: Option<&str>) -> Result<Option<f64>, Problem> {
        let run = RunSection {
            usd_per_hour: Some(2.0),
            budget_usd,
            deadline: deadline.map(str::to_string),
            ..RunSection::default()
        };
        limit_seconds(&run, 30.0, SystemTime::UNIX_EPOCH + Duration::from_secs(86_400))
    }
}
