//! Counts of tokens that occur near each other, as positive pointwise mutual information.

use std::ops::Range;

use anyhow::Result;
use rayon::iter::{IntoParallelIterator, ParallelIterator};

use data::shards::ShardSet;
use ops::matmul::sparse::SparseRows;

/// Number of tokens to either side that count as neighbours; a neighbour at distance d has the weight 1/d.
pub(super) const WINDOW: usize = 5;

/// Number of rows that are counted at once, as dense rows: with small vocabularies their counts stay in the
/// caches.
const BLOCK: usize = 256;

/// The tokens of documents, concatenated.
#[derive(Debug)]
pub(super) struct Text {
    tokens: Vec<u32>,
    /// End of each document in `tokens`.
    ends: Vec<usize>,
    vocab_size: usize,
}

impl Text {
    /// Reads all documents of the shards, or a part of them, spread evenly, with `most` tokens in total.
    pub(super) fn read(shards: &ShardSet, most: u64) -> Result<Self> {
        let every = shards.num_tokens().div_ceil(most).max(1);
        let mut text = Self { tokens: Vec::new(), ends: Vec::new(), vocab_size: shards.vocab_size() };
        let mut bytes = Vec::new();
        for document in (0..shards.num_documents()).step_by(every as usize) {
            let place = shards.locate(document)?;
            let room = most - text.tokens.len() as u64;
            shards.read(&place, 0, place.len.min(room), &mut bytes, &mut text.tokens)?;
            text.ends.push(text.tokens.len());
        }
        Ok(text)
    }

    #[cfg(test)]
    pub(super) fn from_documents(documents: &[&[u32]], vocab_size: usize) -> Self {
        let tokens = documents.concat();
        let ends = documents.iter().scan(0, |end, document| {
            *end += document.len();
            Some(*end)
        });
        Self { ends: ends.collect(), tokens, vocab_size }
    }

    pub(super) fn len(&self) -> usize {
        self.tokens.len()
    }

    fn documents(&self) -> impl Iterator<Item = &[u32]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, &end)| &self.tokens[start..end])
    }
}

/// A symmetric matrix `[V, V]` that stores only its positive entries, by rows.
#[derive(Debug, Default)]
pub(super) struct Associations {
    /// Start of each row in `columns` and `values`, then the end of the last row.
    starts: Vec<usize>,
    columns: Vec<u32>,
    values: Vec<f32>,
}

impl Associations {
    /// Computes max(0, log(c_ij t / (f_i f_j))), where c counts neighbours, f is the sum of a row of c, and t
    /// the sum of all counts. Calls `after` with the number of rows that were finished; its error ends the
    /// counting.
    pub(super) fn new(text: &Text, after: impl Fn(u64) -> Result<()> + Sync) -> Result<Self> {
        let vocab_size = text.vocab_size;
        let frequencies = frequencies(text);
        let total: f64 = frequencies.iter().sum();
        let blocks: Result<Vec<Self>> = (0..vocab_size.div_ceil(BLOCK))
            .into_par_iter()
            .map(|block| {
                let rows = block * BLOCK..((block + 1) * BLOCK).min(vocab_size);
                let counts = counts(text, &rows);
                let mut found = Self::default();
                for (row, counts) in rows.clone().zip(counts.chunks_exact(vocab_size)) {
                    found.starts.push(found.columns.len());
                    for (column, &count) in counts.iter().enumerate().filter(|(_, count)| **count > 0.0) {
                        let expected = frequencies[row] * frequencies[column] / total;
                        let value = (f64::from(count) / expected).ln();
                        if value > 0.0 {
                            found.columns.push(column as u32);
                            found.values.push(value as f32);
                        }
                    }
                }
                after(rows.len() as u64)?;
                Ok(found)
            })
            .collect();
        let mut matrix = Self::default();
        for block in blocks? {
            let before = matrix.columns.len();
            matrix.starts.extend(block.starts.iter().map(|start| before + start));
            matrix.columns.extend(block.columns);
            matrix.values.extend(block.values);
        }
        matrix.starts.push(matrix.columns.len());
        Ok(matrix)
    }

    /// Number of rows, which is also the number of columns (V).
    pub(super) fn len(&self) -> usize {
        self.starts.len() - 1
    }

    /// The positive entries by rows.
    pub(super) fn rows(&self) -> SparseRows<'_> {
        SparseRows { starts: &self.starts, columns: &self.columns, values: &self.values }
    }

    /// The positive entries of a row, with their columns.
    #[cfg(test)]
    pub(super) fn row(&self, row: usize) -> impl Iterator<Item = (usize, f32)> {
        let range = self.starts[row]..self.starts[row + 1];
        let columns = self.columns[range.clone()].iter().map(|&column| column as usize);
        columns.zip(self.values[range].iter().copied())
    }
}

/// Sum of each row of the counts.
fn frequencies(text: &Text) -> Vec<f64> {
    // Total weight of the neighbours on one side, by their number.
    let side_weights: Vec<f64> =
        (0..=WINDOW).map(|there| (1..=there).map(|distance| f64::from(weight(distance))).sum()).collect();
    let mut frequencies = vec![0.0; text.vocab_size];
    for document in text.documents() {
        for (at, &token) in document.iter().enumerate() {
            let before = at.min(WINDOW);
            let after = (document.len() - 1 - at).min(WINDOW);
            frequencies[token as usize] += side_weights[before] + side_weights[after];
        }
    }
    frequencies
}

fn weight(distance: usize) -> f32 {
    1.0 / distance as f32
}

/// Weighted counts of the neighbours of the tokens `rows`, `[rows, V]`.
fn counts(text: &Text, rows: &Range<usize>) -> Vec<f32> {
    let mut counts = vec![0.0; rows.len() * text.vocab_size];
    for document in text.documents() {
        for (at, &token) in document.iter().enumerate() {
            if !rows.contains(&(token as usize)) {
                continue;
            }
            let row = &mut counts[(token as usize - rows.start) * text.vocab_size..][..text.vocab_size];
            for distance in 1..=WINDOW {
                let before = at.checked_sub(distance).map(|before| document[before]);
                for neighbour in before.into_iter().chain(document.get(at + distance).copied()) {
                    row[neighbour as usize] += weight(distance);
                }
            }
        }
    }
    counts
}
