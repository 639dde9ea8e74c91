//! The op compared with its reference in every dtype, its counts, and special values.

use candle_core::{DType, Device, Tensor};

use super::*;
use crate::testing::{
    DTYPES, assert_close, assert_reference_is_differentiable, assert_same_for_any_thread_count, bits, double,
    fresh, fresh_ids, fresh_in, on_each_device, placed, reference_gradients, within,
};

fn reference(inputs: &[Tensor], labels: &[u32]) -> Result<Tensor> {
    reference::forward(&inputs[0], &inputs[1], &inputs[2], labels)
}

fn compare(dtype: DType, rows: usize, cols: usize) {
    let x = fresh_in((rows, cols), 1, dtype);
    let [weight, dweight] = [2, 5].map(|id| fresh((1, cols), id));
    let [bias, dbias] = [3, 6].map(|id| fresh(1, id));
    let labels = fresh_ids(rows, 2, 4);
    let seed = Tensor::new(0.25f32, &Device::Cpu).unwrap();
    let (loss, gradients) = reference_gradients(|i| reference(i, &labels), &[&x, &weight, &bias], &seed);
    let loss = loss.to_scalar::<f64>().unwrap();
    let map = Map { weight: &weight, bias: &bias };
    let wanted = [(double(&dweight) + &gradients[1]).unwrap(), (double(&dbias) + &gradients[2]).unwrap()];
    let into = Map { weight: &dweight, bias: &dbias };
    let (totals, dx) = forward_backward(&x, map, &labels, 0.25, into).unwrap();
    let got = Totals::read(&totals).unwrap();
    assert!((got.loss_sum - loss).abs() <= 2e-6 * loss.abs() + 1e-5, "{} is not {loss}", got.loss_sum);
    assert_eq!(Totals::read(&forward(&x, map, &labels).unwrap()).unwrap(), got);
    let logits = logits(&x, map).unwrap().to_vec1::<f32>().unwrap();
    let predictions = logits.iter().map(|&z| z > 0.0).zip(labels.iter().map(|&label| label == 1));
    let correct = predictions.clone().filter(|(predicted, label)| predicted == label).count();
    let predicted = predictions.clone().filter(|(predicted, _)| *predicted).count();
    let hits = predictions.filter(|(predicted, label)| *predicted && *label).count();
    assert_eq!((got.correct, got.predicted, got.hits), (correct, predicted, hits));
    assert_eq!(got.ones(rows), labels.iter().filter(|label| **label == 1).count());
    assert_eq!(dx.dtype(), dtype);
    assert_close("dx", &dx, &gradients[0], within(dtype, 1e-5, 1.0));
    assert_close("dweight", &dweight, &wanted[0], 1e-5);
    assert_close("dbias", &dbias, &wanted[1], 1e-5);
}

#[test]
fn loss_scores_and_gradients_agree_with_the_reference() {
    on_each_device(|| {
        for dtype in DTYPES {
            for (rows, cols) in [(1, 3), (7, 24), (300, 64), (2100, 40), (9, 1)] {
                compare(dtype, rows, cols);
            }
        }
    });
}

#[test]
fn the_reference_is_differentiable() {
    let inputs = [&fresh((3, 4), 1), &fresh((1, 4), 2), &fresh(1, 3)];
    let seed = Tensor::new(1.5f32, &Device::Cpu).unwrap();
    assert_reference_is_differentiable(|i| reference(i, &[1, 0, 1]), &inputs, &seed);
}

#[test]
fn large_logits_are_precise_and_nan_gives_nan() {
    on_each_device(|| {
        let x = placed(&Tensor::new(&[[1f32], [-1.0]], &Device::Cpu).unwrap());
        let weight = placed(&Tensor::new(&[[200f32]], &Device::Cpu).unwrap());
        let bias = (fresh(1, 3) * 0.0).unwrap();
        let map = Map { weight: &weight, bias: &bias };
        let [right, wrong] =
            [[1, 0], [0, 1]].map(|labels| Totals::read(&forward(&x, map, &labels).unwrap()).unwrap());
        assert_eq!(right, Totals { loss_sum: (-200f64).exp() * 2.0, correct: 2, predicted: 1, hits: 1 });
        assert!((wrong.loss_sum - 400.0).abs() < 1e-9);
        let weight = (&weight * f64::NAN).unwrap();
        let totals = forward(&x, Map { weight: &weight, ..map }, &[0, 1]).unwrap();
        assert!(Totals::read(&totals).unwrap().loss_sum.is_nan());
    });
}

#[test]
fn no_rows_give_no_loss_and_no_gradient() {
    on_each_device(|| {
        for dtype in DTYPES {
            let x = fresh_in((0, 4), 1, dtype);
            let [weight, dweight] = [2, 5].map(|id| fresh((1, 4), id));
            let [bias, dbias] = [3, 6].map(|id| fresh(1, id));
            let map = Map { weight: &weight, bias: &bias };
            let into = Map { weight: &dweight, bias: &dbias };
            let (totals, dx) = forward_backward(&x, map, &[], 1.0, into).unwrap();
            let nothing = Totals { loss_sum: 0.0, correct: 0, predicted: 0, hits: 0 };
            assert_eq!((Totals::read(&totals).unwrap(), dx.dims()), (nothing, [0, 4].as_slice()));
            assert_eq!([bits(&dweight), bits(&dbias)], [bits(&fresh((1, 4), 5)), bits(&fresh(1, 6))]);
        }
    });
}

#[test]
fn the_number_of_threads_does_not_change_a_bit() {
    for dtype in DTYPES {
        let x = fresh_in((5000, 48), 1, dtype);
        let weight = fresh((1, 48), 2);
        let bias = fresh(1, 3);
        let labels = fresh_ids(5000, 2, 4);
        let map = Map { weight: &weight, bias: &bias };
        assert_same_for_any_thread_count(&format!("{dtype:?}"), || {
            let dweight = fresh((1, 48), 5);
            let dbias = fresh(1, 6);
            let into = Map { weight: &dweight, bias: &dbias };
            let (totals, dx) = forward_backward(&x, map, &labels, 1.0, into).unwrap();
            let loss = Totals::read(&totals).unwrap().loss_sum.to_bits();
            (loss, bits(&dx), bits(&dweight), bits(&dbias))
        });
    }
}

#[test]
fn invalid_labels_and_shapes_are_errors() {
    let x = fresh((2, 4), 1);
    let weight = fresh((1, 4), 2);
    let bias = fresh(1, 3);
    let map = Map { weight: &weight, bias: &bias };
    for (labels, message) in [(&[0, 2][..], "label 2"), (&[0], "labels")] {
        assert!(forward(&x, map, labels).unwrap_err().to_string().contains(message));
    }
    let narrow = fresh((1, 3), 2);
    assert!(logits(&x, Map { weight: &narrow, ..map }).unwrap_err().to_string().contains("weight"));
}
