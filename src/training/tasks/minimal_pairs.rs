//! Minimal pairs: which of two sentences, differing in one respect, a pretrained model finds more likely.
//! Nothing is trained.
//!
//! A masked language model gives a sentence its pseudo-log-likelihood, a discriminator the log-probability
//! that no token was replaced ([`likelihood`]). BLiMP is the best known dataset of such pairs
//! (arXiv:1912.00582).

pub mod likelihood;
mod pairs;
mod report;
#[cfg(test)]
mod tests;

pub use likelihood::{Likelihood, Masking};
pub use pairs::{Pair, read_pairs};
pub use report::report;

/// Log-likelihoods in nats of the two sentences of a pair.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Judged {
    /// Log-likelihood of the correct sentence.
    pub good: f64,
    /// Log-likelihood of the other sentence.
    pub bad: f64,
}

impl Judged {
    /// True if the correct sentence is more likely; a tie is wrong.
    pub fn is_right(self) -> bool {
        self.good > self.bad
    }
}
