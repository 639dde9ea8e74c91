//! Binary cross-entropy compared with its reference and with PyTorch's values.

use super::*;
use crate::tensor::from_vec;
use crate::testing::{
    DTYPES, assert_close, assert_reference_is_differentiable, double, fresh, fresh_ids, fresh_in,
    on_each_device, placed, reference_gradients, within,
};

fn totals(totals: &Tensor) -> [f64; 2] {
    totals.to_device(&Device::Cpu).unwrap().to_vec1::<f64>().unwrap().try_into().unwrap()
}

fn as_tensor(labels: &[u32], shape: (usize, usize)) -> Tensor {
    placed(&from_vec(labels.iter().map(|label| *label as f32).collect(), shape).unwrap())
}

#[test]
fn loss_and_gradient_agree_with_the_reference() {
    on_each_device(|| {
        let sizes = [(1, 1), (7, 3), (33, 20), (5, 1001)];
        for (dtype, (rows, classes)) in DTYPES.into_iter().flat_map(|d| sizes.map(|size| (d, size))) {
            let z = fresh_in((rows, classes), 1, dtype);
            let labels = fresh_ids(rows * classes, 2, 2);
            let l = as_tensor(&labels, (rows, classes));
            let one = fresh((), 3).ones_like().unwrap();
            let (want, gradients) =
                reference_gradients(|i| reference::forward(&i[0], &i[1]), &[&z, &l], &one);
            let found = forward(&z, &labels).unwrap();
            assert_close("loss", &found.narrow(0, 0, 1).unwrap().reshape(()).unwrap(), &want, 1e-5);
            let dz = backward(&z, &labels, 1.0).unwrap();
            assert_eq!(dz.dtype(), dtype);
            assert_close("dz", &dz, &gradients[0], within(dtype, 1e-5, 1.0));
            let half = backward(&z, &labels, 0.5).unwrap();
            assert_close(
                "a scaled dz",
                &(double(&half) * 2.0).unwrap(),
                &gradients[0],
                within(dtype, 1e-5, 1.0),
            );
        }
    });
}

#[test]
fn the_reference_is_differentiable() {
    let labels = as_tensor(&[1, 0, 0, 1, 1, 0], (3, 2));
    assert_reference_is_differentiable(
        |i| reference::forward(&i[0], &i[1]),
        &[&fresh((3, 2), 1), &labels],
        &fresh((), 3),
    );
}

// torch 2.15.0: `BCEWithLogitsLoss(reduction="sum")` in f64, and its gradient.
#[test]
fn values_equal_those_of_pytorch() {
    let logits = from_vec::<f32>(vec![0.5, -1.0, 2.0, 40.0, -40.0, 0.0], (2, 3)).unwrap();
    let labels = [1, 0, 0, 0, 1, 1];
    let [loss, correct] = totals(&forward(&logits, &labels).unwrap());
    assert!((loss - 83.607_413_863_301_25).abs() < 1e-12, "{loss}");
    assert_eq!(correct.to_bits(), 2f64.to_bits());
    let dz = backward(&logits, &labels, 1.0).unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap();
    let want = [-0.377_540_67, 0.268_941_43, 0.880_797_1, 1.0, -1.0, -0.5];
    for (found, want) in dz.iter().zip(want) {
        assert!((found - want).abs() < 1e-6, "{dz:?}");
    }
}

#[test]
fn the_loss_of_a_logit_that_is_not_finite_is_not_finite() {
    for z in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for label in [0, 1] {
            let [loss, _] = totals(&forward(&from_vec(vec![z], (1, 1)).unwrap(), &[label]).unwrap());
            assert!(!loss.is_finite(), "{z} {label}");
        }
    }
}

#[test]
fn no_rows_give_no_loss_and_invalid_labels_are_errors() {
    let none = fresh((0, 2), 1);
    assert_eq!(totals(&forward(&none, &[]).unwrap()).map(f64::to_bits), [0, 0]);
    assert_eq!(backward(&none, &[], 1.0).unwrap().dims(), [0, 2]);
    for (labels, message) in
        [(&[2, 0][..], "label 2 is neither 0 nor 1"), (&[0], "sigmoid cross entropy: labels")]
    {
        let error = forward(&fresh((1, 2), 1), labels).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
}
