//! MinHash: the minimum hash of a set under each of many hash functions, and the similarity of two sets
//! estimated from their minima.
//!
//! Broder, "On the resemblance and containment of documents", 1997; b-bit minima: Li and König, "b-bit
//! minwise hashing", WWW 2010. No code here depends on texts or files.

use base::instructions;
use base::rng::{Purpose, Stream};

/// Number of hash functions that are computed in parallel, in vector registers.
pub(super) const LANES: usize = 16;

/// Hash functions `x -> (x xor flip) * factor` modulo 2^32 with odd factors: each is a permutation of the
/// 32-bit numbers.
#[derive(Debug, Clone)]
pub(super) struct Permutations {
    lanes: Vec<Lanes>,
}

#[derive(Debug, Clone)]
struct Lanes {
    flips: [u32; LANES],
    factors: [u32; LANES],
}

impl Permutations {
    /// Returns `count` functions, a multiple of [`LANES`]; they are the same in every run.
    pub(super) fn new(count: usize) -> Self {
        let stream = Stream::new(0, Purpose::Sketch, 0);
        let mut lanes = Vec::with_capacity(count.div_ceil(LANES));
        for block in 0..count.div_ceil(LANES) {
            let words = stream.words_lanes::<LANES>((block * LANES) as u64);
            lanes.push(Lanes { flips: words[0], factors: words[1].map(|factor| factor | 1) });
        }
        Self { lanes }
    }

    /// Returns the minima of the empty set.
    pub(super) fn start(&self) -> Vec<[u32; LANES]> {
        vec![[u32::MAX; LANES]; self.lanes.len()]
    }

    /// Updates `minima` for a set to which `hashes` are added.
    pub(super) fn update(&self, minima: &mut [[u32; LANES]], hashes: &[u32]) {
        instructions::arch().dispatch(Update { permutations: self, minima, hashes });
    }
}

/// Loop that is compiled for each kind of vector unit; integer results are the same on all of them.
struct Update<'a> {
    permutations: &'a Permutations,
    minima: &'a mut [[u32; LANES]],
    hashes: &'a [u32],
}

impl pulp::WithSimd for Update<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: pulp::Simd>(self, _: S) {
        for (lanes, minima) in self.permutations.lanes.iter().zip(self.minima) {
            let flips = lanes.flips;
            let factors = lanes.factors;
            let mut least = *minima;
            for hash in self.hashes {
                for lane in 0..LANES {
                    least[lane] = least[lane].min((hash ^ flips[lane]).wrapping_mul(factors[lane]));
                }
            }
            *minima = least;
        }
    }
}

/// Returns one byte of a minimum, mixed from all its bits (the finaliser of MurmurHash3): the high bits of a
/// small minimum are zeros.
pub(super) fn byte_of(minimum: u32) -> u8 {
    let mut hash = minimum;
    hash = (hash ^ (hash >> 16)).wrapping_mul(0x85eb_ca6b);
    hash = (hash ^ (hash >> 13)).wrapping_mul(0xc2b2_ae35);
    (hash ^ (hash >> 16)) as u8
}

/// Estimates the Jaccard similarity of two sets from the bytes of their minima, corrected for bytes that are
/// equal by chance. Its standard deviation is a little more than `sqrt(J (1 - J) / permutations)`: 0.035 at
/// 0.8 with 128 permutations.
pub(super) fn similarity(a: &[u8], b: &[u8]) -> f64 {
    const CHANCE: f64 = 1.0 / 256.0;
    let equal = a.iter().zip(b).filter(|(a, b)| a == b).count();
    (equal as f64 / a.len().max(1) as f64 - CHANCE) / (1.0 - CHANCE)
}

/// Division of the minima into bands: documents that agree in all rows of a band become candidates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Banding {
    pub(super) bands: usize,
    pub(super) rows: usize,
}

/// Least share of the pairs exactly at the threshold that become candidates; at higher similarities the share
/// soon approaches 1.
const LEAST_RECALL: f64 = 0.9;

impl Banding {
    /// Chooses the most rows (the fewest false candidates) with which still [`LEAST_RECALL`] of the pairs at
    /// `threshold` are found: 16 bands of 8 rows for 0.8 and 128 permutations. Returns at least one row.
    pub(super) fn for_threshold(threshold: f64, permutations: usize) -> Self {
        (1..=permutations)
            .rev()
            .map(|rows| Self::with_rows(rows, permutations))
            .find(|b| b.recall(threshold) >= LEAST_RECALL)
            .unwrap_or(Self::with_rows(1, permutations))
    }

    fn with_rows(rows: usize, permutations: usize) -> Self {
        Self { bands: permutations / rows, rows }
    }

    /// Returns the share of pairs of this similarity that become candidates: `1 - (1 - s^rows)^bands`.
    pub(super) fn recall(self, similarity: f64) -> f64 {
        1.0 - (1.0 - similarity.powi(self.rows as i32)).powi(self.bands as i32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::corpus::dedup::shingles::mix;

    fn minima(permutations: &Permutations, set: impl Iterator<Item = u64>) -> Vec<u32> {
        let hashes: Vec<u32> = set.map(|x| (mix(x) >> 32) as u32).collect();
        let mut minima = permutations.start();
        for batch in hashes.chunks(7) {
            permutations.update(&mut minima, batch);
        }
        minima.concat()
    }

    #[test]
    fn the_minima_are_those_of_the_formula() {
        let permutations = Permutations::new(32);
        let got = minima(&permutations, 0..100);
        let hashes: Vec<u32> = (0..100u64).map(|x| (mix(x) >> 32) as u32).collect();
        for (i, got) in got.iter().enumerate() {
            let lanes = &permutations.lanes[i / LANES];
            let flip = lanes.flips[i % LANES];
            let factor = lanes.factors[i % LANES];
            assert_eq!(hashes.iter().map(|h| (h ^ flip).wrapping_mul(factor)).min(), Some(*got));
        }
    }

    #[test]
    fn the_estimate_is_unbiased_and_as_sharp_as_theory_says() {
        let permutations = Permutations::new(128);
        for (size, shared) in [(60u64, 48u64), (1000, 900), (200, 100), (30, 2), (2000, 1600)] {
            // Two sets of `size` elements, `shared` of them common: J = shared / (2 size - shared).
            let jaccard = shared as f64 / (2 * size - shared) as f64;
            let trials = 150;
            let errors: Vec<f64> = (0..trials)
                .map(|trial| {
                    let first = trial * 1_000_000;
                    let other = first + size - shared;
                    let bytes = minima_bytes(&permutations, first..first + size);
                    similarity(&bytes, &minima_bytes(&permutations, other..other + size)) - jaccard
                })
                .collect();
            let bias = errors.iter().sum::<f64>() / trials as f64;
            let deviation = (errors.iter().map(|e| e * e).sum::<f64>() / trials as f64).sqrt();
            let expected = (jaccard * (1.0 - jaccard) / 128.0).sqrt();
            assert!(bias.abs() < 5.0 * expected / (trials as f64).sqrt(), "J {jaccard}: bias {bias}");
            assert!(
                (0.8..1.3).contains(&(deviation / expected)),
                "J {jaccard}: {deviation} instead of {expected}"
            );
        }
    }

    #[test]
    fn bands_follow_from_the_threshold() {
        assert_eq!(Banding::for_threshold(0.8, 128), Banding { bands: 16, rows: 8 });
        for threshold in [0.5, 0.6, 0.7, 0.8, 0.9, 0.99] {
            for permutations in [16, 64, 128, 256, 1024] {
                let banding = Banding::for_threshold(threshold, permutations);
                assert!(banding.recall(threshold) >= LEAST_RECALL, "{threshold} {permutations} {banding:?}");
                assert!(banding.bands * banding.rows <= permutations);
            }
        }
    }

    fn minima_bytes(permutations: &Permutations, set: std::ops::Range<u64>) -> Vec<u8> {
        minima(permutations, set).into_iter().map(byte_of).collect()
    }
}
