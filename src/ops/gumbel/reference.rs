//! The sums of logits and noise, composed of candle functions; a sample is the column of the largest sum.

use candle_core::{Device, Result, Tensor};

use base::rng::Stream;

/// `z + g` in f64 on the CPU; the logits must be f64 on the CPU, too.
pub fn scores(logits_mv: &Tensor, stream: &Stream, keys: &[u64]) -> Result<Tensor> {
    let (rows, classes) = logits_mv.dims2()?;
    let mut values = Vec::with_capacity(rows * classes);
    for &key in keys {
        values.extend((0..classes).map(|v| uniform(stream, key, v)));
    }
    let uniform = Tensor::from_vec(values, (rows, classes), &Device::Cpu)?;
    logits_mv - uniform.log()?.neg()?.log()?
}

/// `u` of class `v` in the row with key `key`.
fn uniform(stream: &Stream, key: u64, v: usize) -> f64 {
    let word = stream.words(key << 24 | (v / 4) as u64)[v % 4];
    (f64::from(word) + 0.5) / 4_294_967_296.0
}
