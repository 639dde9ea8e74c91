//! The rectified linear unit against its reference.

use super::*;
use crate::testing::DTYPES;
use crate::testing::assert_close;
use crate::testing::assert_reference_is_differentiable;
use crate::testing::bits;
use crate::testing::fresh;
use crate::testing::fresh_in;
use crate::testing::on_each_device;
use crate::testing::reference_gradients;
use crate::testing::within;

#[test]
fn forward_and_backward_agree_with_the_reference() {
    on_each_device(|| {
        let sizes = [(1, 24), (16, 96), (300, 67), (5, 768)];
        for (dtype, (rows, cols)) in DTYPES.into_iter().flat_map(|dtype| sizes.map(|size| (dtype, size))) {
            let (x, bias, dy, dbias) = (
                fresh_in((rows, cols), 1, dtype),
                fresh(cols, 2),
                fresh_in((rows, cols), 3, dtype),
                fresh(cols, 4),
            );
            let (want, gradients) =
                reference_gradients(|i| reference::forward(&i[0], &i[1]), &[&x, &bias], &dy);
            let y = forward(&x, Some(&bias)).unwrap();
            assert_close("y", &y, &want, within(dtype, 1e-6, 1.0));
            let before = dbias.copy().unwrap();
            let dx = backward(&dy, &y, Some(&dbias)).unwrap();
            assert_eq!([y.dtype(), dx.dtype()], [dtype; 2]);
            assert_close("dx", &dx, &gradients[0], within(dtype, 1e-6, 1.0));
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
    let run = |dtype, threads| {
        let (x, dy, dbias) = (fresh_in((700, 96), 1, dtype), fresh_in((700, 96), 3, dtype), fresh(96, 4));
        rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(|| {
            let y = forward(&x, Some(&bias)).unwrap();
            let dx = backward(&dy, &y, Some(&dbias)).unwrap();
            [y, dx, dbias].map(|t| bits(&t))
        })
    };
    for dtype in DTYPES {
        let one = run(dtype, 1);
        assert!((2..5).all(|threads| run(dtype, threads) == one), "{dtype:?}");
    }
}

#[test]
fn no_rows_work_and_wrong_shapes_are_named() {
    on_each_device(|| {
        let (none, bias, dbias) = (fresh((0, 8), 1), fresh(8, 2), fresh(8, 3));
        let y = forward(&none, Some(&bias)).unwrap();
        assert_eq!((y.dims(), backward(&none, &y, Some(&dbias)).unwrap().dims()), (none.dims(), none.dims()));
        assert_eq!(bits(&dbias), bits(&fresh(8, 3)));
    });
    let error = backward(&fresh((2, 3), 1), &fresh((2, 4), 1), Some(&fresh(4, 1))).unwrap_err().to_string();
    assert!(error.contains("[2, 3]") && error.contains("[2, 4]"), "{error}");
}
