//! GELU against its reference, in the bulk and in both tails.

use super::*;
use crate::ops::testing::assert_close;
use crate::ops::testing::assert_reference_is_differentiable;
use crate::ops::testing::fresh;
use crate::ops::testing::reference_gradients;

#[test]
fn forward_and_backward_agree_with_the_reference() {
    for (rows, cols, spread) in [(1, 24, 1.0), (7, 96, 1.0), (300, 67, 5.0), (5, 3072, 0.1)] {
        let x = (fresh((rows, cols), 1) * spread).unwrap();
        let (bias, dy, dbias) = (fresh(cols, 2), fresh((rows, cols), 3), fresh(cols, 4));
        let (want, gradients) = reference_gradients(|i| reference::forward(&i[0], &i[1]), &[&x, &bias], &dy);
        assert_close("y", &forward(&x, &bias).unwrap(), &want, 2e-6);
        let before = dbias.copy().unwrap();
        assert_close("dx", &backward(&dy, &x, &bias, &dbias).unwrap(), &gradients[0], 2e-6);
        assert_close("dbias", &(dbias - before).unwrap(), &gradients[1], 1e-5);
    }
}

#[test]
fn the_reference_is_differentiable() {
    assert_reference_is_differentiable(|i| reference::forward(&i[0], &i[1]), &[&fresh((3, 7), 1), &fresh(7, 2)], &fresh((3, 7), 3));
}

#[test]
fn no_rows_work_and_wrong_shapes_are_named() {
    let bias = fresh(8, 1);
    let none = fresh((0, 8), 1);
    assert_eq!(backward(&none, &none, &bias, &bias.copy().unwrap()).unwrap().dims(), forward(&none, &bias).unwrap().dims());
    let error = forward(&fresh((2, 9), 1), &bias).unwrap_err().to_string();
    assert!(error.contains("gelu: bias is [8], it must be [9]"), "{error}");
}
