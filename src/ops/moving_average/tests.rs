//! The moving average compared with PyTorch's numbers and with its reference in f64, and the exchange of both
//! buffers.

use candle_core::Tensor;

use super::*;
use crate::tensor::from_vec;
use crate::testing::{
    assert_close, assert_same_for_any_thread_count, assert_same_on_each_device, bits, double, fresh,
    on_each_device, placed, relative_error,
};

/// The average after each of five updates of `AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))`
/// of PyTorch 2.15.0 in f64. The weights of step `s` are `((7 s + 3 i) mod 11 - 5) / 10`; the first update
/// copies them.
const TORCH: [[f64; 6]; 5] = [
    [0.2, 0.5, -0.3, 0.0, 0.3, -0.5],
    [0.16, 0.46, -0.23, -0.04, 0.26, -0.43],
    [0.194, 0.384, -0.207, -0.006, 0.184, -0.407],
    [0.1846, 0.3856, -0.2263, -0.0154, 0.1856, -0.3163],
    [0.13614, 0.34704, -0.17367, -0.06386, 0.14704, -0.27467],
];

#[test]
fn five_updates_equal_those_of_pytorch() {
    on_each_device(|| {
        let average = weights_of_step(1);
        for (step, want) in (1..).zip(TORCH) {
            if step > 1 {
                update(&average, &weights_of_step(step), 0.9).unwrap();
            }
            for (got, want) in average.to_vec1::<f32>().unwrap().iter().zip(want) {
                assert!((f64::from(*got) - want).abs() < 1e-7, "step {step}: {got} is not {want}");
            }
        }
    });
}

fn weights_of_step(step: i32) -> Tensor {
    let values: Vec<f32> = (0..6).map(|i| ((step * 7 + i * 3) % 11 - 5) as f32 * 0.1).collect();
    placed(&from_vec(values, 6).unwrap())
}

#[test]
fn many_blocks_agree_with_the_reference() {
    on_each_device(|| {
        let count = 100_003;
        let average = fresh(count, 1);
        let mut want = double(&average);
        for (id, decay) in (2..).zip([0.5, 0.99, 0.9999, 0.0]) {
            let weights = fresh(count, id);
            let kept = bits(&weights);
            update(&average, &weights, decay).unwrap();
            want = reference::update(&want, &double(&weights), decay).unwrap();
            assert_close("average", &average, &want, 1e-6);
            assert!(bits(&weights) == kept, "the weights are only read");
        }
        // Check of the test itself: after one more update the comparison must fail.
        let wrong = reference::update(&want, &double(&fresh(count, 9)), 0.99).unwrap();
        assert!(relative_error(&average, &wrong) > 1e-3);
    });
}

/// Bits of both buffers after an update and an exchange of views that begin `offset` elements into larger
/// buffers.
fn updated_and_exchanged(offset: usize, count: usize) -> [Vec<u32>; 2] {
    let whole = [fresh(count + 9, 1), fresh(count + 9, 2)];
    let [average, weights] = whole.each_ref().map(|t| t.narrow(0, offset, count).unwrap());
    update(&average, &weights, 0.99).unwrap();
    let before = [bits(&average), bits(&weights)];
    exchange(&average, &weights).unwrap();
    assert!([bits(&weights), bits(&average)] == before);
    whole.each_ref().map(bits)
}

/// Every operation rounds as IEEE 754 prescribes, so a GPU and the CPU give the same bits. Elements of the
/// buffers outside of the views must not change.
#[test]
fn devices_and_threads_agree_to_the_bit() {
    for (offset, count) in [(0, 70_000), (1, 50_003), (4, 64), (8, 1), (0, 0)] {
        let what = format!("{count} values from {offset} on");
        assert_same_on_each_device(&what, || updated_and_exchanged(offset, count));
        assert_same_for_any_thread_count(&what, || updated_and_exchanged(offset, count));
    }
}

#[test]
fn an_average_of_equal_weights_keeps_their_bits() {
    on_each_device(|| {
        let weights = fresh(40_007, 1);
        let average = fresh(40_007, 1);
        update(&average, &weights, 0.999).unwrap();
        assert!(bits(&average) == bits(&weights));
    });
}

#[test]
fn buffers_of_other_lengths_are_refused() {
    let (average, weights) = (fresh(5, 1), fresh(4, 2));
    for outcome in [update(&average, &weights, 0.9), exchange(&average, &weights)] {
        let error = outcome.unwrap_err().to_string();
        assert!(error.contains("moving average: weights is [4], it must be [5]"), "{error}");
    }
}
