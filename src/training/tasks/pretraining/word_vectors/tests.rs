//! Tests of the counts against their definition, and of the basis against plain power iteration.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

use super::counts::{Associations, Text, WINDOW};
use super::{subspace, word_vectors};
use crate::telemetry::Progress;
use base::rng::{Purpose, Stream};
use data::shards::ShardSet;

/// Documents of random lengths, some with one token or none, with tokens from 0 to `vocab_size - 2`.
fn documents(seed: u64, count: u64, vocab_size: u64) -> Vec<Vec<u32>> {
    let mut documents = Vec::new();
    for number in 0..count {
        let stream = Stream::new(seed, Purpose::Test, number);
        let mut document = Vec::new();
        for at in 1..=stream.below(0, 40) {
            // Small ids are more frequent, as in text.
            document.push(stream.below(at, stream.below(at << 20, vocab_size - 1) + 1) as u32);
        }
        documents.push(document);
    }
    documents
}

/// Positive pointwise mutual information by its formula, from counts of all pairs.
fn by_definition(documents: &[Vec<u32>]) -> BTreeMap<(usize, usize), f64> {
    let mut counts = BTreeMap::<(usize, usize), f64>::new();
    for document in documents {
        for (i, &a) in document.iter().enumerate() {
            for (j, &b) in document.iter().enumerate() {
                let distance = i.abs_diff(j);
                if (1..=WINDOW).contains(&distance) {
                    *counts.entry((a as usize, b as usize)).or_default() += 1.0 / distance as f64;
                }
            }
        }
    }
    let total: f64 = counts.values().sum();
    let mut frequencies = BTreeMap::<usize, f64>::new();
    for ((row, _), count) in &counts {
        *frequencies.entry(*row).or_default() += count;
    }
    let mut information = BTreeMap::new();
    for ((a, b), count) in counts {
        let value = (count * total / (frequencies[&a] * frequencies[&b])).ln();
        if value > 0.0 {
            information.insert((a, b), value);
        }
    }
    information
}

#[test]
fn associations_are_those_of_the_formula() {
    for seed in 0..5 {
        // There are more rows than are counted at once.
        let documents = documents(seed, 60, 300);
        let text = Text::from_documents(&documents.iter().map(Vec::as_slice).collect::<Vec<_>>(), 300);
        let found = Associations::new(&text, |_| Ok(())).unwrap();
        let want = by_definition(&documents);
        let mut entries = 0;
        for row in 0..found.len() {
            for (column, value) in found.row(row) {
                let want = want[&(row, column)];
                assert!(
                    (f64::from(value) - want).abs() < 1e-5 * (1.0 + want),
                    "{row}, {column}: {value} {want}"
                );
                entries += 1;
            }
        }
        assert_eq!(entries, want.len(), "nothing is left out but what rounds to zero");
        assert!(entries > 1000, "or there is little to compare");
    }
}

/// The basis spans the eigenvectors of the largest eigenvalues: its share of the matrix's square is at most
/// slightly below the best that any space of this dimension can have.
#[test]
fn the_basis_is_orthonormal_and_dominant() {
    let vocab_size = 120;
    let dimensions = 12;
    let documents = documents(3, 400, vocab_size);
    let documents: Vec<&[u32]> = documents.iter().map(Vec::as_slice).collect();
    let text = Text::from_documents(&documents, vocab_size as usize);
    let matrix = Associations::new(&text, |_| Ok(())).unwrap();
    let basis = subspace::dominant(&matrix, dimensions, Stream::new(1, Purpose::Test, 9), || Ok(()))
        .unwrap()
        .expect("the text has more tokens than dimensions");
    let mut columns = Vec::new();
    for j in 0..dimensions {
        columns.push(basis.chunks_exact(dimensions).map(|row| f64::from(row[j])).collect::<Vec<f64>>());
    }
    for i in 0..dimensions {
        for j in 0..dimensions {
            let product = dot(&columns[i], &columns[j]);
            assert!((product - f64::from(u8::from(i == j))).abs() < 1e-5, "{i}, {j}: {product}");
        }
    }
    let found = sum_of_squares(&matrix, &columns);
    // The best basis, one vector after the other, by many plain multiplications.
    let mut best: Vec<Vec<f64>> = Vec::new();
    for number in 0..dimensions {
        let draw = Stream::new(2, Purpose::Test, number as u64);
        let mut vector: Vec<f64> = (0..vocab_size).map(|index| draw.normal(index)).collect();
        for _ in 0..500 {
            // Multiplied twice, since eigenvalues of either sign count by their absolute value.
            vector = times(&matrix, &times(&matrix, &vector));
            for known in &best {
                let along = dot(&vector, known);
                vector.iter_mut().zip(known).for_each(|(value, known)| *value -= along * known);
            }
            let length = dot(&vector, &vector).sqrt();
            for value in &mut vector {
                *value /= length;
            }
        }
        best.push(vector);
    }
    let best = sum_of_squares(&matrix, &best);
    assert!(found > 0.97 * best && found < best * (1.0 + 1e-6), "{found} of {best}");
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// `matrix` times `vector`.
fn times(matrix: &Associations, vector: &[f64]) -> Vec<f64> {
    (0..matrix.len())
        .map(|row| matrix.row(row).map(|(column, value)| f64::from(value) * vector[column]).sum())
        .collect()
}

/// The sum of the squared lengths of `matrix` times each vector.
fn sum_of_squares(matrix: &Associations, vectors: &[Vec<f64>]) -> f64 {
    vectors.iter().map(|vector| times(matrix, vector)).map(|product| dot(&product, &product)).sum()
}

#[test]
fn tokens_with_the_same_neighbours_have_the_same_direction_and_missing_ones_none() {
    // Tokens 0 and 1 occur between the same words, 2 and 3 between others; 11 never occurs.
    let mut documents = Vec::new();
    for number in 0..400u64 {
        let stream = Stream::new(5, Purpose::Test, number);
        let pair = stream.below(0, 2) as u32;
        let side = 4 + 3 * stream.below(1, 2) as u32;
        let token = if side == 4 { pair } else { 2 + pair };
        documents.push(vec![side + stream.below(2, 3) as u32, token, side + stream.below(3, 3) as u32]);
    }
    let text = ShardSet::in_memory(&documents, 12);
    let found = word_vectors(&text, 3, 7, &Progress::silent(), &|| Ok(())).unwrap();
    assert_eq!(found.found, 10, "tokens 10 and 11 are not there");
    for (a, b) in [(0, 1), (2, 3)] {
        assert!(similarity(&found.rows, a, b) > 0.99, "{a}, {b}: {}", similarity(&found.rows, a, b));
    }
    let different = similarity(&found.rows, 0, 2);
    assert!(different.abs() < 0.5, "{different}");
    assert!((similarity(&found.rows, 4, 4) - 1.0).abs() < 1e-6);
    assert_eq!(found.rows[3 * 11..], [0.0; 3]);
    let alone = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    let again = alone.install(|| word_vectors(&text, 3, 7, &Progress::silent(), &|| Ok(()))).unwrap();
    assert_eq!(found, again, "threads change nothing");
    let error = word_vectors(&text, 12, 7, &Progress::silent(), &|| Ok(())).unwrap_err().to_string();
    assert!(error.contains("too few different tokens for vectors of 12 numbers"), "{error}");
}

#[test]
fn an_interruption_ends_the_counting_and_the_search() {
    let text = ShardSet::in_memory(&documents(3, 200, 300), 300);
    for calls in [0, 1, 3] {
        let left = AtomicU64::new(calls);
        let ended = word_vectors(&text, 8, 7, &Progress::silent(), &|| {
            let more = left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1));
            more.map(drop).map_err(|_| anyhow::anyhow!("interrupted"))
        });
        assert_eq!(ended.unwrap_err().to_string(), "interrupted", "after {calls} calls");
    }
}

/// Dot product of the vectors of two tokens, in rows of three numbers.
fn similarity(rows: &[f32], a: usize, b: usize) -> f32 {
    rows[3 * a..][..3].iter().zip(&rows[3 * b..][..3]).map(|(a, b)| a * b).sum()
}
