//! Minimal pairs: which of two sentences that differ in one thing a pretrained model finds likelier. Nothing is
//! trained.
//!
//! A masked language model gives a sentence its pseudo-log-likelihood, a discriminator that of no token being
//! replaced ([`likelihood`]). BLiMP is the best known set of such pairs (arXiv:1912.00582).

pub mod likelihood;
mod pairs;
mod report;
#[cfg(test)]
mod tests;

pub use likelihood::Likelihood;
pub use likelihood::Masking;
pub use pairs::Pair;
pub use pairs::read_pairs;
pub use report::report;

/// Log-likelihoods in nats of the two sentences of a pair.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Judged {
    /// Of the sentence that is right.
    pub good: f64,
    /// Of the other one.
    pub bad: f64,
}

impl Judged {
    /// Whether the right sentence is the likelier one; a tie is wrong.
    pub fn is_right(self) -> bool {
        self.good > self.bad
    }
}
