//! The sums that the largest of is taken, composed of candle functions.

use candle_core::Device;
use candle_core::Result;
use candle_core::Tensor;

use base::rng::Stream;

/// `z + g` in f64 on the CPU, from logits of that type.
pub fn scores(logits_mv: &Tensor, stream: &Stream, keys: &[u64]) -> Result<Tensor> {
    let (rows, classes) = logits_mv.dims2()?;
    let word = |key: u64, v: usize| stream.words(key << 24 | (v / 4) as u64)[v % 4];
    let uniform = |key: u64, v: usize| (f64::from(word(key, v)) + 0.5) / 4_294_967_296.0;
    let uniform: Vec<f64> = keys.iter().flat_map(|&key| (0..classes).map(move |v| uniform(key, v))).collect();
    let uniform = Tensor::from_vec(uniform, (rows, classes), &Device::Cpu)?;
    logits_mv - uniform.log()?.neg()?.log()?
}
