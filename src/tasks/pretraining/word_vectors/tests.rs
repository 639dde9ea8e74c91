//! Counts by their definition, and a basis against plain power iteration.

use std::collections::BTreeMap;

use super::counts::Associations;
use super::counts::Text;
use super::counts::WINDOW;
use super::subspace;
use super::word_vectors;
use crate::rng::Purpose;
use crate::rng::Stream;
use crate::shards::ShardSet;
use crate::telemetry::Progress;

/// Documents of random lengths, some of a token or none, with tokens below `vocab_size` but for the last.
fn documents(seed: u64, count: u64, vocab_size: u64) -> Vec<Vec<u32>> {
    let draw =
        |document: u64, index: u64, bound| Stream::new(seed, Purpose::Test, document).below(index, bound);
    let document = |number| {
        let len = draw(number, 0, 40);
        // Small ids are the more frequent ones, as in text.
        (1..=len).map(|at| draw(number, at, draw(number, at << 20, vocab_size - 1) + 1) as u32).collect()
    };
    (0..count).map(document).collect()
}

/// By the formula, from counts of all pairs.
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
    let frequency = |token| counts.iter().filter(|((row, _), _)| *row == token).map(|(_, c)| c).sum::<f64>();
    let total: f64 = counts.values().sum();
    let information = |(&(a, b), count): (&(usize, usize), &f64)| {
        ((a, b), (count * total / (frequency(a) * frequency(b))).ln())
    };
    counts.iter().map(information).filter(|(_, value)| *value > 0.0).collect()
}

#[test]
fn associations_are_those_of_the_formula() {
    for seed in 0..5 {
        // More rows than are counted at once.
        let documents = documents(seed, 60, 300);
        let text = Text::of(&documents.iter().map(Vec::as_slice).collect::<Vec<_>>(), 300);
        let found = Associations::of(&text, |_| {});
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

/// The basis spans the eigenvectors of the largest eigenvalues: what is left of the matrix's square outside of
/// it is no more than a little above the best that so many dimensions can do.
#[test]
fn the_basis_is_orthonormal_and_dominant() {
    let (vocab_size, dimensions) = (120, 12);
    let documents = documents(3, 400, vocab_size);
    let text = Text::of(&documents.iter().map(Vec::as_slice).collect::<Vec<_>>(), vocab_size as usize);
    let matrix = Associations::of(&text, |_| {});
    let basis = subspace::dominant(&matrix, dimensions, Stream::new(1, Purpose::Test, 9), || {})
        .unwrap()
        .expect("the text has more tokens than dimensions");
    let column = |basis: &[f32], j: usize| -> Vec<f64> {
        basis.chunks_exact(dimensions).map(|row| f64::from(row[j])).collect()
    };
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    for i in 0..dimensions {
        for j in 0..dimensions {
            let product = dot(&column(&basis, i), &column(&basis, j));
            assert!((product - f64::from(u8::from(i == j))).abs() < 1e-5, "{i}, {j}: {product}");
        }
    }
    let times = |vector: &[f64]| -> Vec<f64> {
        (0..matrix.len())
            .map(|row| matrix.row(row).map(|(column, value)| f64::from(value) * vector[column]).sum())
            .collect()
    };
    let squares = |vectors: &[Vec<f64>]| vectors.iter().map(|v| times(v)).map(|v| dot(&v, &v)).sum::<f64>();
    let found = squares(&(0..dimensions).map(|j| column(&basis, j)).collect::<Vec<_>>());
    // The best, one vector after the other, by many plain multiplications.
    let mut best: Vec<Vec<f64>> = Vec::new();
    for number in 0..dimensions {
        let draw = Stream::new(2, Purpose::Test, number as u64);
        let mut vector: Vec<f64> = (0..vocab_size).map(|index| draw.normal(index)).collect();
        for _ in 0..3000 {
            // Twice: eigenvalues of either sign count by their size.
            vector = times(&times(&vector));
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
    let best = squares(&best);
    assert!(found > 0.97 * best && found < best * (1.0 + 1e-6), "{found} of {best}");
}

#[test]
fn tokens_with_the_same_neighbours_have_the_same_direction_and_missing_ones_none() {
    // 0 and 1 stand between the same words, 2 and 3 between others; 11 never occurs.
    let mut documents = Vec::new();
    for number in 0..400u64 {
        let draw = |index, bound| Stream::new(5, Purpose::Test, number).below(index, bound) as u32;
        let (pair, side) = (draw(0, 2), 4 + 3 * draw(1, 2));
        let token = if side == 4 { pair } else { 2 + pair };
        documents.push(vec![side + draw(2, 3), token, side + draw(3, 3)]);
    }
    let text = ShardSet::in_memory(&documents, 12);
    let found = word_vectors(&text, 3, 7, &Progress::silent()).unwrap();
    assert_eq!(found.found, 10, "tokens 10 and 11 are not there");
    let row = |token: usize| &found.rows[3 * token..][..3];
    let likeness = |a, b| row(a).iter().zip(row(b)).map(|(a, b)| a * b).sum::<f32>();
    assert!(likeness(0, 1) > 0.99 && likeness(2, 3) > 0.99, "{} {}", likeness(0, 1), likeness(2, 3));
    assert!(likeness(0, 2).abs() < 0.5, "{}", likeness(0, 2));
    assert!((likeness(4, 4) - 1.0).abs() < 1e-6);
    assert_eq!(row(11), [0.0; 3]);
    let alone = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    let again = alone.install(|| word_vectors(&text, 3, 7, &Progress::silent())).unwrap();
    assert_eq!(found, again, "threads change nothing");
    let error = word_vectors(&text, 12, 7, &Progress::silent()).unwrap_err().to_string();
    assert!(error.contains("too few different tokens for vectors of 12 numbers"), "{error}");
}
