//! Initial word embeddings from the text itself: tokens with the same neighbours start close to each other.
//!
//! With random rows a model spends millions of tokens on learning which words are similar; counting
//! neighbours gives much of that in seconds. Tokens within [`counts::WINDOW`] of each other are counted, the
//! counts become positive pointwise mutual information, and the rows are the entries of its dominant singular
//! vectors, all weighted equally, with every row scaled to the same length. Levy, Goldberg and Dagan (2015,
//! "Improving distributional similarity with lessons learned from word embeddings") compare these choices.
//!
//! Independent of the model: the caller scales the rows.

mod counts;
mod subspace;

#[cfg(test)]
mod tests;

use anyhow::Result;

use crate::tasks::pretraining::word_vectors::counts::{Associations, Text};
use crate::telemetry::{Progress, Unit};
use base::error::Problem;
use base::rng::{Purpose, Stream, hash_name};
use data::shards::ShardSet;

/// Most tokens that are counted, spread over the text; counting more changes only the rows of rare tokens.
const MOST_TOKENS: u64 = 16 << 20;

/// A vector for each entry of the vocabulary.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct WordVectors {
    /// Row-major, each row of length 1, or all zero for a token that the text does not contain.
    pub(super) rows: Vec<f32>,
    /// Number of tokens that have a vector.
    pub(super) found: usize,
}

/// Computes the vectors of the tokens of a text, with the same result for any number of threads. Returns an
/// error for a text with too few different tokens, and the first error of `go_on`, which is called time and
/// again.
pub(super) fn word_vectors(
    text: &ShardSet,
    dimensions: usize,
    seed: u64,
    progress: &Progress,
    go_on: &(dyn Fn() -> Result<()> + Sync),
) -> Result<WordVectors> {
    let text = Text::read(text, MOST_TOKENS)?;
    let counting = progress.stage("counting neighbours", Unit::Items, None);
    let associations = Associations::new(&text, |rows| {
        counting.advance(rows);
        go_on()
    })?;
    counting.finish(&format!("{} tokens", text.len()));
    let stream = Stream::new(seed, Purpose::Init, hash_name("word vectors"));
    let finding = progress.stage("finding word vectors", Unit::Items, Some(subspace::ROUNDS));
    let basis = subspace::dominant(&associations, dimensions, stream, || {
        finding.advance(1);
        go_on()
    })?;
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
        // A token without neighbours has exact zeros. A length below this bound would be that of rounding
        // errors.
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
