//! Layer normalisation and RMSNorm compared with their references.

use candle_core::DType;

use super::*;
use crate::testing::{
    DTYPES, assert_close, assert_reference_is_differentiable, assert_same_for_any_thread_count, bits, fresh,
    fresh_in, on_each_device, reference_gradients, within,
};

const EPS: f64 = 1e-5;
const FORMS: [Form; 2] = [Form::LayerNorm, Form::RmsNorm];

#[test]
fn forward_and_backward_agree_with_the_reference() {
    on_each_device(|| {
        // For the GPU: rows that are held by one, two, three, four, five and eight warps; wider rows; rows of
        // odd width, also in several tiles.
        let sizes = [
            (1, 24),
            (1, 1),
            (7, 96),
            (5, 67),
            (700, 128),
            (20, 768),
            (9, 328),
            (3, 1000),
            (10, 1032),
            (19, 2048),
            (18, 2056),
            (4300, 3),
        ];
        let cases = DTYPES.into_iter().flat_map(|dtype| sizes.map(|size| (dtype, size)));
        for ((dtype, (rows, cols)), form) in cases.flat_map(|case| FORMS.map(|form| (case, form))) {
            let [weight, bias] = [2, 3].map(|id| fresh(cols, id));
            let dy = fresh_in((rows, cols), 4, dtype);
            // The rows have a mean far from zero, which must not make the variance inexact.
            let x = fresh((rows, cols), 1).affine(3.0, 5.0).unwrap().to_dtype(dtype).unwrap();
            let (want, gradients) = reference_gradients(
                |i| reference::forward(form, &i[0], &i[1], Some(&i[2]), EPS),
                &[&x, &weight, &bias],
                &dy,
            );
            let (y, saved) = forward(form, &x, &weight, Some(&bias), EPS).unwrap();
            assert_eq!((y.dtype(), saved.rstd_t.dtype()), (dtype, DType::F32));
            assert_eq!(saved.mean_t.is_some(), form == Form::LayerNorm);
            assert_close("y", &y, &want, within(dtype, 1e-5, 1.0));

            let [dweight, dbias] = [5, 6].map(|id| fresh(cols, id));
            let [before_weight, before_bias] = [&dweight, &dbias].map(|t| t.copy().unwrap());
            let dx = backward(&dy, &x, &weight, &saved, &dweight, Some(&dbias)).unwrap();
            assert_eq!(dx.dtype(), dtype);
            // With one column hardly anything is left of two terms of opposite sign, and rounding shows.
            assert_close("dx", &dx, &gradients[0], within(dtype, if cols == 1 { 1e-2 } else { 1e-5 }, 1.0));
            assert_close("dweight", &(dweight - before_weight).unwrap(), &gradients[1], 1e-5);
            assert_close("dbias", &(dbias - before_bias).unwrap(), &gradients[2], 1e-5);
        }
    });
}

#[test]
fn no_bias_equals_a_bias_of_zeros() {
    on_each_device(|| {
        let sizes = DTYPES.into_iter().flat_map(|dtype| [67, 200, 2064].map(|cols| (dtype, cols)));
        for ((dtype, cols), form) in sizes.flat_map(|size| FORMS.map(|form| (size, form))) {
            let [x, dy] = [1, 2].map(|id| fresh_in((11, cols), id, dtype));
            let weight = fresh(cols, 3);
            let zeros = fresh(cols, 4).zeros_like().unwrap();
            let dbias = fresh(cols, 6);
            let [without, with] = [(None, None), (Some(&zeros), Some(&dbias))].map(|(bias, dbias)| {
                let (y, saved) = forward(form, &x, &weight, bias, EPS).unwrap();
                let dweight = fresh(cols, 5);
                let dx = backward(&dy, &x, &weight, &saved, &dweight, dbias).unwrap();
                [y, dx, dweight].map(|t| bits(&t))
            });
            assert!(without == with, "{dtype:?}, {cols} columns");
        }
    });
}

#[test]
fn the_reference_is_differentiable() {
    let inputs = [&fresh((3, 7), 1), &fresh(7, 2), &fresh(7, 3)];
    for form in FORMS {
        assert_reference_is_differentiable(
            |i| reference::forward(form, &i[0], &i[1], Some(&i[2]), EPS),
            &inputs,
            &fresh((3, 7), 4),
        );
    }
}

#[test]
fn the_number_of_threads_does_not_change_a_bit() {
    let [weight, bias] = [2, 3].map(|id| fresh(96, id));
    for (dtype, form) in DTYPES.into_iter().flat_map(|dtype| FORMS.map(|form| (dtype, form))) {
        let [x, dy] = [1, 4].map(|id| fresh_in((700, 96), id, dtype));
        assert_same_for_any_thread_count(&format!("{form:?} in {dtype:?}"), || {
            let (y, saved) = forward(form, &x, &weight, Some(&bias), EPS).unwrap();
            let gradient = weight.zeros_like().unwrap();
            let dx =
                backward(&dy, &x, &weight, &saved, &gradient, Some(&bias.zeros_like().unwrap())).unwrap();
            [bits(&y), bits(&dx), bits(&gradient)]
        });
    }
}

#[test]
fn no_rows_work_and_wrong_shapes_are_named() {
    on_each_device(|| {
        let x = fresh((0, 8), 1);
        let weight = fresh(8, 2);
        let (y, saved) = forward(Form::LayerNorm, &x, &weight, Some(&weight), EPS).unwrap();
        assert_eq!(y.dims(), [0, 8]);
        // One launch adds to both gradients, so they must be different tensors.
        let [gradient, other] = [3, 4].map(|id| fresh(8, id));
        assert_eq!(backward(&y, &x, &weight, &saved, &gradient, Some(&other)).unwrap().dims(), [0, 8]);
        let error = forward(Form::RmsNorm, &x, &fresh(9, 1), Some(&weight), EPS).unwrap_err().to_string();
        assert!(error.contains("[9]") && error.contains("[8]"), "{error}");
        let half = fresh_in((0, 8), 1, DType::BF16);
        let error = backward(&half, &x, &weight, &saved, &gradient, Some(&gradient)).unwrap_err().to_string();
        assert!(
            error.contains(
                "layer norm: the output gradient is BF16, the input is F32: they must be of one type"
            ),
            "{error}"
        );
    });
}
