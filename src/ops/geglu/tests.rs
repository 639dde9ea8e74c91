//! Gated GELU compared with its reference, for typical values and for values far from zero on both sides.

use candle_core::{DType, Device};

use super::*;
use crate::activation;
use crate::activation::Function::Gelu;
use crate::testing::{
    DTYPES, assert_close, assert_reference_is_differentiable, assert_same_for_any_thread_count, bits, fresh,
    fresh_in, on_each_device, on_host, placed, reference_gradients, within,
};

#[test]
fn forward_and_backward_agree_with_the_reference() {
    on_each_device(|| {
        let sizes = [(1, 24, 1.0), (1, 1, 1.0), (7, 96, 1.0), (300, 67, 5.0), (5, 1152, 0.1), (9, 20, 1.0)];
        for (dtype, (rows, half, spread)) in
            DTYPES.into_iter().flat_map(|dtype| sizes.map(|size| (dtype, size)))
        {
            let x = (fresh((rows, 2 * half), 1) * spread).unwrap().to_dtype(dtype).unwrap();
            let dy = fresh_in((rows, half), 2, dtype);
            let (want, gradients) = reference_gradients(|i| reference::forward(&i[0]), &[&x], &dy);
            let y = forward(&x).unwrap();
            let dx = backward(&dy, &x).unwrap();
            assert_eq!([y.dtype(), dx.dtype()], [dtype; 2]);
            assert_close("y", &y, &want, within(dtype, 2e-6, 1.0));
            assert_close("dx", &dx, &gradients[0], within(dtype, 2e-6, 1.0));
        }
    });
}

#[test]
fn the_reference_is_differentiable() {
    assert_reference_is_differentiable(
        |i| reference::forward(&i[0]),
        &[&fresh((3, 14), 1)],
        &fresh((3, 7), 2),
    );
}

/// With gates of one, forward and backward give exactly the bits of GELU.
#[test]
fn gates_of_one_give_gelu() {
    on_each_device(|| {
        for dtype in DTYPES {
            let [u, dy] = [1, 2].map(|id| fresh_in((20, 72), id, dtype));
            let gates = on_host(&u).ones_like().unwrap();
            let x = placed(&Tensor::cat(&[&on_host(&u), &gates], 1).unwrap());
            let dx = backward(&dy, &x).unwrap();
            let du = dx.narrow(1, 0, 72).unwrap();
            assert_eq!(bits(&forward(&x).unwrap()), bits(&activation::forward(Gelu, &u, None).unwrap()));
            assert_eq!(bits(&du), bits(&activation::backward(Gelu, &dy, &u, None, None::<&Tensor>).unwrap()));
        }
    });
}

#[test]
fn the_number_of_threads_does_not_change_a_bit() {
    for dtype in DTYPES {
        let x = fresh_in((700, 192), 1, dtype);
        let dy = fresh_in((700, 96), 2, dtype);
        assert_same_for_any_thread_count(&format!("{dtype:?}"), || {
            [forward(&x).unwrap(), backward(&dy, &x).unwrap()].map(|t| bits(&t))
        });
    }
}

#[test]
fn no_rows_work_and_wrong_shapes_are_named() {
    on_each_device(|| {
        let none = fresh((0, 8), 1);
        assert_eq!(forward(&none).unwrap().dims(), [0, 4]);
        assert_eq!(backward(&fresh((0, 4), 2), &none).unwrap().dims(), [0, 8]);
        for (dy, x, message) in [
            (none, fresh((2, 9), 1), "geglu: rows of 9 values do not fall into two halves"),
            (fresh((2, 8), 1), fresh((2, 8), 2), "geglu: output gradient is [2, 8], it must be [2, 4]"),
            (
                fresh_in((2, 4), 1, DType::BF16),
                fresh((2, 8), 2),
                "the output gradient is BF16, the input is F32",
            ),
        ] {
            let error = backward(&dy, &x).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
        let whole = Tensor::zeros((2, 8), DType::U32, &Device::Cpu).unwrap();
        assert!(forward(&whole).is_err());
    });
}
