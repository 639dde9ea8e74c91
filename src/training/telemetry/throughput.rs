//! Measures tokens per second over a recent window and since the start; the caller provides the time.

use std::collections::VecDeque;

/// A counter of tokens over time.
#[derive(Debug, Clone)]
pub struct Throughput {
    window_seconds: f64,
    /// Points of (seconds, tokens so far), from the start of the window on.
    points: VecDeque<(f64, u64)>,
    first: (f64, u64),
}

impl Throughput {
    /// Starts counting at `seconds` on the caller's clock; the window is the last `window_seconds`.
    pub fn new(window_seconds: f64, seconds: f64) -> Self {
        Self { window_seconds, points: VecDeque::from([(seconds, 0)]), first: (seconds, 0) }
    }

    /// Adds `tokens` finished at `seconds`.
    pub fn add(&mut self, tokens: u64, seconds: f64) {
        let total = self.total_tokens() + tokens;
        self.points.push_back((seconds, total));
        // The last point before the window is kept as its start, so that a step longer than the window
        // counts.
        while self.points.len() > 2 && self.points[1].0 <= seconds - self.window_seconds {
            self.points.pop_front();
        }
    }

    /// Excludes the time from the last point to `seconds`, which was spent on something else, such as an
    /// evaluation.
    pub fn skip_to(&mut self, seconds: f64) {
        let gap = seconds - self.last().0;
        self.first.0 += gap;
        for point in &mut self.points {
            point.0 += gap;
        }
    }

    /// Returns the number of tokens counted.
    pub fn total_tokens(&self) -> u64 {
        self.last().1
    }

    /// Returns the tokens per second over the window; 0 before the first step.
    pub fn recent(&self) -> f64 {
        rate(self.points[0], self.last())
    }

    /// Returns the tokens per second since the start; 0 before the first step.
    pub fn overall(&self) -> f64 {
        rate(self.first, self.last())
    }

    fn last(&self) -> (f64, u64) {
        *self.points.back().expect("there is a point from the beginning, and the last one is never removed")
    }
}

/// Returns the tokens per second between two points of (seconds, tokens so far).
fn rate(from: (f64, u64), to: (f64, u64)) -> f64 {
    let seconds = to.0 - from.0;
    if seconds > 0.0 { (to.1 - from.1) as f64 / seconds } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(left: f64, right: f64) {
        assert!((left - right).abs() < 1e-9, "{left} {right}");
    }

    #[test]
    fn the_window_drops_old_steps_and_the_overall_rate_keeps_them() {
        let mut throughput = Throughput::new(10.0, 100.0);
        close(throughput.recent(), 0.0);
        for second in 1..=20 {
            throughput.add(50, 100.0 + f64::from(second));
        }
        for second in 21..=40 {
            throughput.add(100, 100.0 + f64::from(second));
        }
        close(throughput.recent(), 100.0);
        close(throughput.overall(), 75.0);
        assert_eq!(throughput.total_tokens(), 3000);
    }

    #[test]
    fn skipped_time_does_not_count_and_no_elapsed_time_gives_zero() {
        let mut throughput = Throughput::new(10.0, 0.0);
        throughput.add(100, 1.0);
        throughput.skip_to(61.0);
        throughput.add(100, 62.0);
        close(throughput.overall(), 100.0);
        close(throughput.recent(), 100.0);
        let mut still = Throughput::new(10.0, 5.0);
        still.add(7, 5.0);
        close(still.overall(), 0.0);
    }
}
