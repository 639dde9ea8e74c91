//! Sums against the reference, in every type, wide and not, begun and not.

use super::*;
use crate::testing::DTYPES;
use crate::testing::assert_close;
use crate::testing::assert_reference_is_differentiable;
use crate::testing::bits;
use crate::testing::double;
use crate::testing::fresh;
use crate::testing::fresh_in;
use crate::testing::on_each_device;
use crate::testing::within;

#[test]
fn sums_are_the_reference_and_have_the_same_bits_on_each_device() {
    for (dtype, cols) in DTYPES.into_iter().flat_map(|dtype| [1, 24, 67, 300].map(|cols| (dtype, cols))) {
        let run = || {
            let [a, b] = [1, 2].map(|id| fresh_in((19, cols), id, dtype));
            let (of_a, y) = (begun(&a).unwrap(), sum(&a, &b).unwrap());
            accumulate(&b, (&of_a).into()).unwrap();
            let want = reference::sum(&double(&a), &double(&b)).unwrap();
            assert_eq!((y.dtype(), of_a.dtype()), (dtype, DType::F32));
            assert_close("sum", &y, &want, within(dtype, 1e-7, 1.0));
            assert_close("accumulated", &of_a, &want, 1e-7);
            assert_eq!(bits(&begun(&a).unwrap()), bits(&a));
            [bits(&y), bits(&of_a)]
        };
        let want = run();
        on_each_device(|| assert!(run() == want, "{dtype:?}, {cols} columns"));
    }
}

#[test]
fn a_sum_begins_anew_with_what_is_first_added() {
    on_each_device(|| {
        let (x, sum) = (fresh((3, 5), 1), fresh((3, 5), 2));
        accumulate(&x, Accumulator { sum: &sum, begun: false }).unwrap();
        assert_eq!(bits(&sum), bits(&x));
    });
}

#[test]
fn the_reference_is_differentiable() {
    let of = |i: &[Tensor]| reference::sum(&i[0], &i[1]);
    assert_reference_is_differentiable(of, &[&fresh((3, 5), 1), &fresh((3, 5), 2)], &fresh((3, 5), 3));
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
