//! What kernels take that is not an op's own.

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
        let Some(dropout) = dropout else { return Self { key: [0; 2], id: [0; 2], threshold: 0, scale: 1.0 } };
        let (key, id) = dropout.stream.counter();
        Self { key, id, threshold: dropout.threshold(), scale: dropout.scale() }
    }
}

impl super::Gpu {
    /// Where the numbers begin on the GPU. The tensor keeps a copy alive that was made just now; it must live until the kernel
    /// is launched.
    pub(in crate::ops) fn numbers(&self, indices: Indices<'_>) -> candle_core::Result<(Address, candle_core::Tensor)> {
        let copy = match indices.on_gpu() {
            Some(uploaded) => uploaded.numbers.clone(),
            None => self.upload(indices.host())?,
        };
        Ok((self.input(&copy, candle_core::DType::U32)?, copy))
    }

    /// [`super::Gpu::numbers`] for keys.
    pub(in crate::ops) fn keys(&self, keys: Indices<'_, u64>) -> candle_core::Result<(Address, candle_core::Tensor)> {
        let copy = match keys.on_gpu() {
            Some(uploaded) => uploaded.numbers.clone(),
            None => self.upload(&keys.iter().map(|&key| key as i64).collect::<Vec<_>>())?,
        };
        Ok((self.input(&copy, candle_core::DType::I64)?, copy))
    }
}
