//! The GPU as ops see it: memory, launches of kernels, products.
//!
//! An op's `cuda.rs` describes its launches in these terms and nothing else, so it compiles in every build;
//! what carries them out is picked here:
//!
//! | build | driver |
//! |---|---|
//! | `--features cuda` | `driver/`: CUDA, through cudarc, on the stream of candle's device |
//! | `--features cuda-on-host` | `host/`: each op's `kernel.cu` as C++ on the CPU, for tests: see `kernels/host.hpp` |
//! | neither | `absent.rs`: there is no GPU |
//!
//! Everything that computes is in the order of one stream: a tensor may be dropped as soon as the work that
//! reads it is launched, and nothing waits but what reads a value back. The numbers of a batch come by a
//! second stream, all in one copy from page-locked memory while the batch before is computed: see
//! `packet.rs`. The CPU's code is the reference; masks and dropout come from the same counters.

pub(crate) mod activation;
pub(crate) mod apart;
#[cfg(any(test, feature = "cuda", feature = "cuda-on-host"))]
mod candidates;
pub(crate) mod columns;
#[cfg(any(test, feature = "cuda", feature = "cuda-on-host"))]
pub mod described;
pub mod gemm;
pub mod libraries;
mod machine;
mod packet;
#[cfg(any(test, feature = "cuda-on-host"))]
pub mod rules;
pub(crate) mod segments;
mod slots;
pub(crate) mod sums;
pub(crate) mod wide;

#[cfg(not(any(feature = "cuda", feature = "cuda-on-host")))]
#[path = "absent.rs"]
mod driver;
#[cfg(feature = "cuda")]
mod driver;
#[cfg(all(feature = "cuda-on-host", not(feature = "cuda")))]
#[path = "host/mod.rs"]
mod driver;

use candle_core::DType;
use candle_core::Device;
use candle_core::Result;
use candle_core::Shape;
use candle_core::Tensor;
use candle_core::WithDType;
use candle_core::bail;

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
pub use machine::Memory;
pub use machine::Properties;
pub use machine::Unavailable;
pub use machine::is_out_of_memory;
#[cfg(feature = "nccl")]
pub use machine::load_nccl;
pub use machine::memory;
pub use machine::open;
pub use machine::properties;
pub use machine::reserve;
pub use machine::set_tf32;
pub use packet::Array;
pub(crate) use packet::Kind;
pub(crate) use packet::Values;
pub use packet::locks_pages;

/// The generations of GPUs that the kernels were compiled for, as the build script says; `None` in a build
/// without CUDA.
#[cfg(feature = "cuda")]
pub const GPU_CODE: Option<&str> = Some(env!("MLMTRAIN_GPU_CODE"));
/// The generations of GPUs that the kernels were compiled for; none in a build without CUDA.
#[cfg(not(feature = "cuda"))]
pub const GPU_CODE: Option<&str> = None;

/// A GPU with its stream; cheap to clone.
#[derive(Debug, Clone)]
pub struct Gpu(driver::Driver);

/// A place in the memory of a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Address(pub(crate) u64);

impl Address {
    /// For what a kernel does not look at.
    pub(crate) const NULL: Self = Self(0);

    /// So many bytes further on.
    pub(crate) fn plus(self, bytes: usize) -> Self {
        Self(self.0 + bytes as u64)
    }
}

/// A kernel of an op's `kernel.cu`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Kernel {
    /// The op's folder.
    pub op: &'static str,
    /// Its name; those that exist for each number type have `_f32`, `_bf16`, `_f16` behind it.
    pub name: &'static str,
}

/// How many threads run a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grid {
    /// Blocks in x, y and z; the latter two at most 65,535.
    pub blocks: [u32; 3],
    /// Threads of a block, whole warps.
    pub threads: u32,
    /// Dynamic shared memory of a block.
    pub shared_bytes: u32,
}

impl Grid {
    /// `blocks` blocks in a row, without shared memory.
    pub fn of(blocks: usize, threads: u32) -> Self {
        Self {
            blocks: [u32::try_from(blocks).expect("blocks were counted from a tensor's rows"), 1, 1],
            threads,
            shared_bytes: 0,
        }
    }

    /// The same with dynamic shared memory.
    #[must_use]
    pub fn with_shared(self, shared_bytes: usize) -> Self {
        Self { shared_bytes: shared_bytes as u32, ..self }
    }
}

/// A copy of an f32 tensor in a half type, on the same device.
pub fn rounded(t: &Tensor, dtype: DType) -> Result<Tensor> {
    let Some(gpu) = Gpu::of(t)? else { return t.to_dtype(dtype) };
    let copy = gpu.uninitialised(t.shape(), dtype)?;
    // SAFETY: the copy has as many values as the tensor.
    unsafe { gpu.round(gpu.input(t, DType::F32)?, &copy) }?;
    Ok(copy)
}

/// Writes a contiguous tensor over another of its type and shape on the same device; through a view, over that
/// part of its buffer. By the driver: candle's kernel for it is not there for each type on each GPU.
pub fn overwrite(to: &Tensor, from: &Tensor) -> Result<()> {
    let Some(gpu) = Gpu::of(to)? else { return to.slice_set(from, 0, 0) };
    let dtype = to.dtype();
    if to.dims() != from.dims() {
        bail!("a tensor {:?} is to be written over {:?}", from.dims(), to.dims());
    }
    let (from, start) = (gpu.input(from, dtype)?, gpu.output(to, dtype)?);
    // SAFETY: both are contiguous, and have so many bytes.
    unsafe { gpu.0.copy(from, start, to.elem_count() * dtype.size_in_bytes()) }
}

/// The values of an f64 vector; waits for the device. All that a step reads back goes through here.
pub fn read(t: &Tensor) -> Result<Vec<f64>> {
    match Gpu::of(t)? {
        None => t.to_vec1(),
        Some(gpu) => gpu.0.read(t),
    }
}

impl Gpu {
    /// The GPU that a tensor lies on; `None` on the CPU.
    pub fn of(t: &Tensor) -> Result<Option<Self>> {
        Self::of_device(t.device())
    }

    /// The GPU behind a device; `None` for the CPU. An error for a device that this build has no code for.
    pub fn of_device(device: &Device) -> Result<Option<Self>> {
        Ok(driver::Driver::of(device)?.map(Self))
    }

    /// The generation of this GPU: major and minor.
    pub(crate) fn capability(&self) -> (u32, u32) {
        self.0.capability()
    }

    /// Where tensors of this GPU live.
    pub fn device(&self) -> &Device {
        self.0.device()
    }

    /// A tensor with whatever its memory holds: the kernel that is launched next must write all of it.
    pub fn uninitialised(&self, shape: impl Into<Shape>, dtype: DType) -> Result<Tensor> {
        self.0.uninitialised(shape.into(), dtype)
    }

    /// Fills a contiguous tensor with zeros; through a view, that part of its buffer. By the driver: a kernel
    /// of candle's may not be compiled for this GPU.
    pub(crate) fn clear(&self, t: &Tensor) -> Result<()> {
        let start = self.output(t, t.dtype())?;
        // SAFETY: the tensor is contiguous and has so many bytes.
        unsafe { self.0.clear(start, t.elem_count() * t.dtype().size_in_bytes()) }
    }

    /// A copy of host values.
    pub fn upload<T: WithDType>(&self, values: &[T]) -> Result<Tensor> {
        if values.is_empty() {
            return self.uninitialised(0, T::DTYPE);
        }
        Tensor::from_slice(values, values.len(), self.0.device())
    }

    /// Where a contiguous tensor of this type begins, for a kernel that reads it.
    pub(crate) fn input(&self, t: &Tensor, dtype: DType) -> Result<Address> {
        Self::check(t, dtype)?;
        self.0.input(t)
    }

    /// Where a contiguous tensor of this type begins, for a kernel that writes it. Through a view, its buffer
    /// is written.
    pub(crate) fn output(&self, t: &Tensor, dtype: DType) -> Result<Address> {
        Self::check(t, dtype)?;
        self.0.output(t)
    }

    /// Launches a kernel; one that exists for each number type when `dtype` names one. Without blocks there
    /// is nothing to do.
    ///
    /// # Safety
    /// `args` is the twin of the kernel's struct, and what it names is as large as the kernel reads and
    /// writes it to be.
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
    use crate::testing::DTYPES;
    use crate::testing::bits;
    use crate::testing::fresh;
    use crate::testing::fresh_in;
    use crate::testing::on_each_device;

    #[test]
    fn values_are_rounded_and_written_over_a_part() {
        on_each_device(|| {
            for dtype in DTYPES {
                let (values, whole) = (fresh((3, 5), 1), fresh_in(40, 2, dtype));
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
