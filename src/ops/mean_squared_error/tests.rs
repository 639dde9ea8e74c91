//! Squared error compared with its reference.

use candle_core::Device;

use super::*;
use crate::testing::{
    DTYPES, assert_close, assert_reference_is_differentiable, double, fresh, fresh_in, on_each_device,
    reference_gradients, within,
};

fn numbers(t: &Tensor) -> Vec<f32> {
    t.to_device(&Device::Cpu).unwrap().flatten_all().unwrap().to_vec1().unwrap()
}

#[test]
fn loss_and_gradient_agree_with_the_reference() {
    on_each_device(|| {
        let sizes = [(1, 1), (7, 1), (33, 3), (400, 2)];
        for (dtype, (rows, outputs)) in DTYPES.into_iter().flat_map(|d| sizes.map(|size| (d, size))) {
            let y = fresh_in((rows, outputs), 1, dtype);
            let t = fresh((rows, outputs), 2);
            let one = fresh((), 3).ones_like().unwrap();
            let (want, gradients) =
                reference_gradients(|i| reference::forward(&i[0], &i[1]), &[&y, &t], &one);
            let totals = forward(&y, &numbers(&t)).unwrap();
            let sum = totals.narrow(0, 0, 1).unwrap().reshape(()).unwrap();
            assert_close("loss", &sum, &want, 1e-6);
            let dy = backward(&y, &numbers(&t), 1.0).unwrap();
            assert_eq!(dy.dtype(), dtype);
            assert_close("dy", &dy, &gradients[0], within(dtype, 1e-6, 1.0));
            let half = backward(&y, &numbers(&t), 0.5).unwrap();
            assert_close(
                "a scaled dy",
                &(double(&half) * 2.0).unwrap(),
                &gradients[0],
                within(dtype, 1e-6, 1.0),
            );
        }
    });
}

#[test]
fn the_reference_is_differentiable() {
    assert_reference_is_differentiable(
        |i| reference::forward(&i[0], &i[1]),
        &[&fresh((3, 2), 1), &fresh((3, 2), 2)],
        &fresh((), 3),
    );
}

#[test]
fn no_rows_work_and_a_wrong_number_of_targets_is_an_error() {
    let none = fresh((0, 2), 1);
    assert_eq!(forward(&none, &[]).unwrap().to_vec1::<f64>().unwrap(), [0.0, 0.0]);
    assert_eq!(backward(&none, &[], 1.0).unwrap().dims(), [0, 2]);
    let error = forward(&fresh((2, 2), 1), &[1.0]).unwrap_err().to_string();
    assert!(error.contains("mean squared error: targets") && error.contains('4'), "{error}");
}
