//! Muon (Jordan et al. 2024, <https://kellerjordan.github.io/posts/muon/>) over matrices in the flat buffers:
//! the update of `torch.optim.Muon`.
//!
//! For each matrix `[R, C]`, with `g` the gradient times `gradient_multiplier`:
//! `m += (1 - momentum) * (g - m)`; `u = g + momentum * (m - g)` with `nesterov`, else `u = m`;
//! `x = u / max(|u|, 1e-7)`. Then `ns_steps` times, with the smaller of both products:
//! `A = x x^T`, `x = a x + (b A + c A^2) x`, or `A = x^T x`, `x = a x + x (b A + c A^2)`. These steps of
//! Newton and Schulz bring all singular values of `x` near 1. Last, `p *= 1 - lr * weight_decay` and
//! `p -= lr * ratio * x`, where `ratio` depends on the shape ([`AdjustLr`]).
//!
//! `m`, `u` and sums of products are f32. `x` and the operands of products have the type of the shadow, or
//! f32 without a shadow; PyTorch always takes bf16. Shadow, clipping, `lr_scale` and frozen elements are as
//! in [`crate::adamw`]; `beta1`, `beta2` and `eps` have no effect.

mod cpu;
mod cuda;
pub mod reference;
#[cfg(test)]
mod tests;

use candle_core::{DType, Result, bail};

use crate::cuda::Gpu;
use crate::update::{Buffers, Groups, Hyper};

/// Coefficients of the polynomial of a step, those of PyTorch: they maximise its slope at zero.
const COEFFICIENTS: [f32; 3] = [3.4445, -4.775, 2.0315];

/// Smallest divisor of a direction.
const EPS: f64 = 1e-7;

/// Factor of the learning rate of a matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdjustLr {
    /// `sqrt(max(1, R / C))`, as Jordan.
    Original,
    /// `0.2 * sqrt(max(R, C))`: the update's root mean square is that of `AdamW` (Liu et al. 2025,
    /// arXiv:2502.16982).
    MatchRmsAdamw,
    /// `sqrt(R / C)`.
    SpectralUnclamped,
}

impl AdjustLr {
    fn ratio(self, [rows, cols]: [usize; 2]) -> f64 {
        match self {
            Self::Original => (rows as f64 / cols as f64).max(1.0).sqrt(),
            Self::MatchRmsAdamw => 0.2 * (rows.max(cols) as f64).sqrt(),
            Self::SpectralUnclamped => (rows as f64 / cols as f64).sqrt(),
        }
    }
}

/// The hyper-parameters of Muon, with the names of PyTorch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// Decay of the momentum.
    pub momentum: f64,
    /// True if the gradient is added to the momentum once more.
    pub nesterov: bool,
    /// Number of Newton-Schulz steps.
    pub ns_steps: usize,
    /// Factor of the learning rate of a matrix.
    pub adjust_lr: AdjustLr,
}

/// Bytes that the update of a matrix takes in addition to the buffers, with operands in `dtype`.
pub fn temporary_bytes([rows, cols]: [usize; 2], dtype: DType) -> u64 {
    let smaller = rows.min(cols);
    ((rows * cols + smaller * smaller) * (DType::F32.size_in_bytes() + dtype.size_in_bytes())) as u64
}

/// Floating-point operations of the products of an update of a matrix.
pub fn flops([rows, cols]: [usize; 2], ns_steps: usize) -> f64 {
    let smaller = rows.min(cols) as f64;
    ns_steps as f64 * 2.0 * smaller * smaller * (2.0 * rows.max(cols) as f64 + smaller)
}

/// Applies one update in place to all `groups`, which must be in ascending order, within `N`, and must not
/// overlap. Each group is a matrix of the shape `[R, C]` in `shapes`.
pub fn update<'a>(
    buffers: Buffers<'_, 1>,
    groups: impl Into<Groups<'a>>,
    shapes: &[[usize; 2]],
    hyper: &Hyper,
    settings: &Settings,
) -> Result<()> {
    update_compiled(buffers, groups.into(), shapes, hyper, settings)
}

fn update_compiled(
    buffers: Buffers<'_, 1>,
    groups: Groups<'_>,
    shapes: &[[usize; 2]],
    hyper: &Hyper,
    settings: &Settings,
) -> Result<()> {
    buffers.check("muon", groups, hyper)?;
    let lens = groups.list.iter().map(|group| group.range.len());
    if !lens.eq(shapes.iter().map(|[rows, cols]| rows * cols)) || shapes.as_flattened().contains(&0) {
        bail!("muon: the groups {:?} are not matrices of {shapes:?}", groups.list);
    }
    match Gpu::of(buffers.parameters)? {
        None => cpu::update(buffers, groups, shapes, hyper, settings),
        Some(gpu) => cuda::update(&gpu, buffers, groups, shapes, hyper, settings),
    }
}
