//! The rungs of successive halving: how many candidates are trained how far, and what that takes.
//!
//! All candidates are trained for the first rung. The best third, but at least two, resume to the next one,
//! until the last two are trained to the end of their schedule. (Jamieson and Talwalkar, "Non-stochastic best
//! arm identification and hyperparameter optimization", 2016, with a factor of three.)

/// Each rung keeps one in this number of candidates, and ends at this multiple of the steps of the rung
/// before.
const FACTOR: usize = 3;

/// Candidates that are compared at the end of their schedule. A single one would not be compared there.
const LAST: usize = 2;

/// Candidates that are trained up to the same part of their steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rung {
    /// The number of candidates.
    pub(super) candidates: usize,
    /// They are trained up to all steps divided by this.
    pub(super) part: u64,
}

/// Returns the rungs for a number of candidates.
pub(super) fn rungs(candidates: usize) -> Vec<Rung> {
    let mut counts = vec![candidates];
    while let Some(&count) = counts.last()
        && count > LAST
    {
        counts.push((count / FACTOR).max(LAST));
    }
    let last = counts.len() - 1;
    let counts = counts.into_iter().enumerate();
    counts.map(|(at, candidates)| Rung { candidates, part: FACTOR.pow((last - at) as u32) as u64 }).collect()
}

/// The steps of all rungs together, in runs of full length.
pub(super) fn whole_runs(rungs: &[Rung]) -> f64 {
    let mut before = 0.0;
    let mut runs = 0.0;
    for rung in rungs {
        let until = 1.0 / rung.part as f64;
        runs += rung.candidates as f64 * (until - before);
        before = until;
    }
    runs
}

/// The measured speed of a candidate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Speed {
    /// Steps that the configuration plans.
    pub(super) planned_steps: u64,
    /// Seconds of one step.
    pub(super) step_seconds: f64,
    /// Seconds that a start takes in addition to its steps: reading, evaluating, saving.
    pub(super) start_seconds: f64,
    /// The same of a resume.
    pub(super) resume_seconds: f64,
}

impl Speed {
    /// The seconds of all rungs, for candidates of `steps` steps.
    pub(super) fn seconds(&self, rungs: &[Rung], steps: u64) -> f64 {
        let starts = rungs.first().map_or(0, |rung| rung.candidates);
        let resumes: usize = rungs.iter().skip(1).map(|rung| rung.candidates).sum();
        let sittings = starts as f64 * self.start_seconds + resumes as f64 * self.resume_seconds;
        whole_runs(rungs) * steps as f64 * self.step_seconds + sittings
    }

    /// The most steps of a candidate for which all rungs fit into `budget_seconds`; not more than are
    /// planned.
    pub(super) fn affordable_steps(&self, rungs: &[Rung], budget_seconds: f64) -> u64 {
        let left = (budget_seconds - self.seconds(rungs, 0)).max(0.0);
        let steps = left / (whole_runs(rungs) * self.step_seconds).max(1e-12);
        (steps as u64).min(self.planned_steps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::rng::{Purpose, Stream};

    fn counts(candidates: usize) -> Vec<usize> {
        rungs(candidates).iter().map(|rung| rung.candidates).collect()
    }

    #[test]
    fn a_third_continues_until_two_reach_the_end() {
        assert_eq!(counts(9), [9, 3, 2]);
        assert_eq!(counts(27), [27, 9, 3, 2]);
        assert_eq!(counts(18), [18, 6, 2]);
        assert_eq!(counts(4), [4, 2]);
        assert_eq!(counts(2), [2]);
        assert_eq!(rungs(9).iter().map(|rung| rung.part).collect::<Vec<_>>(), [9, 3, 1]);
        // Nine candidates take the steps of three: a third of the grid.
        assert!((whole_runs(&rungs(9)) - 3.0).abs() < 1e-9);
        for candidates in 2..200 {
            let rungs = rungs(candidates);
            assert_eq!(rungs.last().map(|rung| (rung.candidates, rung.part)), Some((2, 1)));
            assert!(whole_runs(&rungs) <= candidates as f64);
        }
    }

    #[test]
    fn all_rungs_fit_into_the_budget_and_one_more_step_would_not() {
        let stream = Stream::new(3, Purpose::Test, 0);
        for draw in 0..5_000 {
            let at = 8 * draw;
            let rungs = rungs(2 + stream.below(at, 60) as usize);
            let speed = Speed {
                planned_steps: 1 + stream.below(at + 1, 1_000_000),
                step_seconds: 1e-4 + 2.0 * stream.uniform(at + 2),
                start_seconds: 5.0 * stream.uniform(at + 3),
                resume_seconds: 5.0 * stream.uniform(at + 5),
            };
            let budget = 10_000.0 * stream.uniform(at + 4);
            let steps = speed.affordable_steps(&rungs, budget);
            assert!(
                steps == 0 || speed.seconds(&rungs, steps) <= budget * (1.0 + 1e-9),
                "{speed:?} {budget}"
            );
            assert!(steps == speed.planned_steps || speed.seconds(&rungs, steps + 1) > budget, "{speed:?}");
            // The steps that are done are rounded down at each rung.
            let mut done = 0;
            let mut before = 0;
            for rung in &rungs {
                done += rung.candidates as u64 * (steps / rung.part - before);
                before = steps / rung.part;
            }
            assert!(done as f64 <= whole_runs(&rungs) * steps as f64 + rungs[0].candidates as f64);
        }
    }
}
