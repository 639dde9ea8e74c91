//! The norm compared with its reference, and of values whose squares overflow or underflow in f32.

use candle_core::DType;

use super::*;
use crate::tensor::from_vec;
use crate::testing::{
    assert_same_for_any_thread_count, double, fresh, fresh_in, on_each_device, on_host, placed,
};

/// The norm as a number.
fn l2(t: &Tensor) -> Result<f64> {
    Ok(super::l2(t)?.to_vec1::<f64>()?[0])
}

#[test]
fn the_norm_is_that_of_the_reference() {
    on_each_device(|| {
        for len in [0, 1, 15, 100, 8192, 100_003] {
            let t = fresh(len, 1);
            let want =
                if len == 0 { 0.0 } else { reference::l2(&double(&t)).unwrap().to_scalar::<f64>().unwrap() };
            assert!((l2(&t).unwrap() - want).abs() <= 1e-12 * want, "{len}");
            // A view that begins between two multiples of 16 bytes.
            if len > 1 {
                let view = t.narrow(0, 1, len - 1).unwrap();
                let rest = f64::from(t.to_vec1::<f32>().unwrap()[0]);
                assert!(
                    (l2(&view).unwrap().powi(2) + rest * rest - want * want).abs() <= 1e-12 * want * want,
                    "{len}"
                );
            }
        }
    });
}

#[test]
fn the_number_of_threads_does_not_change_a_bit() {
    let t = fresh(300_001, 1);
    assert_same_for_any_thread_count("the norm", || l2(&t).unwrap().to_bits());
}

#[test]
fn the_norm_is_finite_exactly_if_every_element_is() {
    on_each_device(|| {
        assert!((norm_of([3e30, 4e30]) / 5e30 - 1.0).abs() < 1e-6);
        assert!((norm_of([3e-30, 4e-30]) / 5e-30 - 1.0).abs() < 1e-6);
        assert!(norm_of([1.0, f32::NAN]).is_nan());
        assert!(norm_of([1.0, f32::NEG_INFINITY]).is_infinite());
    });
}

fn norm_of(values: [f32; 2]) -> f64 {
    l2(&placed(&from_vec(values.to_vec(), 2).unwrap())).unwrap()
}

#[test]
fn a_loss_that_is_not_finite_poisons_the_norm() {
    on_each_device(|| {
        let norm = super::l2(&fresh(7, 1)).unwrap();
        let before = norm.to_vec1::<f64>().unwrap();
        poison(&norm, &totals_with(3.0)).unwrap();
        assert_eq!(norm.to_vec1::<f64>().unwrap(), before);
        for loss in [f64::INFINITY, f64::NEG_INFINITY, f64::NAN] {
            let norm = super::l2(&fresh(7, 1)).unwrap();
            poison(&norm, &totals_with(loss)).unwrap();
            assert!(norm.to_vec1::<f64>().unwrap()[0].is_nan());
        }
    });
}

fn totals_with(loss: f64) -> Tensor {
    placed(&from_vec(vec![loss, 1.0], 2).unwrap())
}

/// The squares of half types are exact in f64, so the norm of several parts is that of their values in f32.
#[test]
fn parts_of_several_types_have_one_norm() {
    on_each_device(|| {
        for lens in [[0, 3, 1], [100_003, 8193, 40_000]] {
            let parts =
                [fresh(lens[0], 1), fresh_in(lens[1], 2, DType::BF16), fresh_in(lens[2], 3, DType::F16)];
            let got = l2_of_parts(&parts.each_ref()).unwrap().to_vec1::<f64>().unwrap()[0];
            let squares = parts
                .each_ref()
                .map(|part| l2(&placed(&on_host(part).to_dtype(DType::F32).unwrap())).unwrap().powi(2));
            let want = squares.iter().sum::<f64>().sqrt();
            assert!((got - want).abs() <= 1e-12 * want, "{lens:?}: {got} {want}");
        }
        assert!(l2_of_parts(&[]).is_err());
    });
}
