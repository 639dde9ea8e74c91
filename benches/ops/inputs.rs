//! What the ops are timed on: values, ids and dropout, the same in every run.

use candle_core::{DType, Device, Result, Tensor};
use mlmtrain::ops::dropout::Dropout;
use mlmtrain::rng::{Purpose, Stream};

fn stream() -> Stream {
    Stream::new(1, Purpose::Test, 0)
}

pub(super) fn dropped() -> Dropout {
    Dropout { probability: 0.1, stream: stream() }
}

pub(super) fn row_keys(rows: usize) -> Vec<u64> {
    (0..rows as u64).collect()
}

pub(super) fn drawn_ids(count: usize, below: usize) -> Vec<u32> {
    (0..count as u64).map(|index| stream().below(index, below as u64) as u32).collect()
}

/// f32 values around zero; cheaper to draw than normal ones.
pub(super) fn full(rows: usize, cols: usize) -> Result<Tensor> {
    vector(rows * cols)?.reshape((rows, cols))
}

pub(super) fn vector(len: usize) -> Result<Tensor> {
    let values: Vec<f32> = (0..len as u64)
        .map(|index| (index.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as f32 / 8_388_608.0 - 1.0)
        .collect();
    Tensor::from_vec(values, len, &Device::Cpu)
}

pub(super) fn zeros(shape: &[usize]) -> Result<Tensor> {
    Tensor::zeros(shape, DType::F32, &Device::Cpu)
}
