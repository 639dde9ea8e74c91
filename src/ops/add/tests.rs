//! Sums compared with the reference, in every dtype, with sizes that the kernel does and does not read 16
//! bytes at a time, added and overwritten.

use super::*;
use crate::testing::{
    DTYPES, assert_close, assert_reference_is_differentiable, assert_same_on_each_device, bits, double,
    fresh, fresh_in, on_each_device, within,
};

#[test]
fn sums_agree_with_the_reference_and_have_the_same_bits_on_each_device() {
    for (dtype, cols) in DTYPES.into_iter().flat_map(|dtype| [1, 24, 67, 300].map(|cols| (dtype, cols))) {
        assert_same_on_each_device(&format!("{dtype:?}, {cols} columns"), || {
            let [a, b] = [1, 2].map(|id| fresh_in((19, cols), id, dtype));
            let total = begun(&a).unwrap();
            let y = sum(&a, &b).unwrap();
            accumulate(&b, (&total).into()).unwrap();
            let want = reference::sum(&double(&a), &double(&b)).unwrap();
            assert_eq!((y.dtype(), total.dtype()), (dtype, DType::F32));
            assert_close("sum", &y, &want, within(dtype, 1e-7, 1.0));
            assert_close("accumulated", &total, &want, 1e-7);
            assert_eq!(bits(&begun(&a).unwrap()), bits(&a));
            [bits(&y), bits(&total)]
        });
    }
}

#[test]
fn the_first_summand_overwrites_a_sum_that_is_not_begun() {
    on_each_device(|| {
        let (x, sum) = (fresh((3, 5), 1), fresh((3, 5), 2));
        accumulate(&x, Accumulator { sum: &sum, begun: false }).unwrap();
        assert_eq!(bits(&sum), bits(&x));
    });
}

#[test]
fn the_reference_is_differentiable() {
    assert_reference_is_differentiable(
        |i| reference::sum(&i[0], &i[1]),
        &[&fresh((3, 5), 1), &fresh((3, 5), 2)],
        &fresh((3, 5), 3),
    );
}

#[test]
fn tensors_that_do_not_fit_are_named() {
    let (a, b) = (fresh((3, 5), 1), fresh((3, 4), 2));
    let error = sum(&a, &b).unwrap_err().to_string();
    assert!(error.contains("the second tensor is [3, 4], it must be [3, 5]"), "{error}");
    let error = accumulate(&a, (&b).into()).unwrap_err().to_string();
    assert!(error.contains("the sum is [3, 4], it must be [3, 5]"), "{error}");
    let error = sum(&a, &a.to_dtype(DType::BF16).unwrap()).unwrap_err().to_string();
    assert!(error.contains("the second tensor"), "{error}");
}
