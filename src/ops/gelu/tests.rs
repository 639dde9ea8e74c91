//! GELU against its reference, in the bulk and in both tails.

use super::*;
use crate::gelu::Form::Erf;
use crate::gelu::Form::Tanh;
use crate::testing::DTYPES;
use crate::testing::assert_close;
use crate::testing::assert_reference_is_differentiable;
use crate::testing::bits;
use crate::testing::fresh;
use crate::testing::fresh_in;
use crate::testing::on_each_device;
use crate::testing::reference_gradients;
use crate::testing::within;

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
            let (bias, dy, dbias) = (fresh(cols, 2), fresh_in((rows, cols), 3, dtype), fresh(cols, 4));
            let (want, gradients) =
                reference_gradients(|i| reference::forward(form, &i[0], &i[1]), &[&x, &bias], &dy);
            let (y, dx) = (
                forward(form, &x, Some(&bias)).unwrap(),
                backward(form, &dy, &x, Some(&bias), Some(&dbias.copy().unwrap())).unwrap(),
            );
            assert_eq!([y.dtype(), dx.dtype()], [dtype; 2]);
            assert_close("y", &y, &want, within(dtype, 2e-6, 1.0));
            assert_close("dx", &dx, &gradients[0], within(dtype, 2e-6, 1.0));
            let before = dbias.copy().unwrap();
            assert_eq!(bits(&backward(form, &dy, &x, Some(&bias), Some(&dbias)).unwrap()), bits(&dx));
            // From the values as computed, before they are rounded: as close for every type.
            assert_close("dbias", &(dbias - before).unwrap(), &gradients[1], 1e-5);
        }
    });
}

#[test]
fn without_a_bias_it_is_zero() {
    on_each_device(|| {
        for (form, dtype) in FORMS.into_iter().flat_map(|form| DTYPES.map(|dtype| (form, dtype))) {
            let [x, dy] = [1, 2].map(|id| fresh_in((9, 40), id, dtype));
            let (zeros, unread) = (fresh(40, 3).zeros_like().unwrap(), fresh(40, 4));
            let with =
                (forward(form, &x, Some(&zeros)), backward(form, &dy, &x, Some(&zeros), Some(&unread)));
            let without = (forward(form, &x, None), backward(form, &dy, &x, None, None::<&Tensor>));
            assert_eq!(bits(&without.0.unwrap()), bits(&with.0.unwrap()));
            assert_eq!(bits(&without.1.unwrap()), bits(&with.1.unwrap()));
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
    let run = |form, dtype, threads| {
        let (x, dy, dbias) = (fresh_in((700, 96), 1, dtype), fresh_in((700, 96), 3, dtype), fresh(96, 4));
        rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(|| {
            let (y, dx) = (
                forward(form, &x, Some(&bias)).unwrap(),
                backward(form, &dy, &x, Some(&bias), Some(&dbias)).unwrap(),
            );
            [y, dx, dbias].map(|t| bits(&t))
        })
    };
    for (form, dtype) in FORMS.into_iter().flat_map(|form| DTYPES.map(|dtype| (form, dtype))) {
        let one = run(form, dtype, 1);
        assert!((2..5).all(|threads| run(form, dtype, threads) == one), "{form:?} {dtype:?}");
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
fn a_gradient_that_is_not_begun_takes_the_place_of_what_is_there() {
    on_each_device(|| {
        let (x, bias, dy) = (fresh((70, 40), 1), fresh(40, 2), fresh((70, 40), 3));
        let (zeros, unread) = (bias.zeros_like().unwrap(), (&bias.zeros_like().unwrap() + f64::NAN).unwrap());
        backward(Erf, &dy, &x, Some(&bias), Some(&zeros)).unwrap();
        backward(Erf, &dy, &x, Some(&bias), Some(Accumulator { sum: &unread, begun: false })).unwrap();
        assert_eq!(bits(&unread), bits(&zeros));
    });
}
