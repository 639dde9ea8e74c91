//! The loss scale of f16: the loss is multiplied by it, so that small gradients are not rounded to zero
//! (Micikevicius et al. 2018).
//!
//! A state machine without tensors, like PyTorch's `GradScaler` with its defaults: a step whose gradients
//! overflow is skipped and halves the scale, and `growth_interval` good steps in a row double it. The scale
//! is a power of two, so that scaling is exact.

use serde::{Deserialize, Serialize};

use config::LossScaleConfig;

/// Initial scale if the configuration sets none.
const INIT_SCALE: f64 = 65_536.0;

/// The scale stops growing here, as in NVIDIA's apex: with ever larger scales, every other growth would
/// overflow.
const MAX_SCALE: f64 = 16_777_216.0;

/// The scale, and the rules by which it changes.
#[derive(Debug, Clone, PartialEq)]
pub struct LossScale {
    growth_interval: u64,
    min_scale: f64,
    state: LossScaleState,
}

/// State of a [`LossScale`] in a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LossScaleState {
    scale: f64,
    good_steps: u64,
}

impl LossScale {
    /// The scale at the start of a run.
    pub fn new(config: &LossScaleConfig) -> Self {
        let scale = config.init_scale.unwrap_or(INIT_SCALE).max(config.min_scale);
        Self {
            growth_interval: config.growth_interval,
            min_scale: config.min_scale,
            state: LossScaleState { scale, good_steps: 0 },
        }
    }

    /// The factor by which the loss of the next step is multiplied.
    pub fn factor(&self) -> f64 {
        self.state.scale
    }

    /// Records a step with finite gradients.
    pub fn succeeded(&mut self) {
        let state = &mut self.state;
        state.good_steps += 1;
        if state.good_steps >= self.growth_interval {
            state.good_steps = 0;
            state.scale = (2.0 * state.scale).min(MAX_SCALE.max(self.min_scale));
        }
    }

    /// Records a step whose gradients were not finite. Returns true if the scale became smaller, which may
    /// help.
    pub fn overflowed(&mut self) -> bool {
        let state = &mut self.state;
        state.good_steps = 0;
        let before = state.scale;
        state.scale = (0.5 * before).max(self.min_scale);
        state.scale < before
    }

    /// The state, for a checkpoint.
    pub fn snapshot(&self) -> LossScaleState {
        self.state
    }

    /// Continues from a snapshot.
    pub fn restore(&mut self, state: LossScaleState) {
        self.state = state;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scale(init_scale: f64, growth_interval: u64, min_scale: f64) -> LossScale {
        LossScale::new(&LossScaleConfig { init_scale: Some(init_scale), growth_interval, min_scale })
    }

    #[track_caller]
    fn assert_factor(scale: &LossScale, want: f64) {
        assert_eq!(scale.factor().to_bits(), want.to_bits(), "{} is not {want}", scale.factor());
    }

    #[test]
    fn the_defaults_are_those_of_grad_scaler() {
        let mut scale = LossScale::new(&LossScaleConfig::default());
        assert_factor(&scale, 65_536.0);
        for _ in 0..1999 {
            scale.succeeded();
        }
        assert_factor(&scale, 65_536.0);
        scale.succeeded();
        assert_factor(&scale, 131_072.0);
    }

    #[test]
    fn good_steps_in_a_row_double_and_an_overflow_halves() {
        let mut scale = scale(1024.0, 3, 1.0);
        scale.succeeded();
        scale.succeeded();
        scale.overflowed();
        assert_factor(&scale, 512.0);
        // Steps before the overflow no longer count.
        scale.succeeded();
        scale.succeeded();
        assert_factor(&scale, 512.0);
        scale.succeeded();
        assert_factor(&scale, 1024.0);
    }

    #[test]
    fn the_scale_does_not_grow_without_end() {
        let mut scale = scale(MAX_SCALE, 1, 1.0);
        scale.succeeded();
        assert_factor(&scale, MAX_SCALE);
    }

    #[test]
    fn at_the_minimum_no_smaller_scale_is_left() {
        let mut scale = scale(4.0, 2000, 1.0);
        assert_eq!([(); 4].map(|()| scale.overflowed()), [true, true, false, false]);
        assert_factor(&scale, 1.0);
    }

    #[test]
    fn a_snapshot_continues_where_it_was_taken() {
        let mut whole = scale(64.0, 3, 1.0);
        let steps = [true, true, false, true, true, true, true, false, false, true];
        for (index, &good) in steps.iter().enumerate() {
            let text = serde_json::to_string(&whole.snapshot()).unwrap();
            let mut resumed = scale(2.0, 3, 1.0);
            resumed.restore(serde_json::from_str(&text).unwrap());
            let mut undisturbed = whole.clone();
            for &good in &steps[index..] {
                step(&mut resumed, good);
                step(&mut undisturbed, good);
            }
            assert_eq!(resumed, undisturbed);
            step(&mut whole, good);
        }
    }

    fn step(scale: &mut LossScale, good: bool) {
        if good {
            scale.succeeded();
        } else {
            scale.overflowed();
        }
    }
}
