//! Where a stretch of a document is cut into the two texts of a pair, and what takes the place of the second.
//!
//! Shards know no sentences, so that texts end anywhere: a pair is a stretch that fills what is left of a row,
//! or of its document, cut at a place that is drawn (SEGMENT-PAIR of Liu et al., "RoBERTa", 2019, section
//! 4.2; BERT's own code cuts likewise, at the end of a line). Half of the pairs are as they were, which is
//! class 0; of the others the two texts are swapped (Lan et al., "ALBERT", 2020, section 3.1), or the second
//! one is as many tokens from anywhere in another document (Devlin et al., 2019, section 3.1), and the
//! document goes on behind the first. So every token of an epoch still comes once besides those that were
//! drawn.
//!
//! All is a function of seed and sample: what is drawn depends on no other row, thread or process.

use crate::config::SentencePairs;
use crate::rng::Purpose;
use crate::rng::Stream;

/// Special tokens of a pair.
pub(super) const SPECIAL: u64 = 3;

/// A shorter stretch is one text without a label.
pub(super) const TOKENS_MIN: u64 = 4;

/// Documents that are drawn until one is long enough.
pub(super) const DOCUMENTS: u64 = 6;

/// Indices of a stream for one pair: three, and two for each document.
const DRAWS: u64 = 3 + 2 * DOCUMENTS;

/// How one segment of a row is made of its pieces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Segment {
    /// The class of the pair; `None` for a single text.
    pub(super) label: Option<u32>,
    /// Tokens that are of another document.
    pub(super) drawn: u64,
    /// Whether a document begins here that another segment goes on with.
    pub(super) is_cut: bool,
}

/// What is drawn for one pair.
#[derive(Debug, Clone, Copy)]
pub(super) struct Draw {
    stream: Stream,
    first: u64,
}

impl Draw {
    /// For pair `number` of the row with this sample id.
    pub(super) fn new(seed: u64, sample_id: u64, number: u64) -> Self {
        Self { stream: Stream::new(seed, Purpose::Pairs, sample_id), first: DRAWS * number }
    }

    /// Whether the pair is of class 1.
    pub(super) fn is_other(&self) -> bool {
        self.stream.uniform(self.first) < 0.5
    }

    /// Tokens of the first of two texts that have `tokens` together: a quarter to three quarters of them.
    pub(super) fn cut(&self, tokens: u64) -> u64 {
        let least = tokens.div_ceil(4);
        least + self.stream.below(self.first + 1, tokens - 2 * least + 1)
    }

    /// Where `count` of the `tokens` tokens of a document begin.
    pub(super) fn start(&self, tokens: u64, count: u64) -> u64 {
        self.stream.below(self.first + 2, tokens - count + 1)
    }

    /// The stream and the first of two indices by which document number `attempt` is drawn.
    pub(super) fn document(&self, attempt: u64) -> (&Stream, u64) {
        (&self.stream, self.first + 3 + 2 * attempt)
    }
}

/// Two pieces as a row has them.
pub(super) fn ordered<P>(pairs: SentencePairs, is_other: bool, [first, second]: [P; 2]) -> [P; 2] {
    if is_other && pairs == SentencePairs::SentenceOrder { [second, first] } else { [first, second] }
}
