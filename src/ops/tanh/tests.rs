//! The hyperbolic tangent compared with its reference.

use super::*;
use crate::testing::{
    DTYPES, assert_close, assert_reference_is_differentiable, assert_same_for_any_thread_count, bits, fresh,
    fresh_in, on_each_device, reference_gradients, within,
};

#[test]
fn forward_and_backward_agree_with_the_reference() {
    on_each_device(|| {
        let sizes = [(1, 24), (16, 96), (300, 67), (5, 768)];
        for (dtype, (rows, cols)) in DTYPES.into_iter().flat_map(|dtype| sizes.map(|size| (dtype, size))) {
            let [x, dy] = [1, 3].map(|id| fresh_in((rows, cols), id, dtype));
            let [bias, dbias] = [2, 4].map(|id| fresh(cols, id));
            let (want, gradients) =
                reference_gradients(|i| reference::forward(&i[0], &i[1]), &[&x, &bias], &dy);
            let y = forward(&x, Some(&bias)).unwrap();
            assert_close("y", &y, &want, within(dtype, 1e-6, 1.0));
            let before = dbias.copy().unwrap();
            let dx = backward(&dy, &y, Some(&dbias)).unwrap();
            assert_eq!([y.dtype(), dx.dtype()], [dtype; 2]);
            // `y` was rounded, and `1 - y^2` doubles its error.
            assert_close("dx", &dx, &gradients[0], within(dtype, 2e-6, 3.0));
            assert_close("dbias", &(dbias - before).unwrap(), &gradients[1], within(dtype, 1e-5, 3.0));
        }
    });
}

#[test]
fn the_reference_is_differentiable() {
    assert_reference_is_differentiable(
        |i| reference::forward(&i[0], &i[1]),
        &[&fresh((3, 7), 1), &fresh(7, 2)],
        &fresh((3, 7), 3),
    );
}

#[test]
fn the_number_of_threads_does_not_change_a_bit() {
    let bias = fresh(96, 2);
    for dtype in DTYPES {
        let [x, dy] = [1, 3].map(|id| fresh_in((700, 96), id, dtype));
        assert_same_for_any_thread_count(&format!("{dtype:?}"), || {
            let dbias = fresh(96, 4);
            let y = forward(&x, Some(&bias)).unwrap();
            let dx = backward(&dy, &y, Some(&dbias)).unwrap();
            [y, dx, dbias].map(|t| bits(&t))
        });
    }
}

#[test]
fn no_rows_work_and_wrong_shapes_are_named() {
    on_each_device(|| {
        let none = fresh((0, 8), 1);
        let [bias, dbias] = [2, 3].map(|id| fresh(8, id));
        let y = forward(&none, Some(&bias)).unwrap();
        assert_eq!((y.dims(), backward(&none, &y, Some(&dbias)).unwrap().dims()), (none.dims(), none.dims()));
        assert_eq!(bits(&dbias), bits(&fresh(8, 3)));
    });
    let error = backward(&fresh((2, 3), 1), &fresh((2, 4), 1), Some(&fresh(4, 1))).unwrap_err().to_string();
    assert!(error.contains("[2, 3]") && error.contains("[2, 4]"), "{error}");
}
