//! Groups of a few rows, and a comparison of the GPU's groups with the host's.

use candle_core::Tensor;

use super::cuda::NO_ROW;
use super::*;
use crate::computed::Computed;
use crate::testing::{device, fresh_ids, on_each_device};

#[test]
fn rows_of_one_target_are_adjacent_and_in_order() {
    let groups = Groups::new(&[7, 2, 7, 9, 2, 7], Some(9));
    assert_eq!(groups.order, [1, 4, 0, 2, 5]);
    assert_eq!((groups.targets, groups.target_pieces), (vec![2, 7], vec![0, 1, 2]));
    assert_eq!(groups.piece_starts, [0, 2, 5]);
}

#[test]
fn long_groups_are_split_into_pieces() {
    let rows = vec![3; 2 * PIECE_ROWS + 5];
    let groups = Groups::new(&rows, None);
    assert_eq!(groups.piece_starts, [0, 128, 256, 261]);
    assert_eq!((groups.targets, groups.target_pieces), (vec![3], vec![0, 3]));
    let none = Groups::new(&[1, 1], Some(1));
    assert_eq!((none.order.len(), none.piece_starts, none.target_pieces), (0, vec![0], vec![0]));
}

/// `known` followed by copies of `padding` up to a length of `len`.
fn padded(known: &[u32], len: usize, padding: u32) -> Vec<u32> {
    let mut all = known.to_vec();
    all.resize(len, padding);
    all
}

/// Asserts that the GPU makes the same groups as the host, and that the padding after them is empty.
#[track_caller]
fn compare(gpu: &Gpu, rows: &[u32], skip: Option<u32>) {
    let want = Groups::new(rows, skip);
    let count = rows.len();
    let on_gpu = Computed::on_gpu(Tensor::from_slice(rows, count, gpu.device()).unwrap());
    let made = cuda::groups(gpu, (&on_gpu).into(), skip).unwrap();
    let [order, piece_starts, targets, target_pieces] = made.map(|t| t.to_vec1::<u32>().unwrap());
    let mut skipped: Vec<u32> = (0..count as u32).filter(|&i| Some(rows[i as usize]) == skip).collect();
    let mut all = want.order.clone();
    all.append(&mut skipped);
    assert_eq!(order, all);
    let rows_kept = want.order.len() as u32;
    let pieces = want.piece_starts.len() as u32 - 1;
    assert_eq!(piece_starts, padded(&want.piece_starts, count + 1, rows_kept));
    assert_eq!(targets, padded(&want.targets, count, NO_ROW));
    assert_eq!(target_pieces, padded(&want.target_pieces, count + 1, pieces));
}

#[test]
fn the_gpu_makes_the_groups_of_the_host() {
    on_each_device(|| {
        let Some(gpu) = Gpu::of_device(&device()).unwrap() else { return };
        // Few and many ids, fewer and more rows than a block has threads, and row counts that the number of
        // threads does and does not divide.
        let sizes = [(1, 1), (2, 1), (127, 40), (128, 3), (129, 50_000), (1024, 1), (1500, 7), (2600, 900)];
        for (case, (count, bound)) in (0..).zip(sizes) {
            let rows = fresh_ids(count, bound, case);
            for skip in [None, Some(0), Some(rows[count / 2]), Some(60_000)] {
                compare(&gpu, &rows, skip);
            }
        }
        // Groups that end with a full piece, with a piece of one row, and with a piece that lacks one row.
        for count in [PIECE_ROWS - 1, PIECE_ROWS, PIECE_ROWS + 1, 4 * PIECE_ROWS, 4 * PIECE_ROWS + 1] {
            compare(&gpu, &vec![5; count], None);
            compare(&gpu, &vec![5; count], Some(5));
        }
        let largest = [NO_ROW - 1, 0, NO_ROW - 1];
        compare(&gpu, &largest, Some(NO_ROW - 1));
        compare(&gpu, &largest, None);
    });
}

#[test]
fn no_rows_make_no_groups_on_the_gpu() {
    on_each_device(|| {
        let Some(gpu) = Gpu::of_device(&device()).unwrap() else { return };
        let none = Computed::on_gpu(gpu.uninitialised(0, candle_core::DType::U32).unwrap());
        let made = cuda::groups(&gpu, (&none).into(), Some(1)).unwrap();
        assert_eq!(made.map(|t| t.to_vec1::<u32>().unwrap()), [vec![], vec![0], vec![], vec![0]]);
    });
}
