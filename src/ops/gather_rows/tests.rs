//! Gathering of rows compared with its reference: many and few rows, repeated positions, no positions.

use candle_core::{DType, Device};

use super::*;
use crate::testing::{
    DTYPES, assert_close, assert_reference_is_differentiable, assert_same_for_any_thread_count, bits, device,
    fresh, fresh_ids, fresh_in, on_each_device, reference_gradients, within,
};

#[test]
fn forward_and_backward_agree_with_the_reference() {
    on_each_device(|| {
        let sizes = [(1, 1, 24), (40, 6, 96), (9, 300, 67), (3, 500, 24), (2000, 300, 24), (70, 20, 768)];
        for (dtype, (tokens, picked, cols)) in
            DTYPES.into_iter().flat_map(|dtype| sizes.map(|size| (dtype, size)))
        {
            let x = fresh_in((tokens, cols), 1, dtype);
            let dy = fresh_in((picked, cols), 2, dtype);
            let positions = fresh_ids(picked, tokens as u64, 3);
            let (want, gradients) =
                reference_gradients(|i| reference::forward(&i[0], &positions), &[&x], &dy);
            assert_close("y", &forward(&x, &positions).unwrap(), &want, 0.0);
            let dx = backward(&dy, &positions, tokens).unwrap();
            assert_eq!(dx.dtype(), dtype);
            assert_close("dx", &dx, &gradients[0], within(dtype, 1e-6, 1.0));
            let before = fresh_in((tokens, cols), 4, dtype);
            let onto = before.copy().unwrap();
            backward_onto(&dy, &positions, &onto).unwrap();
            let [gradient, before] = [&gradients[0], &before]
                .map(|t| t.to_device(&Device::Cpu).unwrap().to_dtype(DType::F32).unwrap());
            let sum = (gradient + before).unwrap();
            assert_close("dx that is added", &onto, &sum, within(dtype, 1e-6, 1.0));
        }
    });
}

#[test]
fn the_number_of_threads_does_not_change_a_bit() {
    let positions = fresh_ids(900, 3000, 3);
    for dtype in DTYPES {
        let x = fresh_in((3000, 96), 1, dtype);
        assert_same_for_any_thread_count(&format!("{dtype:?}"), || {
            let y = forward(&x, &positions).unwrap();
            [bits(&y), bits(&backward(&y, &positions, 3000).unwrap())]
        });
    }
}

#[test]
fn the_reference_is_differentiable() {
    let positions = [2, 0, 2];
    assert_reference_is_differentiable(
        |i| reference::forward(&i[0], &positions),
        &[&fresh((4, 5), 1)],
        &fresh((3, 5), 2),
    );
}

#[test]
fn no_positions_give_no_rows_and_a_zero_gradient() {
    on_each_device(|| {
        let none = forward(&fresh((12, 5), 1), &[]).unwrap();
        assert_eq!(none.dims(), [0, 5]);
        assert_eq!(bits(&backward(&none, &[], 12).unwrap()), vec![0; 60]);
        let there = fresh((12, 5), 2);
        backward_onto(&none, &[], &there).unwrap();
        assert_eq!(bits(&there), bits(&fresh((12, 5), 2)));
    });
}

#[test]
fn a_position_outside_is_named() {
    let error = forward(&fresh((4, 5), 1), &[0, 4]).unwrap_err().to_string();
    assert!(error.contains("position 4 (number 1 of 2) is not below 4"), "{error}");
    let error = backward_onto(&fresh((2, 6), 1), &[0, 1], &fresh((4, 5), 2)).unwrap_err().to_string();
    assert!(error.contains("gather rows: output gradient is [2, 6], it must be [2, 5]"), "{error}");
}

/// Offsets have 64 bits: the last rows come after 2^31 values. On a CPU, pages that are never written take no
/// memory.
#[test]
fn rows_after_two_billion_values_are_found() {
    on_each_device(|| {
        let cols = 64;
        let rows = (1 << 31) / 64 + 5;
        let x = Tensor::zeros((rows, cols), DType::F32, &device()).unwrap();
        let last = fresh((1, cols), 1);
        x.narrow(0, rows - 1, 1).unwrap().slice_set(&last, 0, 0).unwrap();
        let y = forward(&x, &[rows as u32 - 1, 3]).unwrap();
        assert_eq!(bits(&y)[..cols], bits(&last));
        assert!(bits(&y)[cols..].iter().all(|&value| value == 0));
    });
}
