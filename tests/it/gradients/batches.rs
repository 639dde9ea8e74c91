//! Batches for each kind of task, of the same random tokens.

use mlmtrain::batches::Batch;
use mlmtrain::families::Family;
use mlmtrain::rng::{Purpose, Stream};

use super::{LABELS, LENGTHS, VOCABULARY};

/// Segments of random tokens; the special ones 0 to 4 are left out.
pub(super) fn tokens() -> Batch {
    let stream = Stream::new(11, Purpose::Test, 0);
    let mut batch = Batch { cu_seqlens: vec![0], sample_ids: vec![31, 32], ..Batch::default() };
    for length in LENGTHS {
        batch.position_ids.extend(0..length);
        batch.cu_seqlens.push(batch.position_ids.len() as u32);
    }
    let count = batch.position_ids.len();
    batch.ids = (0..count).map(|i| 5 + stream.below(i as u64, VOCABULARY - 5) as u32).collect();
    batch.token_type_ids = vec![0; count];
    batch.token_keys = (100..).take(count).collect();
    batch
}

/// Every third token is to be found again.
pub(super) fn masked_batch() -> Batch {
    let mut batch = tokens();
    batch.label_positions = (0..batch.num_tokens() as u32).step_by(3).collect();
    batch.labels = batch.label_positions.iter().map(|&at| batch.ids[at as usize]).collect();
    for &at in &batch.label_positions {
        batch.ids[at as usize] = 4;
    }
    batch
}

pub(super) fn labelled_batch() -> Batch {
    let mut batch = tokens();
    batch.label_positions = batch.cu_seqlens[..LENGTHS.len()].to_vec();
    batch.labels = (0..LENGTHS.len() as u32).map(|i| i % LABELS as u32).collect();
    batch
}

/// Every second token has a class.
pub(super) fn tagged_batch() -> Batch {
    let mut batch = tokens();
    batch.label_positions = (0..batch.num_tokens() as u32).step_by(2).collect();
    batch.labels = batch.label_positions.iter().map(|at| at / 2 % LABELS as u32).collect();
    batch
}

/// Every segment has two numbers.
pub(super) fn numbered_batch() -> Batch {
    let batch = labelled_batch();
    let stream = Stream::new(12, Purpose::Test, 0);
    let labels = (0..2 * LENGTHS.len() as u64).map(|i| (stream.normal(i) as f32).to_bits()).collect();
    Batch { labels, ..batch }
}

/// The second half of the tokens is of the second type where the family has one.
pub(super) fn with_types(mut batch: Batch, family: Family) -> Batch {
    if family.defaults.type_vocab_size > 1 {
        let half = batch.num_tokens() / 2;
        batch.token_type_ids[half..].fill(1);
    }
    batch
}
