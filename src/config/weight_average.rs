//! The moving average of the weights that is evaluated and written instead of the last weights.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An exponential moving average of the weights, in f32: that of `torch.optim.swa_utils`' `AveragedModel`
/// with `get_ema_multi_avg_fn`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WeightAverage {
    /// Share of the average that stays at each averaging; the rest comes from the weights. 0.999 averages
    /// over about the last 1,000 averagings.
    #[schemars(range(min = 0.0), example = 0.999, extend("exclusiveMaximum" = 1))]
    pub decay: f64,
    /// Steps at the beginning that are not averaged. The first averaging copies the weights; until then the
    /// weights themselves are evaluated and written.
    pub start_step: u64,
    /// Steps from one averaging to the next.
    #[schemars(range(min = 1))]
    pub every: u64,
    /// Limit the decay to `1 - (1 + n)^(-2/3)` after n averagings: it is 0.95 after 90 of them
    /// and 0.99 after 1,000, so that the first weights are soon forgotten.
    pub use_warmup: bool,
}

impl WeightAverage {
    /// Returns true if the weights are averaged after step number `step`, counted from 1.
    pub fn is_due_after(&self, step: u64) -> bool {
        step > self.start_step && (step - self.start_step).is_multiple_of(self.every)
    }

    /// Returns the decay of the averaging that follows `averagings` others.
    pub fn decay_after(&self, averagings: u64) -> f64 {
        let limit = 1.0 - (1.0 + averagings as f64).powf(-2.0 / 3.0);
        if self.use_warmup { self.decay.min(limit) } else { self.decay }
    }
}

impl Default for WeightAverage {
    fn default() -> Self {
        Self { decay: 0.999, start_step: 0, every: 1, use_warmup: true }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn averagings_are_due_from_the_start_on_at_the_interval() {
        let average = WeightAverage { start_step: 4, every: 3, ..WeightAverage::default() };
        let due: Vec<u64> = (1..=14).filter(|&step| average.is_due_after(step)).collect();
        assert_eq!(due, [7, 10, 13]);
        assert!((1..9).all(|step| WeightAverage::default().is_due_after(step)));
    }

    #[test]
    fn the_decay_grows_to_the_configured_one() {
        let average = WeightAverage { decay: 0.99, ..WeightAverage::default() };
        for (averagings, decay) in [(0, 0.0), (7, 0.75), (90, 0.9506), (999, 0.99), (100_000, 0.99)] {
            let found = average.decay_after(averagings);
            assert!((found - decay).abs() < 1e-4, "{found} after {averagings}");
        }
        let constant = WeightAverage { use_warmup: false, ..average };
        assert!([0, 7, 999].into_iter().all(|n| constant.decay_after(n).to_bits() == 0.99f64.to_bits()));
    }
}
