//! Ids drawn from the softmax of logits by the Gumbel-max trick: how ELECTRA replaces tokens (Clark et al.
//! 2020, section 2).
//!
//! For logits `z` `[M, V]` and keys `r` `[M]`: `sample[m] = argmax over v of z[m, v] + g(r[m], v)` with
//! `g = -ln(-ln u)`, which is `v` with the probability `softmax(z[m])[v]`. Of equal largest sums the first is
//! taken, NaN is passed over, and a row of nothing but NaN and minus infinity gives 0. There is no gradient;
//! nothing is saved.
//!
//! `u = (w + 1/2) / 2^32`, where `w` is word `v % 4` of the stream at index `r << 24 | v / 4`. It is never 0
//! or 1, and `-ln u` is right to f32's digits at both ends: `d`, the distance of `u` to the nearer end, is
//! `(w + 1/2) / 2^32` or `(2^32 - 1 - w + 1/2) / 2^32`; `-ln u` is `-ln d` or, with `y = 1 - d` as rounded,
//! `-ln y + (d - (1 - y)) / y`. So `g` lies between -3.2 and 22.9. A key names the token, not its place in
//! the batch.
//!
//! Logits are f32, bf16 or f16, the sums f32.

pub(crate) mod cpu;
pub(crate) mod cuda;
pub mod reference;
#[cfg(test)]
mod tests;

use candle_core::Result;
use candle_core::Tensor;
use candle_core::bail;

use crate::cuda::Gpu;
use crate::element::by_dtype;
use crate::indices::Indices;
use crate::tensor::check_len;
use base::rng::Stream;

/// Most classes: what fits the low 24 bits of an index.
const MOST_CLASSES: usize = 4 << 24;

/// One id for each row of `logits_mv`, u32 `[M]` on its device; keys count with their low 40 bits.
pub fn sample<'a>(logits_mv: &Tensor, stream: &Stream, keys: impl Into<Indices<'a, u64>>) -> Result<Tensor> {
    let (keys, (rows, classes)) = (keys.into(), logits_mv.dims2()?);
    check_len("gumbel: keys", keys.len(), rows)?;
    check_classes("gumbel", classes)?;
    match Gpu::of(logits_mv)? {
        None => by_dtype!("gumbel", logits_mv, T => cpu::sample::<T>(logits_mv, stream, keys.host())),
        Some(gpu) => cuda::sample(&gpu, logits_mv, stream, keys),
    }
}

/// An error, naming `op`, where an id cannot be drawn from so many classes.
pub(crate) fn check_classes(op: &str, classes: usize) -> Result<()> {
    if classes == 0 || classes > MOST_CLASSES {
        bail!("{op}: {classes} classes, there must be 1 to {MOST_CLASSES}");
    }
    Ok(())
}
