//! The fused op against its reference, with and without dropout.

use candle_core::DType;

use super::*;
use crate::ops::testing::assert_close;
use crate::ops::testing::assert_reference_is_differentiable;
use crate::ops::testing::fresh;
use crate::ops::testing::reference_gradients;
use crate::rng::Purpose;
use crate::rng::Stream;

const EPS: f64 = 1e-12;

fn reference(i: &[Tensor], mask: &Tensor) -> Result<Tensor> {
    reference::forward(&i[0], &i[1], &i[2], &i[3], &i[4], EPS, mask)
}

fn mask(dropout: Option<&Dropout>, keys: &[u64], cols: usize) -> Tensor {
    match dropout {
        Some(dropout) => crate::ops::dropout::reference::mask(dropout, keys, cols).unwrap(),
        None => Tensor::ones((keys.len(), cols), DType::F64, &Device::Cpu).unwrap(),
    }
}

fn weights<'a>(bias: &'a Tensor, norm_weight: &'a Tensor, norm_bias: &'a Tensor) -> Weights<'a> {
    Weights { bias, norm_weight, norm_bias, eps: EPS }
}

#[test]
fn forward_and_backward_agree_with_the_reference() {
    let some = Dropout { probability: 0.1, stream: Stream::new(1, Purpose::Dropout, 9) };
    for (rows, cols) in [(1, 24), (7, 96), (5, 67), (700, 128), (0, 8)] {
        let keys: Vec<u64> = (0..rows as u64).map(|row| row + 1000).collect();
        for dropout in [None, Some(&some)] {
            let (x, residual, dy) = (fresh((rows, cols), 1), fresh((rows, cols), 2), fresh((rows, cols), 3));
            let (bias, weight, norm_bias) = (fresh(cols, 4), fresh(cols, 5), fresh(cols, 6));
            let mask = mask(dropout, &keys, cols);
            let inputs = [&x, &bias, &residual, &weight, &norm_bias];
            let (y, saved) = forward(&x, &residual, &weights(&bias, &weight, &norm_bias), &keys, dropout).unwrap();
            let sums: Vec<Tensor> = (0..3).map(|id| fresh(cols, 10 + id)).collect();
            let before: Vec<Tensor> = sums.iter().map(|t| t.copy().unwrap()).collect();
            let into = WeightGradients { dbias: &sums[0], dnorm_weight: &sums[1], dnorm_bias: &sums[2] };
            let (dx, dresidual) = backward(&dy, &saved, &weight, &into, &keys, dropout).unwrap();
            let added: Vec<Tensor> = sums.iter().zip(&before).map(|(after, before)| (after - before).unwrap()).collect();
            if rows == 0 {
                assert!(added.iter().all(|t| t.abs().unwrap().sum_all().unwrap().to_scalar::<f32>().unwrap() == 0.0));
                continue;
            }
            let (want, gradients) = reference_gradients(|i| reference(i, &mask), &inputs, &dy);
            assert_close("y", &y, &want, 1e-5);
            for (what, got, want) in [
                ("dx", &dx, 0),
                ("dbias", &added[0], 1),
                ("dresidual", &dresidual, 2),
                ("dweight", &added[1], 3),
                ("dnorm_bias", &added[2], 4),
            ] {
                assert_close(what, got, &gradients[want], 1e-5);
            }
        }
    }
}

#[test]
fn the_reference_is_differentiable() {
    let dropout = Dropout { probability: 0.5, stream: Stream::new(1, Purpose::Dropout, 9) };
    let mask = mask(Some(&dropout), &[1, 2, 3], 7);
    let inputs = [&fresh((3, 7), 1), &fresh(7, 2), &fresh((3, 7), 3), &fresh(7, 4), &fresh(7, 5)];
    assert_reference_is_differentiable(|i| reference(i, &mask), &inputs, &fresh((3, 7), 6));
}
