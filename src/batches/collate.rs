//! Lays masked rows end to end in one batch.

use crate::batches::Batch;
use crate::batches::Masking;
use crate::batches::Row;
use crate::rng::Purpose;
use crate::rng::Stream;

/// Adds `row` to `batch`, masked by the stream of its sample id; its tokens get the keys from `first_key` on.
pub(super) fn add_row(batch: &mut Batch, mut row: Row, masking: &Masking, seed: u64, first_key: u64) {
    let base = batch.ids.len() as u32;
    if batch.cu_seqlens.is_empty() {
        batch.cu_seqlens.push(0);
    }
    masking.apply(Stream::new(seed, Purpose::Mask, row.sample_id), &mut row.ids, |place, id| {
        batch.label_positions.push(base + place);
        batch.labels.push(id);
    });
    let mut start = 0;
    for end in row.segment_ends {
        batch.position_ids.extend(0..end - start);
        batch.cu_seqlens.push(base + end);
        start = end;
    }
    batch.token_type_ids.resize(batch.token_type_ids.len() + row.ids.len(), 0);
    batch.token_keys.extend((first_key..).take(row.ids.len()));
    batch.sample_ids.push(row.sample_id);
    batch.ids.append(&mut row.ids);
}
