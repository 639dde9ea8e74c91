//! Layer normalisation against its reference.

use super::*;
use crate::ops::testing::assert_close;
use crate::ops::testing::assert_reference_is_differentiable;
use crate::ops::testing::fresh;
use crate::ops::testing::reference_gradients;

const EPS: f64 = 1e-5;

#[test]
fn forward_and_backward_agree_with_the_reference() {
    for (rows, cols) in [(1, 24), (1, 1), (7, 96), (5, 67), (700, 128), (3, 768)] {
        let (weight, bias, dy) = (fresh(cols, 2), fresh(cols, 3), fresh((rows, cols), 4));
        // Rows away from zero: the mean must not swallow the variance.
        let x = fresh((rows, cols), 1).affine(3.0, 5.0).unwrap();
        let (want, gradients) = reference_gradients(|i| reference::forward(&i[0], &i[1], &i[2], EPS), &[&x, &weight, &bias], &dy);
        let (y, saved) = forward(&x, &weight, &bias, EPS).unwrap();
        assert_close("y", &y, &want, 1e-5);

        let (dweight, dbias) = (fresh(cols, 5), fresh(cols, 6));
        let (before_weight, before_bias) = (dweight.copy().unwrap(), dbias.copy().unwrap());
        let dx = backward(&dy, &x, &weight, &saved, &dweight, &dbias).unwrap();
        assert_close("dx", &dx, &gradients[0], if cols == 1 { 1e-3 } else { 1e-5 });
        assert_close("dweight", &(dweight - before_weight).unwrap(), &gradients[1], 1e-5);
        assert_close("dbias", &(dbias - before_bias).unwrap(), &gradients[2], 1e-5);
    }
}

#[test]
fn the_reference_is_differentiable() {
    let inputs = [&fresh((3, 7), 1), &fresh(7, 2), &fresh(7, 3)];
    assert_reference_is_differentiable(|i| reference::forward(&i[0], &i[1], &i[2], EPS), &inputs, &fresh((3, 7), 4));
}

#[test]
fn the_number_of_threads_does_not_change_a_bit() {
    let (x, weight, bias, dy) = (fresh((700, 96), 1), fresh(96, 2), fresh(96, 3), fresh((700, 96), 4));
    let run = |threads| {
        rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(|| {
            let (y, saved) = forward(&x, &weight, &bias, EPS).unwrap();
            let gradient = weight.zeros_like().unwrap();
            let dx = backward(&dy, &x, &weight, &saved, &gradient, &bias.zeros_like().unwrap()).unwrap();
            (y.to_vec2::<f32>().unwrap(), dx.to_vec2::<f32>().unwrap(), gradient.to_vec1::<f32>().unwrap())
        })
    };
    let one = run(1);
    assert!((2..5).all(|threads| run(threads) == one));
}

#[test]
fn no_rows_work_and_wrong_shapes_are_named() {
    let (x, weight) = (fresh((0, 8), 1), fresh(8, 2));
    let (y, saved) = forward(&x, &weight, &weight, EPS).unwrap();
    assert_eq!(y.dims(), [0, 8]);
    let gradient = fresh(8, 3);
    assert_eq!(backward(&y, &x, &weight, &saved, &gradient, &gradient).unwrap().dims(), [0, 8]);
    let error = forward(&x, &fresh(9, 1), &weight, EPS).unwrap_err().to_string();
    assert!(error.contains("[9]") && error.contains("[8]"), "{error}");
}
