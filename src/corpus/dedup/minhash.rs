//! MinHash: the least hash of a set under many hash functions, and what two lists of minima say about two
//! sets.
//!
//! Broder, "On the resemblance and containment of documents", 1997; b-bit minima: Li and König, "b-bit
//! minwise hashing", WWW 2010. It knows no text and no file.

use crate::ops::instructions;
use crate::rng::Purpose;
use crate::rng::Stream;

/// Hash functions that are computed side by side, in vector registers.
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
    /// `count` functions, a multiple of [`LANES`]; always the same ones.
    pub(super) fn new(count: usize) -> Self {
        let stream = Stream::new(0, Purpose::Sketch, 0);
        let lanes = |block: usize| {
            let words = stream.words_lanes::<LANES>((block * LANES) as u64);
            Lanes { flips: words[0], factors: words[1].map(|factor| factor | 1) }
        };
        Self { lanes: (0..count.div_ceil(LANES)).map(lanes).collect() }
    }

    /// The minima of the empty set.
    pub(super) fn start(&self) -> Vec<[u32; LANES]> {
        vec![[u32::MAX; LANES]; self.lanes.len()]
    }

    /// Takes `hashes` into the set of `minima`.
    pub(super) fn update(&self, minima: &mut [[u32; LANES]], hashes: &[u32]) {
        instructions::arch().dispatch(Update { permutations: self, minima, hashes });
    }
}

/// A loop that is compiled for the vector units of the machine at hand; whole numbers come out the same on
/// all of them.
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
            let (flips, factors, mut least) = (lanes.flips, lanes.factors, *minima);
            for hash in self.hashes {
                for lane in 0..LANES {
                    least[lane] = least[lane].min((hash ^ flips[lane]).wrapping_mul(factors[lane]));
                }
            }
            *minima = least;
        }
    }
}

/// One byte of a minimum, into which all its bits went (the finaliser of MurmurHash3): small minima have few
/// bits of their own.
pub(super) fn byte_of(minimum: u32) -> u8 {
    let mut hash = minimum;
    hash = (hash ^ (hash >> 16)).wrapping_mul(0x85eb_ca6b);
    hash = (hash ^ (hash >> 13)).wrapping_mul(0xc2b2_ae35);
    (hash ^ (hash >> 16)) as u8
}

/// The Jaccard similarity of two sets as the bytes of their minima show it, corrected for bytes that are
/// equal by chance. Its standard deviation is `sqrt(J (1 - J) / permutations)` and a little more: 0.035 at
/// 0.8 with 128 of them.
pub(super) fn similarity(a: &[u8], b: &[u8]) -> f64 {
    const CHANCE: f64 = 1.0 / 256.0;
    let equal = a.iter().zip(b).filter(|(a, b)| a == b).count();
    (equal as f64 / a.len().max(1) as f64 - CHANCE) / (1.0 - CHANCE)
}

/// How minima are cut into bands: documents that agree in all rows of a band become candidates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Banding {
    pub(super) bands: usize,
    pub(super) rows: usize,
}

/// The least share of pairs at the threshold itself that become candidates; above it the share soon comes
/// near to 1.
const LEAST_RECALL: f64 = 0.9;

impl Banding {
    /// The most rows (the fewest false candidates) that still find [`LEAST_RECALL`] of the pairs at
    /// `threshold`: 16 bands of 8 rows for 0.8 and 128 permutations. One row always remains.
    pub(super) fn for_threshold(threshold: f64, permutations: usize) -> Self {
        let with_rows = |rows| Self { bands: permutations / rows, rows };
        (1..=permutations)
            .rev()
            .map(with_rows)
            .find(|b| b.recall(threshold) >= LEAST_RECALL)
            .unwrap_or(with_rows(1))
    }

    /// The share of pairs of this similarity that become candidates: `1 - (1 - s^rows)^bands`.
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
            let (flip, factor) = (lanes.flips[i % LANES], lanes.factors[i % LANES]);
            assert_eq!(hashes.iter().map(|h| (h ^ flip).wrapping_mul(factor)).min(), Some(*got));
        }
    }

    #[test]
    fn the_estimate_is_unbiased_and_as_sharp_as_theory_says() {
        let permutations = Permutations::new(128);
        for (size, shared) in [(60u64, 48u64), (1000, 900), (200, 100), (30, 2), (2000, 1600)] {
            // Two sets of `size`, `shared` of them common: J = shared / (2 size - shared).
            let jaccard = shared as f64 / (2 * size - shared) as f64;
            let trials = 150;
            let errors: Vec<f64> = (0..trials)
                .map(|trial| {
                    let first = trial * 1_000_000;
                    let bytes = |from| {
                        minima(&permutations, from..from + size).into_iter().map(byte_of).collect::<Vec<u8>>()
                    };
                    similarity(&bytes(first), &bytes(first + size - shared)) - jaccard
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
}
