//! LAMB compared with timm's numbers and with its reference in f64, and the bounds of its groups.

use super::*;
use crate::tensor::from_vec;
use crate::testing::{assert_close, double, fresh, on_each_device, placed, relative_error};
use crate::update::whole_tensors::{State, TENSORS, group, groups, hyper, part, values, zeros};
use crate::update::{Group, half_gradients, whole_tensors};

/// Parameters after each of five steps of `timm.optim.Lamb` 1.0.31 on PyTorch 2.15.0 in f64: tensors of 3, 3
/// and 2 elements with decay 0.1, 0 and 0.1, lr 0.01, betas 0.9 and 0.999, eps 1e-6, no clipping, gradients
/// `((7 step + 3 i) mod 11 - 5) / 20`. The third tensor begins at zero: its first ratio is 1.
#[expect(clippy::unreadable_literal, reason = "digits as PyTorch prints them")]
const TIMM: [[f64; 8]; 5] = [
    [
        0.48401563437489187,
        -1.2633203706544165,
        2.0121785787837423,
        0.0,
        -0.7599999333337778,
        1.50999996000016,
        0.009999900000999989,
        -0.009999800003999918,
    ],
    [
        0.48414653622306236,
        -1.28426423968759,
        1.9999618514297408,
        0.007441315630778541,
        -0.76400208324984,
        1.513456000323984,
        0.009905584381917357,
        -0.009894424655781943,
    ],
    [
        0.46347973296292166,
        -1.287173649819806,
        1.9876015695966136,
        0.00820813206058391,
        -0.7602542097894522,
        1.518185976481229,
        0.009784499891405007,
        -0.009964713846124327,
    ],
    [
        0.4427839892050731,
        -1.2993323946025068,
        1.9900653192451567,
        0.009964620406465216,
        -0.7592084848616877,
        1.5172887143683413,
        0.009754874088840645,
        -0.010101189147327227,
    ],
    [
        0.43101811858120026,
        -1.3154371624304242,
        1.9764026338417162,
        0.01484566213181681,
        -0.7567013007507746,
        1.5158257585282653,
        0.00963399888401525,
        -0.010029716467747264,
    ],
];

#[test]
fn five_steps_equal_those_of_timm() {
    on_each_device(|| {
        let mut state = State::new(placed(
            &from_vec::<f32>(vec![0.5, -1.25, 2.0, 0.0, -0.75, 1.5, 0.0, 0.0], 8).unwrap(),
        ));
        let groups = [group(0..3, 0.1), group(3..6, 0.0), group(6..8, 0.1)];
        for (step, want) in (1i32..).zip(TIMM) {
            let gradients: Vec<f32> = (0..8).map(|i| ((step * 7 + i * 3) % 11 - 5) as f32 * 0.1).collect();
            state.step(apply, &gradients, &groups, &hyper(step as u64));
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
        let mut without_ratio = want.clone();
        for step in 1..=4 {
            let gradients = fresh(count, 10 + step);
            state.step(apply, &values(&gradients), &groups(), &hyper(step));
            for (((range, decay), want), other) in TENSORS.iter().zip(&mut want).zip(&mut without_ratio) {
                let g = double(&part(&gradients, range));
                let decay = f64::from(*decay);
                *want = reference::update(&want[0], &g, &want[1], &want[2], decay, &hyper(step)).unwrap();
                *other = reference::update(&other[0], &g, &other[1], &other[2], 0.0, &hyper(step)).unwrap();
            }
        }
        for (((range, decay), want), other) in TENSORS.iter().zip(&want).zip(&without_ratio) {
            for (what, got, want) in [("parameters", 0, 0), ("first moment", 2, 1), ("second moment", 3, 2)]
                .map(|(w, i, j)| (w, &state.tensors[i], &want[j]))
            {
                assert_close(what, &part(got, range), want, 2e-6);
            }
            // Check of the test itself: an update without decay and trust ratio must not pass the comparison.
            assert!(
                *decay == 0.0 || relative_error(&part(&state.tensors[0], range), &other[0]) > 1e-4,
                "{range:?}"
            );
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
fn a_tensor_of_zeros_or_without_an_update_has_the_ratio_one() {
    on_each_device(|| {
        // The first tensor is zero. The second has neither gradient nor decay, so it does not change. The
        // third has only decay.
        let mut state = State::new(placed(&from_vec::<f32>(vec![0.0, 0.0, 2.0, 2.0, 3.0, 4.0], 6).unwrap()));
        let groups = [group(0..2, 0.1), group(2..4, 0.0), group(4..6, 0.1)];
        state.step(apply, &[1.0, -1.0, 0.0, 0.0, 0.0, 0.0], &groups, &Hyper { eps: 1e-12, ..hyper(1) });
        let got = values(&state.tensors[0]);
        // In the first step, m_hat / sqrt(v_hat) is the sign of the gradient. With decay only, the ratio is
        // 1 / decay, so the update is -lr * p.
        for (got, want) in got.iter().zip([-0.01, 0.01, 2.0, 2.0, 3.0 * 0.99, 4.0 * 0.99]) {
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
    whole_tensors::overlapping_groups_and_step_zero_are_refused(apply, "lamb");
}

#[test]
fn gradients_of_two_types_are_read() {
    half_gradients::two_buffers_of_gradients_are_as_good_as_one::<2>(|buffers, groups, hyper| {
        update(buffers, groups, hyper)
    });
}
