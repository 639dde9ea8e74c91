//! Sums over processes that have the same bits for any number of processes.
//!
//! An update is a fixed number of micro-batches. They are added up over a fixed tree of pairs, whose lower
//! part is computed inside each process and whose upper part between processes. A library's own sum would use
//! an order that suits its network.

use std::ops::Range;

use crate::distributed::transport::{Ended, Transport, Value, Wait};
use crate::distributed::travelling::{narrow_into, widen_into};

/// Upper limit on the leaves of the tree, and so on the number of processes that give the same bits as one:
/// each further leaf costs one more pass over the gradients.
const LEAVES_MAX: usize = 8;

/// Number of values that are added up at a time, so that they fit in a cache.
const BLOCK_VALUES: usize = 4096;

/// Number of micro-batches that are added one after the other to make a leaf of the tree, in an update of
/// `total` micro-batches over `size` processes. The leaves are the same for 1, 2, 4 and 8 processes that
/// divide `leaves(total)`; any other number of processes has one leaf each.
pub fn micro_batches_per_leaf(total: usize, size: usize) -> usize {
    let leaves = leaves(total);
    if leaves.is_multiple_of(size) { total / leaves } else { total.div_ceil(size) }.max(1)
}

/// Number of leaves of the tree for an update of `total` micro-batches: the largest power of two that divides
/// it, at most `LEAVES_MAX`.
pub fn leaves(total: usize) -> usize {
    (1 << total.trailing_zeros().min(usize::BITS - 1)).min(LEAVES_MAX)
}

/// Adds up consecutive vectors of length `len` in pairs; the sum replaces the first vector.
fn add_in_pairs(vectors: &mut [f32], len: usize) {
    let count = vectors.len().checked_div(len).unwrap_or(0);
    let mut stride = 1;
    while stride < count {
        for left in (0..count - stride).step_by(2 * stride) {
            let (head, tail) = vectors.split_at_mut((left + stride) * len);
            head[left * len..][..len].iter_mut().zip(&tail[..len]).for_each(|(a, b)| *a += b);
        }
        stride *= 2;
    }
}

/// The range of `count` values that process `rank` of `size` adds up.
pub(super) fn part(count: usize, rank: usize, size: usize) -> Range<usize> {
    count * rank / size..count * (rank + 1) / size
}

/// All-reduce of `own`: each process adds up one part of the values and sends the sum to the others.
pub(super) fn sum<V: Value>(
    transport: &mut impl Transport,
    own: Vec<V>,
    wait: &Wait<'_>,
) -> Result<Vec<V>, Ended> {
    let rank = transport.rank();
    let size = transport.size();
    let counts: Vec<usize> = (0..size).map(|rank| part(own.len(), rank, size).len()).collect();
    let parts = transport.all_to_all(own, &counts, wait)?;
    transport.all_gather(added_up(parts, counts[rank]), &counts, wait)
}

/// The sum, computed in f32, of consecutive vectors of length `len`.
fn added_up<V: Value>(mut vectors: Vec<V>, len: usize) -> Vec<V> {
    let mut wide = Vec::new();
    for start in (0..len).step_by(BLOCK_VALUES) {
        let block = start..(start + BLOCK_VALUES).min(len);
        wide.resize(vectors.len() / len * block.len(), 0.0);
        for (wide, vector) in wide.chunks_exact_mut(block.len()).zip(vectors.chunks_exact(len)) {
            widen_into(&vector[block.clone()], wide);
        }
        add_in_pairs(&mut wide, block.len());
        narrow_into(&wide[..block.len()], &mut vectors[block]);
    }
    vectors.truncate(len);
    vectors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_cut_at_its_nodes_or_not_at_all() {
        for (total, expected) in
            [(1, [1; 6]), (8, [1, 1, 3, 1, 1, 1]), (64, [8, 8, 22, 8, 8, 4]), (12, [3, 3, 4, 3, 2, 1])]
        {
            let found = [1, 2, 3, 4, 8, 16].map(|size| micro_batches_per_leaf(total, size));
            assert_eq!(found, expected, "{total} micro-batches");
        }
        assert_eq!((leaves(0), leaves(7), leaves(6), leaves(96)), (8, 1, 2, 8));
        assert_eq!(part(10, 1, 4), 2..5);
    }

    #[test]
    fn pairs_are_added_before_pairs_of_pairs() {
        let big = 3e7_f32;
        assert_eq!(sum_bits(&[big, 1.0, 1.0, 1.0]), ((big + 1.0) + 2.0).to_bits());
        assert_ne!(
            sum_bits(&[big, 1.0, 1.0, 1.0]),
            (big + 1.0 + 1.0 + 1.0).to_bits(),
            "the order can be told"
        );
        assert_eq!(sum_bits(&[big, 1.0, 1.0, 1.0, 5.0]), ((big + 1.0) + 2.0 + 5.0).to_bits());
        assert_eq!(sum_bits(&[2.0]), 2.0_f32.to_bits());
        add_in_pairs(&mut [], 0);
        let vectors: Vec<f32> =
            (0..4 * 5000).map(|i| if i < 5000 { big } else { (1 + i % 5000) as f32 }).collect();
        let sums = added_up(vectors, 5000);
        assert_eq!(sums.len(), 5000);
        for (i, sum) in sums.iter().enumerate() {
            let expected = (big + (1 + i) as f32) + 2.0 * (1 + i) as f32;
            assert_eq!(sum.to_bits(), expected.to_bits());
        }
        assert!(added_up::<f32>(Vec::new(), 0).is_empty());
    }

    fn sum_bits(values: &[f32]) -> u32 {
        let mut values = values.to_vec();
        add_in_pairs(&mut values, 1);
        values[0].to_bits()
    }
}
