//! Facts about a GPU, and the reasons why none can be used.

use super::libraries;

/// Beginning of the error message of a failed allocation by mlmtrain itself.
pub(super) const OUT_OF_MEMORY: &str = "the GPU is out of memory";

/// Returns true if an error message reports that a GPU is out of memory, in mlmtrain's words or, for candle's
/// own allocations, in the driver's.
pub fn is_out_of_memory(error: &str) -> bool {
    error.contains(OUT_OF_MEMORY) || error.contains("CUDA_ERROR_OUT_OF_MEMORY")
}

/// Reason why a GPU cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unavailable {
    /// The program was built without the feature `cuda`.
    #[error("this program was built without CUDA (feature `cuda`)")]
    NotBuilt,
    /// The driver's library libcuda cannot be loaded.
    #[error("the NVIDIA driver is missing: `libcuda.so.1` cannot be loaded")]
    DriverMissing,
    /// The driver reports an error.
    #[error("the NVIDIA driver finds no usable GPU: {0}")]
    Driver(String),
    /// The GPU number is too high.
    #[error("there is no GPU number {ordinal}: the driver sees {count}")]
    NoSuchDevice {
        /// Number of the GPU that was requested, from 0.
        ordinal: usize,
        /// Number of GPUs that the driver sees.
        count: usize,
    },
    /// A library of CUDA cannot be loaded.
    #[error("`{name}` of CUDA 13 cannot be loaded: {why}")]
    LibraryMissing {
        /// File name of the library.
        name: String,
        /// Folders that were searched, or the loader's error for the file that was found.
        why: String,
    },
    /// The kernels were not compiled for a GPU this old.
    #[error(
        "the GPU has compute capability {}.{}, the oldest supported is {}.{}",
        capability.0, capability.1, oldest.0, oldest.1
    )]
    TooOld {
        /// Compute capability of the GPU.
        capability: (u32, u32),
        /// Oldest compute capability that the kernels support.
        oldest: (u32, u32),
    },
}

impl Unavailable {
    /// Returns advice on how to fix the problem.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::NotBuilt => "build it with `cargo build --release --features cuda` (configs/guides/gpu.md)",
            Self::DriverMissing => {
                "install the driver of the GPU, 580 or newer (`nvidia-smi` must work); in a container, give it the \
                 GPU (`docker run --gpus all`)"
            }
            Self::Driver(_) => "`nvidia-smi` shows what the driver sees; CUDA_VISIBLE_DEVICES may hide GPUs",
            Self::NoSuchDevice { .. } => "GPUs are numbered from 0; CUDA_VISIBLE_DEVICES may hide some",
            Self::LibraryMissing { .. } => libraries::HINT,
            Self::TooOld { .. } => "a T4 or newer is needed; V100 and older ended with CUDA 12",
        }
    }
}

/// Properties of a GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Properties {
    /// Number of the GPU, from 0.
    pub ordinal: usize,
    /// Unique id: `GPU-` and 32 hexadecimal digits in groups, as NVIDIA's other tools print it.
    pub uuid: String,
    /// Name as the driver reports it.
    pub name: String,
    /// Compute capability: major and minor version.
    pub capability: (u32, u32),
    /// Total memory of the GPU.
    pub memory_bytes: u64,
}

/// Memory of a GPU that is occupied by tensors of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// Bytes in use now.
    pub used_bytes: u64,
    /// Peak of the bytes in use so far.
    pub peak_bytes: u64,
}
