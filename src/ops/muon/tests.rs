//! Muon compared with PyTorch's numbers and with its reference in f64, and the bounds of its groups.

use candle_core::{DType, Tensor};

use super::*;
use crate::tensor::from_vec;
use crate::testing::{
    DTYPES, assert_close, assert_same_for_any_thread_count, bits, double, fresh, fresh_in, on_each_device,
    on_host, placed,
};
use crate::update::{Clip, Group, half_gradients};

const SETTINGS: Settings =
    Settings { momentum: 0.95, nesterov: true, ns_steps: 5, adjust_lr: AdjustLr::MatchRmsAdamw };

fn hyper(step: u64) -> Hyper {
    Hyper {
        lr: 0.02,
        beta1: 0.9,
        beta2: 0.98,
        eps: 1e-6,
        step,
        bias_correction: true,
        gradient_multiplier: 0.5,
    }
}

fn zeros(count: usize) -> Tensor {
    placed(&from_vec::<f32>(vec![0.0; count], count).unwrap())
}

/// Matrices one after the other, with three values before each, and their decays.
fn groups(shapes: &[[usize; 2]], decays: &[f32]) -> Vec<Group> {
    let mut end = 0;
    let groups = shapes.iter().zip(decays).map(|([rows, cols], &weight_decay)| {
        let start = end + 3;
        end = start + rows * cols;
        Group { range: start..end, weight_decay, lr_scale: 1.0 }
    });
    groups.collect()
}

/// The buffers of an optimizer.
struct State {
    parameters: Tensor,
    momentum: Tensor,
    shadow: Option<Tensor>,
}

impl State {
    fn new(parameters: Tensor, shadow: Option<DType>) -> Self {
        let momentum = zeros(parameters.elem_count());
        let shadow = shadow.map(|dtype| placed(&on_host(&parameters).to_dtype(dtype).unwrap()));
        Self { parameters, momentum, shadow }
    }

    fn buffers<'a>(&'a self, gradients: &'a Tensor) -> Buffers<'a, 1> {
        Buffers {
            parameters: &self.parameters,
            gradients,
            half_gradients: None,
            state: [&self.momentum],
            shadow: self.shadow.as_ref(),
            clip: None,
        }
    }
}

/// The shapes of the golden matrices.
const GOLDEN: [[usize; 2]; 2] = [[2, 3], [4, 2]];

/// Parameters after each of five steps of `torch.optim.Muon` 2.15.0 in f64, without its rounding to bf16
/// (`scripts/make_optimizer_golden.py`): lr 0.02, decay 0.1, momentum 0.95, `adjust_lr_fn: match_rms_adamw`,
/// gradients `((7 step + 3 i) mod 11 - 5) / 20`.
#[expect(clippy::unreadable_literal, reason = "digits as PyTorch prints them")]
const TORCH: [[f64; 14]; 5] = [
    [
        -0.2526806829474494,
        -0.7534024619073404,
        0.498688948652369,
        0.002032830307522015,
        -0.4990955147138734,
        0.7540800720098477,
        -0.2515795759555206,
        -0.7545882200208791,
        0.5023545639682133,
        -9.40800139729403e-05,
        -0.5025113639915015,
        0.7547450200441673,
        0.2517677359834665,
        -0.2507929080153542,
    ],
    [
        -0.2500688619061615,
        -0.7570766487310517,
        0.4936772525044005,
        0.008098224815457791,
        -0.49904045625096327,
        0.7527514497108844,
        -0.25218644264115625,
        -0.7574298836364951,
        0.5000852951913484,
        0.003872760895288175,
        -0.5019688858094188,
        0.753367833932665,
        0.24567293589363018,
        -0.25013767786328905,
    ],
    [
        -0.2560833113592818,
        -0.7551558547365713,
        0.49195746133304813,
        0.0066249543286115865,
        -0.49261855555979983,
        0.7555373272992779,
        -0.2576959427918257,
        -0.7513081418819163,
        0.4993630894763122,
        0.0017568663180607058,
        -0.49870731097892396,
        0.7558185707027717,
        0.244734858677326,
        -0.2544409133692145,
    ],
    [
        -0.25765410145478057,
        -0.7584127121775556,
        0.4924106810361828,
        0.008488108065908473,
        -0.4958810039730114,
        0.7482205200184231,
        -0.259018546591304,
        -0.7545366134623664,
        0.5045750632073988,
        0.00031272504635626114,
        -0.4958470599445131,
        0.7503056947158857,
        0.2477853744793385,
        -0.256638874673771,
    ],
    [
        -0.2554503114970611,
        -0.7630470284890145,
        0.48762251978758075,
        0.01298980377083717,
        -0.4933958191955237,
        0.7455004856344933,
        -0.26021878446085756,
        -0.7563443527669597,
        0.5051832769410993,
        0.006141058400572456,
        -0.4908404909231243,
        0.7493360658896017,
        0.24104342924243802,
        -0.25597931139976693,
    ],
];

/// The same as PyTorch computes it, in bf16, without Nesterov's momentum, with three steps of Newton-Schulz
/// and `adjust_lr_fn: original`.
#[expect(clippy::unreadable_literal, reason = "digits as PyTorch prints them")]
const TORCH_BF16: [[f64; 14]; 5] = [
    [
        -0.258171875,
        -0.7617031249999999,
        0.49773046875,
        0.0057421875,
        -0.49892279052734373,
        0.7638124999999999,
        -0.25878077650307346,
        -0.768497863655432,
        0.512037281278127,
        0.0004108677097714803,
        -0.5113191259534844,
        0.7677244656135092,
        0.2580073784611506,
        -0.25314601934049313,
    ],
    [
        -0.2573967421875,
        -0.7801015937499999,
        0.49271157031249996,
        0.019402578125,
        -0.504253069946289,
        0.7717379999999998,
        -0.2708585544899527,
        -0.7848595083269057,
        0.5093213984988646,
        0.010353735084787763,
        -0.521842215613139,
        0.7704979486301377,
        0.23207971375533676,
        -0.2535167054386353,
    ],
    [
        -0.27297569870312505,
        -0.7837367030624999,
        0.49265876435937495,
        0.017078616718750002,
        -0.4946117513063965,
        0.7849601489999998,
        -0.2853428564811869,
        -0.7831637668614564,
        0.5004582898480786,
        0.01928234781401043,
        -0.5208219445991975,
        0.7887338455191886,
        0.2197383701125833,
        -0.2533825603693994,
    ],
    [
        -0.2776250598057188,
        -0.7951379796563749,
        0.49682969683065614,
        0.0357163344853125,
        -0.5055756528037837,
        0.7847085880769998,
        -0.29488158803050096,
        -0.7970654001661892,
        0.5144833923685966,
        0.014962472529166984,
        -0.5063563204109108,
        0.7755554071993084,
        0.22487840781765825,
        -0.2637033678355796,
    ],
    [
        -0.27259715343610735,
        -0.8122195786970622,
        0.4916368186869948,
        0.05244177681634188,
        -0.5076699702481761,
        0.7775141709008458,
        -0.3025229897291896,
        -0.8132594243300809,
        0.5129399777791877,
        0.03448846950129911,
        -0.4950132196386918,
        0.7694191508506533,
        0.20840826299076523,
        -0.2569611554058861,
    ],
];

#[test]
fn five_steps_equal_those_of_pytorch() {
    let rounded = Settings { nesterov: false, ns_steps: 3, adjust_lr: AdjustLr::Original, ..SETTINGS };
    on_each_device(|| {
        compare_with_pytorch(&TORCH, None, &SETTINGS, 5e-7);
        // Directions of bf16 have an error of half a percent.
        compare_with_pytorch(&TORCH_BF16, Some(DType::BF16), &rounded, 1e-3);
    });
}

fn compare_with_pytorch(golden: &[[f64; 14]], shadow: Option<DType>, settings: &Settings, tolerance: f64) {
    let groups = groups(&GOLDEN, &[0.1, 0.1]);
    let mut start = vec![0.0; 20];
    for group in &groups {
        start[group.range.clone()]
            .iter_mut()
            .zip(0i32..)
            .for_each(|(p, i)| *p = ((5 * i + 2) % 7 - 3) as f32 / 4.0);
    }
    let state = State::new(placed(&from_vec(start, 20).unwrap()), shadow);
    for (step, want) in (1i32..).zip(golden) {
        let mut gradients = vec![7.0; 20];
        for group in &groups {
            let values = gradients[group.range.clone()].iter_mut().zip(0i32..);
            values.for_each(|(g, i)| *g = ((step * 7 + i * 3) % 11 - 5) as f32 * 0.1);
        }
        let gradients = placed(&from_vec(gradients, 20).unwrap());
        update(state.buffers(&gradients), &groups, &GOLDEN, &hyper(step as u64), settings).unwrap();
        let got = on_host(&state.parameters).to_vec1::<f32>().unwrap();
        let got = groups.iter().flat_map(|group| &got[group.range.clone()]);
        for (got, want) in got.zip(want) {
            assert!((f64::from(*got) - want).abs() < tolerance, "step {step}: {got} is not {want}");
        }
    }
}

/// Wide, tall and square matrices, smaller and larger than a block of rows, and a vector.
const SHAPES: [[usize; 2]; 5] = [[70, 300], [300, 70], [261, 261], [1, 5], [3, 1]];
const DECAYS: [f32; 5] = [0.1, 0.0, 0.3, 0.1, 0.0];

fn count(shapes: &[[usize; 2]]) -> usize {
    shapes.iter().map(|[rows, cols]| 3 + rows * cols).sum::<usize>() + 5
}

#[test]
fn matrices_agree_with_the_reference() {
    for (dtype, adjust_lr, tolerance) in [
        (DType::F32, AdjustLr::MatchRmsAdamw, 5e-5),
        (DType::F32, AdjustLr::Original, 5e-5),
        (DType::F32, AdjustLr::SpectralUnclamped, 5e-5),
        (DType::BF16, AdjustLr::MatchRmsAdamw, 0.06),
        (DType::F16, AdjustLr::MatchRmsAdamw, 0.02),
    ] {
        let settings = Settings { adjust_lr, nesterov: dtype != DType::F16, ..SETTINGS };
        on_each_device(|| compare_with_the_reference(dtype, &settings, tolerance));
    }
}

fn compare_with_the_reference(dtype: DType, settings: &Settings, tolerance: f64) {
    let count = count(&SHAPES);
    let mut groups = groups(&SHAPES, &DECAYS);
    groups[1].lr_scale = 0.25;
    let state = State::new(fresh(count, 1), Some(dtype).filter(|dtype| *dtype != DType::F32));
    let before = on_host(&state.parameters).to_vec1::<f32>().unwrap();
    let old = state.shadow.as_ref().map(bits);
    let mut want: Vec<[Tensor; 2]> = groups
        .iter()
        .zip(SHAPES)
        .map(|(group, shape)| [part(&state.parameters, group, shape), part(&state.momentum, group, shape)])
        .collect();
    for step in 1..=3 {
        let gradients = fresh(count, 10 + step);
        update(state.buffers(&gradients), &groups, &SHAPES, &hyper(step), settings).unwrap();
        for ((group, shape), want) in groups.iter().zip(SHAPES).zip(&mut want) {
            let scaled = Hyper { lr: 0.02 * f64::from(group.lr_scale), ..hyper(step) };
            let g = part(&gradients, group, shape);
            let decay = f64::from(group.weight_decay);
            *want = reference::update(&want[0], &g, &want[1], decay, &scaled, settings).unwrap();
        }
    }
    for ((group, shape), [p, m]) in groups.iter().zip(SHAPES).zip(&want) {
        assert_close("momentum", &part(&state.momentum, group, shape), m, 1e-6);
        let unchanged = from_vec(before[group.range.clone()].to_vec(), (shape[0], shape[1])).unwrap();
        let [got, want] =
            [&part(&state.parameters, group, shape), p].map(|new| (new - double(&unchanged)).unwrap());
        assert_close(&format!("change in {dtype:?} {shape:?}"), &got, &want, tolerance);
    }
    let after = on_host(&state.parameters).to_vec1::<f32>().unwrap();
    let shadow = state.shadow.as_ref().map(bits);
    let rounded = bits(&on_host(&state.parameters).to_dtype(dtype).unwrap());
    for i in 0..count {
        let is_frozen = groups.iter().all(|group| !group.range.contains(&i));
        assert!(!is_frozen || after[i].to_bits() == before[i].to_bits(), "{i}");
        if let (Some(shadow), Some(old)) = (&shadow, &old) {
            assert_eq!(shadow[i], if is_frozen { old[i] } else { rounded[i] }, "{i}");
        }
    }
}

fn part(t: &Tensor, group: &Group, shape: [usize; 2]) -> Tensor {
    double(t).narrow(0, group.range.start, group.range.len()).unwrap().reshape(&shape).unwrap()
}

#[test]
fn singular_values_end_near_one() {
    let shape = [40, 90];
    let settings = Settings { adjust_lr: AdjustLr::SpectralUnclamped, ..SETTINGS };
    on_each_device(|| {
        let state = State::new(zeros(count(&[shape])), None);
        let groups = groups(&[shape], &[0.0]);
        let hyper = Hyper { lr: (90.0f64 / 40.0).sqrt(), ..hyper(1) };
        update(state.buffers(&fresh(count(&[shape]), 2)), &groups, &[shape], &hyper, &settings).unwrap();
        let x = part(&state.parameters, &groups[0], shape);
        let gram = x.matmul(&x.t().unwrap()).unwrap();
        let trace: f64 =
            (0..40).map(|i| gram.get(i).unwrap().get(i).unwrap().to_scalar::<f64>().unwrap()).sum();
        // The mean square of 40 singular values, of which each is between 0.68 and 1.13.
        assert!((0.5..1.2).contains(&(trace / 40.0)), "{trace}");
    });
}

/// Bits of parameters, momentum and shadow after two clipped updates of views that begin `offset` elements
/// into larger buffers.
fn clipped_run(shadow: DType, offset: usize) -> [Tensor; 3] {
    let count = count(&SHAPES);
    let view = |t: &Tensor| t.narrow(0, offset, count).unwrap();
    let whole = [fresh(count + 9, 1), zeros(count + 9), fresh_in(count + 9, 3, shadow)];
    let [parameters, momentum, shadow] = &whole.each_ref().map(view);
    for (step, max_norm) in (1..).zip([1.0, 0.0]) {
        let norm = placed(&from_vec(vec![264.6], 1).unwrap());
        let clip = Some(Clip { norm: &norm, max_norm });
        let gradients = &fresh(count, 10 + step);
        let buffers = Buffers {
            parameters,
            gradients,
            half_gradients: None,
            state: [momentum],
            shadow: Some(shadow),
            clip,
        };
        update(buffers, &groups(&SHAPES, &DECAYS), &SHAPES, &hyper(step), &SETTINGS).unwrap();
    }
    whole
}

#[test]
fn the_number_of_threads_does_not_change_a_bit() {
    for dtype in DTYPES {
        assert_same_for_any_thread_count(&format!("{dtype:?}"), || clipped_run(dtype, 1).map(|t| bits(&t)));
    }
}

/// The momentum has the same bits on GPU and CPU; sums of products have another order.
#[test]
fn devices_agree() {
    let f32_anywhere = [0, 1, 8].map(|offset| (DType::F32, offset));
    for (dtype, offset) in f32_anywhere.into_iter().chain([(DType::BF16, 1), (DType::F16, 8)]) {
        let want = clipped_run(dtype, offset);
        let tolerance = if dtype == DType::F32 { 1e-6 } else { 1e-3 };
        on_each_device(|| {
            let got = clipped_run(dtype, offset);
            assert!(bits(&got[1]) == bits(&want[1]), "{dtype:?} {offset}");
            assert_close("parameters", &got[0], &want[0], tolerance);
            assert_close("shadow", &got[2], &want[2], 4.0 * tolerance);
        });
    }
}

#[test]
fn nothing_is_updated_if_the_norm_is_not_finite() {
    on_each_device(|| {
        for norm in [f64::NAN, f64::INFINITY] {
            let state = State::new(fresh(count(&SHAPES), 1), Some(DType::BF16));
            let tensors = || [&state.parameters, &state.momentum, state.shadow.as_ref().unwrap()].map(bits);
            let before = tensors();
            let norm = placed(&from_vec(vec![norm], 1).unwrap());
            let gradients = fresh(count(&SHAPES), 2);
            let buffers =
                Buffers { clip: Some(Clip { norm: &norm, max_norm: 1.0 }), ..state.buffers(&gradients) };
            update(buffers, &groups(&SHAPES, &DECAYS), &SHAPES, &hyper(1), &SETTINGS).unwrap();
            assert!(tensors() == before);
        }
    });
}

#[test]
fn a_matrix_without_gradients_keeps_its_values_but_for_the_decay() {
    on_each_device(|| {
        let state = State::new(fresh(count(&GOLDEN), 1), None);
        let before = on_host(&state.parameters).to_vec1::<f32>().unwrap();
        let groups = groups(&GOLDEN, &[0.0, 0.5]);
        update(state.buffers(&zeros(count(&GOLDEN))), &groups, &GOLDEN, &hyper(1), &SETTINGS).unwrap();
        let after = on_host(&state.parameters).to_vec1::<f32>().unwrap();
        for i in 0..after.len() {
            let factor = if groups[1].range.contains(&i) { 0.99 } else { 1.0 };
            assert!((after[i] - before[i] * factor).abs() < 1e-6, "{i}");
        }
    });
}

#[test]
fn groups_that_are_not_the_matrices_are_refused() {
    let state = State::new(zeros(30), None);
    let gradients = zeros(30);
    let error = |groups: &[Group], shapes: &[[usize; 2]]| {
        update(state.buffers(&gradients), groups, shapes, &hyper(1), &SETTINGS).unwrap_err().to_string()
    };
    let groups = groups(&GOLDEN, &[0.0, 0.0]);
    assert!(error(&groups, &[[2, 3]]).contains("muon: the groups"));
    assert!(error(&groups, &[[2, 3], [4, 3]]).contains("[4, 3]"));
    assert!(error(&groups[..1], &[[3, 0]]).contains("[3, 0]"));
    let empty = Group { range: 3..3, ..groups[0].clone() };
    assert!(error(&[empty], &[[3, 0]]).contains("[3, 0]"));
    let beyond = Group { range: 25..31, ..groups[0].clone() };
    assert!(error(&[beyond], &[[2, 3]]).contains("25..31"));
}

#[test]
fn gradients_of_two_types_are_read() {
    half_gradients::two_buffers_of_gradients_are_as_good_as_one::<1>(|buffers, groups, hyper| {
        update(buffers, groups, &half_gradients::SHAPES, hyper, &SETTINGS)
    });
}
