//! Ids compared with the largest sums of the reference, their frequencies, and special values.

use candle_core::{DType, Device, Tensor};

use super::*;
use crate::tensor::from_vec;
use crate::testing::{DTYPES, double, fresh, fresh_in, on_each_device, placed};
use base::rng::Purpose;

fn stream() -> Stream {
    Stream::new(5, Purpose::Sample, 3)
}

fn ids(logits: &Tensor, keys: &[u64]) -> Vec<u32> {
    let ids = sample(logits, &stream(), keys).unwrap();
    assert_eq!((ids.dtype(), ids.dims()), (DType::U32, [keys.len()].as_slice()));
    ids.to_device(&Device::Cpu).unwrap().to_vec1().unwrap()
}

/// The first column with the largest score, and the difference to the second largest score.
fn largest(scores: &[f64]) -> (usize, f64) {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
    (order[0], order.get(1).map_or(f64::INFINITY, |&second| scores[order[0]] - scores[second]))
}

#[test]
fn ids_agree_with_the_reference() {
    on_each_device(|| {
        let sizes = [(1, 1), (40, 3), (300, 37), (70, 128), (5, 1001), (3, 30_001), (2, 20_004)];
        let mut seen = 0;
        for (dtype, (rows, classes)) in DTYPES.into_iter().flat_map(|dtype| sizes.map(|size| (dtype, size))) {
            let logits = (fresh((rows, classes), 1) * 2.0).unwrap().to_dtype(dtype).unwrap();
            let keys: Vec<u64> = (0..rows as u64).map(|row| row << 20 | 7).collect();
            let scores =
                reference::scores(&double(&logits), &stream(), &keys).unwrap().to_vec2::<f64>().unwrap();
            for (row, (got, scores)) in ids(&logits, &keys).into_iter().zip(&scores).enumerate() {
                let (want, lead) = largest(scores);
                // Sums of up to 30 are rounded to f32, which may change the order of two that are nearly
                // equal.
                if lead > 1e-5 {
                    assert_eq!(got as usize, want, "{dtype:?} row {row} of {rows} with {classes} classes");
                    seen += 1;
                }
            }
        }
        assert!(seen > 1200, "{seen} rows were compared");
    });
}

/// Devices draw the same ids unless the two largest sums are nearly equal.
#[test]
fn devices_draw_the_same_ids() {
    let keys: Vec<u64> = (0..50).map(|row| u64::MAX - row).collect();
    for dtype in DTYPES {
        let want = ids(&fresh_in((50, 999), 1, dtype).to_device(&Device::Cpu).unwrap(), &keys);
        on_each_device(|| {
            let logits = fresh_in((50, 999), 1, dtype);
            let scores =
                reference::scores(&double(&logits), &stream(), &keys).unwrap().to_vec2::<f64>().unwrap();
            for ((got, want), scores) in ids(&logits, &keys).iter().zip(&want).zip(&scores) {
                assert!(got == want || largest(scores).1 < 1e-5);
            }
        });
    }
}

#[test]
fn frequencies_of_classes_are_their_softmax() {
    const ROWS: usize = 6_000;
    on_each_device(|| {
        let row = [0.3f32, -1.1, 0.9];
        let logits = placed(&from_vec(row.repeat(ROWS), (ROWS, 3)).unwrap());
        let keys: Vec<u64> = (0..ROWS as u64).collect();
        let drawn = ids(&logits, &keys);
        let whole: f32 = row.iter().map(|z| z.exp()).sum();
        for (class, z) in row.iter().enumerate() {
            let share = drawn.iter().filter(|id| **id as usize == class).count() as f64 / ROWS as f64;
            assert!((share - f64::from(z.exp() / whole)).abs() < 0.02, "class {class}: {share}");
        }
        // Equal keys give equal draws, other keys give other draws.
        assert_eq!(ids(&logits, &keys), drawn);
        let others: Vec<u64> = keys.iter().map(|key| key + ROWS as u64).collect();
        assert_ne!(ids(&logits, &others), drawn);
    });
}

#[test]
fn minus_infinity_and_nan_are_never_drawn() {
    on_each_device(|| {
        let none = f32::NEG_INFINITY;
        let nan = f32::NAN;
        let rows = vec![none, nan, 0.0, none, nan, none, none, none, nan, f32::INFINITY, 5.0, f32::INFINITY];
        for dtype in DTYPES {
            let logits = placed(&from_vec(rows.clone(), (3, 4)).unwrap()).to_dtype(dtype).unwrap();
            assert_eq!(ids(&logits, &[1, 2, 3]), [2, 0, 1]);
            // Equal largest sums in columns of different threads, in two warps and in one; then a row with no
            // class to draw.
            for (first, second) in [(700, 901), (40, 45)] {
                let mut row = vec![none; 1001];
                (row[first], row[second]) = (f32::INFINITY, f32::INFINITY);
                let logits = placed(&from_vec(row, (1, 1001)).unwrap()).to_dtype(dtype).unwrap();
                assert_eq!(ids(&logits, &[4]), [first as u32]);
            }
            let logits = placed(&from_vec(vec![none; 1001], (1, 1001)).unwrap()).to_dtype(dtype).unwrap();
            assert_eq!(ids(&logits, &[5]), [0]);
        }
    });
}

#[test]
fn no_rows_work_and_what_does_not_fit_is_named() {
    on_each_device(|| {
        assert_eq!(ids(&fresh((0, 9), 1), &[]), [0; 0]);
        assert!(sample(&fresh((2, 9), 1), &stream(), &[1]).unwrap_err().to_string().contains("gumbel: keys"));
        assert!(
            sample(&fresh((0, 0), 1), &stream(), &[]).unwrap_err().to_string().contains("gumbel: 0 classes")
        );
    });
}
