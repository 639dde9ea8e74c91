//! AdamW compared with PyTorch's numbers and with its reference in f64, and the bounds of its groups.

use candle_core::{DType, Tensor};

use super::*;
use crate::tensor::from_vec;
use crate::testing::{
    DTYPES, assert_close, assert_same_on_each_device, bits, double, fresh, fresh_in, on_each_device, placed,
};
use crate::update::{half_gradients, whole_tensors};

fn hyper(step: u64) -> Hyper {
    Hyper {
        lr: 0.01,
        beta1: 0.9,
        beta2: 0.98,
        eps: 1e-6,
        step,
        bias_correction: true,
        gradient_multiplier: 0.5,
    }
}

fn buffers(tensors: [&Tensor; 4]) -> Buffers<'_> {
    let [parameters, gradients, first_moment, second_moment] = tensors;
    Buffers {
        parameters,
        gradients,
        half_gradients: None,
        state: [first_moment, second_moment],
        shadow: None,
        clip: None,
    }
}

fn zeros(count: usize) -> Tensor {
    placed(&from_vec::<f32>(vec![0.0; count], count).unwrap())
}

/// Parameters after each of five steps of `torch.optim.AdamW` 2.15.0 in f64: two groups of three with decay
/// 0.1 and 0, lr 0.01, betas 0.9 and 0.98, eps 1e-6, gradients `((7 step + 3 i) mod 11 - 5) / 20`.
#[expect(clippy::unreadable_literal, reason = "digits as PyTorch prints them")]
const TORCH: [[f64; 6]; 5] = [
    [0.489500099999, -1.25874996000016, 2.0079999333337777, 0.0, -0.7599999333337778, 1.50999996000016],
    [
        0.48953691042536945,
        -1.2655574135144412,
        2.0040594356162105,
        0.007405867515877273,
        -0.7640175479138438,
        1.5134680813369734,
    ],
    [
        0.4837189860189901,
        -1.2664082202231945,
        2.0005542996613244,
        0.008170072016041387,
        -0.7602861226395938,
        1.518227136634884,
    ],
    [
        0.47792039769213857,
        -1.2698369382579768,
        2.001228636920707,
        0.009928024082156752,
        -0.7592415182056121,
        1.517329940638347,
    ],
    [
        0.4759424995511904,
        -1.272554951794805,
        1.9989589147137892,
        0.01477709937997336,
        -0.7567302329031016,
        1.5158605495633715,
    ],
];

#[test]
fn five_steps_equal_those_of_pytorch() {
    on_each_device(|| {
        let parameters = placed(&from_vec::<f32>(vec![0.5, -1.25, 2.0, 0.0, -0.75, 1.5], 6).unwrap());
        let [first, second] = [(); 2].map(|()| zeros(6));
        let groups = [
            Group { range: 0..3, weight_decay: 0.1, lr_scale: 1.0 },
            Group { range: 3..6, weight_decay: 0.0, lr_scale: 1.0 },
        ];
        for (step, want) in (1i32..).zip(TORCH) {
            let values: Vec<f32> = (0..6).map(|i| ((step * 7 + i * 3) % 11 - 5) as f32 * 0.1).collect();
            let gradients = placed(&from_vec(values, 6).unwrap());
            update(buffers([&parameters, &gradients, &first, &second]), &groups, &hyper(step as u64))
                .unwrap();
            for (got, want) in parameters.to_vec1::<f32>().unwrap().iter().zip(want) {
                assert!((f64::from(*got) - want).abs() < 5e-7, "step {step}: {got} is not {want}");
            }
        }
    });
}

#[test]
fn many_blocks_agree_with_the_reference() {
    on_each_device(|| {
        let count = 100_003;
        let parameters = fresh(count, 1);
        let [first, second] = [(); 2].map(|()| zeros(count));
        let group = [Group { range: 0..count, weight_decay: 0.01, lr_scale: 1.0 }];
        let mut want = [double(&parameters), double(&first), double(&second)];
        for step in 1..=5 {
            let gradients = fresh(count, 10 + step);
            let kept = gradients.copy().unwrap();
            let hyper = Hyper { beta2: 0.999, eps: 1e-8, ..hyper(step) };
            update(buffers([&parameters, &gradients, &first, &second]), &group, &hyper).unwrap();
            assert_close("gradients", &gradients, &kept, 0.0);
            want = reference::update(
                &want[0],
                &double(&gradients),
                &want[1],
                &want[2],
                f64::from(0.01f32),
                &hyper,
            )
            .unwrap();
        }
        assert_close("parameters", &parameters, &want[0], 1e-6);
        assert_close("first moment", &first, &want[1], 1e-6);
        assert_close("second moment", &second, &want[2], 1e-6);
        // Check of the test itself: after one more update, with zero gradients, the comparison must fail.
        let wrong =
            reference::update(&want[0], &double(&zeros(count)), &want[1], &want[2], 0.01, &hyper(1)).unwrap();
        assert!(crate::testing::relative_error(&parameters, &wrong[0]) > 1e-4);
    });
}

/// Without bias correction, in groups with different learning rates.
#[test]
fn scaled_learning_rates_and_uncorrected_moments_agree_with_the_reference() {
    on_each_device(|| {
        let count = 40_007;
        let parameters = fresh(count, 1);
        let [first, second] = [(); 2].map(|()| zeros(count));
        let halves = [(0..20_003, 0.8f32), (20_003..count, 0.25)];
        let groups = halves.clone().map(|(range, lr_scale)| Group { range, weight_decay: 0.1, lr_scale });
        let mut want = halves.clone().map(|(range, _)| {
            [&parameters, &first, &second].map(|t| double(t).narrow(0, range.start, range.len()).unwrap())
        });
        for step in 1..=3 {
            let gradients = fresh(count, 10 + step);
            let hyper = Hyper { bias_correction: false, ..hyper(step) };
            update(buffers([&parameters, &gradients, &first, &second]), &groups, &hyper).unwrap();
            for ((range, lr_scale), [p, m, v]) in halves.iter().zip(&mut want) {
                let g = double(&gradients).narrow(0, range.start, range.len()).unwrap();
                let scaled = Hyper { lr: hyper.lr * f64::from(*lr_scale), ..hyper };
                [*p, *m, *v] = reference::update(p, &g, m, v, f64::from(0.1f32), &scaled).unwrap();
            }
        }
        for ((range, _), [p, ..]) in halves.iter().zip(&want) {
            let got = parameters.narrow(0, range.start, range.len()).unwrap();
            assert_close("parameters", &got, p, 1e-6);
        }
    });
}

#[test]
fn elements_outside_of_all_groups_are_frozen() {
    on_each_device(|| {
        let [parameters, gradients] = [1, 2].map(|id| fresh(10, id));
        let [first, second] = [(); 2].map(|()| zeros(10));
        let before = parameters.to_vec1::<f32>().unwrap();
        let groups = [
            Group { range: 2..4, weight_decay: 0.0, lr_scale: 1.0 },
            Group { range: 7..9, weight_decay: 0.0, lr_scale: 1.0 },
        ];
        update(buffers([&parameters, &gradients, &first, &second]), &groups, &hyper(1)).unwrap();
        let after = parameters.to_vec1::<f32>().unwrap();
        let changed: Vec<usize> = (0..10).filter(|&i| after[i].to_bits() != before[i].to_bits()).collect();
        assert_eq!(changed, [2, 3, 7, 8]);
    });
}

#[test]
fn the_shadow_is_the_rounded_parameters_and_frozen_elements_keep_theirs() {
    on_each_device(|| {
        let count = 70_001;
        let groups = [
            Group { range: 3..40_000, weight_decay: 0.1, lr_scale: 1.0 },
            Group { range: 40_000..count - 5, weight_decay: 0.0, lr_scale: 1.0 },
        ];
        for dtype in [DType::BF16, DType::F16] {
            let [parameters, plain] = [(); 2].map(|()| fresh(count, 1));
            let before = fresh(count, 9).to_dtype(dtype).unwrap();
            let shadow = before.copy().unwrap();
            for step in 1..=2 {
                let [first, second] = [(); 2].map(|()| zeros(count));
                let with_shadow = [&parameters, &fresh(count, 2), &first, &second];
                update(Buffers { shadow: Some(&shadow), ..buffers(with_shadow) }, &groups, &hyper(step))
                    .unwrap();
                update(
                    buffers([&plain, &fresh(count, 2), &zeros(count), &zeros(count)]),
                    &groups,
                    &hyper(step),
                )
                .unwrap();
            }
            assert_close("parameters", &parameters, &plain, 0.0);
            assert_close(
                "shadow",
                &shadow.narrow(0, 3, count - 8).unwrap(),
                &parameters.to_dtype(dtype).unwrap().narrow(0, 3, count - 8).unwrap(),
                0.0,
            );
            for (start, len) in [(0, 3), (count - 5, 5)] {
                assert_close(
                    "frozen",
                    &shadow.narrow(0, start, len).unwrap(),
                    &before.narrow(0, start, len).unwrap(),
                    0.0,
                );
            }
        }
        let wrong = zeros(9).to_dtype(DType::BF16).unwrap();
        let tensors = [zeros(10), zeros(10), zeros(10), zeros(10)];
        let error = update(Buffers { shadow: Some(&wrong), ..buffers(tensors.each_ref()) }, &[], &hyper(1))
            .unwrap_err();
        assert!(error.to_string().contains("adamw: shadow"), "{error}");
    });
}

/// Bits of parameters, gradients, moments and shadow after three clipped updates of views that begin `offset`
/// elements into larger buffers.
fn clipped_run(shadow: DType, offset: usize) -> [Vec<u32>; 5] {
    let count = 50_003;
    let view = |t: &Tensor| t.narrow(0, offset, count).unwrap();
    let whole = [fresh(count + 9, 1), fresh(count + 9, 2), zeros(count + 9), zeros(count + 9)];
    let whole_shadow = fresh_in(count + 9, 3, shadow);
    let tensors = whole.each_ref().map(view);
    let shadow = view(&whole_shadow);
    let groups = [(1..6, 0.1), (6..30_000, 0.0), (30_002..30_002, 0.5), (30_003..count - 2, 0.3)]
        .map(|(range, weight_decay)| Group { range, weight_decay, lr_scale: 1.0 });
    for (step, max_norm) in (1..).zip([1.0, 0.0, 1e9]) {
        let gradients = fresh(count, 10 + step);
        let norm = placed(&from_vec(vec![223.6 + step as f64], 1).unwrap());
        let clip = Some(crate::update::Clip { norm: &norm, max_norm });
        let [p, _, m, v] = tensors.each_ref();
        update(
            Buffers { shadow: Some(&shadow), clip, ..buffers([p, &gradients, m, v]) },
            &groups,
            &hyper(step),
        )
        .unwrap();
        // And with gradients in a view that does not begin at a multiple of 16 bytes.
        update(
            Buffers { shadow: Some(&shadow), clip, ..buffers([p, &tensors[1], m, v]) },
            &groups,
            &hyper(step),
        )
        .unwrap();
    }
    let [p, g, m, v] = whole.each_ref().map(bits);
    [p, g, m, v, bits(&whole_shadow)]
}

/// Every operation rounds as IEEE 754 prescribes, so a GPU and the CPU give the same bits. Elements of the
/// buffers outside of the views must not change.
#[test]
fn devices_agree_to_the_bit() {
    for (dtype, offset) in DTYPES.into_iter().flat_map(|dtype| [0, 1, 8].map(|offset| (dtype, offset))) {
        assert_same_on_each_device(&format!("{dtype:?} {offset}"), || clipped_run(dtype, offset));
    }
}

#[test]
fn nothing_is_updated_if_the_norm_is_not_finite() {
    on_each_device(|| {
        for norm in [f64::NAN, f64::INFINITY] {
            let tensors = [fresh(1001, 1), fresh(1001, 2), fresh(1001, 3), fresh(1001, 4)];
            let shadow = fresh_in(1001, 5, DType::BF16);
            let before = tensors.each_ref().map(bits);
            let norm = placed(&from_vec(vec![norm], 1).unwrap());
            let clip = Some(crate::update::Clip { norm: &norm, max_norm: 1.0 });
            let groups = [Group { range: 3..900, weight_decay: 0.1, lr_scale: 1.0 }];
            update(
                Buffers { shadow: Some(&shadow), clip, ..buffers(tensors.each_ref()) },
                &groups,
                &hyper(1),
            )
            .unwrap();
            assert!(tensors.each_ref().map(bits) == before);
            assert!(bits(&shadow) == bits(&fresh_in(1001, 5, DType::BF16)));
        }
    });
}

#[test]
fn groups_after_two_billion_elements_are_updated_like_any_other() {
    whole_tensors::groups_after_two_billion_elements_are_updated_like_any_other(|buffers, groups, hyper| {
        update(buffers, groups, hyper)
    });
}

#[test]
fn overlapping_groups_and_step_zero_are_refused() {
    let tensors = [zeros(10), zeros(10), zeros(10), zeros(10)];
    for (ranges, step, message) in [
        ([0..5, 5..10], 1, None),
        ([0..5, 4..10], 1, Some("4..10")),
        ([0..5, 6..11], 1, Some("")),
        ([0..5, 5..10], 0, Some("count from 1")),
    ] {
        let groups = ranges.map(|range| Group { range, weight_decay: 0.0, lr_scale: 1.0 });
        let outcome = update(buffers(tensors.each_ref()), &groups, &hyper(step));
        assert_eq!(outcome.is_err(), message.is_some());
        assert!(outcome.err().is_none_or(|e| e.to_string().contains(message.unwrap())));
    }
    assert!(update(buffers([&tensors[0], &zeros(9), &tensors[2], &tensors[3]]), &[], &hyper(1)).is_err());
}

#[test]
fn gradients_of_two_types_are_read() {
    half_gradients::two_buffers_of_gradients_are_as_good_as_one::<2>(|buffers, groups, hyper| {
        update(buffers, groups, hyper)
    });
    half_gradients::gradients_beyond_their_buffer_are_refused::<2>(|buffers, groups, hyper| {
        update(buffers, groups, hyper)
    });
}
