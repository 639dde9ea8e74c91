//! Lion compared with the numbers of its paper's program and with its reference in f64.

use std::ops::Range;

use candle_core::{DType, Tensor};

use super::*;
use crate::tensor::from_vec;
use crate::testing::{
    DTYPES, assert_close, assert_same_for_any_thread_count, assert_same_on_each_device, bits, double, far,
    fresh, fresh_in, has_room, on_each_device, on_host, placed,
};
use crate::update::{Clip, Group, half_gradients};

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

fn buffers(tensors: [&Tensor; 3]) -> Buffers<'_, 1> {
    let [parameters, gradients, momentum] = tensors;
    Buffers { parameters, gradients, half_gradients: None, state: [momentum], shadow: None, clip: None }
}

fn zeros(count: usize) -> Tensor {
    placed(&from_vec::<f32>(vec![0.0; count], count).unwrap())
}

fn group(range: Range<usize>, weight_decay: f32) -> Group {
    Group { range, weight_decay, lr_scale: 1.0 }
}

/// Parameters after each of five steps of the paper's program in f64 (`scripts/make_optimizer_golden.py`):
/// two groups of three with decay 0.1 and 0, lr 0.01, betas 0.9 and 0.98, gradients
/// `((7 step + 3 i) mod 11 - 5) / 20`. The first gradient of the fourth element is zero.
#[expect(clippy::unreadable_literal, reason = "digits as NumPy prints them")]
const PAPER: [[f64; 6]; 5] = [
    [0.4895, -1.25875, 2.008, 0.0, -0.76, 1.51],
    [0.49901049999999997, -1.26749125, 1.995992, 0.01, -0.75, 1.5],
    [0.48851148949999995, -1.25622375875, 1.983996008, 0.0, -0.74, 1.51],
    [0.4780229780105, -1.26496753499125, 1.9920120119920002, 0.01, -0.75, 1.5],
    [0.48754495503248946, -1.2737025674562588, 1.980019999980008, 0.02, -0.74, 1.49],
];

#[test]
fn five_steps_equal_those_of_the_paper() {
    on_each_device(|| {
        let parameters = placed(&from_vec::<f32>(vec![0.5, -1.25, 2.0, 0.0, -0.75, 1.5], 6).unwrap());
        let momentum = zeros(6);
        let groups = [group(0..3, 0.1), group(3..6, 0.0)];
        for (step, want) in (1i32..).zip(PAPER) {
            let values: Vec<f32> = (0..6).map(|i| ((step * 7 + i * 3) % 11 - 5) as f32 * 0.1).collect();
            let gradients = placed(&from_vec(values, 6).unwrap());
            update(buffers([&parameters, &gradients, &momentum]), &groups, &hyper(step as u64)).unwrap();
            for (got, want) in parameters.to_vec1::<f32>().unwrap().iter().zip(want) {
                assert!((f64::from(*got) - want).abs() < 5e-7, "step {step}: {got} is not {want}");
            }
        }
    });
}

/// Elements whose direction is smaller than its rounding error may have another sign in the reference.
#[test]
fn many_blocks_agree_with_the_reference() {
    on_each_device(|| {
        let count = 100_003;
        let parameters = fresh(count, 1);
        let momentum = zeros(count);
        let groups = [
            Group { lr_scale: 0.8, ..group(0..60_001, 0.3) },
            Group { lr_scale: 0.25, ..group(60_001..count, 0.0) },
        ];
        let mut want = [double(&parameters), double(&momentum)];
        let mut is_clear = vec![true; count];
        for step in 1..=5 {
            let gradients = fresh(count, 10 + step);
            update(buffers([&parameters, &gradients, &momentum]), &groups, &hyper(step)).unwrap();
            let parts = groups.iter().map(|Group { range, weight_decay, lr_scale }| {
                let scaled = Hyper { lr: 0.01 * f64::from(*lr_scale), ..hyper(step) };
                let [p, g, m] = [&want[0], &gradients, &want[1]]
                    .map(|t| double(t).narrow(0, range.start, range.len()).unwrap());
                reference::update(&p, &g, &m, f64::from(*weight_decay), &scaled).unwrap()
            });
            let parts: Vec<[Tensor; 3]> = parts.collect();
            let [p, m, directions] =
                [0, 1, 2].map(|i| Tensor::cat(&[&parts[0][i], &parts[1][i]], 0).unwrap());
            want = [p, m];
            let directions = directions.to_vec1::<f64>().unwrap();
            is_clear.iter_mut().zip(directions).for_each(|(is_clear, c)| *is_clear &= c.abs() > 1e-6);
        }
        assert_close("momentum", &momentum, &want[1], 1e-6);
        let [got, want] = [&double(&parameters), &want[0]].map(|t| t.to_vec1::<f64>().unwrap());
        let wrong = (0..count).filter(|&i| (got[i] - want[i]).abs() > 1e-6).collect::<Vec<_>>();
        assert!(wrong.iter().all(|&i| !is_clear[i]), "{wrong:?}");
        assert!(is_clear.iter().filter(|is_clear| !**is_clear).count() < 20);
    });
}

#[test]
fn elements_outside_of_all_groups_are_frozen_and_the_shadow_is_the_rounded_parameters() {
    on_each_device(|| {
        for dtype in [DType::BF16, DType::F16] {
            let parameters = fresh(1000, 1);
            let before = on_host(&parameters).to_vec1::<f32>().unwrap();
            let momentum = zeros(1000);
            let old = fresh_in(1000, 7, dtype);
            let shadow = old.copy().unwrap();
            let gradients = fresh(1000, 2);
            let buffers = buffers([&parameters, &gradients, &momentum]);
            let groups = [group(2..400, 0.1), group(407..999, 0.0)];
            update(Buffers { shadow: Some(&shadow), ..buffers }, &groups, &hyper(1)).unwrap();
            let after = on_host(&parameters).to_vec1::<f32>().unwrap();
            let rounded = bits(&on_host(&parameters).to_dtype(dtype).unwrap());
            let [old, shadow, momentum] = [&old, &shadow, &momentum].map(bits);
            for i in 0..1000 {
                let is_frozen = i < 2 || (400..407).contains(&i) || i == 999;
                assert_eq!(after[i].to_bits() == before[i].to_bits(), is_frozen, "{i}");
                assert_eq!(momentum[i] == 0, is_frozen, "{i}");
                assert_eq!(shadow[i], if is_frozen { old[i] } else { rounded[i] }, "{i}");
            }
        }
    });
}

/// Bits of parameters, gradients, momentum and shadow after three clipped updates of views that begin
/// `offset` elements into larger buffers.
fn clipped_run(shadow: DType, offset: usize) -> [Vec<u32>; 4] {
    let count = 50_003;
    let view = |t: &Tensor| t.narrow(0, offset, count).unwrap();
    let whole = [fresh(count + 9, 1), fresh(count + 9, 2), zeros(count + 9)];
    let whole_shadow = fresh_in(count + 9, 3, shadow);
    let tensors = whole.each_ref().map(view);
    let shadow = view(&whole_shadow);
    let groups =
        [group(1..6, 0.1), group(6..30_000, 0.0), group(30_002..30_002, 0.5), group(30_003..50_001, 0.3)];
    for (step, max_norm) in (1..).zip([1.0, 0.0, 1e9]) {
        let norm = placed(&from_vec(vec![223.6 + step as f64], 1).unwrap());
        let clip = Some(Clip { norm: &norm, max_norm });
        let buffers = buffers(tensors.each_ref());
        update(Buffers { shadow: Some(&shadow), clip, ..buffers }, &groups, &hyper(step)).unwrap();
    }
    let [p, g, m] = whole.each_ref().map(bits);
    [p, g, m, bits(&whole_shadow)]
}

#[test]
fn devices_and_thread_counts_agree_to_the_bit() {
    for (dtype, offset) in DTYPES.into_iter().flat_map(|dtype| [0, 1, 8].map(|offset| (dtype, offset))) {
        assert_same_on_each_device(&format!("{dtype:?} {offset}"), || clipped_run(dtype, offset));
    }
    assert_same_for_any_thread_count("lion", || clipped_run(DType::BF16, 1));
}

#[test]
fn nothing_is_updated_if_the_norm_is_not_finite() {
    on_each_device(|| {
        for norm in [f64::NAN, f64::INFINITY] {
            let tensors = [fresh(1001, 1), fresh(1001, 2), fresh(1001, 3)];
            let before = tensors.each_ref().map(bits);
            let norm = placed(&from_vec(vec![norm], 1).unwrap());
            let clip = Some(Clip { norm: &norm, max_norm: 1.0 });
            let buffers = Buffers { clip, ..buffers(tensors.each_ref()) };
            update(buffers, &[group(3..900, 0.1)], &hyper(1)).unwrap();
            assert!(tensors.each_ref().map(bits) == before);
        }
    });
}

/// Offsets have 64 bits: a group after 2^31 elements is updated in the same way as one at the start of the
/// buffers. Elements outside of the groups are not read.
#[test]
fn groups_after_two_billion_elements_are_updated_like_any_other() {
    on_each_device(|| {
        let count = 20_000;
        let at = (1 << 31) + 64;
        // Three buffers and the shadow. All are f32, because on a CPU the zeros of a 16-bit type would be
        // written one by one.
        if !has_room(4 * 4 * (at + count) as u64) {
            return;
        }
        let values = [1, 2, 3, 4].map(|id| fresh(count, id));
        let [near, moved] = [0, at].map(|at| {
            let whole = values.each_ref().map(|t| far(t, at));
            let [p, g, m, shadow] = whole.each_ref();
            let groups = [group(at + 3..at + 17_000, 0.1), group(at + 17_005..at + count, 0.1)];
            update(Buffers { shadow: Some(shadow), ..buffers([p, g, m]) }, &groups, &hyper(2)).unwrap();
            whole.map(|t| bits(&t.narrow(0, at, count).unwrap()))
        });
        assert!(near[0] != bits(&values[0]) && moved == near);
    });
}

#[test]
fn overlapping_groups_and_step_zero_are_refused() {
    let tensors = [zeros(10), zeros(10), zeros(10)];
    let error = |groups: &[Group], step| {
        update(buffers(tensors.each_ref()), groups, &hyper(step)).unwrap_err().to_string()
    };
    assert!(error(&[group(0..5, 0.0), group(4..10, 0.0)], 1).contains("lion: group 4..10"));
    assert!(error(&[group(0..11, 0.0)], 1).contains("0..11"));
    assert!(error(&[], 0).contains("count from 1"));
    let short = zeros(9);
    let message =
        update(buffers([&tensors[0], &tensors[1], &short]), &[], &hyper(1)).unwrap_err().to_string();
    assert!(message.contains("lion: state tensor 1"), "{message}");
}

#[test]
fn gradients_of_two_types_are_read() {
    half_gradients::two_buffers_of_gradients_are_as_good_as_one::<1>(|buffers, groups, hyper| {
        update(buffers, groups, hyper)
    });
}
