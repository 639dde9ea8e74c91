//! Adding first rows compared with the reference, and bounds of segments that do not cover the rows.

use super::*;
use crate::testing::{
    DTYPES, assert_close, assert_reference_is_differentiable, fresh, fresh_in, on_each_device,
    reference_gradients, within,
};

/// Bounds of segments, with empty segments at the beginning, in the middle and at the end.
const BOUNDS: [u32; 8] = [0, 0, 5, 6, 6, 136, 139, 139];

/// The gradient of a first row is rounded once on a GPU. On the CPU it is rounded twice: the sum of the
/// segment, then its sum with `dy`.
#[test]
fn forward_and_backward_agree_with_the_reference() {
    on_each_device(|| {
        for (dtype, cols) in DTYPES.into_iter().flat_map(|dtype| [1, 24, 67, 300].map(|cols| (dtype, cols))) {
            let [x, dy] = [1, 2].map(|id| fresh_in((139, cols), id, dtype));
            let (want, gradients) = reference_gradients(|i| reference::forward(&i[0], &BOUNDS), &[&x], &dy);
            let y = forward(&x, (&BOUNDS).into()).unwrap();
            let dx = backward(&dy, (&BOUNDS).into()).unwrap();
            assert_eq!([y.dtype(), dx.dtype()], [dtype; 2]);
            assert_close("y", &y, &want, within(dtype, 1e-6, 1.0));
            assert_close("dx", &dx, &gradients[0], within(dtype, 1e-6, 2.0));
        }
    });
}

#[test]
fn the_reference_is_differentiable() {
    assert_reference_is_differentiable(
        |i| reference::forward(&i[0], &[0, 2, 3]),
        &[&fresh((3, 5), 1)],
        &fresh((3, 5), 2),
    );
}

#[test]
fn segments_that_do_not_cover_the_rows_are_named() {
    on_each_device(|| {
        for bounds in [&[0, 1][..], &[0, 3], &[1, 2], &[0, 2, 1, 2], &[]] {
            for outcome in
                [forward(&fresh((2, 4), 1), bounds.into()), backward(&fresh((2, 4), 1), bounds.into())]
            {
                let error = outcome.unwrap_err().to_string();
                assert!(error.contains("do not cover 2 tokens"), "{error}");
            }
        }
    });
}
