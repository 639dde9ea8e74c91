//! Sampling of ids from the softmax of logits by the Gumbel-max trick, with which ELECTRA replaces tokens
//! (Clark et al. 2020, section 2).
//!
//! For logits `z` `[M, V]` and keys `r` `[M]`: `sample[m] = argmax over v of z[m, v] + g(r[m], v)` with
//! `g = -ln(-ln u)`; the sample is `v` with probability `softmax(z[m])[v]`. If several sums are largest, the
//! sample is the first of them. NaN is ignored, and a row that has only NaN and minus infinity gives 0. There
//! is no gradient; nothing is saved.
//!
//! `u = (w + 1/2) / 2^32`, where `w` is word `v % 4` of the stream at index `r << 24 | v / 4`. `u` is never 0
//! or 1, and `-ln u` has the precision of f32 at both ends of its range: let `d` be the distance of `u` to
//! the nearer of 0 and 1, which is `(w + 1/2) / 2^32` or `(2^32 - 1 - w + 1/2) / 2^32`. Near 0, `-ln u` is
//! `-ln d`. Near 1, with `y = 1 - d` rounded to f32, it is `-ln y + (d - (1 - y)) / y`. So `g` is between
//! -3.2 and 22.9. A key identifies the token, not its place in the batch.
//!
//! Logits are f32, bf16 or f16; the sums are f32.

pub(crate) mod cpu;
pub(crate) mod cuda;
pub mod reference;
#[cfg(test)]
mod tests;

use candle_core::{Result, Tensor, bail};

use crate::cuda::Gpu;
use crate::element::by_dtype;
use crate::indices::Indices;
use crate::tensor::check_len;
use base::rng::Stream;

/// Largest number of classes: four for each value of the low 24 bits of a stream index.
const MOST_CLASSES: usize = 4 << 24;

/// Draws one id for each row of `logits_mv`: u32 `[M]` on the device of the logits. Only the low 40 bits of a
/// key are used.
pub fn sample<'a>(logits_mv: &Tensor, stream: &Stream, keys: impl Into<Indices<'a, u64>>) -> Result<Tensor> {
    sample_compiled(logits_mv, stream, keys.into())
}

fn sample_compiled(logits_mv: &Tensor, stream: &Stream, keys: Indices<'_, u64>) -> Result<Tensor> {
    let (rows, classes) = logits_mv.dims2()?;
    check_len("gumbel: keys", keys.len(), rows)?;
    check_classes("gumbel", classes)?;
    match Gpu::of(logits_mv)? {
        None => by_dtype!("gumbel", logits_mv, T => cpu::sample::<T>(logits_mv, stream, keys.host())),
        Some(gpu) => cuda::sample(&gpu, logits_mv, stream, keys),
    }
}

/// Returns an error that names `op` if ids cannot be drawn from this number of classes.
pub(crate) fn check_classes(op: &str, classes: usize) -> Result<()> {
    if classes == 0 || classes > MOST_CLASSES {
        bail!("{op}: {classes} classes, there must be 1 to {MOST_CLASSES}");
    }
    Ok(())
}
