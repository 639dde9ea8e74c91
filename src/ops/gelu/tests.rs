//! GELU compared with its reference, for typical values and for values far from zero on both sides.

use super::*;
use crate::gelu::Form::{Erf, Tanh};
use crate::testing::{
    DTYPES, assert_close, assert_reference_is_differentiable, assert_same_for_any_thread_count, bits, fresh,
    fresh_in, on_each_device, reference_gradients, within,
};

const FORMS: [Form; 2] = [Erf, Tanh];

#[test]
fn forward_and_backward_agree_with_the_reference() {
    on_each_device(|| {
        let sizes = [(1, 24, 1.0), (7, 96, 1.0), (300, 67, 5.0), (5, 3072, 0.1)];
        let cases = FORMS.into_iter().flat_map(|form| DTYPES.map(|dtype| (form, dtype)));
        for (form, dtype, (rows, cols, spread)) in
            cases.flat_map(|(form, dtype)| sizes.map(|size| (form, dtype, size)))
        {
            let x = (fresh((rows, cols), 1) * spread).unwrap().to_dtype(dtype).unwrap();
            let dy = fresh_in((rows, cols), 3, dtype);
            let [bias, dbias] = [2, 4].map(|id| fresh(cols, id));
            let (want, gradients) =
                reference_gradients(|i| reference::forward(form, &i[0], &i[1]), &[&x, &bias], &dy);
            let y = forward(form, &x, Some(&bias)).unwrap();
            let dx = backward(form, &dy, &x, Some(&bias), Some(&dbias.copy().unwrap())).unwrap();
            assert_eq!([y.dtype(), dx.dtype()], [dtype; 2]);
            assert_close("y", &y, &want, within(dtype, 2e-6, 1.0));
            assert_close("dx", &dx, &gradients[0], within(dtype, 2e-6, 1.0));
            let before = dbias.copy().unwrap();
            assert_eq!(bits(&backward(form, &dy, &x, Some(&bias), Some(&dbias)).unwrap()), bits(&dx));
            // `dbias` is summed from values before they are rounded, so it is equally exact for every dtype.
            assert_close("dbias", &(dbias - before).unwrap(), &gradients[1], 1e-5);
        }
    });
}

#[test]
fn no_bias_equals_a_bias_of_zeros() {
    on_each_device(|| {
        for (form, dtype) in FORMS.into_iter().flat_map(|form| DTYPES.map(|dtype| (form, dtype))) {
            let [x, dy] = [1, 2].map(|id| fresh_in((9, 40), id, dtype));
            let zeros = fresh(40, 3).zeros_like().unwrap();
            let unread = fresh(40, 4);
            let y = forward(form, &x, Some(&zeros)).unwrap();
            let dx = backward(form, &dy, &x, Some(&zeros), Some(&unread)).unwrap();
            assert_eq!(bits(&forward(form, &x, None).unwrap()), bits(&y));
            assert_eq!(bits(&backward(form, &dy, &x, None, None::<&Tensor>).unwrap()), bits(&dx));
        }
    });
}

#[test]
fn the_reference_is_differentiable() {
    for form in FORMS {
        assert_reference_is_differentiable(
            |i| reference::forward(form, &i[0], &i[1]),
            &[&fresh((3, 7), 1), &fresh(7, 2)],
            &fresh((3, 7), 3),
        );
    }
}

#[test]
fn the_number_of_threads_does_not_change_a_bit() {
    let bias = fresh(96, 2);
    for (form, dtype) in FORMS.into_iter().flat_map(|form| DTYPES.map(|dtype| (form, dtype))) {
        let [x, dy] = [1, 3].map(|id| fresh_in((700, 96), id, dtype));
        assert_same_for_any_thread_count(&format!("{form:?} {dtype:?}"), || {
            let dbias = fresh(96, 4);
            let y = forward(form, &x, Some(&bias)).unwrap();
            let dx = backward(form, &dy, &x, Some(&bias), Some(&dbias)).unwrap();
            [y, dx, dbias].map(|t| bits(&t))
        });
    }
}

#[test]
fn no_rows_work_and_wrong_shapes_are_named() {
    let bias = fresh(8, 1);
    let none = fresh((0, 8), 1);
    assert_eq!(
        backward(Erf, &none, &none, Some(&bias), Some(&bias.copy().unwrap())).unwrap().dims(),
        forward(Erf, &none, Some(&bias)).unwrap().dims()
    );
    let error = forward(Erf, &fresh((2, 9), 1), Some(&bias)).unwrap_err().to_string();
    assert!(error.contains("gelu: bias is [8], it must be [9]"), "{error}");
    let half = fresh_in((0, 8), 1, candle_core::DType::BF16);
    let error = backward(Erf, &half, &none, Some(&bias), Some(&bias)).unwrap_err().to_string();
    assert!(
        error.contains("gelu: the output gradient is BF16, the input is F32: they must be of one type"),
        "{error}"
    );
}

#[test]
fn a_bias_gradient_that_is_not_begun_is_overwritten() {
    on_each_device(|| {
        let [x, dy] = [1, 3].map(|id| fresh((70, 40), id));
        let bias = fresh(40, 2);
        let zeros = bias.zeros_like().unwrap();
        let unread = (&zeros + f64::NAN).unwrap();
        backward(Erf, &dy, &x, Some(&bias), Some(&zeros)).unwrap();
        backward(Erf, &dy, &x, Some(&bias), Some(Accumulator { sum: &unread, begun: false })).unwrap();
        assert_eq!(bits(&unread), bits(&zeros));
    });
}
