//! What kernels take that is not an op's own.

use candle_core::Result;

use super::Gpu;
use super::packet::Array;
use super::packet::Kind;
use super::packet::Values;
use crate::ops::dropout::Dropout;
use crate::ops::indices::Indices;

/// A place in the memory of a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub(in crate::ops) struct Address(pub(in crate::ops) u64);

impl Address {
    /// For what a kernel does not look at.
    pub(in crate::ops) const NULL: Self = Self(0);

    /// So many bytes further on.
    pub(in crate::ops) fn plus(self, bytes: usize) -> Self {
        Self(self.0 + bytes as u64)
    }
}

/// Twin of `Dropout` in `kernels/common.cuh`.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(C)]
pub(in crate::ops) struct DropoutArgs {
    key: [u32; 2],
    id: [u32; 2],
    threshold: u32,
    scale: f32,
}

impl DropoutArgs {
    /// Nothing is dropped without one.
    pub(in crate::ops) fn of(dropout: Option<&Dropout>) -> Self {
        let Some(dropout) = dropout else {
            return Self { key: [0; 2], id: [0; 2], threshold: 0, scale: 1.0 };
        };
        let (key, id) = dropout.stream.counter();
        Self { key, id, threshold: dropout.threshold(), scale: dropout.scale() }
    }
}

impl Gpu {
    /// Where the numbers begin on the GPU. The array keeps them there; it must live until the kernel is
    /// launched.
    pub(in crate::ops) fn numbers(&self, indices: Indices<'_>) -> Result<(Address, Array)> {
        let array = match indices.on_gpu() {
            Some(uploaded) => uploaded.numbers.clone(),
            None => self.send_one(Values::U32(indices.host()))?,
        };
        Ok((array.address(Kind::U32)?, array))
    }

    /// [`Gpu::numbers`] for keys.
    pub(in crate::ops) fn keys(&self, keys: Indices<'_, u64>) -> Result<(Address, Array)> {
        let array = match keys.on_gpu() {
            Some(uploaded) => uploaded.numbers.clone(),
            None => self.send_one(Values::U64(keys.host()))?,
        };
        Ok((array.address(Kind::U64)?, array))
    }
}
