//! The factor by which the loss of f16 is multiplied, so that small gradients are not rounded to zero
//! (Micikevicius et al. 2018).
//!
//! A state machine without tensors, as PyTorch's `GradScaler` with its defaults: a step whose gradients
//! overflow is skipped and halves the factor, so many good steps in a row double it. The factor is a power of
//! two, so that scaling is exact.

use serde::Deserialize;
use serde::Serialize;

use crate::config::LossScaleConfig;
use crate::error::Class;
use crate::error::Problem;

/// The first factor where the configuration names none.
const INIT_SCALE: f64 = 65_536.0;

/// The factor stops growing here, as in NVIDIA's apex: with ever larger ones every other growth would
/// overflow.
const MAX_SCALE: f64 = 16_777_216.0;

/// A run is given up when so many steps in a row overflow at the smallest factor.
const MOST_OVERFLOWS_AT_FLOOR: u32 = 10;

/// The factor, and the rules by which it moves.
#[derive(Debug, Clone, PartialEq)]
pub struct LossScale {
    growth_interval: u64,
    min_scale: f64,
    state: LossScaleState,
}

/// What a checkpoint holds of a [`LossScale`].
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LossScaleState {
    scale: f64,
    good_steps: u64,
    overflows_at_floor: u32,
}

impl LossScale {
    /// The beginning of a run.
    pub fn new(config: &LossScaleConfig) -> Self {
        let scale = config.init_scale.unwrap_or(INIT_SCALE).max(config.min_scale);
        Self {
            growth_interval: config.growth_interval,
            min_scale: config.min_scale,
            state: LossScaleState { scale, good_steps: 0, overflows_at_floor: 0 },
        }
    }

    /// What the loss of the next step is multiplied by.
    pub fn factor(&self) -> f64 {
        self.state.scale
    }

    /// The gradients of a step were finite.
    pub fn succeeded(&mut self) {
        let state = &mut self.state;
        state.overflows_at_floor = 0;
        state.good_steps += 1;
        if state.good_steps >= self.growth_interval {
            state.good_steps = 0;
            state.scale = (2.0 * state.scale).min(MAX_SCALE.max(self.min_scale));
        }
    }

    /// The gradients of step number `step` were not finite. An error when that goes on at the smallest
    /// factor.
    pub fn overflowed(&mut self, step: u64) -> Result<(), Problem> {
        let state = &mut self.state;
        state.good_steps = 0;
        if state.scale > self.min_scale {
            state.scale = (0.5 * state.scale).max(self.min_scale);
            return Ok(());
        }
        state.overflows_at_floor += 1;
        if state.overflows_at_floor < MOST_OVERFLOWS_AT_FLOOR {
            return Ok(());
        }
        Err(Problem::new(format!(
            "gradients overflow in f16 even at the smallest loss scale {}: step {step} is number {MOST_OVERFLOWS_AT_FLOOR} in a row",
            self.min_scale
        ))
        .class(Class::Diverged)
        .hint("compute in `bf16` or `f32` (`precision.compute`), or lower `training.learning_rate`; the last checkpoint is untouched"))
    }

    /// The state, for a checkpoint.
    pub fn snapshot(&self) -> LossScaleState {
        self.state
    }

    /// Goes on from a snapshot.
    pub fn restore(&mut self, state: LossScaleState) {
        self.state = state;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::class_of;

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
        scale.overflowed(3).unwrap();
        assert_factor(&scale, 512.0);
        // Those before the overflow no longer count.
        scale.succeeded();
        scale.succeeded();
        assert_factor(&scale, 512.0);
        scale.succeeded();
        assert_factor(&scale, 1024.0);
    }

    #[test]
    fn it_does_not_grow_without_end() {
        let mut scale = scale(MAX_SCALE, 1, 1.0);
        scale.succeeded();
        assert_factor(&scale, MAX_SCALE);
    }

    #[test]
    fn overflows_at_the_floor_end_the_run_and_a_good_step_forgives_them() {
        let mut scale = scale(4.0, 2000, 1.0);
        for step in 1..=2 {
            scale.overflowed(step).unwrap();
        }
        for step in 3..=11 {
            scale.overflowed(step).unwrap();
        }
        assert_factor(&scale, 1.0);
        scale.succeeded();
        for step in 13..=21 {
            scale.overflowed(step).unwrap();
        }
        let problem = scale.overflowed(22).unwrap_err();
        insta::assert_snapshot!(problem, @r"
        gradients overflow in f16 even at the smallest loss scale 1: step 22 is number 10 in a row
          hint: compute in `bf16` or `f32` (`precision.compute`), or lower `training.learning_rate`; the last checkpoint is untouched
        ");
        assert_eq!(class_of(&problem.into()), Class::Diverged);
    }

    #[test]
    fn a_snapshot_goes_on_where_it_was_taken() {
        let mut whole = scale(64.0, 3, 1.0);
        let steps = [true, true, false, true, true, true, true, false, false, true];
        let step = |scale: &mut LossScale, good: bool| {
            if good { scale.succeeded() } else { scale.overflowed(1).unwrap() }
        };
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
}
