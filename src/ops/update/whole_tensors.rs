//! Tests of update rules with two moments, most of which need sums over whole tensors, and the buffers for
//! them. The rules differ in their formulas only, which their own tests compare with a reference.

use std::ops::Range;

use candle_core::{DType, Result, Tensor};

use super::{Buffers, Clip, Group, Hyper};
use crate::tensor::from_vec;
use crate::testing::{
    DTYPES, assert_close, bits, far, fresh, fresh_in, has_room, on_each_device, placed, with_threads,
};

/// The update of a rule.
pub(crate) type Update = fn(Buffers<'_>, &[Group], &Hyper) -> Result<()>;

pub(crate) fn hyper(step: u64) -> Hyper {
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

pub(crate) fn zeros(count: usize) -> Tensor {
    placed(&from_vec::<f32>(vec![0.0; count], count).unwrap())
}

/// The buffers of an optimizer: parameters, gradients, first and second moment, and the shadow.
pub(crate) struct State {
    pub(crate) tensors: [Tensor; 4],
    pub(crate) shadow: Option<Tensor>,
}

impl State {
    pub(crate) fn new(parameters: Tensor) -> Self {
        let count = parameters.elem_count();
        Self { tensors: [parameters, zeros(count), zeros(count), zeros(count)], shadow: None }
    }

    pub(crate) fn buffers(&self) -> Buffers<'_> {
        let [parameters, gradients, first_moment, second_moment] = self.tensors.each_ref();
        Buffers {
            parameters,
            gradients,
            half_gradients: None,
            state: [first_moment, second_moment],
            shadow: self.shadow.as_ref(),
            clip: None,
        }
    }

    pub(crate) fn step(&mut self, update: Update, gradients: &[f32], groups: &[Group], hyper: &Hyper) {
        self.tensors[1] = placed(&from_vec(gradients.to_vec(), gradients.len()).unwrap());
        update(self.buffers(), groups, hyper).unwrap();
    }
}

pub(crate) fn group(range: Range<usize>, weight_decay: f32) -> Group {
    Group { range, weight_decay, lr_scale: 1.0 }
}

pub(crate) fn values(t: &Tensor) -> Vec<f32> {
    t.to_vec1::<f32>().unwrap()
}

/// Ranges and weight decays of tensors of odd sizes, shorter and longer than a block, with gaps between them.
pub(crate) const TENSORS: [(Range<usize>, f32); 5] =
    [(0..1, 0.01), (64..65_601, 0.01), (65_664..65_671, 0.0), (65_728..98_496, 0.3), (98_496..100_003, 0.01)];

pub(crate) fn groups() -> Vec<Group> {
    TENSORS.map(|(range, weight_decay)| group(range, weight_decay)).to_vec()
}

pub(crate) fn part(t: &Tensor, range: &Range<usize>) -> Tensor {
    t.narrow(0, range.start, range.len()).unwrap()
}

pub(crate) fn elements_outside_of_all_groups_are_frozen(update: Update) {
    on_each_device(|| {
        let mut state = State::new(fresh(1000, 1));
        let before = values(&state.tensors[0]);
        let old = fresh(1000, 7).to_dtype(DType::BF16).unwrap();
        state.shadow = Some(old.copy().unwrap());
        state.step(update, &values(&fresh(1000, 2)), &[group(2..400, 0.1), group(407..999, 0.0)], &hyper(1));
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

pub(crate) fn the_shadow_is_the_rounded_parameters_and_the_number_of_threads_does_not_change_a_bit(
    update: Update,
) {
    let one = with_threads(1, || after_two_steps(update, None));
    let bits_of_one = one.tensors.each_ref().map(bits);
    for threads in 2..5 {
        let state = with_threads(threads, || after_two_steps(update, None));
        assert!(state.tensors.each_ref().map(bits) == bits_of_one, "{threads} threads");
    }
    for dtype in [DType::BF16, DType::F16] {
        let state = with_threads(2, || after_two_steps(update, Some(dtype)));
        assert!(state.tensors.each_ref().map(bits) == bits_of_one, "{dtype:?}");
        let rounded = one.tensors[0].to_dtype(dtype).unwrap();
        assert_close("shadow", state.shadow.as_ref().unwrap(), &rounded, 0.0);
    }
}

/// The buffers after two steps, with a shadow of `dtype`.
fn after_two_steps(update: Update, dtype: Option<DType>) -> State {
    let mut state = State::new(fresh(100_003, 1));
    state.shadow = dtype.map(|dtype| state.tensors[0].to_dtype(dtype).unwrap());
    (1..=2).for_each(|step| state.step(update, &values(&fresh(100_003, 10 + step)), &groups(), &hyper(step)));
    state
}

/// Parameters, gradients, moments and shadow after two clipped updates of views that begin `offset` elements
/// into larger buffers.
fn clipped_run(update: Update, shadow: DType, offset: usize) -> [Tensor; 5] {
    let count = 70_003;
    let whole = [
        fresh(count + 9, 1),
        fresh(count + 9, 2),
        zeros(count + 9),
        zeros(count + 9),
        fresh_in(count + 9, 3, shadow),
    ];
    let [parameters, gradients, first_moment, second_moment, shadow] =
        &whole.each_ref().map(|t| t.narrow(0, offset, count).unwrap());
    let groups =
        [group(1..6, 0.1), group(6..40_000, 0.02), group(40_001..40_003, 0.0), group(40_003..count - 2, 0.3)];
    for (step, max_norm) in (1..).zip([1.0, 0.0]) {
        let norm = placed(&from_vec(vec![264.6], 1).unwrap());
        let clip = Some(Clip { norm: &norm, max_norm });
        let buffers = Buffers {
            parameters,
            gradients,
            half_gradients: None,
            state: [first_moment, second_moment],
            shadow: Some(shadow),
            clip,
        };
        update(buffers, &groups, &hyper(step)).unwrap();
    }
    whole
}

/// The moments have the same bits on GPU and CPU. Sums over a tensor are added in different orders, which may
/// change its step size by a rounding.
pub(crate) fn devices_agree(update: Update) {
    for (dtype, offset) in DTYPES.into_iter().flat_map(|dtype| [0, 1, 8].map(|offset| (dtype, offset))) {
        let want = clipped_run(update, dtype, offset);
        on_each_device(|| {
            let got = clipped_run(update, dtype, offset);
            assert!([1, 2, 3].into_iter().all(|i| bits(&got[i]) == bits(&want[i])), "{dtype:?} {offset}");
            assert_close("parameters", &got[0], &want[0], 1e-7);
            assert_close("shadow", &got[4], &want[4], if dtype == DType::F32 { 1e-7 } else { 1e-5 });
        });
    }
}

pub(crate) fn nothing_is_updated_if_the_norm_is_not_finite(update: Update) {
    on_each_device(|| {
        for norm in [f64::NAN, f64::INFINITY] {
            let tensors = [fresh(1001, 1), fresh(1001, 2), fresh(1001, 3), fresh(1001, 4)];
            let state = State { tensors: tensors.each_ref().map(|t| t.copy().unwrap()), shadow: None };
            let before = tensors.map(|t| bits(&t));
            let norm = placed(&from_vec(vec![norm], 1).unwrap());
            let clip = Some(Clip { norm: &norm, max_norm: 1.0 });
            update(Buffers { clip, ..state.buffers() }, &[group(3..900, 0.1)], &hyper(1)).unwrap();
            assert!(state.tensors.each_ref().map(bits) == before);
        }
    });
}

/// Offsets have 64 bits: a group after 2^31 elements is updated in the same way as one at the start of the
/// buffers. Elements outside of the groups are not read.
pub(crate) fn groups_after_two_billion_elements_are_updated_like_any_other(update: Update) {
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
                half_gradients: None,
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

pub(crate) fn overlapping_groups_and_step_zero_are_refused(update: Update, op: &str) {
    let state = State::new(zeros(10));
    let error =
        |groups: &[Group], step| update(state.buffers(), groups, &hyper(step)).unwrap_err().to_string();
    assert!(error(&[group(0..5, 0.0), group(4..10, 0.0)], 1).contains(&format!("{op}: group 4..10")));
    assert!(error(&[group(0..11, 0.0)], 1).contains("0..11"));
    assert!(error(&[], 0).contains("count from 1"));
}
