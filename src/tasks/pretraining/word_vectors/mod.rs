//! First word embeddings from the text itself: tokens that stand beside the same tokens begin near each other.
//!
//! From random rows a model spends millions of tokens on finding out which words are alike; counting says much
//! of it in seconds. Tokens within [`counts::WINDOW`] of each other are counted, the counts become positive
//! pointwise mutual information, and the rows are what its dominant singular vectors say of each token, all of
//! equal weight and every row of equal length. Levy, Goldberg and Dagan (2015, "Improving distributional
//! similarity with lessons learned from word embeddings") compare these choices.
//!
//! Knows no model: whoever asks scales the rows.

mod counts;
mod subspace;

#[cfg(test)]
mod tests;

use anyhow::Result;

use crate::error::Problem;
use crate::rng::Purpose;
use crate::rng::Stream;
use crate::rng::hash_name;
use crate::shards::ShardSet;
use crate::tasks::pretraining::word_vectors::counts::Associations;
use crate::tasks::pretraining::word_vectors::counts::Text;
use crate::telemetry::Progress;
use crate::telemetry::Unit;

/// The most tokens that are counted, spread over the text: more change the rows of rare tokens only.
const MOST_TOKENS: u64 = 16 << 20;

/// A row for each entry of the vocabulary.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct WordVectors {
    /// Row-major: of length 1, or all zero for a token that the text does not have.
    pub(super) rows: Vec<f32>,
    /// Tokens that have a row.
    pub(super) found: usize,
}

/// The vectors of the tokens of a text; the same for any number of threads. An error for a text with too few
/// different tokens.
pub(super) fn word_vectors(
    text: &ShardSet,
    dimensions: usize,
    seed: u64,
    progress: &Progress,
) -> Result<WordVectors> {
    let text = Text::read(text, MOST_TOKENS)?;
    let counting = progress.stage("counting neighbours", Unit::Items, None);
    let associations = Associations::of(&text, |rows| counting.advance(rows));
    counting.finish(&format!("{} tokens", text.len()));
    let stream = Stream::new(seed, Purpose::Init, hash_name("word vectors"));
    let finding = progress.stage("finding word vectors", Unit::Items, Some(subspace::ROUNDS));
    let basis = subspace::dominant(&associations, dimensions, stream, || finding.advance(1))?;
    let Some(mut rows) = basis else {
        return Err(Problem::usage(format!(
            "is `cooccurrence`, but the text has too few different tokens for vectors of {dimensions} numbers"
        ))
        .at("model.initial_embeddings")
        .hint("leave it out")
        .into());
    };
    finding.finish("done");
    let mut found = 0;
    for row in rows.chunks_exact_mut(dimensions) {
        let length = row.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt();
        // A token without neighbours has exact zeros; dividing by less than this would show rounding errors.
        if length > 1e-9 {
            found += 1;
            for value in row {
                *value = (f64::from(*value) / length) as f32;
            }
        } else {
            row.fill(0.0);
        }
    }
    Ok(WordVectors { rows, found })
}
