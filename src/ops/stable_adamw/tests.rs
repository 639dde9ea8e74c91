//! StableAdamW compared with its paper's numbers and with its reference in f64, and the bounds of its groups.

use super::*;
use crate::tensor::from_vec;
use crate::testing::{assert_close, double, fresh, on_each_device, on_host, placed, relative_error};
use crate::update::whole_tensors::{State, TENSORS, group, groups, hyper, part, values, zeros};
use crate::update::{Group, half_gradients, whole_tensors};

/// Parameters after each of five steps of the paper's algorithm in f64 (`scripts/make_optimizer_golden.py`):
/// two tensors of three with decay 0.1 and 0, lr 0.01, betas 0.9 and 0.98, eps 1e-6, gradients
/// `((7 step + 3 i) mod 11 - 5) / 20`; those of the third step are thirty times as large, so that its rate is
/// lowered.
#[expect(clippy::unreadable_literal, reason = "digits as NumPy prints them")]
const PAPER: [[f64; 6]; 5] = [
    [0.489500099999, -1.25874996000016, 2.0079999333337777, 0.0, -0.7599999333337778, 1.50999996000016],
    [
        0.48953691042536945,
        -1.2655574135144412,
        2.0040594356162105,
        0.007405867515877264,
        -0.7640175479138438,
        1.5134680813369734,
    ],
    [
        0.4846699501512278,
        -1.260384865499298,
        2.0015537938000802,
        0.0038609095576303187,
        -0.7603597941833037,
        1.517288136445799,
    ],
    [
        0.47894559863438635,
        -1.2544716236712572,
        2.0022271315653244,
        -0.00106974690281471,
        -0.7552832530375883,
        1.5221734388712798,
    ],
    [
        0.4741263876880482,
        -1.249265200871968,
        1.999956410863762,
        -0.004948333191543131,
        -0.7508990494902335,
        1.5262318853899453,
    ],
];

#[test]
fn five_steps_equal_those_of_the_paper() {
    on_each_device(|| {
        let start = vec![0.5, -1.25, 2.0, 0.0, -0.75, 1.5];
        let mut state = State::new(placed(&from_vec::<f32>(start, 6).unwrap()));
        let groups = [group(0..3, 0.1), group(3..6, 0.0)];
        for (step, want) in (1i32..).zip(PAPER) {
            let factor = if step == 3 { 3.0 } else { 0.1 };
            let gradients: Vec<f32> = (0..6).map(|i| ((step * 7 + i * 3) % 11 - 5) as f32 * factor).collect();
            let hyper = Hyper { beta2: 0.98, ..hyper(step as u64) };
            state.step(apply, &gradients, &groups, &hyper);
            for (got, want) in values(&state.tensors[0]).iter().zip(want) {
                assert!((f64::from(*got) - want).abs() < 5e-7, "step {step}: {got} is not {want}");
            }
        }
    });
}

#[test]
fn several_tensors_agree_with_the_reference() {
    on_each_device(|| {
        let count = 100_003;
        let mut state = State::new(fresh(count, 1));
        let mut want = TENSORS.map(|(range, _)| {
            [
                double(&part(&state.tensors[0], &range)),
                double(&zeros(range.len())),
                double(&zeros(range.len())),
            ]
        });
        let mut without_clips = want.clone();
        for step in 1..=4 {
            // Gradients that grow are clipped.
            let gradients = (on_host(&fresh(count, 10 + step)) * 4f64.powi(step as i32)).unwrap();
            state.step(apply, &values(&gradients), &groups(), &hyper(step));
            for (((range, decay), want), other) in TENSORS.iter().zip(&mut want).zip(&mut without_clips) {
                let g = double(&part(&gradients, range));
                let decay = f64::from(*decay);
                *want = reference::update(&want[0], &g, &want[1], &want[2], decay, &hyper(step)).unwrap();
                let [p, m, v] = other.each_ref();
                *other = crate::adamw::reference::update(p, &g, m, v, decay, &hyper(step)).unwrap();
            }
        }
        for (((range, _), want), other) in TENSORS.iter().zip(&want).zip(&without_clips) {
            for (what, got, want) in [("parameters", 0, 0), ("first moment", 2, 1), ("second moment", 3, 2)]
                .map(|(w, i, j)| (w, &state.tensors[i], &want[j]))
            {
                assert_close(what, &part(got, range), want, 2e-6);
            }
            // Check of the test itself: AdamW, whose rate is not lowered, must not pass the comparison.
            assert!(relative_error(&part(&state.tensors[0], range), &other[0]) > 1e-4, "{range:?}");
        }
    });
}

/// Without bias correction, with a scaled learning rate.
#[test]
fn a_scaled_learning_rate_and_uncorrected_moments_agree_with_the_reference() {
    on_each_device(|| {
        let count = 40_007;
        let mut state = State::new(fresh(count, 1));
        let mut want = state.tensors.each_ref().map(double);
        for step in 1..=3 {
            let gradients = fresh(count, 10 + step);
            let hyper = Hyper { bias_correction: false, ..hyper(step) };
            let group = Group { lr_scale: 0.25, ..group(0..count, 0.1) };
            state.step(
                apply,
                &values(&gradients.to_device(&candle_core::Device::Cpu).unwrap()),
                &[group],
                &hyper,
            );
            let [p, _, m, v] = &want;
            let scaled = Hyper { lr: hyper.lr * 0.25, ..hyper };
            let decay = f64::from(0.1f32);
            let [p, m, v] = reference::update(p, &double(&gradients), m, v, decay, &scaled).unwrap();
            want = [p, double(&gradients), m, v];
        }
        assert_close("parameters", &state.tensors[0], &want[0], 1e-6);
    });
}

#[test]
fn a_tensor_without_gradients_keeps_its_values_but_for_the_decay() {
    on_each_device(|| {
        let mut state = State::new(placed(&from_vec::<f32>(vec![2.0, -2.0, 3.0, 4.0], 4).unwrap()));
        let groups = [group(0..2, 0.0), group(2..4, 0.1)];
        state.step(apply, &[0.0; 4], &groups, &hyper(1));
        for (got, want) in values(&state.tensors[0]).iter().zip([2.0, -2.0, 3.0 * 0.999, 4.0 * 0.999]) {
            assert!((got - want).abs() < 1e-6, "{got} is not {want}");
        }
    });
}

fn apply(buffers: Buffers<'_>, groups: &[Group], hyper: &Hyper) -> Result<()> {
    update(buffers, groups, hyper)
}

#[test]
fn elements_outside_of_all_groups_are_frozen() {
    whole_tensors::elements_outside_of_all_groups_are_frozen(apply);
}

#[test]
fn the_shadow_is_the_rounded_parameters_and_the_number_of_threads_does_not_change_a_bit() {
    whole_tensors::the_shadow_is_the_rounded_parameters_and_the_number_of_threads_does_not_change_a_bit(
        apply,
    );
}

#[test]
fn devices_agree() {
    whole_tensors::devices_agree(apply);
}

#[test]
fn nothing_is_updated_if_the_norm_is_not_finite() {
    whole_tensors::nothing_is_updated_if_the_norm_is_not_finite(apply);
}

#[test]
fn groups_after_two_billion_elements_are_updated_like_any_other() {
    whole_tensors::groups_after_two_billion_elements_are_updated_like_any_other(apply);
}

#[test]
fn overlapping_groups_and_step_zero_are_refused() {
    whole_tensors::overlapping_groups_and_step_zero_are_refused(apply, "stable_adamw");
}

#[test]
fn gradients_of_two_types_are_read() {
    half_gradients::two_buffers_of_gradients_are_as_good_as_one::<2>(|buffers, groups, hyper| {
        update(buffers, groups, hyper)
    });
}
