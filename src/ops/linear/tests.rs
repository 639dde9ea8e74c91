//! The CPU's products against the reference: odd sizes, one row, no row, accumulation into what is there.

use candle_core::DType;
use candle_core::Result;
use candle_core::Tensor;

use crate::ops::element::rounding;
use crate::ops::linear;
use crate::ops::linear::reference;
use crate::ops::tensor::from_vec;
use crate::ops::testing::assert_close;
use crate::ops::testing::assert_reference_is_differentiable;
use crate::ops::testing::double;
use crate::ops::testing::fresh;
use crate::ops::testing::reference_gradients;

fn composed(inputs: &[Tensor]) -> Result<Tensor> {
    reference::forward(&inputs[0], &inputs[1], inputs.get(2))
}

#[test]
fn forward_and_backward_are_the_reference() {
    for (dtype, tolerance) in [(DType::F32, 1e-6), (DType::BF16, rounding(DType::BF16)), (DType::F16, rounding(DType::F16))] {
        for (rows, inputs, outputs) in [(1, 1, 1), (1, 24, 96), (7, 5, 3), (65, 96, 24), (130, 131, 129)] {
            let half = |t: Tensor| t.to_dtype(dtype).unwrap();
            let (x, weight, dy) = (half(fresh((rows, inputs), 1)), half(fresh((outputs, inputs), 2)), half(fresh((rows, outputs), 4)));
            let bias = fresh(outputs, 3);
            let (want, gradients) = reference_gradients(composed, &[&x, &weight, &bias], &dy);
            assert_close("y", &linear::forward(&x, &weight, Some(&bias)).unwrap(), &want, tolerance);
            assert_close("dx", &linear::backward_input(&dy, &weight).unwrap(), &gradients[0], tolerance);

            // Everything that accumulates starts from something; two maps that share their input add up.
            let (dx, dweight, dbias) = (half(fresh((rows, inputs), 5)), fresh((outputs, inputs), 6), fresh(outputs, 7));
            let twice = (&gradients[0] * 2.0).unwrap();
            let wanted = [&dx, &dweight, &dbias].into_iter().zip([&twice, &gradients[1], &gradients[2]]);
            let wanted: Vec<Tensor> = wanted.map(|(start, g)| (double(start) + g).unwrap()).collect();
            linear::backward_inputs_accumulate(&[(&dy, &weight), (&dy, &weight)], &dx).unwrap();
            linear::backward_parameters(&dy, &x, &dweight, Some(&dbias)).unwrap();
            assert_close("dx", &dx, &wanted[0], tolerance);
            // Gradients of parameters are f32 sums of exact products.
            assert_close("dweight", &dweight, &wanted[1], 1e-6);
            assert_close("dbias", &dbias, &wanted[2], 1e-6);
        }
    }
}

#[test]
fn the_reference_is_differentiable() {
    assert_reference_is_differentiable(composed, &[&fresh((3, 4), 1), &fresh((2, 4), 2), &fresh(2, 3)], &fresh((3, 2), 4));
}

#[test]
fn no_rows_give_no_output_and_no_gradient() {
    let (x, weight, dweight) = (from_vec(Vec::<f32>::new(), (0, 4)).unwrap(), fresh((3, 4), 1), fresh((3, 4), 2));
    assert_eq!(linear::forward(&x, &weight, None).unwrap().dims(), [0, 3]);
    let before = dweight.to_vec2::<f32>().unwrap();
    linear::backward_parameters(&from_vec(Vec::<f32>::new(), (0, 3)).unwrap(), &x, &dweight, None).unwrap();
    assert_eq!(dweight.to_vec2::<f32>().unwrap(), before);
}

#[test]
fn shapes_that_do_not_fit_are_named() {
    let error = linear::forward(&fresh((2, 5), 1), &fresh((3, 4), 2), None).unwrap_err().to_string();
    assert!(error.contains("[2, 5]") && error.contains("[3, 4]"), "{error}");
}
