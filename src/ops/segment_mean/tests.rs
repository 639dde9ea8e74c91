//! The mean of each segment compared with its reference, and bounds of segments that do not cover the rows.

use candle_core::DType;

use super::*;
use crate::testing::{
    DTYPES, assert_close, assert_reference_is_differentiable, assert_same_for_any_thread_count,
    assert_same_on_each_device, bits, fresh, fresh_in, on_each_device, reference_gradients, within,
};

/// Bounds of segments, with empty segments at the beginning, in the middle and at the end.
const BOUNDS: [u32; 8] = [0, 0, 5, 6, 6, 136, 139, 139];

#[test]
fn forward_and_backward_agree_with_the_reference() {
    on_each_device(|| {
        for (dtype, cols) in DTYPES.into_iter().flat_map(|dtype| [1, 24, 67, 300].map(|cols| (dtype, cols))) {
            let x = fresh_in((139, cols), 1, dtype);
            let dy = fresh_in((7, cols), 2, dtype);
            let (want, gradients) = reference_gradients(|i| reference::forward(&i[0], &BOUNDS), &[&x], &dy);
            let y = forward(&x, (&BOUNDS).into()).unwrap();
            let dx = backward(&dy, (&BOUNDS).into()).unwrap();
            assert_eq!([y.dtype(), dx.dtype()], [dtype; 2]);
            assert_close("y", &y, &want, within(dtype, 1e-6, 1.0));
            assert_close("dx", &dx, &gradients[0], within(dtype, 1e-6, 1.0));
        }
    });
}

#[test]
fn the_reference_is_differentiable() {
    assert_reference_is_differentiable(
        |i| reference::forward(&i[0], &[0, 2, 3]),
        &[&fresh((3, 5), 1)],
        &fresh((2, 5), 2),
    );
}

#[test]
fn every_device_and_number_of_threads_gives_the_same_bits() {
    for dtype in DTYPES {
        let what = format!("{dtype:?}");
        assert_same_on_each_device(&what, || bits_of_both_passes(dtype));
        assert_same_for_any_thread_count(&what, || bits_of_both_passes(dtype));
    }
}

fn bits_of_both_passes(dtype: DType) -> [Vec<u32>; 2] {
    let y = forward(&fresh_in((139, 40), 1, dtype), (&BOUNDS).into()).unwrap();
    [bits(&y), bits(&backward(&y, (&BOUNDS).into()).unwrap())]
}

#[test]
fn segments_that_do_not_cover_the_rows_are_named() {
    on_each_device(|| {
        for bounds in [&[0, 1][..], &[0, 3], &[1, 2], &[0, 2, 1, 2], &[]] {
            let error = forward(&fresh((2, 4), 1), bounds.into()).unwrap_err().to_string();
            assert!(error.contains("do not cover 2 tokens"), "{error}");
        }
        let error = backward(&fresh((2, 4), 1), (&[0, 2]).into()).unwrap_err().to_string();
        assert!(error.contains("segments has 1 values, it must have 2"), "{error}");
    });
}
