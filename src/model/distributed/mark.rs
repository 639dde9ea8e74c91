//! A position in the queue of work of a GPU.

use anyhow::Result;
use candle_core::Tensor;
#[cfg(feature = "nccl")]
use candle_core::cuda::cudarc::driver::CudaEvent;

/// Position after all work launched so far on the CUDA stream of a tensor. Empty on a CPU, where tests run.
#[derive(Debug)]
pub(super) struct Mark {
    #[cfg(feature = "nccl")]
    pub(super) event: Option<CudaEvent>,
}

impl Mark {
    #[cfg(feature = "nccl")]
    pub(super) fn behind(tensor: &Tensor) -> Result<Self> {
        let event = match tensor.device() {
            candle_core::Device::Cuda(device) => Some(device.cuda_stream().record_event(None)?),
            _ => None,
        };
        Ok(Self { event })
    }

    #[cfg(not(feature = "nccl"))]
    #[expect(clippy::unnecessary_wraps, reason = "as the build with NCCL has it")]
    pub(super) fn behind(_: &Tensor) -> Result<Self> {
        Ok(Self {})
    }
}
