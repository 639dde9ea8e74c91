//! The poolings of sentence-transformers over the hidden states of a text's tokens.

use anyhow::Result;
use candle_core::Tensor;

/// How the hidden states of a text become one vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// The first token.
    Cls,
    /// The largest value of each column.
    Max,
    /// The mean of all tokens.
    Mean,
    /// Their sum by the root of their number.
    MeanSqrtLength,
    /// The mean, a token at place `i` from 1 on counting `i` times.
    WeightedMean,
    /// The last token.
    LastToken,
}

impl Mode {
    /// In the order in which several are put together.
    pub(super) const ALL: [Self; 6] =
        [Self::Cls, Self::Max, Self::Mean, Self::MeanSqrtLength, Self::WeightedMean, Self::LastToken];

    /// Its name in `pooling_mode`.
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

    /// The switch of older files.
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

    fn pool(self, rows: &[f32], width: usize, pooled: &mut Vec<f32>) {
        let tokens = rows.len() / width;
        let column = |at: usize| rows.iter().skip(at).step_by(width).copied();
        let sum = |at: usize| column(at).map(f64::from).sum::<f64>();
        match self {
            Self::Cls => pooled.extend(&rows[..width]),
            Self::LastToken => pooled.extend(&rows[rows.len() - width..]),
            Self::Max => pooled.extend((0..width).map(|at| column(at).fold(f32::NEG_INFINITY, f32::max))),
            Self::Mean => pooled.extend((0..width).map(|at| (sum(at) / tokens as f64) as f32)),
            Self::MeanSqrtLength => {
                pooled.extend((0..width).map(|at| (sum(at) / (tokens as f64).sqrt()) as f32));
            }
            Self::WeightedMean => {
                let all = (tokens * (tokens + 1)) as f64 / 2.0;
                let weighted = |at: usize| {
                    column(at).zip(1..).map(|(value, place)| f64::from(value) * f64::from(place)).sum::<f64>()
                };
                pooled.extend((0..width).map(|at| (weighted(at) / all) as f32));
            }
        }
    }
}

/// A row for each segment of `hidden_td`, f32 on the CPU: what each of `modes` makes of it, one after the other.
pub(super) fn pool(modes: &[Mode], hidden_td: &Tensor, cu_seqlens: &[u32]) -> Result<Vec<Vec<f32>>> {
    let width = hidden_td.dims2()?.1;
    let all = hidden_td.flatten_all()?.to_vec1::<f32>()?;
    let segment = |bounds: &[u32]| {
        let rows = &all[bounds[0] as usize * width..bounds[1] as usize * width];
        let mut pooled = Vec::with_capacity(modes.len() * width);
        for mode in modes {
            mode.pool(rows, width, &mut pooled);
        }
        pooled
    };
    Ok(cu_seqlens.windows(2).map(segment).collect())
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;

    #[test]
    fn each_mode_makes_its_own_vector() {
        let hidden = Tensor::new(&[[1f32, 8.0], [3.0, 2.0], [2.0, -1.0], [7.0, 5.0]], &Device::Cpu).unwrap();
        let of = |mode| pool(&[mode], &hidden, &[0, 3, 4]).unwrap();
        assert_eq!(of(Mode::Cls), [[1.0, 8.0], [7.0, 5.0]]);
        assert_eq!(of(Mode::LastToken), [[2.0, -1.0], [7.0, 5.0]]);
        assert_eq!(of(Mode::Max), [[3.0, 8.0], [7.0, 5.0]]);
        assert_eq!(of(Mode::Mean), [[2.0, 3.0], [7.0, 5.0]]);
        let root = 3f32.sqrt();
        let sums = of(Mode::MeanSqrtLength);
        assert!((sums[0][0] - 6.0 / root).abs() < 1e-6 && (sums[0][1] - 9.0 / root).abs() < 1e-6, "{sums:?}");
        assert_eq!(of(Mode::WeightedMean)[0], [13.0 / 6.0, 1.5]);
        let both = pool(&[Mode::Cls, Mode::Max], &hidden, &[0, 3]).unwrap();
        assert_eq!(both, [[1.0, 8.0, 3.0, 8.0]]);
    }
}
