//! The fused op compared with its reference, with and without dropout.

use candle_core::DType;

use super::*;
use crate::layer_norm::Form;
use crate::layer_norm::earlier::with_earlier;
use crate::testing::{
    DTYPES, assert_close, assert_reference_is_differentiable, assert_same_for_any_thread_count,
    assert_same_on_each_device, bits, double, fresh, fresh_in, on_each_device, reference_gradients, within,
};
use base::rng::{Purpose, Stream};

const EPS: f64 = 1e-12;

const FORMS: [Form; 2] = [Form::LayerNorm, Form::RmsNorm];

fn reference(form: Form, i: &[Tensor], mask: &Tensor) -> Result<Tensor> {
    let weights = Weights { form, ..weights(&i[1], &i[3], &i[4]) };
    let [y, _] = reference::forward(&i[0], &i[2], &weights, mask)?;
    Ok(y)
}

/// The norm and the sum, concatenated: pre-norm models use both.
fn reference_of_both(form: Form, i: &[Tensor], mask: &Tensor) -> Result<Tensor> {
    let weights = Weights { form, ..weights(&i[1], &i[3], &i[4]) };
    Tensor::cat(&reference::forward(&i[0], &i[2], &weights, mask)?, 1)
}

/// Accumulators for the gradients of bias, norm weight and norm bias.
fn into(sums: &[Tensor; 3]) -> WeightGradients<'_> {
    let [dbias, dnorm_weight, dnorm_bias] = sums.each_ref().map(Accumulator::from);
    WeightGradients { dbias: Some(dbias), dnorm_weight, dnorm_bias: Some(dnorm_bias) }
}

fn mask(dropout: Option<&Dropout>, keys: &[u64], cols: usize) -> Tensor {
    match dropout {
        Some(dropout) => crate::dropout::reference::mask(dropout, keys, cols).unwrap(),
        None => Tensor::ones((keys.len(), cols), DType::F64, &candle_core::Device::Cpu).unwrap(),
    }
}

fn weights<'a>(bias: &'a Tensor, norm_weight: &'a Tensor, norm_bias: &'a Tensor) -> Weights<'a> {
    Weights { bias: Some(bias), norm_weight, norm_bias: Some(norm_bias), eps: EPS, form: Form::LayerNorm }
}

#[test]
fn forward_and_backward_agree_with_the_reference() {
    on_each_device(|| {
        let some = Dropout { probability: 0.1, stream: Stream::new(1, Purpose::Dropout, 9) };
        let sizes = [
            (1, 24),
            (7, 96),
            (5, 67),
            (300, 128),
            (20, 768),
            (9, 328),
            (3, 1000),
            (10, 1032),
            (9, 2056),
            (0, 8),
        ];
        for (dtype, (rows, cols)) in DTYPES.into_iter().flat_map(|dtype| sizes.map(|size| (dtype, size))) {
            let keys: Vec<u64> = (0..rows as u64).map(|row| row + 1000).collect();
            for (dropout, form) in [None, Some(&some)].into_iter().flat_map(|d| FORMS.map(|form| (d, form))) {
                let [x, residual, dy] = [1, 2, 3].map(|id| fresh_in((rows, cols), id, dtype));
                let [bias, weight, norm_bias] = [4, 5, 6].map(|id| fresh(cols, id));
                let mask = mask(dropout, &keys, cols);
                let inputs = [&x, &bias, &residual, &weight, &norm_bias];
                let weights = Weights { form, ..weights(&bias, &weight, &norm_bias) };
                let (y, saved) = forward(&x, &residual, &weights, &keys, dropout).unwrap();
                let sums = [10, 11, 12].map(|id| fresh(cols, id));
                let before: Vec<Tensor> = sums.iter().map(|t| t.copy().unwrap()).collect();
                let into = into(&sums);
                let (dx, dresidual) = backward(&dy, None, &saved, &weight, &into, &keys, dropout).unwrap();
                let added: Vec<Tensor> =
                    sums.iter().zip(&before).map(|(after, before)| (after - before).unwrap()).collect();
                if rows == 0 {
                    assert!(added.iter().flat_map(bits).all(|bits| bits == 0));
                    continue;
                }
                let (want, gradients) = reference_gradients(|i| reference(form, i, &mask), &inputs, &dy);
                // Two roundings: that of the sum, and that of the result.
                let tolerance = within(dtype, 1e-5, 2.0);
                assert_close("y", &y, &want, tolerance);
                for (what, got, want) in [
                    ("dx", &dx, 0),
                    ("dbias", &added[0], 1),
                    ("dresidual", &dresidual, 2),
                    ("dweight", &added[1], 3),
                    ("dnorm_bias", &added[2], 4),
                ] {
                    assert_close(what, got, &gradients[want], tolerance);
                }
            }
        }
    });
}

/// In pre-norm models, the sum is used in addition to its norm, and both have a gradient.
#[test]
fn the_gradient_of_the_sum_is_added_to_that_of_the_norm() {
    on_each_device(|| {
        let some = Dropout { probability: 0.1, stream: Stream::new(1, Purpose::Dropout, 9) };
        for (dtype, cols) in DTYPES.into_iter().flat_map(|dtype| [67, 200, 2064].map(|cols| (dtype, cols))) {
            let keys: Vec<u64> = (0..30).collect();
            for (dropout, form) in [None, Some(&some)].into_iter().flat_map(|d| FORMS.map(|form| (d, form))) {
                let [x, residual, dy, d_sum] = [1, 2, 3, 4].map(|id| fresh_in((30, cols), id, dtype));
                let [bias, weight, norm_bias] = [5, 6, 7].map(|id| fresh(cols, id));
                let weights = Weights { form, ..weights(&bias, &weight, &norm_bias) };
                let (_, saved) = forward(&x, &residual, &weights, &keys, dropout).unwrap();
                let sums = [(); 3].map(|()| fresh(cols, 8).zeros_like().unwrap());
                let into = into(&sums);
                let (dx, dresidual) =
                    backward(&dy, Some(&d_sum), &saved, &weight, &into, &keys, dropout).unwrap();
                let mask = mask(dropout, &keys, cols);
                let seed = Tensor::cat(&[&double(&dy), &double(&d_sum)], 1).unwrap();
                let inputs = [&x, &bias, &residual, &weight, &norm_bias];
                let (_, gradients) =
                    reference_gradients(|i| reference_of_both(form, i, &mask), &inputs, &seed);
                let tolerance = within(dtype, 1e-5, 2.0);
                for (what, got, want) in [
                    ("dx", &dx, 0),
                    ("dbias", &sums[0], 1),
                    ("dresidual", &dresidual, 2),
                    ("dweight", &sums[1], 3),
                    ("dnorm_bias", &sums[2], 4),
                ] {
                    assert_close(what, got, &gradients[want], tolerance);
                }
            }
        }
    });
}

#[test]
fn no_biases_equal_biases_of_zeros() {
    let dropout = Dropout { probability: 0.3, stream: Stream::new(1, Purpose::Dropout, 9) };
    let keys: Vec<u64> = (0..12).collect();
    on_each_device(|| {
        for (dtype, cols) in DTYPES.into_iter().flat_map(|dtype| [67, 200, 2064].map(|cols| (dtype, cols))) {
            let [x, residual, dy, d_sum] = [1, 2, 3, 8].map(|id| fresh_in((12, cols), id, dtype));
            let weight = fresh(cols, 4);
            let zeros = fresh(cols, 5).zeros_like().unwrap();
            for d_sum in [None, Some(&d_sum)] {
                let biases =
                    [[Some(&zeros), Some(&zeros)], [None, None], [None, Some(&zeros)], [Some(&zeros), None]];
                let [want, others @ ..] = biases.map(|[bias, norm_bias]| {
                    let form = Form::LayerNorm;
                    let weights = Weights { bias, norm_weight: &weight, norm_bias, eps: EPS, form };
                    let (y, saved) = forward(&x, &residual, &weights, &keys, Some(&dropout)).unwrap();
                    let dnorm_weight = fresh(cols, 6);
                    let unread = [7, 9].map(|id| fresh(cols, id));
                    let into = WeightGradients {
                        dbias: bias.map(|_| (&unread[0]).into()),
                        dnorm_weight: (&dnorm_weight).into(),
                        dnorm_bias: norm_bias.map(|_| (&unread[1]).into()),
                    };
                    let (dx, dresidual) =
                        backward(&dy, d_sum, &saved, &weight, &into, &keys, Some(&dropout)).unwrap();
                    [y, dx, dresidual, dnorm_weight].map(|t| bits(&t))
                });
                assert!(others.iter().all(|other| *other == want), "{dtype:?}, {cols} columns");
            }
        }
    });
}

/// The saved sum is exactly the one that is normalised, and backward without dropout equals that of layer
/// normalisation.
#[test]
fn the_norm_is_the_layer_norm_of_the_saved_sum() {
    on_each_device(|| {
        let sizes = DTYPES.into_iter().flat_map(|dtype| [67, 200, 2064].map(|cols| (dtype, cols)));
        for ((dtype, cols), form) in sizes.flat_map(|size| FORMS.map(|form| (size, form))) {
            let [x, residual, dy] = [1, 2, 3].map(|id| fresh_in((40, cols), id, dtype));
            let [bias, weight, norm_bias] = [4, 5, 6].map(|id| fresh(cols, id));
            let weights = Weights { form, ..weights(&bias, &weight, &norm_bias) };
            let (y, saved) = forward(&x, &residual, &weights, &[], None).unwrap();
            let (want, moments) =
                layer_norm::forward(form, &saved.sum_td, &weight, Some(&norm_bias), EPS).unwrap();
            assert_eq!([&y, &saved.moments.rstd_t].map(bits), [&want, &moments.rstd_t].map(bits));
            assert_eq!(saved.moments.mean_t.as_ref().map(bits), moments.mean_t.as_ref().map(bits));
            assert_eq!(moments.mean_t.is_some(), form == Form::LayerNorm);
            let sums = [7, 8, 9].map(|id| fresh(cols, id));
            let (dx, dresidual) = backward(&dy, None, &saved, &weight, &into(&sums), &[], None).unwrap();
            let want = layer_norm::backward(
                &dy,
                &saved.sum_td,
                &weight,
                &moments,
                &fresh(cols, 8),
                Some(&fresh(cols, 9)),
            )
            .unwrap();
            assert_eq!([&dx, &dresidual].map(bits), [&want, &want].map(bits));
        }
    });
}

/// The saved sum reveals the mask: the sum has the same bits on every device, and the same values get no
/// gradient.
#[test]
fn every_device_drops_the_same() {
    let dropout = Dropout { probability: 0.3, stream: Stream::new(1, Purpose::Dropout, 9) };
    let keys: Vec<u64> = (0..20).map(|row| row * 0x1_0000_0001).collect();
    for (dtype, cols) in DTYPES.into_iter().flat_map(|dtype| [67, 200, 2064].map(|cols| (dtype, cols))) {
        assert_same_on_each_device(&format!("{dtype:?}, {cols} columns"), || {
            let [x, residual, dy] = [1, 2, 3].map(|id| fresh_in((20, cols), id, dtype));
            let [bias, weight, norm_bias] = [4, 5, 6].map(|id| fresh(cols, id));
            let (_, saved) =
                forward(&x, &residual, &weights(&bias, &weight, &norm_bias), &keys, Some(&dropout)).unwrap();
            let sums = [7, 8, 9].map(|id| fresh(cols, id));
            let (dx, _) = backward(&dy, None, &saved, &weight, &into(&sums), &keys, Some(&dropout)).unwrap();
            (bits(&saved.sum_td), are_zero(&dx))
        });
    }
}

fn are_zero(t: &Tensor) -> Vec<bool> {
    bits(t).into_iter().map(|bits| f32::from_bits(bits) == 0.0).collect()
}

/// Compares the backward kernels that read the decisions kept by forward, with several warps per row, with
/// the earlier ones, which compute the decisions again, with one warp per row.
#[test]
fn kept_decisions_equal_those_computed_again() {
    let dropout = Dropout { probability: 0.3, stream: Stream::new(1, Purpose::Dropout, 9) };
    let keys: Vec<u64> = (0..20).map(|row| row * 0x1_0000_0001).collect();
    on_each_device(|| {
        let sizes = DTYPES.into_iter().flat_map(|dtype| [328, 768, 1000].map(|cols| (dtype, cols)));
        for ((dtype, cols), form) in sizes.flat_map(|size| FORMS.map(|form| (size, form))) {
            let [x, residual, dy] = [1, 2, 3].map(|id| fresh_in((20, cols), id, dtype));
            let [bias, weight, norm_bias] = [4, 5, 6].map(|id| fresh(cols, id));
            let weights = Weights { form, ..weights(&bias, &weight, &norm_bias) };
            let (_, saved) = forward(&x, &residual, &weights, &keys, Some(&dropout)).unwrap();
            let is_gpu = Gpu::of(&x).unwrap().is_some();
            let kept = saved.kept.as_ref().map_or(0, |kept| kept.elem_count() * size_of::<u32>());
            assert_eq!(kept as u64, if is_gpu { kept_bytes(20, cols as u64) } else { 0 });
            let run = || {
                let sums = [7, 8, 9].map(|id| fresh(cols, id));
                let gradients =
                    backward(&dy, None, &saved, &weight, &into(&sums), &keys, Some(&dropout)).unwrap();
                [[gradients.0, gradients.1].to_vec(), sums.to_vec()].concat()
            };
            let current = run();
            let earlier = with_earlier(run);
            assert!(are_zero(&current[0]) == are_zero(&earlier[0]), "{dtype:?}, {cols} columns");
            for (index, (current, earlier)) in current.iter().zip(&earlier).enumerate() {
                let name = format!("gradient {index} in {dtype:?}, {cols} columns");
                assert_close(&name, current, &double(earlier), within(dtype, 1e-6, 1.0));
            }
        }
    });
}

#[test]
fn the_number_of_threads_does_not_change_a_bit() {
    let dropout = Dropout { probability: 0.1, stream: Stream::new(1, Purpose::Dropout, 9) };
    let keys: Vec<u64> = (0..700).collect();
    let [bias, weight, norm_bias] = [4, 5, 6].map(|id| fresh(96, id));
    for dtype in DTYPES {
        assert_same_for_any_thread_count(&format!("{dtype:?}"), || {
            let [x, residual, dy] = [1, 2, 3].map(|id| fresh_in((700, 96), id, dtype));
            let (y, saved) =
                forward(&x, &residual, &weights(&bias, &weight, &norm_bias), &keys, Some(&dropout)).unwrap();
            let sums = [7, 8, 9].map(|id| fresh(96, id));
            let into = into(&sums);
            let (dx, dresidual) = backward(&dy, None, &saved, &weight, &into, &keys, Some(&dropout)).unwrap();
            ([y, dx, dresidual].map(|t| bits(&t)), sums.map(|t| bits(&t)))
        });
    }
}

#[test]
fn dtypes_that_differ_are_named() {
    let x = fresh((2, 3), 1);
    let residual = fresh_in((2, 3), 2, DType::F16);
    let vector = fresh(3, 3);
    let error =
        forward(&x, &residual, &weights(&vector, &vector, &vector), &[], None).unwrap_err().to_string();
    assert!(
        error.contains("residual norm: the residual is F16, the input is F32: they must be of one type"),
        "{error}"
    );
}

#[test]
fn the_reference_is_differentiable() {
    let dropout = Dropout { probability: 0.5, stream: Stream::new(1, Purpose::Dropout, 9) };
    let mask = mask(Some(&dropout), &[1, 2, 3], 7);
    let inputs = [&fresh((3, 7), 1), &fresh(7, 2), &fresh((3, 7), 3), &fresh(7, 4), &fresh(7, 5)];
    for form in FORMS {
        assert_reference_is_differentiable(|i| reference(form, i, &mask), &inputs, &fresh((3, 7), 6));
    }
}

#[test]
fn gradients_that_are_not_begun_are_overwritten() {
    on_each_device(|| {
        let [x, residual, dy] = [1, 2, 3].map(|id| fresh((70, 40), id));
        let [bias, weight, norm_bias] = [4, 5, 6].map(|id| fresh(40, id));
        let weights = weights(&bias, &weight, &norm_bias);
        let (_, saved) = forward(&x, &residual, &weights, &[][..], None).unwrap();
        let [overwritten, added] = [false, true].map(|begun| {
            let value = if begun { 0.0 } else { f64::NAN };
            let sums = [(); 3].map(|()| (bias.zeros_like().unwrap() + value).unwrap());
            let [dbias, dnorm_weight, dnorm_bias] = sums.each_ref().map(|sum| Accumulator { sum, begun });
            let into = WeightGradients { dbias: Some(dbias), dnorm_weight, dnorm_bias: Some(dnorm_bias) };
            backward(&dy, None, &saved, &weight, &into, &[][..], None).unwrap();
            sums.map(|sum| bits(&sum))
        });
        assert_eq!(overwritten, added);
    });
}
