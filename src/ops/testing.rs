//! Shared code of the tests of all ops: random inputs, gradients of a reference, finite differences, and the
//! comparison with a tolerance.
//!
//! A reference is a function from tensors to one tensor, composed of candle functions that autograd can
//! differentiate. Its gradients are those of `sum(output * seed)`, so `seed` is the gradient that flows into
//! `backward`.

#![expect(clippy::unwrap_used, reason = "only tests call it")]

use std::cell::RefCell;
#[cfg(any(feature = "cuda", feature = "cuda-on-host"))]
use std::io::Write;
#[cfg(feature = "cuda")]
use std::sync::LazyLock;

use candle_core::{DType, Device, Result, Shape, Tensor, Var};

use crate::cuda::Gpu;
#[cfg(feature = "cuda")]
use crate::cuda::Unavailable;
use crate::element::rounding;
use base::rng::{Purpose, Stream};

/// Environment variable with the number of random orders in which the threads of a block are run on the host.
/// 0 runs only the forward order, without race detection.
pub const HOST_TURNS: &str = "HOST_TURNS";

thread_local! {
    /// The device on which the inputs of the current test are created.
    static DEVICE: RefCell<Device> = const { RefCell::new(Device::Cpu) };
}

/// Runs the body of a test on the CPU, and then on the GPU of this build.
///
/// With the feature `cuda` this is a real GPU; a machine without one only gets a message. With `cuda-on-host`
/// the kernels run as C++, several times: with the threads of a block in forward order (with race detection),
/// in backward order, and in random orders ([`HOST_TURNS`]). Inputs made by [`fresh`], [`fresh_in`] and
/// [`placed`] are on the device that the body currently runs on.
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
    /// Prints the thread order in which a test failed.
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
    // All tests share one device: opening it again would load the kernels again.
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

/// Asserts that `f` returns the same value on the CPU and on the GPU of this build; see [`on_each_device`].
#[track_caller]
pub fn assert_same_on_each_device<R: PartialEq>(what: &str, f: impl Fn() -> R) {
    let want = f();
    on_each_device(|| assert!(f() == want, "{what}"));
}

/// Runs `f` in a rayon pool of `threads` threads.
pub fn with_threads<R: Send>(threads: usize, f: impl FnOnce() -> R + Send) -> R {
    rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(f)
}

/// Asserts that `f` returns the same value with 1, 2, 3 and 4 threads.
#[track_caller]
pub fn assert_same_for_any_thread_count<R: PartialEq + Send>(what: &str, f: impl Fn() -> R + Sync) {
    let want = with_threads(1, &f);
    for threads in 2..5 {
        assert!(with_threads(threads, &f) == want, "{what}, {threads} threads");
    }
}

/// The device that the current test runs on.
pub fn device() -> Device {
    DEVICE.with_borrow(Device::clone)
}

/// A vector of `at` zeros followed by `values`. In f32 on a CPU, the pages of zeros take no memory because
/// nothing writes to them.
pub fn far(values: &Tensor, at: usize) -> Tensor {
    let whole = Tensor::zeros(at + values.elem_count(), values.dtype(), &device()).unwrap();
    whole.narrow(0, at, values.elem_count()).unwrap().slice_set(values, 0, 0).unwrap();
    whole
}

/// Returns true if tensors of `bytes` in total fit on the device of the test. Always true on a CPU, where
/// most pages of such tensors are never touched.
pub fn has_room(bytes: u64) -> bool {
    crate::cuda::properties(&device()).is_none_or(|gpu| bytes < gpu.memory_bytes)
}

/// Copies the tensor to the device of the test. An empty tensor is created there instead, because the CUDA
/// driver refuses candle's request for zero bytes.
pub fn placed(t: &Tensor) -> Tensor {
    match Gpu::of_device(&device()).unwrap() {
        Some(gpu) if t.elem_count() == 0 => gpu.uninitialised(t.shape(), t.dtype()).unwrap(),
        _ => t.to_device(&device()).unwrap(),
    }
}

/// Copies the tensor to the CPU, where candle implements each operation for each type. On a GPU only the
/// kernels of this build are available.
pub fn on_host(t: &Tensor) -> Tensor {
    t.to_device(&Device::Cpu).unwrap()
}

/// Standard normal f32 values; `id` selects the random stream, one id for each tensor of a test.
pub fn fresh(shape: impl Into<Shape>, id: u64) -> Tensor {
    fresh_in(shape, id, DType::F32)
}

/// The dtypes of activations.
pub const DTYPES: [DType; 3] = [DType::F32, DType::BF16, DType::F16];

/// [`fresh`] rounded to `dtype`.
pub fn fresh_in(shape: impl Into<Shape>, id: u64, dtype: DType) -> Tensor {
    let shape = shape.into();
    let stream = Stream::new(0x7e57, Purpose::Test, id);
    let values: Vec<f32> = (0..shape.elem_count()).map(|i| stream.normal(i as u64) as f32).collect();
    placed(&Tensor::from_vec(values, shape, &Device::Cpu).unwrap().to_dtype(dtype).unwrap())
}

/// The tolerance for values of `dtype`: `in_f32`; for bf16 and f16, plus `roundings` times the error of one
/// rounding to that type.
pub fn within(dtype: DType, in_f32: f64, roundings: f64) -> f64 {
    if dtype == DType::F32 { in_f32 } else { rounding(dtype) * roundings + in_f32 }
}

/// The bits of all values as f32, for exact comparisons.
pub fn bits(t: &Tensor) -> Vec<u32> {
    let values = on_host(t).to_dtype(DType::F32).unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap();
    values.into_iter().map(f32::to_bits).collect()
}

/// Random integers in `0..bound`.
pub fn fresh_ids(count: usize, bound: u64, id: u64) -> Vec<u32> {
    let stream = Stream::new(0x1d5, Purpose::Test, id);
    (0..count).map(|i| stream.below(i as u64, bound) as u32).collect()
}

/// The same values in f64 on the CPU, as inputs of a reference.
pub fn double(t: &Tensor) -> Tensor {
    on_host(t).to_dtype(DType::F64).unwrap()
}

/// Norm of the difference divided by the norm of `want`, in f64; 0 for two empty tensors. Panics if the
/// shapes differ.
pub fn relative_error(got: &Tensor, want: &Tensor) -> f64 {
    assert_eq!(got.dims(), want.dims(), "shapes differ");
    let [got, want] = [got, want].map(|t| double(t).flatten_all().unwrap().to_vec1::<f64>().unwrap());
    let difference = norm(got.iter().zip(&want).map(|(a, b)| a - b));
    // A reference of all zeros is compared absolutely.
    let size = norm(want.iter().copied());
    if size > 0.0 { difference / size } else { difference }
}

fn norm(values: impl Iterator<Item = f64>) -> f64 {
    values.map(|v| v * v).sum::<f64>().sqrt()
}

/// Panics with a message that names `what` unless the relative error is at most `tolerance`; NaN panics, too.
#[track_caller]
pub fn assert_close(what: &str, got: &Tensor, want: &Tensor, tolerance: f64) {
    let error = relative_error(got, want);
    assert!(error <= tolerance, "{what} {:?}: relative error {error:e} is over {tolerance:e}", got.dims());
}

/// Computes the output of `reference` on the inputs in f64, and the gradient of `sum(output * seed)` for each
/// input. Panics if the output does not depend on an input.
pub fn reference_gradients(
    reference: impl Fn(&[Tensor]) -> Result<Tensor>,
    inputs: &[&Tensor],
    seed: &Tensor,
) -> (Tensor, Vec<Tensor>) {
    let variables: Vec<Var> = inputs.iter().map(|t| Var::from_tensor(&double(t)).unwrap()).collect();
    let tensors: Vec<Tensor> = variables.iter().map(|v| v.as_tensor().clone()).collect();
    let output = reference(&tensors).unwrap();
    let gradients = (&output * &double(seed)).unwrap().sum_all().unwrap().backward().unwrap();
    let mut of_inputs = Vec::new();
    for (i, t) in tensors.iter().enumerate() {
        let gradient = gradients.get(t);
        let gradient =
            gradient.unwrap_or_else(|| panic!("input {i} gets no gradient: the reference cuts it"));
        of_inputs.push(gradient.clone());
    }
    (output, of_inputs)
}

/// Central differences in f64 of `sum(output * seed)` for every element of every input. They take two runs of
/// the reference for each element, so the inputs should be small.
pub fn finite_differences(
    reference: impl Fn(&[Tensor]) -> Result<Tensor>,
    inputs: &[&Tensor],
    seed: &Tensor,
) -> Vec<Tensor> {
    const STEP: f64 = 1e-5;
    let inputs: Vec<Tensor> = inputs.iter().map(|t| double(t)).collect();
    let seed = double(seed);
    let mut gradients = Vec::new();
    for (index, input) in inputs.iter().enumerate() {
        let mut slopes = Vec::new();
        for element in 0..input.elem_count() {
            let [above, below] = [STEP, -STEP].map(|by| {
                let mut moved = inputs.clone();
                moved[index] = with_added(input, element, by);
                let output = reference(&moved).unwrap();
                (output * &seed).unwrap().sum_all().unwrap().to_scalar::<f64>().unwrap()
            });
            slopes.push((above - below) / (2.0 * STEP));
        }
        gradients.push(Tensor::from_vec(slopes, input.shape().clone(), &Device::Cpu).unwrap());
    }
    gradients
}

/// A copy of `t`, f64 on the CPU, with `by` added to one element.
fn with_added(t: &Tensor, element: usize, by: f64) -> Tensor {
    let mut values = t.flatten_all().unwrap().to_vec1::<f64>().unwrap();
    values[element] += by;
    Tensor::from_vec(values, t.shape().clone(), &Device::Cpu).unwrap()
}

/// Compares the autograd gradients of a reference with its finite differences, with a tolerance of 1e-7.
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

    /// Checks the comparison itself: a sign error, an added constant and a NaN must not pass.
    #[test]
    fn a_wrong_gradient_fails_the_comparison() {
        let x = fresh((3, 5), 1);
        let scale = fresh(5, 2);
        let seed = fresh((3, 5), 3);
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
        reference_gradients(
            |inputs| inputs[0].broadcast_mul(&inputs[1].detach()),
            &[&fresh((3, 5), 1), &fresh(5, 2)],
            &fresh((3, 5), 3),
        );
    }
}
