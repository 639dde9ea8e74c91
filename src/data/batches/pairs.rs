//! Divides a part of a document into the two texts of a pair, and replaces the second one in some pairs.
//!
//! Shards have no sentences, so texts end anywhere: a pair is a part of a document that fills the remaining
//! space of a row (or is the rest of the document), divided at a random place (SEGMENT-PAIR of Liu et al.,
//! "RoBERTa", 2019, section 4.2; BERT's own code divides similarly, at the end of a line). Half of the pairs
//! stay as they are, which is class 0. In the other half, either the two texts are swapped (Lan et al.,
//! "ALBERT", 2020, section 3.1), or the second text is replaced by as many tokens from anywhere in another
//! document (Devlin et al., 2019, section 3.1), and the document continues after the first text. So every
//! token of an epoch occurs once, apart from those drawn from other documents.
//!
//! Everything is a function of seed and sample: random draws depend on no other row, thread or process.

use base::rng::{Purpose, Stream};
use config::SentencePairs;

/// Special tokens of a pair.
pub(super) const SPECIAL: u64 = 3;

/// A shorter part is one text without a label.
pub(super) const TOKENS_MIN: u64 = 4;

/// Number of documents to draw until one is long enough.
pub(super) const DOCUMENTS: u64 = 6;

/// Number of random draws for one pair: three, and two for each document.
const DRAWS: u64 = 3 + 2 * DOCUMENTS;

/// The composition of a segment of a row from pieces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Segment {
    /// The class of the pair; `None` for a single text.
    pub(super) label: Option<u32>,
    /// Number of tokens from another document.
    pub(super) drawn: u64,
    /// True if a document begins in this segment and continues in another one.
    pub(super) is_cut: bool,
}

/// The random draws of one pair.
#[derive(Debug, Clone, Copy)]
pub(super) struct Draw {
    stream: Stream,
    first: u64,
}

impl Draw {
    /// The draws of pair `number` of the row with this sample id.
    pub(super) fn new(seed: u64, sample_id: u64, number: u64) -> Self {
        Self { stream: Stream::new(seed, Purpose::Pairs, sample_id), first: DRAWS * number }
    }

    /// Returns true if the pair is of class 1.
    pub(super) fn is_other(&self) -> bool {
        self.stream.uniform(self.first) < 0.5
    }

    /// Number of tokens of the first of two texts that have `tokens` tokens together: a quarter to three
    /// quarters of them.
    pub(super) fn cut(&self, tokens: u64) -> u64 {
        let least = tokens.div_ceil(4);
        least + self.stream.below(self.first + 1, tokens - 2 * least + 1)
    }

    /// The position in a document of `tokens` tokens from which `count` tokens are taken.
    pub(super) fn start(&self, tokens: u64, count: u64) -> u64 {
        self.stream.below(self.first + 2, tokens - count + 1)
    }

    /// The stream and the first of two indices with which document number `attempt` is drawn.
    pub(super) fn document(&self, attempt: u64) -> (&Stream, u64) {
        (&self.stream, self.first + 3 + 2 * attempt)
    }
}

/// Two pieces in the order of the row.
pub(super) fn ordered<P>(pairs: SentencePairs, is_other: bool, [first, second]: [P; 2]) -> [P; 2] {
    if is_other && pairs == SentencePairs::SentenceOrder { [second, first] } else { [first, second] }
}
