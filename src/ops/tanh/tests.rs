//! The hyperbolic tangent against its reference.

use super::*;
use crate::ops::testing::assert_close;
use crate::ops::testing::assert_reference_is_differentiable;
use crate::ops::testing::fresh;
use crate::ops::testing::reference_gradients;

#[test]
fn forward_and_backward_agree_with_the_reference() {
    for (rows, cols) in [(1, 24), (16, 96), (300, 67)] {
        let (x, bias, dy, dbias) = (fresh((rows, cols), 1), fresh(cols, 2), fresh((rows, cols), 3), fresh(cols, 4));
        let (want, gradients) = reference_gradients(|i| reference::forward(&i[0], &i[1]), &[&x, &bias], &dy);
        let y = forward(&x, &bias).unwrap();
        assert_close("y", &y, &want, 1e-6);
        let before = dbias.copy().unwrap();
        assert_close("dx", &backward(&dy, &y, &dbias).unwrap(), &gradients[0], 2e-6);
        assert_close("dbias", &(dbias - before).unwrap(), &gradients[1], 1e-5);
    }
}

#[test]
fn the_reference_is_differentiable() {
    assert_reference_is_differentiable(|i| reference::forward(&i[0], &i[1]), &[&fresh((3, 7), 1), &fresh(7, 2)], &fresh((3, 7), 3));
}

#[test]
fn wrong_shapes_are_named() {
    let error = backward(&fresh((2, 3), 1), &fresh((2, 4), 1), &fresh(4, 1)).unwrap_err().to_string();
    assert!(error.contains("[2, 3]") && error.contains("[2, 4]"), "{error}");
}
