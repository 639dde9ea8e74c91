//! Test of all update rules: gradients in an f32 and a bf16 buffer give the same bits as the same values in
//! one f32 buffer.

use candle_core::{DType, Result, Tensor};

use super::{Buffers, Clip, GradientPlace, Group, Hyper, KeptGroups};
use crate::tensor::from_vec;
use crate::testing::{bits, fresh, fresh_in, on_each_device, on_host, placed};

/// The update of a rule with `S` state tensors.
pub(crate) type Update<const S: usize> = fn(Buffers<'_, S>, &KeptGroups, &Hyper) -> Result<()>;

/// The groups as matrices, of which one is larger than a chunk of a GPU.
pub(crate) const SHAPES: [[usize; 2]; 4] = [[3, 4], [33, 40], [50, 400], [1, 7]];
/// The start of each group, and true if its gradients are bf16.
const GROUPS: [(usize, bool); 4] = [(4, false), (64, true), (1_408, true), (21_504, false)];
const COUNT: usize = 21_512;

fn groups() -> Vec<Group> {
    let groups = GROUPS.iter().zip(SHAPES).enumerate().map(|(number, ((start, _), [rows, cols]))| {
        let weight_decay = 0.1 * number as f32;
        Group { range: *start..start + rows * cols, weight_decay, lr_scale: 1.0 / (1 + number) as f32 }
    });
    groups.collect()
}

/// The gradients of all groups in one f32 buffer; and in two buffers, with the place of each group in them.
/// Each group begins `step` values after the end of the one before.
fn gradients(step: usize) -> (Tensor, [Tensor; 2], Vec<GradientPlace>) {
    let single = on_host(&fresh(COUNT, 2)).to_vec1::<f32>().unwrap();
    let half = on_host(&fresh_in(COUNT, 3, DType::BF16)).to_dtype(DType::F32).unwrap();
    let half = half.to_vec1::<f32>().unwrap();
    let mut whole = vec![0.0; COUNT];
    let mut apart = [vec![], vec![]];
    let mut places = Vec::new();
    for (group, (_, is_half)) in groups().iter().zip(GROUPS) {
        let from = if is_half { &half } else { &single };
        let into = &mut apart[usize::from(is_half)];
        into.extend(vec![f32::NAN; step]);
        places.push(GradientPlace { is_half, start: into.len() });
        into.extend(&from[group.range.clone()]);
        whole[group.range.clone()].copy_from_slice(&from[group.range.clone()]);
    }
    let [single, half] = apart.map(|values| {
        let len = values.len();
        from_vec(values, len).unwrap()
    });
    let half = half.to_dtype(DType::BF16).unwrap();
    (placed(&from_vec(whole, COUNT).unwrap()), [placed(&single), placed(&half)], places)
}

/// The bits of parameters, state and shadow after two updates, one of them clipped.
fn updated<const S: usize>(
    update: Update<S>,
    gradients: &Tensor,
    half_gradients: Option<&Tensor>,
    groups: &KeptGroups,
) -> Vec<Vec<u32>> {
    let parameters = fresh(COUNT, 1);
    let shadow = placed(&on_host(&parameters).to_dtype(DType::BF16).unwrap());
    let state: [Tensor; S] =
        std::array::from_fn(|_| placed(&from_vec::<f32>(vec![0.0; COUNT], COUNT).unwrap()));
    let norm = placed(&from_vec(vec![150.0_f64], 1).unwrap());
    for (step, max_norm) in (1..).zip([1.0, 0.0]) {
        let hyper = Hyper {
            lr: 0.01,
            beta1: 0.9,
            beta2: 0.98,
            eps: 1e-6,
            step,
            bias_correction: true,
            gradient_multiplier: 0.5,
        };
        let buffers = Buffers {
            parameters: &parameters,
            gradients,
            half_gradients,
            state: state.each_ref(),
            shadow: Some(&shadow),
            clip: Some(Clip { norm: &norm, max_norm }),
        };
        update(buffers, groups, &hyper).unwrap();
    }
    [&parameters, &shadow].into_iter().chain(&state).map(bits).collect()
}

/// Buffers in which all groups are aligned as their parameters are, and others in which none is.
pub(crate) fn two_buffers_of_gradients_are_as_good_as_one<const S: usize>(update: Update<S>) {
    on_each_device(|| {
        for step in [64, 61] {
            let (whole, [single, half], places) = gradients(step);
            let want = updated(update, &whole, None, &KeptGroups::new(groups()));
            let kept = KeptGroups::with_places(groups(), places);
            let got = updated(update, &single, Some(&half), &kept);
            assert!(got == want, "{step} values before each group");
            assert!(want[0] != bits(&fresh(COUNT, 1)));
        }
    });
}

pub(crate) fn gradients_beyond_their_buffer_are_refused<const S: usize>(update: Update<S>) {
    let (_, [single, half], mut places) = gradients(64);
    places[2].start += 1;
    let kept = KeptGroups::with_places(groups(), places);
    let parameters = from_vec::<f32>(vec![0.0; COUNT], COUNT).unwrap();
    let state: [Tensor; S] = std::array::from_fn(|_| parameters.copy().unwrap());
    let buffers = Buffers {
        parameters: &parameters,
        gradients: &single,
        half_gradients: Some(&half),
        state: state.each_ref(),
        shadow: None,
        clip: None,
    };
    let hyper = Hyper {
        lr: 0.01,
        beta1: 0.9,
        beta2: 0.98,
        eps: 1e-6,
        step: 1,
        bias_correction: true,
        gradient_multiplier: 1.0,
    };
    let error = update(buffers, &kept, &hyper).unwrap_err().to_string();
    assert!(error.contains("1408..21408") && error.contains("are not within"), "{error}");
}
