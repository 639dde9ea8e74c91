//! Puts drawn ids in the place of masked ones and says which tokens are replaced by that: what a
//! discriminator reads, and what it should find (Clark et al. 2020, section 2).
//!
//! For ids `x` `[T]`, positions `p` `[M]`, no two of them equal, the original ids `o` `[M]` at these and
//! drawn ids `d` `[M]`: `ids[p[m]] = d[m]` and `ids[t] = x[t]` elsewhere; `replaced[p[m]]` is 1 where `d[m]`
//! is not `o[m]`, and `replaced[t]` is 0 elsewhere. A drawn id that is the original one counts as such. There
//! is no gradient; nothing is saved.
//!
//! On a GPU both stay there and nothing waits. All ids that come out are below the size of the vocabulary:
//! those that come in are checked, the drawn ones on the CPU only. There an id outside is an error; a kernel
//! takes the last one for it, so that no table is read behind its end.

mod cpu;
mod cuda;
#[cfg(test)]
mod tests;

use candle_core::Result;
use candle_core::Tensor;

use crate::computed::Computed;
use crate::cuda::Gpu;
use crate::gather_rows::check_ids;
use crate::indices::Indices;
use crate::tensor::check_len;
use crate::tensor::values;

/// `T` tokens of which `M` are masked.
#[derive(Debug, Clone, Copy)]
pub struct Masked<'a> {
    /// `x` `[T]`.
    pub ids: Indices<'a>,
    /// `p` `[M]`.
    pub positions: Indices<'a>,
    /// `o` `[M]`.
    pub originals: Indices<'a>,
}

/// The tokens with drawn ones among them.
#[derive(Debug, Clone)]
pub struct Replaced {
    /// `[T]`.
    pub ids: Computed,
    /// 1 for each token that is not the original one, else 0, `[T]`.
    pub replaced: Computed,
}

/// Puts `drawn_m`, u32 `[M]`, to their positions, on the device where they are; an error names a position or
/// an id outside.
pub fn forward(masked: Masked<'_>, drawn_m: &Tensor, vocabulary: usize) -> Result<Replaced> {
    let drawn = drawn_m.dims1()?;
    check_len("replace tokens: positions", masked.positions.len(), drawn)?;
    check_len("replace tokens: originals", masked.originals.len(), drawn)?;
    check_ids("replace tokens: position", masked.positions, masked.ids.len())?;
    check_ids("replace tokens: id", masked.ids, vocabulary)?;
    match Gpu::of(drawn_m)? {
        None => {
            let drawn = values::<u32>(drawn_m)?;
            check_ids("replace tokens: drawn id", &*drawn, vocabulary)?;
            Ok(cpu::forward(masked, &drawn))
        }
        Some(gpu) => cuda::forward(&gpu, masked, drawn_m, vocabulary),
    }
}
