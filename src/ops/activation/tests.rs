//! Activations compared with their reference, for typical values and for values far from zero on both sides.

use candle_core::DType;

use super::Function::{Gelu, GeluTanh, Relu, Tanh};
use super::*;
use crate::testing::{
    DTYPES, assert_close, assert_reference_is_differentiable, assert_same_for_any_thread_count, bits, fresh,
    fresh_in, on_each_device, reference_gradients, within,
};

fn cases() -> impl Iterator<Item = (Function, DType)> {
    [Gelu, GeluTanh, Tanh, Relu].into_iter().flat_map(|function| DTYPES.map(|dtype| (function, dtype)))
}

/// Output and gradient of the input; `dbias` is added to.
fn both(function: Function, x: &Tensor, dy: &Tensor, bias: Option<&Tensor>, dbias: &Tensor) -> [Tensor; 2] {
    let y = forward(function, x, bias).unwrap();
    let saved = if function.saves_output() { &y } else { x };
    let dx = backward(function, dy, saved, bias, Some(dbias)).unwrap();
    [y, dx]
}

#[test]
fn forward_and_backward_agree_with_the_reference() {
    on_each_device(|| {
        let sizes = [(1, 24, 1.0), (7, 96, 1.0), (300, 67, 5.0), (5, 3072, 0.1)];
        for (function, dtype, (rows, cols, spread)) in
            cases().flat_map(|(function, dtype)| sizes.map(|size| (function, dtype, size)))
        {
            let x = (fresh((rows, cols), 1) * spread).unwrap().to_dtype(dtype).unwrap();
            let dy = fresh_in((rows, cols), 3, dtype);
            let [bias, dbias] = [2, 4].map(|id| fresh(cols, id));
            let (want, gradients) =
                reference_gradients(|i| reference::forward(function, &i[0], &i[1]), &[&x, &bias], &dy);
            let [y, dx] = both(function, &x, &dy, Some(&bias), &dbias.copy().unwrap());
            assert_eq!([y.dtype(), dx.dtype()], [dtype; 2]);
            // The slope of tanh comes from its rounded output: its gradients are less exact in half types.
            let (tolerance, units, of_bias) = match function {
                Gelu | GeluTanh => (2e-6, 1.0, 1e-5),
                Tanh => (2e-6, 4.0, within(dtype, 1e-5, 4.0)),
                Relu => (1e-6, 1.0, within(dtype, 1e-5, 3.0)),
            };
            assert_close("y", &y, &want, within(dtype, tolerance, 1.0));
            assert_close("dx", &dx, &gradients[0], within(dtype, tolerance, units));
            let before = dbias.copy().unwrap();
            assert_eq!(bits(&both(function, &x, &dy, Some(&bias), &dbias)[1]), bits(&dx));
            assert_close("dbias", &(dbias - before).unwrap(), &gradients[1], of_bias);
        }
    });
}

#[test]
fn no_bias_equals_a_bias_of_zeros() {
    on_each_device(|| {
        for (function, dtype) in cases() {
            let [x, dy] = [1, 2].map(|id| fresh_in((9, 40), id, dtype));
            let zeros = fresh(40, 3).zeros_like().unwrap();
            let unread = fresh(40, 4);
            let want = both(function, &x, &dy, Some(&zeros), &unread.copy().unwrap()).map(|t| bits(&t));
            assert_eq!(both(function, &x, &dy, None, &unread).map(|t| bits(&t)), want);
        }
    });
}

#[test]
fn references_are_differentiable() {
    for function in [Gelu, GeluTanh, Tanh, Relu] {
        assert_reference_is_differentiable(
            |i| reference::forward(function, &i[0], &i[1]),
            &[&fresh((3, 7), 1), &fresh(7, 2)],
            &fresh((3, 7), 3),
        );
    }
}

#[test]
fn the_number_of_threads_does_not_change_a_bit() {
    let bias = fresh(96, 2);
    for (function, dtype) in cases() {
        let [x, dy] = [1, 3].map(|id| fresh_in((700, 96), id, dtype));
        assert_same_for_any_thread_count(&format!("{function:?} {dtype:?}"), || {
            let dbias = fresh(96, 4);
            let [y, dx] = both(function, &x, &dy, Some(&bias), &dbias);
            [y, dx, dbias].map(|t| bits(&t))
        });
    }
}

#[test]
fn nan_stays_nan() {
    on_each_device(|| {
        let x = (fresh((2, 40), 1) * f64::NAN).unwrap();
        for function in [Gelu, GeluTanh, Tanh, Relu] {
            let y = forward(function, &x, None).unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap();
            assert!(y.iter().all(|value| value.is_nan()), "{function:?}");
        }
    });
}

#[test]
fn no_rows_work_and_wrong_shapes_are_named() {
    on_each_device(|| {
        let none = fresh((0, 8), 1);
        let [bias, dbias] = [2, 3].map(|id| fresh(8, id));
        for function in [Gelu, Relu] {
            let empty = both(function, &none, &none, Some(&bias), &dbias);
            assert_eq!(empty.map(|t| t.dims().to_vec()), [[0, 8], [0, 8]]);
        }
        assert_eq!(bits(&dbias), bits(&fresh(8, 3)));
    });
    let bias = fresh(8, 1);
    let error = forward(Gelu, &fresh((2, 9), 1), Some(&bias)).unwrap_err().to_string();
    assert!(error.contains("gelu: bias is [8], it must be [9]"), "{error}");
    let [x, half] = [DType::F32, DType::BF16].map(|dtype| fresh_in((0, 8), 1, dtype));
    let error = backward(Gelu, &half, &x, Some(&bias), Some(&bias)).unwrap_err().to_string();
    assert!(
        error.contains("gelu: the output gradient is BF16, the input is F32: they must be of one type"),
        "{error}"
    );
    let [narrow, wide] = [3, 4].map(|cols| fresh((2, cols), 1));
    let error = backward(Relu, &narrow, &wide, None, Some(&fresh(4, 1))).unwrap_err().to_string();
    assert!(error.contains("relu: output gradient is [2, 3], it must be [2, 4]"), "{error}");
}

#[test]
fn a_bias_gradient_that_is_not_begun_is_overwritten() {
    on_each_device(|| {
        let [x, dy] = [1, 3].map(|id| fresh((70, 40), id));
        let bias = fresh(40, 2);
        let zeros = bias.zeros_like().unwrap();
        let unread = (&zeros + f64::NAN).unwrap();
        backward(Gelu, &dy, &x, Some(&bias), Some(&zeros)).unwrap();
        backward(Gelu, &dy, &x, Some(&bias), Some(Accumulator { sum: &unread, begun: false })).unwrap();
        assert_eq!(bits(&unread), bits(&zeros));
    });
}
