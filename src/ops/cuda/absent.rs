//! A build without CUDA: no device is a GPU, so nothing of the rest can be called.

use candle_core::DType;
use candle_core::Device;
use candle_core::Result;
use candle_core::Shape;
use candle_core::Tensor;
use candle_core::bail;

use super::Address;
use super::Grid;
use super::Kernel;
use super::gemm::Gemm;

/// There is no value of it.
#[derive(Debug, Clone)]
pub(super) enum Driver {}

impl Driver {
    pub(super) fn of(device: &Device) -> Result<Option<Self>> {
        match device {
            Device::Cpu => Ok(None),
            other => bail!("this build of mlmtrain has no code for {:?}", other.location()),
        }
    }

    pub(super) fn device(&self) -> &Device {
        match *self {}
    }

    pub(super) fn uninitialised(&self, _: Shape, _: DType) -> Result<Tensor> {
        match *self {}
    }

    pub(super) fn input(&self, _: &Tensor) -> Result<Address> {
        match *self {}
    }

    pub(super) fn output(&self, _: &Tensor) -> Result<Address> {
        match *self {}
    }

    pub(super) fn clear(&self, _: Address, _: usize) -> Result<()> {
        match *self {}
    }

    pub(super) fn processors(&self) -> usize {
        match *self {}
    }

    #[expect(clippy::unused_self, reason = "as the other drivers have it")]
    pub(super) unsafe fn launch<A: Copy>(&self, _: Kernel, _: &str, _: Grid, _: &A) -> Result<()> {
        match *self {}
    }

    pub(super) unsafe fn gemm(&self, _: &Gemm) -> Result<()> {
        match *self {}
    }
}
