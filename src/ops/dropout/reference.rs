//! Dropout by its definition: the mask computed one element at a time, and the product with it.

use candle_core::{Device, Result, Tensor};

use crate::dropout::Dropout;

/// The factor (0 or the scale) of each column for each row key, f64 `[T, D]`.
pub fn mask(dropout: &Dropout, row_keys: &[u64], cols: usize) -> Result<Tensor> {
    let values: Vec<f64> =
        row_keys.iter().flat_map(|&key| (0..cols).map(move |column| factor(dropout, key, column))).collect();
    Tensor::from_vec(values, (row_keys.len(), cols), &Device::Cpu)
}

fn factor(dropout: &Dropout, key: u64, column: usize) -> f64 {
    let word = dropout.stream.words(key << 16 | (column / 8) as u64)[column % 8 / 2];
    let lane = if column.is_multiple_of(2) { word & 0xffff } else { word >> 16 };
    if lane < dropout.threshold() { 0.0 } else { 65536.0 / f64::from(65536 - dropout.threshold()) }
}

/// `x * mask`.
pub fn forward(x_td: &Tensor, mask_td: &Tensor) -> Result<Tensor> {
    x_td.mul(&mask_td.to_dtype(x_td.dtype())?)
}
