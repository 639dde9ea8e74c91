//! Tokens per second over a recent window and over the whole sitting; the caller gives the clock.

use std::collections::VecDeque;

/// Counts tokens against seconds.
#[derive(Debug, Clone)]
pub struct Throughput {
    window_seconds: f64,
    /// (seconds, tokens so far): the start of the window and everything since.
    points: VecDeque<(f64, u64)>,
    first: (f64, u64),
}

impl Throughput {
    /// Begins at `seconds` on the caller's clock; the window is the last `window_seconds`.
    pub fn new(window_seconds: f64, seconds: f64) -> Self {
        Self { window_seconds, points: VecDeque::from([(seconds, 0)]), first: (seconds, 0) }
    }

    /// Adds `tokens` finished at `seconds`.
    pub fn add(&mut self, tokens: u64, seconds: f64) {
        let total = self.total_tokens() + tokens;
        self.points.push_back((seconds, total));
        // The point just outside the window stays: the window begins there, so that a slow step is not left
        // out.
        while self.points.len() > 2 && self.points[1].0 <= seconds - self.window_seconds {
            self.points.pop_front();
        }
    }

    /// Leaves out the time from the last point to `seconds`, which went into something else, such as an
    /// evaluation.
    pub fn skip_to(&mut self, seconds: f64) {
        let gap = seconds - self.last().0;
        self.first.0 += gap;
        for point in &mut self.points {
            point.0 += gap;
        }
    }

    /// Tokens counted.
    pub fn total_tokens(&self) -> u64 {
        self.last().1
    }

    /// Tokens per second over the window; 0 before the first step.
    pub fn recent(&self) -> f64 {
        rate(self.points[0], self.last())
    }

    /// Tokens per second since the start; 0 before the first step.
    pub fn overall(&self) -> f64 {
        rate(self.first, self.last())
    }

    fn last(&self) -> (f64, u64) {
        *self.points.back().expect("there is a point from the beginning, and the last one is never removed")
    }
}

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
    fn the_window_forgets_and_the_whole_does_not() {
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
    fn time_spent_elsewhere_and_a_clock_that_stands_still_do_not_count() {
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
