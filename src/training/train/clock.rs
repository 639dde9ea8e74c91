//! Measures the wall-clock time of the run and its rates. It only observes: apart from the end by a time
//! budget, no result of training depends on it.

use std::time::Instant;

use crate::telemetry::Throughput;

/// Length of the window over which recent rates are averaged, in seconds.
const WINDOW_SECONDS: f64 = 10.0;

/// Rates of one sitting of a run (from a start or resume to the next stop).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rates {
    /// Tokens per second through the model.
    pub tokens_per_second: f64,
    /// Share of the step time that was spent waiting for data.
    pub data_wait_share: f64,
    /// Seconds of the latest evaluation.
    pub eval_seconds: Option<f64>,
}

/// Clock of one sitting of a run, started with it.
#[derive(Debug)]
pub struct Clock {
    start: Instant,
    before_seconds: f64,
    throughput: Throughput,
    step_start: f64,
    step_seconds: f64,
    wait_seconds: f64,
    wait_since: f64,
    /// Seconds of waiting for data during the whole sitting.
    total_wait_seconds: f64,
    /// Seconds of steps during the whole sitting.
    total_step_seconds: f64,
    /// Seconds of the latest evaluation.
    eval_seconds: Option<f64>,
    /// Seconds of saving since [`Clock::take_save_seconds`] was last called.
    save_seconds: f64,
}

impl Clock {
    /// A clock of a run that took `before_seconds` in earlier sittings.
    pub fn new(before_seconds: f64) -> Self {
        let throughput = Throughput::new(WINDOW_SECONDS, 0.0);
        Self {
            start: Instant::now(),
            before_seconds,
            throughput,
            step_start: 0.0,
            step_seconds: 0.0,
            wait_seconds: 0.0,
            wait_since: 0.0,
            total_wait_seconds: 0.0,
            total_step_seconds: 0.0,
            eval_seconds: None,
            save_seconds: 0.0,
        }
    }

    fn now(&self) -> f64 {
        self.start.elapsed().as_secs_f64()
    }

    /// Total seconds of all sittings.
    pub fn elapsed_seconds(&self) -> f64 {
        self.before_seconds + self.now()
    }

    /// Seconds of the last step.
    pub fn step_seconds(&self) -> f64 {
        self.step_seconds
    }

    /// Rates of this sitting, without the time of evaluations and saves.
    pub fn rates(&self) -> Rates {
        let data_wait_share = self.total_wait_seconds / self.total_step_seconds.max(1e-9);
        Rates {
            tokens_per_second: self.throughput.overall(),
            data_wait_share: data_wait_share.min(1.0),
            eval_seconds: self.eval_seconds,
        }
    }

    /// Runs `f` and records its duration as that of the latest evaluation.
    pub fn evaluating<R>(&mut self, f: impl FnOnce() -> R) -> R {
        let before = self.now();
        let result = f();
        self.eval_seconds = Some(self.now() - before);
        result
    }

    /// Runs `f` and adds its duration to the time of saving.
    pub fn saving<R>(&mut self, f: impl FnOnce() -> R) -> R {
        let before = self.now();
        let result = f();
        self.save_seconds += self.now() - before;
        result
    }

    /// Returns the seconds of saving since the last call.
    pub fn take_save_seconds(&mut self) -> f64 {
        std::mem::take(&mut self.save_seconds)
    }

    /// Runs `f` and adds its duration to the time of waiting for data.
    pub fn waiting<R>(&mut self, f: impl FnOnce() -> R) -> R {
        let before = self.now();
        let result = f();
        let seconds = self.now() - before;
        self.wait_seconds += seconds;
        self.total_wait_seconds += seconds;
        result
    }

    /// Records the end of a step with `tokens` tokens.
    pub fn step(&mut self, tokens: u64) {
        let now = self.now();
        self.step_seconds = now - self.step_start;
        self.step_start = now;
        self.total_step_seconds += self.step_seconds;
        self.throughput.add(tokens, now);
    }

    /// Returns recent tokens per second, and the share of time spent waiting for data since the last call.
    pub fn take_rates(&mut self) -> (f64, f64) {
        let now = self.now();
        let share = self.wait_seconds / (now - self.wait_since).max(1e-9);
        (self.wait_seconds, self.wait_since) = (0.0, now);
        (self.throughput.recent(), share)
    }

    /// Restarts the timing of steps, so that an evaluation or a save before this call is not counted as
    /// training.
    pub fn restart(&mut self) {
        let now = self.now();
        self.throughput.skip_to(now);
        (self.step_start, self.wait_seconds, self.wait_since) = (now, 0.0, now);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn waiting_is_a_share_of_the_steps_and_evaluations_are_none_of_them() {
        let mut clock = Clock::new(0.0);
        assert!(clock.rates().data_wait_share.abs() < f64::EPSILON);
        for _ in 0..2 {
            clock.waiting(|| std::thread::sleep(Duration::from_millis(2)));
            clock.step(10);
            let before = clock.total_step_seconds;
            std::thread::sleep(Duration::from_millis(2));
            clock.restart();
            assert_eq!(clock.total_step_seconds.to_bits(), before.to_bits());
        }
        assert!(clock.total_wait_seconds >= 0.004 && clock.total_wait_seconds <= clock.total_step_seconds);
        assert_eq!(clock.rates().eval_seconds, None);
        for milliseconds in [20, 2] {
            clock.evaluating(|| std::thread::sleep(Duration::from_millis(milliseconds)));
            let seconds = clock.rates().eval_seconds.unwrap();
            assert!(seconds >= milliseconds as f64 / 1000.0, "the latest one counts: {seconds}");
        }
        clock.saving(|| std::thread::sleep(Duration::from_millis(2)));
        clock.saving(|| std::thread::sleep(Duration::from_millis(2)));
        assert!(clock.take_save_seconds() >= 0.004);
        assert_eq!(clock.take_save_seconds().to_bits(), 0);
        let share = clock.rates().data_wait_share;
        assert!(share > 0.0 && share <= 1.0, "{share}");
    }
}
