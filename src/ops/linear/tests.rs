//! The CPU's products against the reference: odd sizes, one row, no row, accumulation into what is there.

use candle_core::Result;
use candle_core::Tensor;

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
    for (rows, inputs, outputs) in [(1, 1, 1), (1, 24, 96), (7, 5, 3), (65, 96, 24), (130, 131, 129)] {
        let (x, weight, bias, dy) = (fresh((rows, inputs), 1), fresh((outputs, inputs), 2), fresh(outputs, 3), fresh((rows, outputs), 4));
        let (want, gradients) = reference_gradients(composed, &[&x, &weight, &bias], &dy);
        assert_close("y", &linear::forward(&x, &weight, Some(&bias)).unwrap(), &want, 1e-6);
        assert_close("dx", &linear::backward_input(&dy, &weight).unwrap(), &gradients[0], 1e-6);

        // Everything that accumulates starts from something.
        let (dx, dweight, dbias) = (fresh((rows, inputs), 5), fresh((outputs, inputs), 6), fresh(outputs, 7));
        let wanted = [&dx, &dweight, &dbias].into_iter().zip(&gradients).map(|(start, g)| (double(start) + g).unwrap());
        let wanted: Vec<Tensor> = wanted.collect();
        linear::backward_input_accumulate(&dy, &weight, &dx).unwrap();
        linear::backward_parameters(&dy, &x, &dweight, Some(&dbias)).unwrap();
        for (what, got, want) in [("dx", &dx, &wanted[0]), ("dweight", &dweight, &wanted[1]), ("dbias", &dbias, &wanted[2])] {
            assert_close(what, got, want, 1e-6);
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
