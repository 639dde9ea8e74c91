//! Cross-entropy against its reference, and at the edges.

use super::*;
use crate::ops::tensor::from_vec;
use crate::ops::testing::assert_close;
use crate::ops::testing::assert_reference_is_differentiable;
use crate::ops::testing::fresh;
use crate::ops::testing::fresh_ids;
use crate::ops::testing::reference_gradients;

#[test]
fn forward_and_backward_agree_with_the_reference() {
    for (rows, classes, spread) in [(1, 2, 1.0), (7, 96, 1.0), (40, 1001, 4.0), (3, 30_001, 20.0), (5, 1, 1.0)] {
        let logits = fresh((rows, classes), 1).affine(spread, 3.0).unwrap();
        let labels = fresh_ids(rows, classes as u64, 2);
        let seed = from_vec::<f32>(vec![0.25], ()).unwrap();
        let (loss, gradients) = reference_gradients(|i| reference::forward(&i[0], &labels), &[&logits], &seed);
        let loss = loss.to_scalar::<f64>().unwrap();
        let got = forward(&logits, &labels).unwrap();
        assert!((got.loss_sum - loss).abs() <= 1e-6 * loss.abs() + 1e-6, "{} is not {loss}", got.loss_sum);
        let predicted = logits.argmax(1).unwrap().to_vec1::<u32>().unwrap();
        assert_eq!(got.correct, predicted.iter().zip(&labels).filter(|(a, b)| a == b).count());
        let gradient = backward(logits.copy().unwrap(), &labels, &got.log_sum_exp, 0.25).unwrap();
        assert_close("dlogits", &gradient, &gradients[0], 1e-5);
    }
}

#[test]
fn the_reference_is_differentiable() {
    assert_reference_is_differentiable(
        |i| reference::forward(&i[0], &[4, 0, 2]),
        &[&fresh((3, 5), 1)],
        &from_vec::<f32>(vec![1.5], ()).unwrap(),
    );
}

#[test]
fn of_equal_logits_the_first_counts() {
    let logits = from_vec::<f32>(vec![1.0, 2.0, 2.0, 1.0, 2.0, 2.0], (2, 3)).unwrap();
    assert_eq!(forward(&logits, &[1, 2]).unwrap().correct, 1);
}

#[test]
fn huge_logits_stay_finite_and_a_nan_shows() {
    let logits = from_vec::<f32>(vec![1e4, -1e4, 0.0, 3e38, 0.0, -3e38], (2, 3)).unwrap();
    let got = forward(&logits, &[0, 0]).unwrap();
    assert_eq!((got.loss_sum, got.correct), (0.0, 2));
    let dlogits = backward(logits, &[0, 0], &got.log_sum_exp, 1.0).unwrap();
    assert_eq!(dlogits.to_vec2::<f32>().unwrap(), [[0.0; 3]; 2]);
    let broken = from_vec::<f32>(vec![0.0, f32::NAN], (1, 2)).unwrap();
    let got = forward(&broken, &[0]).unwrap();
    assert!(got.loss_sum.is_nan());
    assert!(forward(&from_vec::<f32>(vec![0.0, f32::INFINITY], (1, 2)).unwrap(), &[0]).unwrap().loss_sum.is_nan());
}

#[test]
fn no_rows_give_no_loss_and_a_label_outside_is_named() {
    let none = fresh((0, 9), 1);
    let got = forward(&none, &[]).unwrap();
    assert_eq!(got, Entropy { loss_sum: 0.0, correct: 0, log_sum_exp: vec![] });
    assert_eq!(backward(none, &[], &[], 1.0).unwrap().dims(), [0, 9]);
    let error = forward(&fresh((1, 9), 1), &[9]).unwrap_err().to_string();
    assert!(error.contains("label 9 (number 0 of 1) is not below 9"), "{error}");
    assert!(forward(&fresh((2, 9), 1), &[1]).is_err());
}
