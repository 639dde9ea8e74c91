//! Replaces masked ids by drawn ones, and marks the tokens that differ from the original: the input and the
//! labels of ELECTRA's discriminator (Clark et al. 2020, section 2).
//!
//! For ids `x` `[T]`, distinct positions `p` `[M]`, the original ids `o` `[M]` at these positions and drawn
//! ids `d` `[M]`: `ids[p[m]] = d[m]`, and `ids[t] = x[t]` at other positions. `replaced[p[m]]` is 1 if `d[m]`
//! differs from `o[m]`; all other values of `replaced` are 0. So a drawn id that equals the original does not
//! count as replaced. There is no gradient; nothing is saved.
//!
//! On a GPU both results stay there, and the host does not wait. All resulting ids are below the size of the
//! vocabulary. The given ids `x` are checked on the host. The drawn ids are checked on the CPU only, where an
//! id that is too large is an error; a kernel replaces it by the last id, so that no table is read past its
//! end.

mod cpu;
mod cuda;
#[cfg(test)]
mod tests;

use candle_core::{Result, Tensor};

use crate::computed::Computed;
use crate::cuda::Gpu;
use crate::gather_rows::check_ids;
use crate::indices::Indices;
use crate::tensor::{check_len, values};

/// `T` tokens of which `M` are masked.
#[derive(Debug, Clone, Copy)]
pub struct Masked<'a> {
    /// The ids `x`, `[T]`.
    pub ids: Indices<'a>,
    /// The masked positions `p`, `[M]`.
    pub positions: Indices<'a>,
    /// The original ids `o` at these positions, `[M]`.
    pub originals: Indices<'a>,
}

/// The result of [`forward`].
#[derive(Debug, Clone)]
pub struct Replaced {
    /// The ids, with the drawn ones at the masked positions, `[T]`.
    pub ids: Computed,
    /// 1 for each token that differs from the original, else 0; `[T]`.
    pub replaced: Computed,
}

/// Writes `drawn_m`, u32 `[M]`, to the masked positions, on the device of `drawn_m`. A position or an id that
/// is too large is an error that names it.
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
