//! Driver of a build without CUDA: no device is a GPU, so a `Driver` or `Slot` never exists, and their
//! methods can never be called.

use std::collections::BTreeMap;

use candle_core::{DType, Device, Shape, Tensor, bail};

use super::algorithms::{Algorithm, Algorithms};
use super::gemm::Gemm;
use super::slots::{Room, Slots};
use super::{Address, Grid, Kernel, Memory, Properties, Unavailable};

/// Uninhabited type, like `std::convert::Infallible`. The types below contain it, so that no value of them
/// can be constructed; used directly in their place, it would make the compiler warn about unreachable code.
#[derive(Debug, Clone)]
enum Never {}

/// Never constructed: this build has no code for GPUs.
#[derive(Debug, Clone)]
pub(super) struct Driver(Never);

impl Driver {
    pub(super) fn of(device: &Device) -> candle_core::Result<Option<Self>> {
        match device {
            Device::Cpu => Ok(None),
            other => bail!("this build of mlmtrain has no code for {:?}", other.location()),
        }
    }

    pub(super) fn capability(&self) -> (u32, u32) {
        match self.0 {}
    }

    pub(super) fn device(&self) -> &Device {
        match self.0 {}
    }

    pub(super) fn algorithms(&self) -> candle_core::Result<Algorithms> {
        match self.0 {}
    }

    pub(super) fn use_algorithms(&self, _: &BTreeMap<String, Algorithm>) {
        match self.0 {}
    }

    pub(super) fn uninitialised(&self, _: Shape, _: DType) -> candle_core::Result<Tensor> {
        match self.0 {}
    }

    pub(super) fn input(&self, _: &Tensor) -> candle_core::Result<Address> {
        match self.0 {}
    }

    pub(super) fn output(&self, _: &Tensor) -> candle_core::Result<Address> {
        match self.0 {}
    }

    pub(super) unsafe fn clear(&self, _: Address, _: usize) -> candle_core::Result<()> {
        match self.0 {}
    }

    pub(super) unsafe fn copy(&self, _: Address, _: Address, _: usize) -> candle_core::Result<()> {
        match self.0 {}
    }

    pub(super) fn read(&self, _: &Tensor) -> candle_core::Result<Vec<f64>> {
        match self.0 {}
    }

    pub(super) unsafe fn launch<A: Copy>(
        &self,
        _: Kernel,
        _: &'static str,
        _: Grid,
        _: &A,
    ) -> candle_core::Result<()> {
        match self.0 {}
    }

    pub(super) unsafe fn gemm(&self, _: &Gemm, _: Option<Address>) -> candle_core::Result<bool> {
        match self.0 {}
    }

    pub(super) fn with_slots<R>(&self, _: impl FnOnce(&mut Slots<Slot>) -> R) -> R {
        match self.0 {}
    }

    pub(super) fn new_slot(&self, _: usize) -> candle_core::Result<Slot> {
        match self.0 {}
    }
}

/// Never constructed: this build has no code for GPUs.
pub(super) struct Slot(Never);

impl Slot {
    pub(super) fn address(&self) -> Address {
        match self.0 {}
    }

    pub(super) fn is_page_locked(&self) -> bool {
        match self.0 {}
    }

    pub(super) fn send(&mut self, _: usize, _: impl FnOnce(&mut [u8])) -> candle_core::Result<()> {
        match self.0 {}
    }

    pub(super) fn retire(&mut self) -> candle_core::Result<()> {
        match self.0 {}
    }
}

impl Room for Slot {
    fn bytes(&self) -> usize {
        match self.0 {}
    }
}

pub(super) fn open(_: usize) -> Result<Device, Unavailable> {
    Err(Unavailable::NotBuilt)
}

pub(super) fn properties(_: &Device) -> Option<Properties> {
    None
}

pub(super) fn memory(_: &Device) -> Option<Memory> {
    None
}

#[expect(clippy::unnecessary_wraps, reason = "as the other drivers have it")]
pub(super) fn reserve(_: &Device, _: u64) -> candle_core::Result<Option<u64>> {
    Ok(None)
}

pub(super) fn set_tf32(_: bool) {}
