//! Cross-entropy compared with its reference, and special values.

use candle_core::{DType, Device};

use super::*;
use crate::tensor::from_vec;
use crate::testing::{
    DTYPES, assert_close, assert_reference_is_differentiable, assert_same_for_any_thread_count, bits, fresh,
    fresh_ids, fresh_in, on_each_device, placed, reference_gradients, within,
};

fn totals(entropy: &Entropy) -> Totals {
    Totals::read(&entropy.totals).unwrap()
}

#[test]
fn forward_and_backward_agree_with_the_reference() {
    on_each_device(|| {
        // Rows that begin at multiples of 16 bytes and rows that do not; fewer and more columns than a block
        // has threads.
        let sizes = [
            (1, 2, 1.0),
            (7, 96, 1.0),
            (40, 1001, 4.0),
            (3, 30_001, 20.0),
            (5, 1, 1.0),
            (9, 3, 1.0),
            (2, 20_002, 3.0),
        ];
        for dtype in DTYPES {
            for (rows, classes, spread) in sizes {
                compare(dtype, rows, classes, spread);
            }
        }
    });
}

/// Compares loss and gradient of random logits with a standard deviation of `spread`.
fn compare(dtype: DType, rows: usize, classes: usize, spread: f64) {
    let logits = fresh((rows, classes), 1).affine(spread, 3.0).unwrap().to_dtype(dtype).unwrap();
    let labels = fresh_ids(rows, classes as u64, 2);
    let on_cpu = logits.to_device(&Device::Cpu).unwrap();
    let seed = from_vec::<f32>(vec![0.25], ()).unwrap();
    let (loss, gradients) = reference_gradients(|i| reference::forward(&i[0], &labels), &[&logits], &seed);
    let loss = loss.to_scalar::<f64>().unwrap();
    let got = forward(&logits, &labels).unwrap();
    let totals = totals(&got);
    assert!((totals.loss_sum - loss).abs() <= 1e-6 * loss.abs() + 1e-6, "{} is not {loss}", totals.loss_sum);
    assert_eq!(totals.correct, correct(&on_cpu, &labels));
    let gradient = backward(logits.copy().unwrap(), &labels, &got.log_sum_exp_m, 0.25).unwrap();
    assert_eq!(gradient.dtype(), dtype);
    assert_close("dlogits", &gradient, &gradients[0], within(dtype, 1e-5, 1.0));
}

/// Number of labels that are the first of the largest logits of their row.
fn correct(logits: &Tensor, labels: &[u32]) -> usize {
    let rows = logits.to_dtype(DType::F32).unwrap().to_vec2::<f32>().unwrap();
    rows.iter().zip(labels).filter(|(row, label)| first_largest(row) == **label as usize).count()
}

fn first_largest(row: &[f32]) -> usize {
    (0..row.len()).rev().max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap()
}

#[test]
fn the_number_of_threads_does_not_change_a_bit() {
    let labels = fresh_ids(200, 5000, 2);
    for dtype in DTYPES {
        assert_same_for_any_thread_count(&format!("{dtype:?}"), || {
            let logits = fresh_in((200, 5000), 1, dtype);
            let entropy = forward(&logits, &labels).unwrap();
            (
                bits(&backward(logits, &labels, &entropy.log_sum_exp_m, 0.25).unwrap()),
                bits(&entropy.log_sum_exp_m),
                totals(&entropy).loss_sum.to_bits(),
            )
        });
    }
}

#[test]
fn the_reference_is_differentiable() {
    assert_reference_is_differentiable(
        |i| reference::forward(&i[0], &[4, 0, 2]),
        &[&fresh((3, 5), 1)],
        &from_vec::<f32>(vec![1.5], ()).unwrap(),
    );
}

#[test]
fn the_first_of_equal_logits_is_the_prediction() {
    on_each_device(|| {
        let logits = placed(&from_vec::<f32>(vec![1.0, 2.0, 2.0, 1.0, 2.0, 2.0], (2, 3)).unwrap());
        for dtype in DTYPES {
            assert_eq!(totals(&forward(&logits.to_dtype(dtype).unwrap(), &[1, 2]).unwrap()).correct, 1);
            // In a row that many threads read: the label is the first of two largest logits, then the second.
            for (other, correct) in [(1500, 1), (3, 0)] {
                let mut row = vec![0.0f32; 2001];
                (row[other], row[700]) = (5.0, 5.0);
                let logits = placed(&from_vec(row, (1, 2001)).unwrap()).to_dtype(dtype).unwrap();
                assert_eq!(totals(&forward(&logits, &[700]).unwrap()).correct, correct);
            }
        }
    });
}

#[test]
fn huge_logits_give_finite_losses_and_nan_gives_nan() {
    on_each_device(|| {
        let logits = placed(&from_vec::<f32>(vec![1e4, -1e4, 0.0, 3e38, 0.0, -3e38], (2, 3)).unwrap());
        let got = forward(&logits, &[0, 0]).unwrap();
        assert_eq!(totals(&got), Totals { loss_sum: 0.0, correct: 2 });
        let dlogits = backward(logits, &[0, 0], &got.log_sum_exp_m, 1.0).unwrap();
        assert_eq!(dlogits.to_vec2::<f32>().unwrap(), [[0.0; 3]; 2]);
        assert!(totals_of_row(vec![0.0, f32::NAN]).loss_sum.is_nan());
        assert!(totals_of_row(vec![0.0, f32::INFINITY]).loss_sum.is_nan());
        // Logits of minus infinity add nothing, also if a thread has no other logits.
        assert_eq!(totals_of_row(vec![0.0, f32::NEG_INFINITY]), Totals { loss_sum: 0.0, correct: 1 });
        let mut long = vec![f32::NEG_INFINITY; 3001];
        long[0] = 1.0;
        assert_eq!(totals_of_row(long.clone()), Totals { loss_sum: 0.0, correct: 1 });
        long[2999] = f32::NAN;
        assert!(totals_of_row(long).loss_sum.is_nan());
    });
}

/// The totals of one row of logits with the label 0.
fn totals_of_row(row: Vec<f32>) -> Totals {
    let count = row.len();
    totals(&forward(&placed(&from_vec(row, (1, count)).unwrap()), &[0]).unwrap())
}

#[test]
fn no_rows_give_no_loss_and_an_invalid_label_is_named() {
    on_each_device(|| {
        let none = fresh((0, 9), 1);
        let got = forward(&none, &[]).unwrap();
        assert_eq!(totals(&got), Totals { loss_sum: 0.0, correct: 0 });
        assert_eq!(backward(none, &[], &got.log_sum_exp_m, 1.0).unwrap().dims(), [0, 9]);
        let error = forward(&fresh((1, 9), 1), &[9]).unwrap_err().to_string();
        assert!(error.contains("label 9 (number 0 of 1) is not below 9"), "{error}");
        assert!(forward(&fresh((2, 9), 1), &[1]).is_err());
    });
}
