//! The interface between ops and the GPU: memory, kernel launches, matrix products.
//!
//! An op's `cuda.rs` describes its launches with these types and nothing else, so it compiles in every build.
//! The build's features select the driver that executes them:
//!
//! | build | driver |
//! |---|---|
//! | `--features cuda` | `driver/`: CUDA, through cudarc, on the stream of candle's device |
//! | `--features cuda-on-host` | `host/`: each `kernel.cu` as C++ on the CPU for tests (`kernels/host.hpp`) |
//! | neither | `absent.rs`: there is no GPU |
//!
//! All computation runs in order on one stream. A tensor may therefore be dropped as soon as the work that
//! reads it is launched, and the host waits only when it reads a value back. The integer arrays of a batch
//! (ids, labels, bounds) are copied on a second stream, in one copy from page-locked memory, while the
//! previous batch is computed: see `packet.rs`. The CPU implementation is the reference; masks and dropout
//! draw from the same counter-based random numbers on both.

mod algorithms;
pub(crate) mod apart;
#[cfg(any(test, feature = "cuda", feature = "cuda-on-host"))]
mod candidates;
#[cfg(any(test, feature = "cuda", feature = "cuda-on-host"))]
mod choices;
pub(crate) mod columns;
#[cfg(any(test, feature = "cuda", feature = "cuda-on-host"))]
pub mod described;
pub mod gemm;
mod gpu;
pub mod libraries;
mod machine;
mod packet;
#[cfg(any(test, feature = "cuda"))]
mod recent;
#[cfg(any(test, feature = "cuda-on-host"))]
pub mod rules;
pub(crate) mod segments;
mod slots;
pub(crate) mod sums;
pub(crate) mod wide;

#[cfg(not(any(feature = "cuda", feature = "cuda-on-host")))]
#[path = "cuda/absent.rs"]
mod driver;
#[cfg(feature = "cuda")]
mod driver;
#[cfg(all(feature = "cuda-on-host", not(feature = "cuda")))]
#[path = "cuda/host/mod.rs"]
mod driver;

use std::collections::BTreeMap;

use candle_core::{DType, Device, Result, Shape, Tensor, WithDType, bail};

pub use algorithms::{Algorithm, Algorithms};
#[cfg(all(feature = "cuda-on-host", not(feature = "cuda")))]
pub use driver::Event;
#[cfg(all(feature = "cuda-on-host", not(feature = "cuda")))]
pub use driver::Turns;
#[cfg(all(feature = "cuda-on-host", not(feature = "cuda")))]
pub use driver::on_host;
#[cfg(all(feature = "cuda-on-host", not(feature = "cuda")))]
pub use driver::recorded;
#[cfg(all(feature = "cuda-on-host", not(feature = "cuda")))]
pub use driver::take;
#[cfg(all(feature = "cuda-on-host", not(feature = "cuda")))]
pub use driver::take_turns;
#[cfg(all(feature = "cuda-on-host", not(feature = "cuda")))]
pub use driver::with_candidates;
pub use gpu::{Memory, Properties, Unavailable, is_out_of_memory};
#[cfg(feature = "nccl")]
pub use machine::load_nccl;
pub use machine::{memory, open, properties, reserve, set_tf32};
pub use packet::{Array, locks_pages};
pub(crate) use packet::{Kind, Values};

/// GPU generations (compute capabilities) that the kernels were compiled for, as the build script lists them;
/// `None` in a build without CUDA.
#[cfg(feature = "cuda")]
pub const GPU_CODE: Option<&str> = Some(env!("MLMTRAIN_GPU_CODE"));
/// GPU generations that the kernels were compiled for: `None`, since this build has no CUDA.
#[cfg(not(feature = "cuda"))]
pub const GPU_CODE: Option<&str> = None;

/// Handle of a GPU and its stream; cheap to clone.
#[derive(Debug, Clone)]
pub struct Gpu(driver::Driver);

/// Address in the memory of a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Address(pub(crate) u64);

impl Address {
    /// Null address, for an argument that the kernel does not use.
    pub(crate) const NULL: Self = Self(0);

    /// Returns the address `bytes` bytes after this one.
    pub(crate) fn plus(self, bytes: usize) -> Self {
        Self(self.0 + bytes as u64)
    }
}

/// Name of a kernel in an op's `kernel.cu`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Kernel {
    /// Name of the op's folder in `src/ops`.
    pub op: &'static str,
    /// Name of the kernel; for a kernel that exists once per number type, without its suffix `_f32`, `_bf16`
    /// or `_f16`.
    pub name: &'static str,
}

/// Launch configuration of a kernel: blocks, threads and shared memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grid {
    /// Number of blocks in x, y and z; y and z are at most 65,535.
    pub blocks: [u32; 3],
    /// Threads per block, a multiple of the warp size 32.
    pub threads: u32,
    /// Dynamic shared memory per block.
    pub shared_bytes: u32,
}

impl Grid {
    /// Returns a one-dimensional grid of `blocks` blocks without dynamic shared memory.
    pub fn of(blocks: usize, threads: u32) -> Self {
        Self {
            blocks: [u32::try_from(blocks).expect("blocks were counted from a tensor's rows"), 1, 1],
            threads,
            shared_bytes: 0,
        }
    }

    /// Returns this grid with `shared_bytes` bytes of dynamic shared memory per block.
    #[must_use]
    pub fn with_shared(self, shared_bytes: usize) -> Self {
        Self { shared_bytes: shared_bytes as u32, ..self }
    }
}

/// Returns a copy of an f32 tensor rounded to a half-precision type, on the same device.
pub fn rounded(t: &Tensor, dtype: DType) -> Result<Tensor> {
    let Some(gpu) = Gpu::of(t)? else { return t.to_dtype(dtype) };
    let copy = gpu.uninitialised(t.shape(), dtype)?;
    // SAFETY: the copy has as many values as the tensor.
    unsafe { gpu.round(gpu.input(t, DType::F32)?, &copy) }?;
    Ok(copy)
}

/// Copies a contiguous tensor into another one of the same type and shape on the same device. If the target
/// is a view, that part of its buffer is overwritten. On a GPU the driver copies, because candle's own copy
/// kernel does not exist for every type on every GPU.
pub fn overwrite(to: &Tensor, from: &Tensor) -> Result<()> {
    let Some(gpu) = Gpu::of(to)? else { return to.slice_set(from, 0, 0) };
    let dtype = to.dtype();
    if to.dims() != from.dims() {
        bail!("a tensor {:?} is to be written over {:?}", from.dims(), to.dims());
    }
    let from = gpu.input(from, dtype)?;
    let start = gpu.output(to, dtype)?;
    // SAFETY: both are contiguous and have this many bytes.
    unsafe { gpu.0.copy(from, start, to.elem_count() * dtype.size_in_bytes()) }
}

/// Returns the values of an f64 vector on the host, after waiting for the device. Every value that a training
/// step reads back comes through here.
pub fn read(t: &Tensor) -> Result<Vec<f64>> {
    match Gpu::of(t)? {
        None => t.to_vec1(),
        Some(gpu) => gpu.0.read(t),
    }
}

impl Gpu {
    /// Returns the GPU that stores a tensor; `None` for a tensor on the CPU.
    pub fn of(t: &Tensor) -> Result<Option<Self>> {
        Self::of_device(t.device())
    }

    /// Returns the GPU of a device; `None` for the CPU. Fails for a device that this build has no code for.
    pub fn of_device(device: &Device) -> Result<Option<Self>> {
        Ok(driver::Driver::of(device)?.map(Self))
    }

    /// Returns the compute capability of this GPU: major and minor version.
    pub(crate) fn capability(&self) -> (u32, u32) {
        self.0.capability()
    }

    /// Returns the candle device on which tensors of this GPU are allocated.
    pub fn device(&self) -> &Device {
        self.0.device()
    }

    /// Returns the algorithms that this process has chosen so far for the products of this GPU, or has taken
    /// over from an earlier run.
    pub fn algorithms(&self) -> Result<Algorithms> {
        self.0.algorithms()
    }

    /// Uses the algorithms of an earlier run from now on, also for products that have one already. They must
    /// come from a GPU of this name and this version of the library. An algorithm that the library does not
    /// accept for a product is not used there.
    pub fn use_algorithms(&self, chosen: &BTreeMap<String, Algorithm>) {
        self.0.use_algorithms(chosen);
    }

    /// Allocates a tensor without initialising it: the next kernel that is launched must write all of it.
    pub fn uninitialised(&self, shape: impl Into<Shape>, dtype: DType) -> Result<Tensor> {
        self.0.uninitialised(shape.into(), dtype)
    }

    /// Fills a contiguous tensor with zeros; if it is a view, that part of its buffer. The driver does it,
    /// because candle's kernel for it may not be compiled for this GPU.
    pub(crate) fn clear(&self, t: &Tensor) -> Result<()> {
        let start = self.output(t, t.dtype())?;
        // SAFETY: the tensor is contiguous and has this many bytes.
        unsafe { self.0.clear(start, t.elem_count() * t.dtype().size_in_bytes()) }
    }

    /// Copies host values into a new tensor on the GPU.
    pub fn upload<T: WithDType>(&self, values: &[T]) -> Result<Tensor> {
        if values.is_empty() {
            return self.uninitialised(0, T::DTYPE);
        }
        Tensor::from_slice(values, values.len(), self.0.device())
    }

    /// Returns the start address of a contiguous tensor of type `dtype`, for a kernel that reads it.
    pub(crate) fn input(&self, t: &Tensor, dtype: DType) -> Result<Address> {
        Self::check(t, dtype)?;
        self.0.input(t)
    }

    /// Returns the start address of a contiguous tensor of type `dtype`, for a kernel that writes it. Writing
    /// to a view writes to the buffer it belongs to.
    pub(crate) fn output(&self, t: &Tensor, dtype: DType) -> Result<Address> {
        Self::check(t, dtype)?;
        self.0.output(t)
    }

    /// Launches a kernel; `dtype` selects the variant of a kernel that exists once per number type. A grid
    /// without blocks launches nothing.
    ///
    /// # Safety
    /// `args` has the same layout as the kernel's struct of arguments, and the memory that it points to is as
    /// large as the kernel's reads and writes require.
    pub(crate) unsafe fn launch<A: Copy>(
        &self,
        kernel: Kernel,
        dtype: Option<DType>,
        grid: Grid,
        args: &A,
    ) -> Result<()> {
        if grid.blocks.contains(&0) {
            return Ok(());
        }
        let suffix = match dtype {
            None => "",
            Some(DType::F32) => "_f32",
            Some(DType::BF16) => "_bf16",
            Some(DType::F16) => "_f16",
            Some(other) => bail!("{}: no kernel for {other:?}", kernel.op),
        };
        // SAFETY: the caller's promise.
        unsafe { self.0.launch(kernel, suffix, grid, args) }
    }

    fn check(t: &Tensor, dtype: DType) -> Result<()> {
        if t.dtype() != dtype || !t.is_contiguous() {
            bail!(
                "tensor {:?} with strides {:?} is {:?}: a kernel wants it contiguous and {dtype:?}",
                t.dims(),
                t.stride(),
                t.dtype()
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use crate::testing::{DTYPES, bits, fresh, fresh_in, on_each_device};

    #[test]
    fn values_are_rounded_and_written_over_a_part() {
        on_each_device(|| {
            for dtype in DTYPES {
                let values = fresh((3, 5), 1);
                let whole = fresh_in(40, 2, dtype);
                let mut want = bits(&whole);
                let half = rounded(&values, dtype).unwrap();
                assert_eq!(
                    bits(&half),
                    bits(&testing::on_host(&values).to_dtype(dtype).unwrap()),
                    "{dtype:?}"
                );
                let part = whole.narrow(0, 7, 15).unwrap();
                overwrite(&part.reshape((3, 5)).unwrap(), &half).unwrap();
                want[7..22].copy_from_slice(&bits(&half));
                assert_eq!(bits(&whole), want, "{dtype:?}");
                overwrite(&part, &half).unwrap_err();
            }
        });
    }
}
