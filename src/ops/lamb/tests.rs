//! LAMB compared with timm's numbers and with its reference in f64, and the bounds of its groups.

use std::ops::Range;

use candle_core::{DType, Tensor};

use super::*;
use crate::tensor::from_vec;
use crate::testing::{
    DTYPES, assert_close, bits, double, far, fresh, fresh_in, has_room, on_each_device, placed,
    relative_error, with_threads,
};
use crate::update::Group;

fn hyper(step: u64) -> Hyper {
    Hyper {
        lr: 0.01,
        beta1: 0.9,
        beta2: 0.999,
        eps: 1e-6,
        step,
        bias_correction: true,
        gradient_multiplier: 0.5,
    }
}

fn zeros(count: usize) -> Tensor {
    placed(&from_vec::<f32>(vec![0.0; count], count).unwrap())
}

/// The buffers of an optimizer: parameters, gradients, first and second moment, and the shadow.
struct State {
    tensors: [Tensor; 4],
    shadow: Option<Tensor>,
}

impl State {
    fn new(parameters: Tensor) -> Self {
        let count = parameters.elem_count();
        Self { tensors: [parameters, zeros(count), zeros(count), zeros(count)], shadow: None }
    }

    fn buffers(&self) -> Buffers<'_> {
        let [parameters, gradients, first_moment, second_moment] = self.tensors.each_ref();
        Buffers {
            parameters,
            gradients,
            state: [first_moment, second_moment],
            shadow: self.shadow.as_ref(),
            clip: None,
        }
    }

    fn step(&mut self, gradients: &[f32], groups: &[Group], hyper: &Hyper) {
        self.tensors[1] = placed(&from_vec(gradients.to_vec(), gradients.len()).unwrap());
        update(self.buffers(), groups, hyper).unwrap();
    }
}

fn group(range: Range<usize>, weight_decay: f32) -> Group {
    Group { range, weight_decay, lr_scale: 1.0 }
}

fn values(t: &Tensor) -> Vec<f32> {
    t.to_vec1::<f32>().unwrap()
}

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
            state.step(&gradients, &groups, &hyper(step as u64));
            for (got, want) in values(&state.tensors[0]).iter().zip(want) {
                assert!((f64::from(*got) - want).abs() < 5e-7, "step {step}: {got} is not {want}");
            }
        }
    });
}

/// Ranges and weight decays of tensors of odd sizes, shorter and longer than a block, with gaps between them.
const TENSORS: [(Range<usize>, f32); 5] =
    [(0..1, 0.01), (64..65_601, 0.01), (65_664..65_671, 0.0), (65_728..98_496, 0.3), (98_496..100_003, 0.01)];

fn groups() -> Vec<Group> {
    TENSORS.map(|(range, weight_decay)| group(range, weight_decay)).to_vec()
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
            state.step(&values(&gradients), &groups(), &hyper(step));
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

fn part(t: &Tensor, range: &Range<usize>) -> Tensor {
    t.narrow(0, range.start, range.len()).unwrap()
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
            state.step(&values(&gradients.to_device(&candle_core::Device::Cpu).unwrap()), &[group], &hyper);
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
        state.step(&[1.0, -1.0, 0.0, 0.0, 0.0, 0.0], &groups, &Hyper { eps: 1e-12, ..hyper(1) });
        let got = values(&state.tensors[0]);
        // In the first step, m_hat / sqrt(v_hat) is the sign of the gradient. With decay only, the ratio is
        // 1 / decay, so the update is -lr * p.
        for (got, want) in got.iter().zip([-0.01, 0.01, 2.0, 2.0, 3.0 * 0.99, 4.0 * 0.99]) {
            assert!((got - want).abs() < 1e-6, "{got} is not {want}");
        }
    });
}

#[test]
fn elements_outside_of_all_groups_are_frozen() {
    on_each_device(|| {
        let mut state = State::new(fresh(1000, 1));
        let before = values(&state.tensors[0]);
        let old = fresh(1000, 7).to_dtype(DType::BF16).unwrap();
        state.shadow = Some(old.copy().unwrap());
        state.step(&values(&fresh(1000, 2)), &[group(2..400, 0.1), group(407..999, 0.0)], &hyper(1));
        let frozen: Vec<bool> = (0..1000).map(|i| i < 2 || (400..407).contains(&i) || i == 999).collect();
        let after = values(&state.tensors[0]);
        let shadows =
            [&old, state.shadow.as_ref().unwrap()].map(|t| values(&t.to_dtype(DType::F32).unwrap()));
        for i in 0..1000 {
            assert_eq!(after[i].to_bits() == before[i].to_bits(), frozen[i], "{i}");
            assert!(!frozen[i] || shadows[0][i].to_bits() == shadows[1][i].to_bits(), "{i}");
        }
        assert!(state.tensors[2..].iter().all(|t| (0..1000).all(|i| !frozen[i] || values(t)[i] == 0.0)));
    });
}

#[test]
fn the_shadow_is_the_rounded_parameters_and_the_number_of_threads_does_not_change_a_bit() {
    let one = with_threads(1, || after_two_steps(None));
    let bits_of_one = one.tensors.each_ref().map(bits);
    for threads in 2..5 {
        let state = with_threads(threads, || after_two_steps(None));
        assert!(state.tensors.each_ref().map(bits) == bits_of_one, "{threads} threads");
    }
    for dtype in [DType::BF16, DType::F16] {
        let state = with_threads(2, || after_two_steps(Some(dtype)));
        assert!(state.tensors.each_ref().map(bits) == bits_of_one, "{dtype:?}");
        let rounded = one.tensors[0].to_dtype(dtype).unwrap();
        assert_close("shadow", state.shadow.as_ref().unwrap(), &rounded, 0.0);
    }
}

/// The buffers after two steps, with a shadow of `dtype`.
fn after_two_steps(dtype: Option<DType>) -> State {
    let mut state = State::new(fresh(100_003, 1));
    state.shadow = dtype.map(|dtype| state.tensors[0].to_dtype(dtype).unwrap());
    (1..=2).for_each(|step| state.step(&values(&fresh(100_003, 10 + step)), &groups(), &hyper(step)));
    state
}

/// Parameters, gradients, moments and shadow after two clipped updates of views that begin `offset` elements
/// into larger buffers.
fn clipped_run(shadow: DType, offset: usize) -> [Tensor; 5] {
    let count = 70_003;
    let view = |t: &Tensor| t.narrow(0, offset, count).unwrap();
    let whole = [
        fresh(count + 9, 1),
        fresh(count + 9, 2),
        zeros(count + 9),
        zeros(count + 9),
        fresh_in(count + 9, 3, shadow),
    ];
    let [parameters, gradients, first_moment, second_moment, shadow] = &whole.each_ref().map(view);
    let groups =
        [group(1..6, 0.1), group(6..40_000, 0.02), group(40_001..40_003, 0.0), group(40_003..count - 2, 0.3)];
    for (step, max_norm) in (1..).zip([1.0, 0.0]) {
        let norm = placed(&from_vec(vec![264.6], 1).unwrap());
        let clip = Some(crate::update::Clip { norm: &norm, max_norm });
        let buffers = Buffers {
            parameters,
            gradients,
            state: [first_moment, second_moment],
            shadow: Some(shadow),
            clip,
        };
        update(buffers, &groups, &hyper(step)).unwrap();
    }
    whole
}

/// The moments have the same bits on GPU and CPU. The norms are added in different orders, which may change a
/// step size by a rounding.
#[test]
fn devices_agree() {
    for (dtype, offset) in DTYPES.into_iter().flat_map(|dtype| [0, 1, 8].map(|offset| (dtype, offset))) {
        let want = clipped_run(dtype, offset);
        on_each_device(|| {
            let got = clipped_run(dtype, offset);
            assert!([1, 2, 3].into_iter().all(|i| bits(&got[i]) == bits(&want[i])), "{dtype:?} {offset}");
            assert_close("parameters", &got[0], &want[0], 1e-7);
            assert_close("shadow", &got[4], &want[4], if dtype == DType::F32 { 1e-7 } else { 1e-5 });
        });
    }
}

#[test]
fn nothing_is_updated_if_the_norm_is_not_finite() {
    on_each_device(|| {
        for norm in [f64::NAN, f64::INFINITY] {
            let tensors = [fresh(1001, 1), fresh(1001, 2), fresh(1001, 3), fresh(1001, 4)];
            let state = State { tensors: tensors.each_ref().map(|t| t.copy().unwrap()), shadow: None };
            let before = tensors.map(|t| bits(&t));
            let norm = placed(&from_vec(vec![norm], 1).unwrap());
            let clip = Some(crate::update::Clip { norm: &norm, max_norm: 1.0 });
            update(Buffers { clip, ..state.buffers() }, &[group(3..900, 0.1)], &hyper(1)).unwrap();
            assert!(state.tensors.each_ref().map(bits) == before);
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
        // Four buffers and the shadow. All are f32, because on a CPU the zeros of a 16-bit type would be
        // written one by one.
        if !has_room(5 * 4 * (at + count) as u64) {
            return;
        }
        let [p, g, m] = [1, 2, 3].map(|id| fresh(count, id));
        let v = fresh(count, 4).sqr().unwrap();
        let shadow = fresh(count, 5);
        let [near, moved] = [0, at].map(|at| {
            let whole = [&p, &g, &m, &v, &shadow].map(|t| far(t, at));
            let [parameters, gradients, first_moment, second_moment, shadow] = whole.each_ref();
            let buffers = Buffers {
                parameters,
                gradients,
                state: [first_moment, second_moment],
                shadow: Some(shadow),
                clip: None,
            };
            let groups = [at + 3..at + 17_000, at + 17_005..at + count].map(|range| group(range, 0.1));
            update(buffers, &groups, &hyper(2)).unwrap();
            whole.map(|t| bits(&t.narrow(0, at, count).unwrap()))
        });
        assert!(near[0] != bits(&p) && moved == near);
    });
}

#[test]
fn overlapping_groups_and_step_zero_are_refused() {
    let state = State::new(zeros(10));
    let error =
        |groups: &[Group], step| update(state.buffers(), groups, &hyper(step)).unwrap_err().to_string();
    assert!(error(&[group(0..5, 0.0), group(4..10, 0.0)], 1).contains("lamb: group 4..10"));
    assert!(error(&[group(0..11, 0.0)], 1).contains("0..11"));
    assert!(error(&[], 0).contains("count from 1"));
}
