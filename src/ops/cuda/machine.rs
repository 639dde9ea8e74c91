//! Which GPU there is, or why there is none.

use candle_core::Device;

use super::driver;
use super::libraries;

/// What errors of our own allocations begin with.
pub(super) const OUT_OF_MEMORY: &str = "the GPU is out of memory";

/// Whether an error says that a GPU has no more memory, in our words or, from candle's own allocations, in
/// the driver's.
pub fn is_out_of_memory(error: &str) -> bool {
    error.contains(OUT_OF_MEMORY) || error.contains("CUDA_ERROR_OUT_OF_MEMORY")
}

/// Why a GPU cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unavailable {
    /// A build without the feature.
    #[error("this program was built without CUDA (feature `cuda`)")]
    NotBuilt,
    /// No libcuda.
    #[error("the NVIDIA driver is missing: `libcuda.so.1` cannot be loaded")]
    DriverMissing,
    /// The driver says so itself.
    #[error("the NVIDIA driver finds no usable GPU: {0}")]
    Driver(String),
    /// A number that is too high.
    #[error("there is no GPU number {ordinal}: the driver sees {count}")]
    NoSuchDevice {
        /// What was asked for.
        ordinal: usize,
        /// How many there are.
        count: usize,
    },
    /// A library of CUDA.
    #[error("`{name}` of CUDA 13 cannot be loaded: {why}")]
    LibraryMissing {
        /// Its file.
        name: String,
        /// Where it was looked for, or what is wrong with the one that was found.
        why: String,
    },
    /// A generation that the kernels were not compiled for.
    #[error("the GPU has compute capability {}.{}, the oldest supported is {}.{}", capability.0, capability.1, oldest.0, oldest.1)]
    TooOld {
        /// Of the GPU.
        capability: (u32, u32),
        /// Ours.
        oldest: (u32, u32),
    },
}

impl Unavailable {
    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::NotBuilt => "build it with `cargo build --release --features cuda` (README, \"On a GPU\")",
            Self::DriverMissing => {
                "install the driver of the GPU, 580 or newer (`nvidia-smi` must work); in a container, give it the GPU (`docker run --gpus all`)"
            }
            Self::Driver(_) => "`nvidia-smi` shows what the driver sees; CUDA_VISIBLE_DEVICES may hide GPUs",
            Self::NoSuchDevice { .. } => "GPUs are numbered from 0; CUDA_VISIBLE_DEVICES may hide some",
            Self::LibraryMissing { .. } => libraries::HINT,
            Self::TooOld { .. } => "a T4 or newer is needed; V100 and older ended with CUDA 12",
        }
    }
}

/// What is known of a GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Properties {
    /// Its number.
    pub ordinal: usize,
    /// `GPU-` and 32 hexadecimal digits in groups: the same in NVIDIA's other tools.
    pub uuid: String,
    /// As the driver calls it.
    pub name: String,
    /// Its generation: major and minor.
    pub capability: (u32, u32),
    /// All of its memory.
    pub memory_bytes: u64,
}

/// Memory of a GPU that tensors of this process take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// Now.
    pub used_bytes: u64,
    /// The most so far.
    pub peak_bytes: u64,
}

/// Opens GPU `ordinal`: with a stream of its own, on which everything runs in order.
pub fn open(ordinal: usize) -> Result<Device, Unavailable> {
    driver::open(ordinal)
}

/// Loads NCCL, which processes with GPUs want, wherever it lies.
#[cfg(feature = "nccl")]
pub fn load_nccl() -> Result<(), Unavailable> {
    driver::load_nccl()
}

/// What is known of an open GPU; `None` for the CPU.
pub fn properties(device: &Device) -> Option<Properties> {
    driver::properties(device)
}

/// Memory of an open GPU; `None` for the CPU.
pub fn memory(device: &Device) -> Option<Memory> {
    driver::memory(device)
}

/// Asks a GPU at once for `bytes` of memory that the steps to come will take and free, so that none of them
/// has to ask for more; the bytes that it has left where these are fewer. `None` where they are there, and
/// for the CPU, whose memory comes when it is touched.
pub fn reserve(device: &Device, bytes: u64) -> candle_core::Result<Option<u64>> {
    driver::reserve(device, bytes)
}

/// Lets products of f32 round their operands to TF32: three times the speed and more on Ampere and newer, 10
/// bits of mantissa.
pub fn set_tf32(on: bool) {
    driver::set_tf32(on);
}
