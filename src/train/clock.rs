//! Wall-clock time of the run and its rates. It only observes: no number of training depends on it but the time budget.

use std::time::Instant;

use crate::telemetry::Throughput;

/// Rates are over about this many seconds.
const WINDOW_SECONDS: f64 = 10.0;

/// Started when a sitting of a run starts.
#[derive(Debug)]
pub struct Clock {
    start: Instant,
    before_seconds: f64,
    throughput: Throughput,
    step_start: f64,
    step_seconds: f64,
    wait_seconds: f64,
    wait_since: f64,
}

impl Clock {
    /// A clock of a run that took `before_seconds` in earlier sittings.
    pub fn new(before_seconds: f64) -> Self {
        let throughput = Throughput::new(WINDOW_SECONDS, 0.0);
        Self { start: Instant::now(), before_seconds, throughput, step_start: 0.0, step_seconds: 0.0, wait_seconds: 0.0, wait_since: 0.0 }
    }

    fn now(&self) -> f64 {
        self.start.elapsed().as_secs_f64()
    }

    /// Seconds of all sittings.
    pub fn elapsed_seconds(&self) -> f64 {
        self.before_seconds + self.now()
    }

    /// Seconds that the last step took.
    pub fn step_seconds(&self) -> f64 {
        self.step_seconds
    }

    /// Tokens per second of this sitting, evaluations and saves left out.
    pub fn tokens_per_second(&self) -> f64 {
        self.throughput.overall()
    }

    /// Runs `f` and counts its time as waiting for data.
    pub fn waiting<R>(&mut self, f: impl FnOnce() -> R) -> R {
        let before = self.now();
        let result = f();
        self.wait_seconds += self.now() - before;
        result
    }

    /// A step with `tokens` tokens is done.
    pub fn step(&mut self, tokens: u64) {
        let now = self.now();
        self.step_seconds = now - self.step_start;
        self.step_start = now;
        self.throughput.add(tokens, now);
    }

    /// Recent tokens per second, and the share of time spent waiting for data since the last call.
    pub fn take_rates(&mut self) -> (f64, f64) {
        let now = self.now();
        let share = self.wait_seconds / (now - self.wait_since).max(1e-9);
        (self.wait_seconds, self.wait_since) = (0.0, now);
        (self.throughput.recent(), share)
    }

    /// Evaluation and saving are not training: the clock of steps goes on from here.
    pub fn restart(&mut self) {
        let now = self.now();
        self.throughput.skip_to(now);
        (self.step_start, self.wait_seconds, self.wait_since) = (now, 0.0, now);
    }
}
