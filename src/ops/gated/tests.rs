//! Gated activations compared with their references, for typical values and for values far from zero on both
//! sides.

use candle_core::{DType, Device};

use super::*;
use crate::activation;
use crate::testing::{
    DTYPES, assert_close, assert_reference_is_differentiable, assert_same_for_any_thread_count, bits, fresh,
    fresh_in, on_each_device, on_host, placed, reference_gradients, within,
};

const FUNCTIONS: [Function; 2] = [Function::Gelu, Function::Silu];

#[test]
fn forward_and_backward_agree_with_the_reference() {
    on_each_device(|| {
        let sizes = [(1, 24, 1.0), (1, 1, 1.0), (7, 96, 1.0), (300, 67, 5.0), (5, 1152, 0.1), (9, 20, 1.0)];
        for (function, dtype) in FUNCTIONS.into_iter().flat_map(|f| DTYPES.map(|dtype| (f, dtype))) {
            for (rows, half, spread) in sizes {
                let x = (fresh((rows, 2 * half), 1) * spread).unwrap().to_dtype(dtype).unwrap();
                let dy = fresh_in((rows, half), 2, dtype);
                let (want, gradients) =
                    reference_gradients(|i| reference::forward(function, &i[0]), &[&x], &dy);
                let y = forward(function, &x).unwrap();
                let dx = backward(function, &dy, &x).unwrap();
                assert_eq!([y.dtype(), dx.dtype()], [dtype; 2]);
                assert_close(&format!("y of {function:?}"), &y, &want, within(dtype, 2e-6, 1.0));
                assert_close(&format!("dx of {function:?}"), &dx, &gradients[0], within(dtype, 2e-6, 1.0));
            }
        }
    });
}

#[test]
fn the_reference_is_differentiable() {
    for function in FUNCTIONS {
        assert_reference_is_differentiable(
            |i| reference::forward(function, &i[0]),
            &[&fresh((3, 14), 1)],
            &fresh((3, 7), 2),
        );
    }
}

/// Values so far from zero that an exponential of their size overflows give what the limits are: 0 and `u`.
#[test]
fn silu_of_large_numbers_is_finite() {
    on_each_device(|| {
        let x = placed(&Tensor::new(&[[-200f32, 200.0, 1.0, 1.0]], &Device::Cpu).unwrap());
        let y = forward(Function::Silu, &x).unwrap();
        assert_eq!(on_host(&y).to_vec2::<f32>().unwrap(), [[-0.0, 200.0]]);
        let dx = backward(Function::Silu, &placed(&Tensor::new(&[[1f32, 1.0]], &Device::Cpu).unwrap()), &x);
        assert_eq!(on_host(&dx.unwrap()).to_vec2::<f32>().unwrap(), [[0.0, 1.0, 0.0, 200.0]]);
    });
}

/// With gates of one, forward and backward give exactly the bits of GELU.
#[test]
fn gates_of_one_give_gelu() {
    on_each_device(|| {
        for dtype in DTYPES {
            let [u, dy] = [1, 2].map(|id| fresh_in((20, 72), id, dtype));
            let gates = on_host(&u).ones_like().unwrap();
            let x = placed(&Tensor::cat(&[&on_host(&u), &gates], 1).unwrap());
            let du = backward(Function::Gelu, &dy, &x).unwrap().narrow(1, 0, 72).unwrap();
            let y = forward(Function::Gelu, &x).unwrap();
            let gelu = activation::Function::Gelu;
            assert_eq!(bits(&y), bits(&activation::forward(gelu, &u, None).unwrap()));
            assert_eq!(bits(&du), bits(&activation::backward(gelu, &dy, &u, None, None::<&Tensor>).unwrap()));
        }
    });
}

#[test]
fn the_number_of_threads_does_not_change_a_bit() {
    for dtype in DTYPES {
        let x = fresh_in((700, 192), 1, dtype);
        let dy = fresh_in((700, 96), 2, dtype);
        for function in FUNCTIONS {
            assert_same_for_any_thread_count(&format!("{function:?} in {dtype:?}"), || {
                [forward(function, &x).unwrap(), backward(function, &dy, &x).unwrap()].map(|t| bits(&t))
            });
        }
    }
}

#[test]
fn no_rows_work_and_wrong_shapes_are_named() {
    on_each_device(|| {
        let none = fresh((0, 8), 1);
        assert_eq!(forward(Function::Gelu, &none).unwrap().dims(), [0, 4]);
        assert_eq!(backward(Function::Silu, &fresh((0, 4), 2), &none).unwrap().dims(), [0, 8]);
        for (function, dy, x, message) in [
            (Function::Gelu, none, fresh((2, 9), 1), "geglu: rows of 9 values do not fall into two halves"),
            (
                Function::Silu,
                fresh((2, 8), 1),
                fresh((2, 8), 2),
                "swiglu: output gradient is [2, 8], it must be [2, 4]",
            ),
            (
                Function::Silu,
                fresh_in((2, 4), 1, DType::BF16),
                fresh((2, 8), 2),
                "the output gradient is BF16, the input is F32",
            ),
        ] {
            let error = backward(function, &dy, &x).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
        let whole = Tensor::zeros((2, 8), DType::U32, &Device::Cpu).unwrap();
        assert!(forward(Function::Gelu, &whole).is_err());
    });
}
