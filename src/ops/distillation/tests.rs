//! The divergence from a teacher compared with its reference and with the values of PyTorch.

use super::*;
use crate::testing::{
    DTYPES, assert_close, assert_reference_is_differentiable, double, fresh, fresh_in, on_each_device,
    placed, reference_gradients, within,
};

/// Probabilities of a teacher, as a tensor and as the op reads them.
fn teacher(rows: usize, classes: usize) -> (Tensor, Vec<f32>) {
    let logits = (fresh((rows, classes), 5).to_device(&Device::Cpu).unwrap() * 3.0).unwrap();
    let probabilities = candle_nn::ops::softmax(&logits, 1).unwrap();
    let values = probabilities.flatten_all().unwrap().to_vec1().unwrap();
    (placed(&probabilities), values)
}

#[test]
fn loss_and_gradient_agree_with_the_reference() {
    on_each_device(|| {
        for (rows, classes, temperature) in [(1, 2, 1.0), (7, 3, 2.0), (33, 20, 4.5), (5, 301, 0.5)] {
            for dtype in DTYPES {
                let logits = fresh_in((rows, classes), 1, dtype);
                let (probabilities, values) = teacher(rows, classes);
                let one = fresh((), 3).ones_like().unwrap();
                let (want, gradients) = reference_gradients(
                    |i| reference::forward(&i[0], &i[1], temperature),
                    &[&logits, &probabilities],
                    &one,
                );
                let want = double(&want).to_scalar::<f64>().unwrap();
                let found = forward(&logits, &values, temperature).unwrap();
                assert!((found - want).abs() < 1e-5 * want.abs().max(1.0), "{found} instead of {want}");
                let dz = backward(&logits, &values, temperature, 1.0).unwrap();
                assert_eq!(dz.dtype(), dtype);
                assert_close("dz", &dz, &gradients[0], within(dtype, 1e-5, 1.0));
                let half = backward(&logits, &values, temperature, 0.5).unwrap();
                let doubled = (double(&half) * 2.0).unwrap();
                assert_close("a scaled dz", &doubled, &gradients[0], within(dtype, 1e-5, 1.0));
            }
        }
    });
}

#[test]
fn a_model_that_agrees_has_no_loss_and_no_gradient() {
    let logits = fresh((6, 4), 1);
    let values: Vec<f32> =
        candle_nn::ops::softmax(&logits, 1).unwrap().flatten_all().unwrap().to_vec1().unwrap();
    assert!(forward(&logits, &values, 3.0).unwrap().abs() < 1e-6);
    let dz = backward(&logits, &values, 3.0, 1.0).unwrap();
    assert_close("dz", &dz, &double(&dz.zeros_like().unwrap()), 1e-6);
}

// torch 2.15.0: `4 * kl_div(log_softmax(z / 2, -1), softmax(log(p) / 2, -1), reduction="sum")` in f64, and its
// gradient.
#[test]
fn values_equal_those_of_pytorch() {
    let logits = from_vec::<f32>(vec![0.5, -1.0, 2.0, 1.5, 0.25, -0.75], (2, 3)).unwrap();
    let values = [0.7, 0.2, 0.1, 0.25, 0.5, 0.25];
    let loss = forward(&logits, &values, 2.0).unwrap();
    assert!((loss - 1.792_564_159_952_184_4).abs() < 1e-6, "{loss}");
    let dz: Vec<f32> =
        backward(&logits, &values, 2.0, 1.0).unwrap().flatten_all().unwrap().to_vec1().unwrap();
    let wanted =
        [-0.488_557_388, -0.295_778_279, 0.784_335_666, 0.489_532_159, -0.252_850_557, -0.236_681_602];
    for (found, want) in dz.iter().zip(wanted) {
        assert!((f64::from(*found) - want).abs() < 1e-6, "{dz:?}");
    }
}

#[test]
fn a_teacher_that_is_certain_is_no_infinite_loss() {
    let logits = from_vec::<f32>(vec![3.0, -200.0], (1, 2)).unwrap();
    let loss = forward(&logits, &[0.0, 1.0], 1.0).unwrap();
    assert!((loss - 203.0).abs() < 1e-3, "{loss}");
    let dz: Vec<f32> =
        backward(&logits, &[0.0, 1.0], 1.0, 1.0).unwrap().flatten_all().unwrap().to_vec1().unwrap();
    assert_eq!(dz, [1.0, -1.0]);
}

#[test]
fn the_reference_is_differentiable() {
    let (probabilities, _) = teacher(3, 4);
    assert_reference_is_differentiable(
        |i| reference::forward(&i[0], &i[1], 2.0),
        &[&fresh((3, 4), 1), &probabilities],
        &fresh((), 3),
    );
}

#[test]
fn no_rows_have_no_loss_and_another_number_of_probabilities_is_an_error() {
    let none = fresh((0, 2), 1);
    assert_eq!(forward(&none, &[], 2.0).unwrap().to_bits(), 0);
    assert_eq!(backward(&none, &[], 2.0, 1.0).unwrap().dims(), [0, 2]);
    let error = forward(&fresh((1, 2), 1), &[1.0], 2.0).unwrap_err().to_string();
    assert!(error.contains("probabilities of the teacher"), "{error}");
}
