//! Counter-based random streams: every random number is a pure function of (seed, purpose, id, index).
//!
//! Streams have no state that would have to be saved, and any element of any stream can be computed on its
//! own, on any thread, in any order. The generator is Philox4x32-10 (Salmon et al., "Parallel random numbers:
//! as easy as 1, 2, 3", SC 2011), checked against the authors' known answers.

/// Purpose of a stream. Streams with different purposes never share a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Purpose {
    /// Initial values of parameters; id = hash of the parameter's name.
    Init = 1,
    /// Order of documents or examples; id = epoch.
    Order = 2,
    /// Choice of the masked tokens and of their replacements; id = sample.
    Mask = 3,
    /// Dropout; id = step and site.
    Dropout = 4,
    /// Choice of validation documents, and of subsets of examples; id = document or label.
    Split = 5,
    /// Inputs of tests and benchmarks.
    Test = 6,
    /// Token ids sampled from a model's predictions; id = step and site.
    Sample = 7,
    /// Examples and seeds that a bootstrap draws; id = replicate.
    Bootstrap = 8,
    /// Cuts of segment pairs, and replacements of second segments; id = sample.
    Pairs = 9,
    /// Order of the chunks of long documents; id = epoch.
    Chunks = 10,
    /// Place of the first candidate of a tuning; id = 0, index = varied key.
    Tuning = 11,
    /// Hash functions of near-duplicate search; id = number of one of their constants.
    Sketch = 16,
}

/// A stream of random numbers addressed by index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stream {
    key: [u32; 2],
    id: [u32; 2],
}

impl Stream {
    /// The stream of `purpose` and `id` under `seed`; only the low 56 bits of `id` are used.
    pub fn new(seed: u64, purpose: Purpose, id: u64) -> Self {
        Self {
            key: [seed as u32, (seed >> 32) as u32],
            id: [id as u32, (id >> 32) as u32 & 0x00ff_ffff | (purpose as u32) << 24],
        }
    }

    /// Key and id, for kernels that compute the counter themselves: word `w` of index `i` is word `w` of the
    /// generator at counter `[i's low half, i's high half, id[0], id[1]]`.
    pub fn counter(&self) -> ([u32; 2], [u32; 2]) {
        (self.key, self.id)
    }

    /// The four random words at `index`.
    #[inline(always)]
    pub fn words(&self, index: u64) -> [u32; 4] {
        philox([index as u32, (index >> 32) as u32, self.id[0], self.id[1]], self.key)
    }

    /// The words at `first`, `first + 1`, ... in lanes: element `[w][i]` is word `w` at index `first + i`.
    /// With at least eight lanes the compiler vectorises this loop over counters, which it does not do for
    /// single calls of [`Self::words`].
    #[expect(
        clippy::needless_range_loop,
        reason = "four arrays are written side by side, which iterators cannot say"
    )]
    #[inline(always)]
    pub fn words_lanes<const LANES: usize>(&self, first: u64) -> [[u32; LANES]; 4] {
        let mut lanes = [[0; LANES]; 4];
        for i in 0..LANES {
            let words = self.words(first + i as u64);
            (lanes[0][i], lanes[1][i], lanes[2][i], lanes[3][i]) = (words[0], words[1], words[2], words[3]);
        }
        lanes
    }

    /// The words at `first`, `first + 1`, ..., in the order of the indices. The compiler vectorises this loop
    /// like that of [`Self::words_lanes`]. With a `COUNT` of at least 16, the multiplications of two vectors
    /// run at the same time, since neither depends on the other.
    #[inline(always)]
    pub fn words_in_order<const COUNT: usize>(&self, first: u64) -> [[u32; 4]; COUNT] {
        let mut all = [[0; 4]; COUNT];
        for (i, words) in all.iter_mut().enumerate() {
            *words = self.words(first + i as u64);
        }
        all
    }

    // What follows is not `inline`: each crate that calls it would compile it again, in test builds without
    // optimisation.

    /// A random 64-bit word at `index`.
    pub fn u64(&self, index: u64) -> u64 {
        let [a, b, ..] = self.words(index);
        u64::from(a) | u64::from(b) << 32
    }

    /// A number in [0, 1) at `index`, with 53 random bits.
    pub fn uniform(&self, index: u64) -> f64 {
        (self.u64(index) >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// A whole number in [0, bound) at `index`; the bias is below 2^-64 x bound.
    pub fn below(&self, index: u64, bound: u64) -> u64 {
        ((u128::from(self.u64(index)) * u128::from(bound)) >> 64) as u64
    }

    /// A standard normal number at `index` (Box-Muller on 53-bit uniforms).
    pub fn normal(&self, index: u64) -> f64 {
        let [a, b, c, d] = self.words(index);
        let scale = 1.0 / (1u64 << 53) as f64;
        // 1 - u is in (0, 1], so its logarithm is finite.
        let u = 1.0 - ((u64::from(a) | u64::from(b) << 32) >> 11) as f64 * scale;
        let v = ((u64::from(c) | u64::from(d) << 32) >> 11) as f64 * scale;
        (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
    }

    /// Fills `values` with normal numbers of this standard deviation: those at the indices `first`,
    /// `first + 1`, ..., which must be below 2^40. A number of more than `cutoff` deviations is drawn again.
    pub fn fill_normal(&self, first: u64, values: &mut [f32], deviation: f64, cutoff: Option<f64>) {
        for (value, index) in values.iter_mut().zip(first..) {
            let mut number = self.normal(index);
            let mut attempt = 0;
            while cutoff.is_some_and(|cutoff| number.abs() > cutoff) {
                attempt += 1;
                // No index has these bits, so that no number is drawn twice.
                number = self.normal(attempt << 40 | index);
            }
            *value = (number * deviation) as f32;
        }
    }
}

/// A random permutation of `0..len` in O(1) memory: a four-round Feistel network with cycle walking.
#[derive(Debug, Clone, Copy)]
pub struct Permutation {
    stream: Stream,
    len: u64,
    half_bits: u32,
}

impl Permutation {
    /// The permutation of `0..len` that `stream` defines.
    pub fn new(stream: Stream, len: u64) -> Self {
        let bits = 64 - len.saturating_sub(1).leading_zeros();
        Self { stream, len, half_bits: bits.div_ceil(2).max(1) }
    }

    /// The image of `index`, which must be below the length.
    pub fn at(&self, index: u64) -> u64 {
        debug_assert!(index < self.len);
        let mask = (1u64 << self.half_bits) - 1;
        let mut value = index;
        loop {
            let mut left = value >> self.half_bits;
            let mut right = value & mask;
            for round in 0..4u64 {
                let mixed = self.stream.u64(round << 48 | right) & mask;
                (left, right) = (right, left ^ mixed);
            }
            value = left << self.half_bits | right;
            // Repeating the map until the value is in range (cycle walking) keeps it one-to-one.
            if value < self.len {
                return value;
            }
        }
    }
}

/// A 64-bit FNV-1a hash of a name, for use as the id of a stream.
pub fn hash_name(name: &str) -> u64 {
    name.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

const M0: u32 = 0xD251_1F53;
const M1: u32 = 0xCD9E_8D57;
const W0: u32 = 0x9E37_79B9;
const W1: u32 = 0xBB67_AE85;

/// Philox4x32-10 of one counter. Between rounds, each word is the low half of a 64-bit number: so a product
/// is one lane of a vector, and neither the product nor its halves have to change lanes.
#[inline(always)]
fn philox(counter: [u32; 4], mut k: [u32; 2]) -> [u32; 4] {
    const LOW: u64 = 0xffff_ffff;
    let mut c = counter.map(u64::from);
    for _ in 0..10 {
        let p0 = u64::from(M0) * (c[0] & LOW);
        let p1 = u64::from(M1) * (c[2] & LOW);
        c = [p1 >> 32 ^ c[1] ^ u64::from(k[0]), p1, p0 >> 32 ^ c[3] ^ u64::from(k[1]), p0];
        k = [k[0].wrapping_add(W0), k[1].wrapping_add(W1)];
    }
    c.map(|word| word as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn philox_gives_the_known_answers_of_random123() {
        // Random123 kat_vectors: philox4x32 10 rounds.
        assert_eq!(philox([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(
            philox([u32::MAX; 4], [u32::MAX; 2]),
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
        );
        assert_eq!(
            philox([0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344], [0xa409_3822, 0x299f_31d0]),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    #[test]
    fn many_indices_at_once_have_the_same_words_as_single_ones() {
        let stream = Stream::new(0x0123_4567_89ab_cdef, Purpose::Dropout, 77);
        for first in [0, 5 << 16 | 3, u64::from(u32::MAX) - 3] {
            let lanes = stream.words_lanes::<8>(first);
            let in_order = stream.words_in_order::<8>(first);
            for i in 0..8 {
                assert_eq!(stream.words(first + i as u64), lanes.map(|word| word[i]));
                assert_eq!(stream.words(first + i as u64), in_order[i]);
            }
        }
    }

    #[test]
    fn permutation_visits_every_index_once() {
        for len in [1u64, 2, 3, 7, 64, 1000] {
            let permutation = Permutation::new(Stream::new(9, Purpose::Order, len), len);
            let mut seen: Vec<u64> = (0..len).map(|i| permutation.at(i)).collect();
            seen.sort_unstable();
            assert_eq!(seen, (0..len).collect::<Vec<_>>());
        }
    }

    #[test]
    fn normals_have_unit_variance_and_purposes_differ() {
        let stream = Stream::new(1, Purpose::Test, 2);
        let values: Vec<f64> = (0..20_000).map(|i| stream.normal(i)).collect();
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / values.len() as f64;
        assert!(mean.abs() < 0.03, "{mean}");
        assert!((variance - 1.0).abs() < 0.04, "{variance}");
        assert_ne!(stream.u64(0), Stream::new(1, Purpose::Mask, 2).u64(0));
        assert_ne!(stream.u64(0), Stream::new(1, Purpose::Test, 3).u64(0));
    }
}
