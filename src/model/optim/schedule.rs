//! The learning rate as a pure function of the step, equal to transformers' `get_scheduler`
//! (`optimization.py`, 5.23).
//!
//! There is no counter: the optimizer asks for the rate of each step, so there is no state to save or
//! restore.

use config::{DecayType, SchedulerType, TrainingConfig, value_at};

/// Stage of the learning rate of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Stage {
    /// The learning rate still rises.
    Warmup,
    /// The learning rate is constant at this value.
    Stable(f64),
    /// The learning rate falls, or has fallen.
    Decay,
}

/// The learning rate of every step of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    kind: SchedulerType,
    /// Peak of each phase, with the number of steps from which it applies.
    peaks: Vec<(u64, f64)>,
    power: f64,
    warmup_steps: u64,
    decay_steps: u64,
    decay_type: DecayType,
    min_lr_ratio: f64,
    total_steps: u64,
}

impl Schedule {
    /// The schedule of a run of `total_steps` updates.
    ///
    /// A `warmup_steps` or `lr_decay_steps` below 1 is a share of all steps, rounded up; a value of 1 or more
    /// is cut to a whole number.
    pub fn new(config: &TrainingConfig, total_steps: u64) -> Self {
        Self {
            kind: config.lr_scheduler_type,
            peaks: config
                .changes(|phase| phase.and_then(|p| p.learning_rate).unwrap_or(config.learning_rate)),
            power: config.lr_power,
            warmup_steps: whole_steps(config.warmup_steps, total_steps),
            decay_steps: whole_steps(config.lr_decay_steps, total_steps),
            decay_type: config.decay_type,
            min_lr_ratio: config.min_lr_ratio,
            total_steps,
        }
    }

    /// Number of updates in the run.
    pub fn total_steps(&self) -> u64 {
        self.total_steps
    }

    /// Number of steps of linear warm-up.
    pub fn warmup_steps(&self) -> u64 {
        self.warmup_steps
    }

    /// The learning rate of the update that follows `step` finished ones: the first update asks for step 0.
    pub fn lr_at(&self, step: u64) -> f64 {
        value_at(&self.peaks, step) * self.factor(step)
    }

    /// Stage of the learning rate after `step` updates.
    pub fn stage_after(&self, step: u64) -> Stage {
        let is_warming_up = self.kind != SchedulerType::Constant && step < self.warmup_steps;
        match self.factor(step) {
            _ if is_warming_up => Stage::Warmup,
            factor if factor < 1.0 => Stage::Decay,
            _ => Stage::Stable(*value_at(&self.peaks, step.saturating_sub(1))),
        }
    }

    /// The learning rate relative to its peak.
    fn factor(&self, step: u64) -> f64 {
        if self.kind == SchedulerType::Constant {
            return 1.0;
        }
        if step < self.warmup_steps {
            let warmed = step as f64 / self.warmup_steps as f64;
            let is_raised = self.kind == SchedulerType::WarmupStableDecay;
            return if is_raised { self.above_min(warmed) } else { warmed };
        }
        match self.kind {
            SchedulerType::Constant | SchedulerType::ConstantWithWarmup => 1.0,
            SchedulerType::Linear => self.remaining(step),
            SchedulerType::Cosine => half_cosine(self.progress(step)),
            SchedulerType::Polynomial => self.remaining(step).powf(self.power),
            SchedulerType::WarmupStableDecay => self.stable_then_decay(step),
        }
    }

    /// Share of the steps after warm-up that are done, from 0 to 1.
    fn progress(&self, step: u64) -> f64 {
        let steps = self.total_steps.saturating_sub(self.warmup_steps).max(1);
        ((step - self.warmup_steps) as f64 / steps as f64).min(1.0)
    }

    /// Share of the steps after warm-up that are left, from 1 to 0. It is counted from the end, so that the
    /// last one is exactly 0.
    fn remaining(&self, step: u64) -> f64 {
        let steps = self.total_steps.saturating_sub(self.warmup_steps).max(1);
        self.total_steps.saturating_sub(step) as f64 / steps as f64
    }

    /// `get_wsd_schedule` after its linear warm-up: constant, then a decay over the last `lr_decay_steps`.
    fn stable_then_decay(&self, step: u64) -> f64 {
        let decay_start = self.total_steps.saturating_sub(self.decay_steps).max(self.warmup_steps);
        if step < decay_start {
            return 1.0;
        }
        if step >= decay_start + self.decay_steps {
            return self.min_lr_ratio;
        }
        let progress = (step - decay_start) as f64 / self.decay_steps as f64;
        self.above_min(match self.decay_type {
            DecayType::Linear => 1.0 - progress,
            DecayType::Cosine => half_cosine(progress),
            DecayType::OneMinusSqrt => 1.0 - progress.sqrt(),
        })
    }

    fn above_min(&self, factor: f64) -> f64 {
        factor * (1.0 - self.min_lr_ratio) + self.min_lr_ratio
    }
}

fn half_cosine(progress: f64) -> f64 {
    (0.5 * (1.0 + (std::f64::consts::PI * progress).cos())).max(0.0)
}

fn whole_steps(value: f64, total_steps: u64) -> u64 {
    if value >= 1.0 { value as u64 } else { (total_steps as f64 * value).ceil() as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::TrainingPhase;
    use proptest::prelude::*;

    const STEPS: [u64; 12] = [0, 1, 5, 10, 11, 40, 55, 89, 90, 91, 99, 100];

    fn schedule(kind: SchedulerType, warmup_steps: f64, total_steps: u64, power: f64) -> Schedule {
        let config = TrainingConfig {
            lr_scheduler_type: kind,
            warmup_steps,
            learning_rate: 3e-4,
            lr_power: power,
            lr_decay_steps: 20.0,
            ..TrainingConfig::default()
        };
        Schedule::new(&config, total_steps)
    }

    fn check(kind: SchedulerType, power: f64, golden: [f64; 12]) {
        let schedule = schedule(kind, 10.0, 100, power);
        for (step, want) in STEPS.into_iter().zip(golden) {
            let got = schedule.lr_at(step);
            assert!(
                (got - want).abs() <= 1e-12 * want.abs() + 1e-19,
                "{kind:?} step {step}: {got} and not {want}"
            );
        }
    }

    // All golden values: `get_scheduler` of transformers 5.23.0, peak 3e-4, 10 warm-up steps of 100,
    // `lr_end=0` for polynomial, `num_decay_steps=20` for warmup_stable_decay.
    #[test]
    fn linear_and_constant_are_those_of_transformers() {
        check(
            SchedulerType::Linear,
            1.0,
            [
                0.0,
                2.999_999_999_999_999_7e-5,
                0.00015,
                0.0003,
                0.000_296_666_666_666_666_65,
                0.000_199_999_999_999_999_98,
                0.00015,
                3.666_666_666_666_666e-5,
                3.333_333_333_333_333e-5,
                2.999_999_999_999_999_7e-5,
                3.333_333_333_333_333_3e-6,
                0.0,
            ],
        );
        let warm = [0.0, 3e-5, 1.5e-4, 3e-4, 3e-4, 3e-4, 3e-4, 3e-4, 3e-4, 3e-4, 3e-4, 3e-4];
        check(SchedulerType::ConstantWithWarmup, 1.0, warm);
        check(SchedulerType::Constant, 1.0, [3e-4; 12]);
    }

    #[test]
    fn curves_are_those_of_transformers() {
        check(
            SchedulerType::Cosine,
            1.0,
            [
                0.0,
                2.999_999_999_999_999_7e-5,
                0.00015,
                0.0003,
                0.000_299_908_624_052_864_33,
                0.000_225,
                0.00015,
                1.092_242_181_498_190_1e-5,
                9.046_106_882_113_751e-6,
                7.341_522_555_726_97e-6,
                9.137_594_713_563_568e-8,
                0.0,
            ],
        );
        check(
            SchedulerType::Polynomial,
            0.5,
            [
                0.0,
                2.999_999_999_999_999_7e-5,
                0.00015,
                0.0003,
                0.000_298_328_677_803_526,
                0.000_244_948_974_278_317_8,
                0.000_212_132_034_355_964_25,
                0.000_104_880_884_817_015_16,
                0.000_1,
                9.486_832_980_505_135e-5,
                3.162_277_660_168_373_4e-5,
                0.0,
            ],
        );
        check(
            SchedulerType::WarmupStableDecay,
            1.0,
            [
                0.0,
                2.999_999_999_999_999_7e-5,
                0.00015,
                0.0003,
                0.0003,
                0.0003,
                0.0003,
                0.000_173_465_169_756_034_62,
                0.00015,
                0.000_126_534_830_243_965_33,
                1.846_748_910_729_350_9e-6,
                0.0,
            ],
        );
    }

    /// `get_wsd_schedule` with its `decay_type` and `min_lr_ratio`.
    #[test]
    fn kinds_of_decay_are_those_of_transformers() {
        let golden: [(DecayType, f64, [f64; 12]); 3] = [
            (
                DecayType::Linear,
                0.0,
                [0.0, 3e-5, 1.5e-4, 3e-4, 3e-4, 3e-4, 3e-4, 1.65e-4, 1.5e-4, 1.35e-4, 1.5e-5, 0.0],
            ),
            (
                DecayType::OneMinusSqrt,
                0.1,
                [
                    3e-5,
                    5.7e-5,
                    1.65e-4,
                    3e-4,
                    3e-4,
                    3e-4,
                    3e-4,
                    0.000_118_878_493_822_517_01,
                    0.000_109_081_169_079_632_14,
                    9.976_264_084_841_71e-5,
                    3.683_655_269_015_799e-5,
                    3e-5,
                ],
            ),
            (
                DecayType::Cosine,
                0.25,
                [
                    7.5e-5,
                    9.75e-5,
                    1.875e-4,
                    3e-4,
                    3e-4,
                    3e-4,
                    3e-4,
                    0.000_205_098_877_317_025_96,
                    0.000_187_5,
                    0.000_169_901_122_682_974_03,
                    7.638_506_168_304_701e-5,
                    7.5e-5,
                ],
            ),
        ];
        for (decay_type, min_lr_ratio, golden) in golden {
            let config = TrainingConfig {
                lr_scheduler_type: SchedulerType::WarmupStableDecay,
                warmup_steps: 10.0,
                lr_decay_steps: 20.0,
                learning_rate: 3e-4,
                decay_type,
                min_lr_ratio,
                ..TrainingConfig::default()
            };
            let schedule = Schedule::new(&config, 100);
            for (step, want) in STEPS.into_iter().zip(golden) {
                let got = schedule.lr_at(step);
                assert!(
                    (got - want).abs() <= 1e-12 * want,
                    "{decay_type:?} step {step}: {got} and not {want}"
                );
            }
        }
    }

    #[test]
    fn a_phase_has_a_peak_of_its_own() {
        let phase = TrainingPhase { learning_rate: Some(1e-3), ..TrainingPhase::of_length(40, 64) };
        let config = TrainingConfig {
            lr_scheduler_type: SchedulerType::WarmupStableDecay,
            warmup_steps: 10.0,
            lr_decay_steps: 20.0,
            learning_rate: 2e-4,
            phases: vec![phase],
            ..TrainingConfig::default()
        };
        let schedule = Schedule::new(&config, 100);
        let rates = [5, 39, 40, 79, 90].map(|step| schedule.lr_at(step).to_bits());
        assert_eq!(rates, [5e-4_f64, 1e-3, 2e-4, 2e-4, 1e-4].map(f64::to_bits));
        let stages = [9, 10, 40, 41, 80, 81, 100].map(|step| schedule.stage_after(step));
        let stable = Stage::Stable;
        assert_eq!(
            stages,
            [
                Stage::Warmup,
                stable(1e-3),
                stable(1e-3),
                stable(2e-4),
                stable(2e-4),
                Stage::Decay,
                Stage::Decay
            ]
        );
        let linear = TrainingConfig { lr_scheduler_type: SchedulerType::Linear, ..config.clone() };
        assert_eq!(Schedule::new(&linear, 100).stage_after(50), Stage::Decay);
    }

    #[test]
    fn shares_of_all_steps_are_rounded_up_and_no_warmup_starts_at_the_peak() {
        // TrainingArguments.get_warmup_steps of transformers 5.23.0; 0.07 x 100 is 7.000000000000001 in f64.
        for (share, total, want) in [
            (0.1, 101, 11),
            (0.06, 999, 60),
            (0.001, 10, 1),
            (0.2843, 7038, 2001),
            (0.07, 100, 8),
            (12.9, 100, 12),
        ] {
            assert_eq!(
                schedule(SchedulerType::Linear, share, total, 1.0).warmup_steps(),
                want,
                "{share} of {total}"
            );
        }
        let flat = schedule(SchedulerType::Linear, 0.0, 7, 1.0);
        assert_eq!(flat.lr_at(0).to_bits(), 3e-4_f64.to_bits());
        assert!((flat.lr_at(6) - 4.285_714_285_714_285e-5).abs() < 1e-18);
    }

    proptest! {
        #[test]
        fn every_schedule_is_finite_and_between_zero_and_the_peak(
            warmup in 0.0..200.0_f64, total in 0..200_u64, step in 0..400_u64, power in 0.1..4.0_f64, kind in 0..6_usize,
        ) {
            let kind = [SchedulerType::Linear, SchedulerType::Cosine, SchedulerType::Constant, SchedulerType::ConstantWithWarmup,
                SchedulerType::Polynomial, SchedulerType::WarmupStableDecay][kind];
            let lr = schedule(kind, warmup, total, power).lr_at(step);
            prop_assert!((0.0..=3e-4).contains(&lr), "{lr}");
        }
    }
}
