//! Gumbel-max on the CPU: computes the noise of a few columns at a time, vectorised, into an array on the
//! stack, then scans the sums for the largest.

use candle_core::{Result, Tensor};
use rayon::iter::{IndexedParallelIterator, IntoParallelRefIterator, ParallelIterator};

use crate::element::Element;
use crate::simd::kernel;
use crate::tensor::{from_vec, values};
use base::rng::Stream;

/// Number of stream indices that are computed together; each gives the noise of four columns.
const LANES: usize = 16;

pub(super) fn sample<T: Element>(logits_mv: &Tensor, stream: &Stream, keys: &[u64]) -> Result<Tensor> {
    let (rows, classes) = logits_mv.dims2()?;
    from_vec(sample_rows::<T>(&values(logits_mv)?, classes, stream, keys), rows)
}

/// Draws one id for each key, from the key's row of logits.
pub(crate) fn sample_rows<T: Element>(
    logits: &[T],
    classes: usize,
    stream: &Stream,
    keys: &[u64],
) -> Vec<u32> {
    let rows = keys.par_iter().enumerate();
    rows.map(|(m, &key)| sample_row(&logits[m * classes..(m + 1) * classes], stream, key)).collect()
}

kernel! {
    fn sample_row<T>(logits: &[T], stream: &Stream, key: u64) -> u32 {
        let mut best = f32::NEG_INFINITY;
        let mut at = 0;
        let mut noise = [0.0f32; 4 * LANES];
        for (chunk, logits) in logits.chunks(4 * LANES).enumerate() {
            let words = stream.words_lanes::<LANES>(key << 24 | (chunk * LANES) as u64);
            for (w, words) in words.iter().enumerate() {
                for (i, word) in words.iter().enumerate() {
                    noise[4 * i + w] = gumbel(*word);
                }
            }
            for (i, (z, g)) in logits.iter().zip(&noise).enumerate() {
                let score = z.widen() + g;
                if score > best {
                    (best, at) = (score, chunk * 4 * LANES + i);
                }
            }
        }
        at as u32
    }
}

/// The noise `g` from one word of the stream; see the formulas in `gumbel.rs`.
#[inline(always)]
fn gumbel(word: u32) -> f32 {
    const UNIT: f32 = 1.0 / 4_294_967_296.0;
    let upper = (word as i32) < 0;
    // The word is below 2^31: unlike u32, i32 has a vector instruction for the conversion to f32.
    let distance = ((if upper { !word } else { word }) as i32 as f32 + 0.5) * UNIT;
    let y = if upper { 1.0 - distance } else { distance };
    let lost = if upper { (distance - (1.0 - y)) / y } else { 0.0 };
    -ln(lost - ln(y))
}

/// The natural logarithm of a positive normal number, to about the precision of f32, by the polynomial of
/// Cephes.
#[inline(always)]
fn ln(x: f32) -> f32 {
    const ROOT_HALF: u32 = 0x3f35_04f3;
    const COEFFICIENTS: [f32; 8] = [
        -0.115_146_1,
        0.116_769_99,
        -0.124_201_41,
        0.142_493_23,
        -0.166_680_58,
        0.200_007_15,
        -0.249_999_94,
        0.333_333_3,
    ];
    // x = 2^n (1 + f) with 1 + f between the square roots of 1/2 and 2.
    let n = (x.to_bits().wrapping_sub(ROOT_HALF) as i32) >> 23;
    let f = f32::from_bits(x.to_bits().wrapping_sub((n << 23) as u32)) - 1.0;
    let mut p = 0.070_376_836_f32;
    for c in COEFFICIENTS {
        p = p.mul_add(f, c);
    }
    let square = f * f;
    let n = n as f32;
    let small = n.mul_add(-2.121_944_4e-4, p * f * square);
    n.mul_add(0.693_359_4, f + square.mul_add(-0.5, small))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_noise_is_precise_at_both_ends_of_its_range() {
        let ends = (0..200).flat_map(|i| [i, u32::MAX - i, (1 << 31) - 100 + i]);
        for word in ends.chain((0..u32::MAX).step_by(40_009)) {
            let u = (f64::from(word) + 0.5) / 4_294_967_296.0;
            let got = f64::from(gumbel(word));
            let want = -(-u.ln()).ln();
            assert!((got - want).abs() < 5e-7 * want.abs().max(1.0), "{word}: {got} is not {want}");
        }
    }
}
