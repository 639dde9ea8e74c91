//! A place in the order of what a GPU was given.

use anyhow::Result;
use candle_core::Tensor;
#[cfg(feature = "nccl")]
use candle_core::cuda::cudarc::driver::CudaEvent;

/// What was launched until now on the stream that computes a tensor; nothing on a CPU, where tests are.
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
