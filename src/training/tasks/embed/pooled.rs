//! The pooling modes of sentence-transformers over the hidden states of a text's tokens.

use anyhow::Result;
use candle_core::Tensor;

/// Way to turn the hidden states of a text into one vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// Hidden state of the first token.
    Cls,
    /// Largest value of each column.
    Max,
    /// Mean of all tokens.
    Mean,
    /// Sum of all tokens divided by the square root of their number.
    MeanSqrtLength,
    /// Weighted mean: the weight of the first token is 1, of the second one 2, and so on.
    WeightedMean,
    /// Hidden state of the last token.
    LastToken,
}

impl Mode {
    /// All modes, in the order in which the vectors of several modes are concatenated.
    pub(super) const ALL: [Self; 6] =
        [Self::Cls, Self::Max, Self::Mean, Self::MeanSqrtLength, Self::WeightedMean, Self::LastToken];

    /// Name of the mode in `pooling_mode`.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Cls => "cls",
            Self::Max => "max",
            Self::Mean => "mean",
            Self::MeanSqrtLength => "mean_sqrt_len_tokens",
            Self::WeightedMean => "weightedmean",
            Self::LastToken => "lasttoken",
        }
    }

    /// Name of the boolean key that selects the mode in older files.
    pub(super) fn old_key(self) -> &'static str {
        match self {
            Self::Cls => "pooling_mode_cls_token",
            Self::Max => "pooling_mode_max_tokens",
            Self::Mean => "pooling_mode_mean_tokens",
            Self::MeanSqrtLength => "pooling_mode_mean_sqrt_len_tokens",
            Self::WeightedMean => "pooling_mode_weightedmean_tokens",
            Self::LastToken => "pooling_mode_lasttoken",
        }
    }

    /// Appends the vector of this mode for `rows`, `[tokens, width]`.
    fn pool(self, rows: &[f32], width: usize, pooled: &mut Vec<f32>) {
        let tokens = rows.len() / width;
        match self {
            Self::Cls => pooled.extend(&rows[..width]),
            Self::LastToken => pooled.extend(&rows[rows.len() - width..]),
            Self::Max => {
                pooled.extend((0..width).map(|at| column(rows, width, at).fold(f32::NEG_INFINITY, f32::max)));
            }
            Self::Mean => {
                pooled.extend((0..width).map(|at| (column_sum(rows, width, at) / tokens as f64) as f32));
            }
            Self::MeanSqrtLength => {
                let root = (tokens as f64).sqrt();
                pooled.extend((0..width).map(|at| (column_sum(rows, width, at) / root) as f32));
            }
            Self::WeightedMean => {
                let all = (tokens * (tokens + 1)) as f64 / 2.0;
                for at in 0..width {
                    let weighted = column(rows, width, at).zip(1..);
                    let sum =
                        weighted.map(|(value, weight)| f64::from(value) * f64::from(weight)).sum::<f64>();
                    pooled.push((sum / all) as f32);
                }
            }
        }
    }
}

fn column(rows: &[f32], width: usize, at: usize) -> impl Iterator<Item = f32> {
    rows.iter().skip(at).step_by(width).copied()
}

fn column_sum(rows: &[f32], width: usize, at: usize) -> f64 {
    column(rows, width, at).map(f64::from).sum()
}

/// Pools each segment of `hidden_td`, f32 on the CPU, into one row: the vectors of all `modes`, concatenated.
pub(super) fn pool(modes: &[Mode], hidden_td: &Tensor, cu_seqlens: &[u32]) -> Result<Vec<Vec<f32>>> {
    let width = hidden_td.dims2()?.1;
    let all = hidden_td.flatten_all()?.to_vec1::<f32>()?;
    let mut pooled_segments = Vec::with_capacity(cu_seqlens.len());
    for bounds in cu_seqlens.windows(2) {
        let rows = &all[bounds[0] as usize * width..bounds[1] as usize * width];
        let mut pooled = Vec::with_capacity(modes.len() * width);
        for mode in modes {
            mode.pool(rows, width, &mut pooled);
        }
        pooled_segments.push(pooled);
    }
    Ok(pooled_segments)
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;

    #[test]
    fn each_mode_makes_its_own_vector() {
        let hidden = Tensor::new(&[[1f32, 8.0], [3.0, 2.0], [2.0, -1.0], [7.0, 5.0]], &Device::Cpu).unwrap();
        for (mode, expected) in [
            (Mode::Cls, [[1.0, 8.0], [7.0, 5.0]]),
            (Mode::LastToken, [[2.0, -1.0], [7.0, 5.0]]),
            (Mode::Max, [[3.0, 8.0], [7.0, 5.0]]),
            (Mode::Mean, [[2.0, 3.0], [7.0, 5.0]]),
        ] {
            assert_eq!(pool(&[mode], &hidden, &[0, 3, 4]).unwrap(), expected, "{mode:?}");
        }
        let root = 3f32.sqrt();
        let sums = pool(&[Mode::MeanSqrtLength], &hidden, &[0, 3, 4]).unwrap();
        assert!((sums[0][0] - 6.0 / root).abs() < 1e-6 && (sums[0][1] - 9.0 / root).abs() < 1e-6, "{sums:?}");
        let weighted = pool(&[Mode::WeightedMean], &hidden, &[0, 3, 4]).unwrap();
        assert_eq!(weighted[0], [13.0 / 6.0, 1.5]);
        let both = pool(&[Mode::Cls, Mode::Max], &hidden, &[0, 3]).unwrap();
        assert_eq!(both, [[1.0, 8.0, 3.0, 8.0]]);
    }
}
