//! Dropout compared with its reference, and the statistics of its mask.

use super::*;
use crate::testing::{
    DTYPES, assert_close, assert_reference_is_differentiable, assert_same_for_any_thread_count,
    assert_same_on_each_device, bits, fresh, fresh_in, on_each_device, reference_gradients, within,
};
use base::rng::Purpose;

fn dropout(probability: f32) -> Dropout {
    Dropout { probability, stream: Stream::new(11, Purpose::Dropout, 5) }
}

fn keys(rows: usize) -> Vec<u64> {
    (0..rows as u64).map(|row| row * 977 + 3).collect()
}

#[test]
fn forward_and_backward_agree_with_the_reference() {
    on_each_device(|| {
        let sizes = [(1, 1), (1, 24), (7, 96), (130, 67), (3, 768), (600, 20)];
        for (dtype, (rows, cols)) in DTYPES.into_iter().flat_map(|dtype| sizes.map(|size| (dtype, size))) {
            let [x, dy] = [1, 2].map(|id| fresh_in((rows, cols), id, dtype));
            let dropout = dropout(0.3);
            let keys = keys(rows);
            let mask = reference::mask(&dropout, &keys, cols).unwrap();
            let (y, gradients) = reference_gradients(|i| reference::forward(&i[0], &mask), &[&x], &dy);
            let got = forward(&x, &keys, Some(&dropout)).unwrap();
            let dx = backward(&dy, &keys, Some(&dropout)).unwrap();
            assert_eq!([got.dtype(), dx.dtype()], [dtype; 2]);
            assert_close("y", &got, &y, within(dtype, 1e-6, 1.0));
            assert_close("dx", &dx, &gradients[0], within(dtype, 1e-6, 1.0));
        }
    });
}

#[test]
fn the_reference_is_differentiable() {
    let mask = reference::mask(&dropout(0.5), &keys(3), 10).unwrap();
    assert_reference_is_differentiable(
        |i| reference::forward(&i[0], &mask),
        &[&fresh((3, 10), 1)],
        &fresh((3, 10), 2),
    );
}

#[test]
fn every_device_draws_the_same_mask() {
    // Keys of more than 32 bits; rows that the kernel can and cannot read 16 bytes at a time.
    let keys: Vec<u64> = (0..70).map(|row| row * 0x1_0000_0007 + 5).collect();
    let dropout = dropout(0.3);
    for (dtype, cols) in DTYPES.into_iter().flat_map(|dtype| [13, 40, 776].map(|cols| (dtype, cols))) {
        assert_same_on_each_device(&format!("{dtype:?}, {cols} columns"), || {
            bits(&forward(&fresh_in((70, cols), 1, dtype), &keys, Some(&dropout)).unwrap())
        });
    }
}

#[test]
fn the_number_of_threads_does_not_change_a_bit() {
    let keys = keys(700);
    let dropout = dropout(0.2);
    for dtype in DTYPES {
        let x = fresh_in((700, 96), 1, dtype);
        assert_same_for_any_thread_count(&format!("{dtype:?}"), || {
            bits(&forward(&x, &keys, Some(&dropout)).unwrap())
        });
    }
}

#[test]
fn the_mask_of_a_row_depends_only_on_its_key() {
    on_each_device(|| {
        let x = fresh((5, 40), 1);
        let keys = keys(5);
        let dropout = dropout(0.2);
        let all = forward(&x, &keys, Some(&dropout)).unwrap();
        let last = forward(&x.narrow(0, 3, 2).unwrap(), &keys[3..], Some(&dropout)).unwrap();
        assert_eq!(bits(&all.narrow(0, 3, 2).unwrap()), bits(&last));
    });
}

#[test]
fn the_rate_and_the_mean_are_right_and_neighbours_are_independent() {
    let dropout = dropout(0.1);
    let cols = 64 * 1024;
    let mut factors = vec![0.0; cols];
    dropout.keep_row(42, &mut factors);
    // The standard deviation is 77 dropped elements of 65,536, and 25 pairs of elements that are both
    // dropped.
    for (offset, want, tolerance) in
        [(0, 0.1, 0.005), (1, 0.01, 0.002), (2, 0.01, 0.002), (8, 0.01, 0.002), (64, 0.01, 0.002)]
    {
        let pairs = factors.iter().zip(&factors[offset..]);
        let dropped = pairs.filter(|pair| *pair.0 == 0.0 && *pair.1 == 0.0).count() as f64;
        assert!((dropped / cols as f64 - want).abs() < tolerance, "{offset}: {dropped}");
    }
    let mean = factors.iter().map(|v| f64::from(*v)).sum::<f64>() / cols as f64;
    assert!((mean - 1.0).abs() < 0.006, "{mean}");
}

#[test]
fn dropping_nothing_is_the_identity_and_invalid_probabilities_are_errors() {
    on_each_device(|| {
        let x = fresh((2, 8), 1);
        let keys = keys(2);
        for identity in [None, Some(dropout(0.0)), Some(dropout(1e-6))] {
            assert_close("y", &forward(&x, &keys, identity.as_ref()).unwrap(), &x, 0.0);
        }
        for nonsense in [-0.1, 1.0, f32::NAN] {
            assert!(forward(&x, &keys, Some(&dropout(nonsense))).is_err());
        }
        assert!(
            forward(&x, &keys[1..], Some(&dropout(0.5)))
                .unwrap_err()
                .to_string()
                .contains("row keys has 1 values")
        );
        assert_eq!(forward(&fresh((0, 8), 1), &[], Some(&dropout(0.5))).unwrap().dims(), [0, 8]);
    });
}
