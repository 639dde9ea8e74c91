//! Rotary position embedding compared with its reference, and its property that scores depend only on
//! distances.

use candle_core::DType;

use super::*;
use crate::testing::{
    DTYPES, assert_close, assert_reference_is_differentiable, assert_same_for_any_thread_count,
    assert_same_on_each_device, bits, double, fresh, fresh_in, on_each_device, reference_gradients, within,
};

const THETA: f64 = 10_000.0;

/// Bounds of several segments, some of them empty, and one longer than a tile.
const BOUNDS: [u32; 7] = [0, 0, 5, 6, 6, 136, 139];

fn rotated(x: &Tensor, heads: usize, bounds: &[u32], direction: Direction) -> Tensor {
    let x = x.copy().unwrap();
    let angles = Angles::new(x.dim(1).unwrap() / heads, THETA);
    rotate(&x, heads, bounds.into(), &angles, direction).unwrap();
    x
}

#[test]
fn forward_and_backward_agree_with_the_reference() {
    on_each_device(|| {
        // For the GPU: heads that can and cannot be read 16 bytes at a time, more and fewer heads than a
        // block has.
        let sizes = [(12, 64), (1, 2), (3, 6), (5, 24), (2, 80), (4, 128)];
        for (dtype, (heads, head_size)) in
            DTYPES.into_iter().flat_map(|dtype| sizes.map(|size| (dtype, size)))
        {
            for bounds in [&BOUNDS[..], &[0, 64], &[0, 1]] {
                let shape = (bounds[bounds.len() - 1] as usize, heads * head_size);
                let [x, dy] = [1, 2].map(|id| fresh_in(shape, id, dtype));
                let (want, gradients) =
                    reference_gradients(|i| reference::forward(&i[0], heads, bounds, THETA), &[&x], &dy);
                let y = rotated(&x, heads, bounds, Direction::Forward);
                let dx = rotated(&dy, heads, bounds, Direction::Backward);
                assert_eq!([y.dtype(), dx.dtype()], [dtype; 2]);
                assert_close("y", &y, &want, within(dtype, 1e-5, 1.0));
                assert_close("dx", &dx, &gradients[0], within(dtype, 1e-5, 1.0));
            }
        }
    });
}

#[test]
fn the_reference_is_differentiable() {
    assert_reference_is_differentiable(
        |i| reference::forward(&i[0], 2, &[0, 2, 3], THETA),
        &[&fresh((3, 12), 1)],
        &fresh((3, 12), 2),
    );
}

/// With the same query and the same key at every position, products at equal distances are equal, and
/// products at different distances differ.
#[test]
fn scores_depend_only_on_the_distance() {
    on_each_device(|| {
        let places = 150;
        let size = 64;
        let bounds = [0, places as u32];
        let [q, k] = [1, 2].map(|id| {
            let everywhere = fresh((1, size), id).broadcast_as((places, size)).unwrap().contiguous().unwrap();
            double(&rotated(&everywhere, 1, &bounds, Direction::Forward))
        });
        let scores = q.matmul(&k.t().unwrap()).unwrap().to_vec2::<f64>().unwrap();
        for query in 0..places {
            for key in 0..places {
                let nearest = query.min(key);
                let error = (scores[query][key] - scores[query - nearest][key - nearest]).abs();
                assert!(error < 1e-3, "places {query} and {key}: off by {error:e}");
            }
        }
        let differences =
            (1..places).filter(|&distance| (scores[distance][0] - scores[0][distance]).abs() > 0.1);
        assert!(differences.count() > places / 2, "the sign of the distance matters");
    });
}

#[test]
fn every_device_and_number_of_threads_gives_the_same_bits() {
    for (dtype, (heads, head_size)) in DTYPES.into_iter().flat_map(|d| [(3, 64), (5, 22)].map(|s| (d, s))) {
        let what = format!("{dtype:?}, {heads} heads of {head_size}");
        assert_same_on_each_device(&what, || rotated_both_ways(dtype, heads, head_size));
        assert_same_for_any_thread_count(&what, || rotated_both_ways(dtype, heads, head_size));
    }
}

fn rotated_both_ways(dtype: DType, heads: usize, head_size: usize) -> [Vec<u32>; 2] {
    let x = fresh_in((139, heads * head_size), 1, dtype);
    [Direction::Forward, Direction::Backward].map(|way| bits(&rotated(&x, heads, &BOUNDS, way)))
}

/// Forward and then backward give the original values up to rounding; rows outside of the view do not change.
#[test]
fn backward_undoes_forward_in_a_view() {
    on_each_device(|| {
        let whole = fresh((160, 48), 1);
        let angles = Angles::new(16, 160_000.0);
        let before = whole.copy().unwrap();
        let view = whole.narrow(0, 10, 139).unwrap();
        rotate(&view, 3, (&BOUNDS).into(), &angles, Direction::Forward).unwrap();
        let moved = (double(&view) - double(&before.narrow(0, 10, 139).unwrap())).unwrap();
        assert!(moved.sqr().unwrap().sum_all().unwrap().to_scalar::<f64>().unwrap() > 100.0);
        for (start, rows) in [(0, 10), (149, 11)] {
            let [after, before] = [&whole, &before].map(|t| bits(&t.narrow(0, start, rows).unwrap()));
            assert_eq!(after, before);
        }
        rotate(&view, 3, (&BOUNDS).into(), &angles, Direction::Backward).unwrap();
        assert_close("there and back", &whole, &before, 1e-6);
    });
}

#[test]
fn no_tokens_work_and_wrong_shapes_are_named() {
    on_each_device(|| {
        for (cols, heads, head_size, want) in [
            (9, 3, 3, "rotary: the 3 columns of a head do not fall into pairs"),
            (8, 0, 0, "rotary: the 0 columns of a head do not fall into pairs"),
            (9, 2, 4, "rotary: 2 heads of 4 columns do not make up hidden size 9"),
        ] {
            let error = error_of(cols, heads, head_size, &[0, 2]);
            assert!(error.contains(want), "{error}");
        }
        for bounds in [&[0, 1][..], &[0, 3], &[1, 2], &[0, 2, 1, 2], &[]] {
            let error = error_of(8, 2, 4, bounds);
            assert!(error.contains("do not cover 2 tokens"), "{error}");
        }
        let none = fresh((0, 8), 1);
        let angles = Angles::new(4, THETA);
        for bounds in [&[0][..], &[0, 0, 0]] {
            rotate(&none, 2, bounds.into(), &angles, Direction::Forward).unwrap();
        }
    });
}

/// The error of rotating two tokens of `cols` columns.
fn error_of(cols: usize, heads: usize, head_size: usize, bounds: &[u32]) -> String {
    let angles = Angles::new(head_size, THETA);
    rotate(&fresh((2, cols), 1), heads, bounds.into(), &angles, Direction::Forward).unwrap_err().to_string()
}
