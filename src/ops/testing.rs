//! What the tests of all ops share: fresh random inputs, gradients of a reference, finite differences, and
//! one comparison.
//!
//! A reference is a function from tensors to one tensor, composed of candle functions that autograd can
//! differentiate; its gradients are those of `sum(output * seed)`, so `seed` plays the part of the gradient
//! that flows into `backward`.

#![expect(clippy::unwrap_used, reason = "only tests call it")]

use std::cell::RefCell;
#[cfg(any(feature = "cuda", feature = "cuda-on-host"))]
use std::io::Write;
#[cfg(feature = "cuda")]
use std::sync::LazyLock;

use candle_core::DType;
use candle_core::Device;
use candle_core::Result;
use candle_core::Shape;
use candle_core::Tensor;
use candle_core::Var;

use crate::cuda::Gpu;
#[cfg(feature = "cuda")]
use crate::cuda::Unavailable;
use crate::element::rounding;
use base::rng::Purpose;
use base::rng::Stream;

/// Variable with the number of drawn orders; 0 for forwards alone, without a look for races.
pub const HOST_TURNS: &str = "HOST_TURNS";

thread_local! {
    /// Where the inputs of a test are made.
    static DEVICE: RefCell<Device> = const { RefCell::new(Device::Cpu) };
}

/// Runs the body of a test on the CPU, and then on the GPU that this build has: a real one in a build with
/// `cuda` (and a message where the machine has none), its kernels as C++ in one with `cuda-on-host`, with the
/// threads of a block forwards, which is watched for races, backwards, and in drawn orders ([`HOST_TURNS`]).
/// Inputs that are made by [`fresh`], [`fresh_in`] and [`placed`] are on that device.
pub fn on_each_device(body: impl Fn()) {
    body();
    on_the_gpu(body);
}

#[cfg(not(any(feature = "cuda", feature = "cuda-on-host")))]
fn on_the_gpu(_: impl Fn()) {}

#[cfg(all(feature = "cuda-on-host", not(feature = "cuda")))]
fn on_the_gpu(body: impl Fn()) {
    use crate::cuda;
    use crate::cuda::Turns;
    /// Says in which order a test failed.
    struct InOrder(Turns);
    impl Drop for InOrder {
        fn drop(&mut self) {
            cuda::take_turns(Turns::Forwards, true);
            if std::thread::panicking() {
                drop(writeln!(std::io::stderr(), "threads of kernels took turns: {:?}", self.0));
            }
        }
    }
    let drawn = std::env::var(HOST_TURNS).map_or(2, |count| count.parse().expect("HOST_TURNS is a number"));
    let mut orders = vec![Turns::Forwards];
    if drawn > 0 {
        orders.push(Turns::Backwards);
        orders.extend((0..drawn).map(Turns::Drawn));
    }
    for turns in orders {
        let _order = InOrder(turns);
        cuda::take_turns(turns, drawn > 0 && turns == Turns::Forwards);
        cuda::on_host(&body);
    }
}

#[cfg(feature = "cuda")]
fn on_the_gpu(body: impl Fn()) {
    // One for all tests: each would load the kernels again.
    static OPENED: LazyLock<std::result::Result<Device, Unavailable>> =
        LazyLock::new(|| crate::cuda::open(0));
    match &*OPENED {
        Ok(device) => {
            DEVICE.set(device.clone());
            body();
            DEVICE.set(Device::Cpu);
        }
        Err(e) => drop(writeln!(std::io::stderr(), "skipped on the GPU: {e}")),
    }
}

/// The device of the test.
pub fn device() -> Device {
    DEVICE.with_borrow(Device::clone)
}

/// Zeros with the vector `values` from `at` on. In f32, pages that are never written take no memory on a CPU.
pub fn far(values: &Tensor, at: usize) -> Tensor {
    let whole = Tensor::zeros(at + values.elem_count(), values.dtype(), &device()).unwrap();
    whole.narrow(0, at, values.elem_count()).unwrap().slice_set(values, 0, 0).unwrap();
    whole
}

/// Whether tensors of `bytes` together fit on the device of the test: on a CPU, where most of them is never
/// touched, always.
pub fn has_room(bytes: u64) -> bool {
    crate::cuda::properties(&device()).is_none_or(|gpu| bytes < gpu.memory_bytes)
}

/// The tensor on the device of the test. A GPU has no memory of nothing: candle asks its driver for that in vain.
pub fn placed(t: &Tensor) -> Tensor {
    match Gpu::of_device(&device()).unwrap() {
        Some(gpu) if t.elem_count() == 0 => gpu.uninitialised(t.shape(), t.dtype()).unwrap(),
        _ => t.to_device(&device()).unwrap(),
    }
}

/// The tensor on the CPU, where candle has a kernel for each operation and type; a GPU's are those of the build.
pub fn on_host(t: &Tensor) -> Tensor {
    t.to_device(&Device::Cpu).unwrap()
}

/// Standard normal f32 values; `id` names the tensor within its test.
pub fn fresh(shape: impl Into<Shape>, id: u64) -> Tensor {
    fresh_in(shape, id, DType::F32)
}

/// The types that activations may have.
pub const DTYPES: [DType; 3] = [DType::F32, DType::BF16, DType::F16];

/// [`fresh`] rounded to a type.
pub fn fresh_in(shape: impl Into<Shape>, id: u64, dtype: DType) -> Tensor {
    let shape = shape.into();
    let stream = Stream::new(0x7e57, Purpose::Test, id);
    let values: Vec<f32> = (0..shape.elem_count()).map(|i| stream.normal(i as u64) as f32).collect();
    placed(&Tensor::from_vec(values, shape, &Device::Cpu).unwrap().to_dtype(dtype).unwrap())
}

/// The tolerance for values of `dtype`: `in_f32`, or `roundings` times the error of one rounding to a half
/// type.
pub fn within(dtype: DType, in_f32: f64, roundings: f64) -> f64 {
    if dtype == DType::F32 { in_f32 } else { rounding(dtype) * roundings + in_f32 }
}

/// The bits of all values, widened to f32: for comparisons to the last bit.
pub fn bits(t: &Tensor) -> Vec<u32> {
    let values = on_host(t).to_dtype(DType::F32).unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap();
    values.into_iter().map(f32::to_bits).collect()
}

/// Whole numbers in `0..bound`.
pub fn fresh_ids(count: usize, bound: u64, id: u64) -> Vec<u32> {
    let stream = Stream::new(0x1d5, Purpose::Test, id);
    (0..count).map(|i| stream.below(i as u64, bound) as u32).collect()
}

/// The same values in f64 on the CPU: what a reference is run on.
pub fn double(t: &Tensor) -> Tensor {
    on_host(t).to_dtype(DType::F64).unwrap()
}

/// Norm of the difference over the norm of `want`, in f64; 0 for two empty tensors. Panics when the shapes
/// differ.
pub fn relative_error(got: &Tensor, want: &Tensor) -> f64 {
    assert_eq!(got.dims(), want.dims(), "shapes differ");
    let flat = |t: &Tensor| double(t).flatten_all().unwrap().to_vec1::<f64>().unwrap();
    let (got, want) = (flat(got), flat(want));
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|v| v * v).sum::<f64>().sqrt();
    let difference = norm(&mut got.iter().zip(&want).map(|(a, b)| a - b));
    // A reference of all zeros is compared absolutely.
    let size = norm(&mut want.iter().copied());
    if size > 0.0 { difference / size } else { difference }
}

/// Panics, naming `what`, unless the relative error is a number within `tolerance`.
#[track_caller]
pub fn assert_close(what: &str, got: &Tensor, want: &Tensor, tolerance: f64) {
    let error = relative_error(got, want);
    assert!(error <= tolerance, "{what} {:?}: relative error {error:e} is over {tolerance:e}", got.dims());
}

/// The output of `reference` on the inputs in f64, and the gradient of `sum(output * seed)` for each input;
/// an input that the output does not depend on is a failure.
pub fn reference_gradients(
    reference: impl Fn(&[Tensor]) -> Result<Tensor>,
    inputs: &[&Tensor],
    seed: &Tensor,
) -> (Tensor, Vec<Tensor>) {
    let variables: Vec<Var> = inputs.iter().map(|t| Var::from_tensor(&double(t)).unwrap()).collect();
    let tensors: Vec<Tensor> = variables.iter().map(|v| v.as_tensor().clone()).collect();
    let output = reference(&tensors).unwrap();
    let gradients = (&output * &double(seed)).unwrap().sum_all().unwrap().backward().unwrap();
    let gradient = |(i, t)| {
        gradients
            .get(t)
            .unwrap_or_else(|| panic!("input {i} gets no gradient: the reference cuts it"))
            .clone()
    };
    (output, tensors.iter().enumerate().map(gradient).collect())
}

/// Central differences in f64 of `sum(output * seed)` for every element of every input: two runs an element,
/// so keep it small.
pub fn finite_differences(
    reference: impl Fn(&[Tensor]) -> Result<Tensor>,
    inputs: &[&Tensor],
    seed: &Tensor,
) -> Vec<Tensor> {
    const STEP: f64 = 1e-5;
    let inputs: Vec<Tensor> = inputs.iter().map(|t| double(t)).collect();
    let seed = double(seed);
    let objective = |inputs: &[Tensor]| {
        (reference(inputs).unwrap() * &seed).unwrap().sum_all().unwrap().to_scalar::<f64>().unwrap()
    };
    let moved = |input: usize, element: usize, by: f64| {
        let mut values = inputs[input].flatten_all().unwrap().to_vec1::<f64>().unwrap();
        values[element] += by;
        let mut inputs = inputs.clone();
        inputs[input] = Tensor::from_vec(values, inputs[input].shape().clone(), &Device::Cpu).unwrap();
        objective(&inputs)
    };
    let gradient = |input: usize| {
        let slope = |element| (moved(input, element, STEP) - moved(input, element, -STEP)) / (2.0 * STEP);
        let slopes: Vec<f64> = (0..inputs[input].elem_count()).map(slope).collect();
        Tensor::from_vec(slopes, inputs[input].shape().clone(), &Device::Cpu).unwrap()
    };
    (0..inputs.len()).map(gradient).collect()
}

/// Compares the autograd gradients of a reference with its finite differences, to 1e-7.
#[track_caller]
pub fn assert_reference_is_differentiable(
    reference: impl Fn(&[Tensor]) -> Result<Tensor>,
    inputs: &[&Tensor],
    seed: &Tensor,
) {
    let (_, gradients) = reference_gradients(&reference, inputs, seed);
    for (i, (autograd, difference)) in
        gradients.iter().zip(finite_differences(&reference, inputs, seed)).enumerate()
    {
        assert_close(&format!("input {i}"), autograd, &difference, 1e-7);
    }
}

#[cfg(test)]
mod tests {
    use std::panic::AssertUnwindSafe;

    use super::*;

    fn square_and_scale(inputs: &[Tensor]) -> Result<Tensor> {
        inputs[0].sqr()?.broadcast_mul(&inputs[1])
    }

    #[test]
    fn autograd_agrees_with_finite_differences() {
        assert_reference_is_differentiable(
            square_and_scale,
            &[&fresh((3, 5), 1), &fresh(5, 2)],
            &fresh((3, 5), 3),
        );
    }

    /// The control: a planted sign error, a missing term and a NaN must not pass the comparison.
    #[test]
    fn a_wrong_gradient_fails_the_comparison() {
        let (x, scale, seed) = (fresh((3, 5), 1), fresh(5, 2), fresh((3, 5), 3));
        let (_, gradients) = reference_gradients(square_and_scale, &[&x, &scale], &seed);
        let right = (2.0 * (&x * &seed).unwrap().broadcast_mul(&scale).unwrap()).unwrap();
        assert_close("right", &right, &gradients[0], 1e-6);
        for wrong in [right.neg().unwrap(), (&right + 1e-3).unwrap(), (&right * f64::NAN).unwrap()] {
            let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| {
                assert_close("wrong", &wrong, &gradients[0], 1e-5);
            }));
            assert!(outcome.is_err());
        }
    }

    #[test]
    #[should_panic(expected = "input 1 gets no gradient")]
    fn a_reference_that_cuts_a_gradient_is_found() {
        let cut = |inputs: &[Tensor]| inputs[0].broadcast_mul(&inputs[1].detach());
        reference_gradients(cut, &[&fresh((3, 5), 1), &fresh(5, 2)], &fresh((3, 5), 3));
    }
}
