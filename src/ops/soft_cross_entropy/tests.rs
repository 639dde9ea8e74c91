//! Soft cross-entropy compared with its reference and with the values of PyTorch and transformers.

use candle_core::Device;

use super::*;
use crate::cross_entropy;
use crate::tensor::from_vec;
use crate::testing::{
    DTYPES, assert_close, assert_reference_is_differentiable, double, fresh, fresh_ids, fresh_in,
    on_each_device, placed, reference_gradients, within,
};

fn one_hot(labels: &[u32], classes: usize) -> Tensor {
    let mut values = vec![0f32; labels.len() * classes];
    for (row, &label) in labels.iter().enumerate() {
        values[row * classes + label as usize] = 1.0;
    }
    placed(&from_vec(values, (labels.len(), classes)).unwrap())
}

fn soft(classes: usize, smoothing: f32) -> SoftTargets {
    let weights = fresh(classes, 7).to_device(&Device::Cpu).unwrap().exp().unwrap();
    SoftTargets { smoothing, weights: weights.to_vec1().unwrap() }
}

fn totals(totals: &Tensor) -> [f64; 2] {
    totals.to_device(&Device::Cpu).unwrap().to_vec1::<f64>().unwrap().try_into().unwrap()
}

#[test]
fn loss_and_gradient_agree_with_the_reference() {
    on_each_device(|| {
        let sizes = [(1, 2, 0.1), (7, 3, 0.0), (33, 20, 0.3), (5, 1001, 0.9)];
        for (dtype, (rows, classes, smoothing)) in
            DTYPES.into_iter().flat_map(|d| sizes.map(|size| (d, size)))
        {
            let logits = fresh_in((rows, classes), 1, dtype);
            let labels = fresh_ids(rows, classes as u64, 2);
            let soft = soft(classes, smoothing);
            let weights = placed(&from_vec(soft.weights.clone(), classes).unwrap());
            let hot = one_hot(&labels, classes);
            let one = fresh((), 3).ones_like().unwrap();
            let (want, gradients) = reference_gradients(
                |i| reference::forward(&i[0], &i[1], &i[2], f64::from(soft.smoothing)),
                &[&logits, &hot, &weights],
                &one,
            );
            let found = forward(&logits, &labels, &soft).unwrap();
            assert_close("loss", &found.narrow(0, 0, 1).unwrap().reshape(()).unwrap(), &want, 1e-5);
            let dz = backward(&logits, &labels, &soft, 1.0).unwrap();
            assert_eq!(dz.dtype(), dtype);
            assert_close("dz", &dz, &gradients[0], within(dtype, 1e-5, 1.0));
            let half = backward(&logits, &labels, &soft, 0.5).unwrap();
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
fn without_smoothing_and_weights_the_loss_is_plain_cross_entropy() {
    let logits = fresh((40, 5), 1);
    let labels = fresh_ids(40, 5, 2);
    let plain = SoftTargets { smoothing: 0.0, weights: vec![1.0; 5] };
    let want = cross_entropy::forward(&logits, &labels).unwrap();
    let [loss, correct] = totals(&forward(&logits, &labels, &plain).unwrap());
    let [want_loss, want_correct] = totals(&want.totals);
    assert!((loss - want_loss).abs() < 1e-5 * want_loss && correct.to_bits() == want_correct.to_bits());
    let dz = backward(&logits, &labels, &plain, 0.5).unwrap();
    let want = cross_entropy::backward(logits, &labels, &want.log_sum_exp_m, 0.5).unwrap();
    assert_close("dz", &dz, &want, 1e-5);
}

// torch 2.15.0: the sum of `CrossEntropyLoss(weight=w, label_smoothing=0.1, reduction="none")`; transformers
// 5.23.0: `LabelSmoother(epsilon=0.1)`, whose mean is multiplied by the number of rows here.
#[test]
fn values_equal_those_of_pytorch_and_transformers() {
    let logits = from_vec::<f32>(vec![0.5, -1.0, 2.0, 1.5, 0.25, -0.75], (2, 3)).unwrap();
    let [[weighted, correct], [smoothed, _]] = [[0.5, 2.0, 1.25], [1.0; 3]].map(|weights| {
        let soft = SoftTargets { smoothing: 0.1, weights: weights.to_vec() };
        totals(&forward(&logits, &[2, 1], &soft).unwrap())
    });
    assert!((weighted - 3.590_267_227_263_686).abs() < 1e-5, "{weighted}");
    assert_eq!(correct.to_bits(), 1f64.to_bits());
    assert!((smoothed - 1.963_650_571_495_845_9).abs() < 1e-5, "{smoothed}");
}

#[test]
fn the_reference_is_differentiable() {
    let hot = one_hot(&[1, 0, 2], 4);
    assert_reference_is_differentiable(
        |i| reference::forward(&i[0], &i[1], &i[2], 0.2),
        &[&fresh((3, 4), 1), &hot, &fresh(4, 2)],
        &fresh((), 3),
    );
}

#[test]
fn no_rows_give_no_loss_and_invalid_labels_and_weights_are_errors() {
    let none = fresh((0, 2), 1);
    assert_eq!(totals(&forward(&none, &[], &soft(2, 0.1)).unwrap()).map(f64::to_bits), [0, 0]);
    assert_eq!(backward(&none, &[], &soft(2, 0.1), 1.0).unwrap().dims(), [0, 2]);
    for (labels, classes, message) in [
        (&[2][..], 2, "label 2 is not below 2"),
        (&[0], 3, "soft cross entropy: weights"),
        (&[0, 1], 2, "soft cross entropy: labels"),
    ] {
        let error = forward(&fresh((1, 2), 1), labels, &soft(classes, 0.1)).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
}
