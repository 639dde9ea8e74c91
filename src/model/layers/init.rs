//! Initial values of parameters.

use rayon::iter::{IndexedParallelIterator, IntoParallelRefMutIterator, ParallelIterator};
use rayon::slice::ParallelSliceMut;

use base::rng::{Purpose, Stream, hash_name};

/// Limit of [`Init::Truncated`] in standard deviations: `initializer_cutoff_factor` of transformers'
/// `ModernBertConfig`.
const CUTOFF: f64 = 2.0;

/// Values that a thread draws at a time.
const CHUNK: usize = 4096;

/// Initial values of a parameter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Init {
    /// Normal with the model's `initializer_range`.
    Normal,
    /// Normal with this standard deviation; values beyond two of them are drawn again.
    Truncated(f64),
    /// As `Normal`, but this row (the padding token's) is zero.
    NormalWithZeroRow(u32),
    /// Uniform between the negative of this number and the number.
    Uniform(f64),
    /// Zeros.
    Zeros,
    /// Ones.
    Ones,
}

/// Writes the initial values of the parameter `name`, whose rows have `cols` values.
pub(super) fn fill(
    values: &mut [f32],
    init: Init,
    name: &str,
    cols: usize,
    initializer_range: f64,
    seed: u64,
) {
    let stream = Stream::new(seed, Purpose::Init, hash_name(name));
    match init {
        Init::Zeros => values.fill(0.0),
        Init::Ones => values.fill(1.0),
        Init::Normal | Init::NormalWithZeroRow(_) => draw(values, &stream, initializer_range, None),
        Init::Truncated(deviation) => draw(values, &stream, deviation, Some(CUTOFF)),
        Init::Uniform(range) => draw_uniform(values, &stream, range),
    }
    if let Init::NormalWithZeroRow(row) = init {
        let start = row as usize * cols;
        if let Some(padding) = values.get_mut(start..start + cols) {
            padding.fill(0.0);
        }
    }
}

/// Draws normal numbers, none beyond `cutoff` deviations; each depends only on its index.
fn draw(values: &mut [f32], stream: &Stream, deviation: f64, cutoff: Option<f64>) {
    values.par_chunks_mut(CHUNK).enumerate().for_each(|(number, chunk)| {
        stream.fill_normal((number * CHUNK) as u64, chunk, deviation, cutoff);
    });
}

/// Draws numbers between `-range` and `range`; each depends only on its index.
fn draw_uniform(values: &mut [f32], stream: &Stream, range: f64) {
    values.par_iter_mut().enumerate().with_min_len(CHUNK).for_each(|(index, value)| {
        *value = ((2.0 * stream.uniform(index as u64) - 1.0) * range) as f32;
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 30,000 values, and their root mean square.
    fn drawn(init: Init) -> (Vec<f32>, f64) {
        let mut values = vec![0.0; 30_000];
        fill(&mut values, init, "a.weight", 300, 0.02, 1);
        let square = values.iter().map(|value| f64::from(value * value)).sum::<f64>() / values.len() as f64;
        (values, square.sqrt())
    }

    /// Without the values beyond two deviations, the deviation of a normal distribution is 0.8796 of the
    /// original.
    #[test]
    fn a_truncated_parameter_stays_within_two_deviations() {
        let (values, deviation) = drawn(Init::Truncated(0.5));
        let largest = values.iter().fold(0f32, |largest, value| largest.max(value.abs()));
        assert!((0.99..=1.0).contains(&largest), "{largest}");
        assert!((deviation / 0.5 - 0.8796).abs() < 0.01, "{deviation}");
    }

    #[test]
    fn a_uniform_parameter_fills_its_range() {
        let (values, deviation) = drawn(Init::Uniform(0.5));
        let least = values.iter().copied().fold(0.0, f32::min);
        let most = values.iter().copied().fold(0.0, f32::max);
        assert!((-0.5..-0.499).contains(&least) && (0.499..=0.5).contains(&most), "{least} {most}");
        assert!((deviation - 0.5 / 3f64.sqrt()).abs() < 0.005, "{deviation}");
    }
}
