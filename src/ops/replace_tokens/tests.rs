//! Replacement on each device, use of the results by other ops, and invalid arguments.

use candle_core::{DType, Device};

use super::*;
use crate::testing::{DTYPES, bits, device, fresh, fresh_ids, fresh_in, on_each_device, placed};
use crate::{embedding, linear_binary_cross_entropy};

const VOCABULARY: usize = 300;

/// Ids, the positions of every third token counted from the last, original ids and drawn ids.
fn text(tokens: usize) -> [Vec<u32>; 4] {
    let positions: Vec<u32> = (0..tokens as u32).rev().step_by(3).collect();
    let masked = positions.len();
    // Originals and drawn ids have only four values, so that many are equal.
    [fresh_ids(tokens, VOCABULARY as u64, 1), positions, fresh_ids(masked, 4, 2), fresh_ids(masked, 4, 3)]
}

fn run(ids: &[u32], positions: &[u32], originals: &[u32], drawn: &[u32]) -> Result<Replaced> {
    let masked = Masked { ids: ids.into(), positions: positions.into(), originals: originals.into() };
    let drawn = Tensor::from_slice(drawn, drawn.len(), &Device::Cpu).unwrap();
    forward(masked, &placed(&drawn), VOCABULARY)
}

#[test]
fn drawn_ids_are_at_their_positions_and_only_changes_are_marked() {
    on_each_device(|| {
        let Replaced { ids, replaced } = run(&[2, 4, 9, 4, 3], &[1, 2, 3], &[7, 9, 8], &[7, 5, 6]).unwrap();
        assert_eq!((ids.read(), replaced.read()), (vec![2, 7, 5, 6, 3], vec![0, 0, 1, 1, 0]));
        for tokens in [1, 2, 256, 257, 5000] {
            let [ids, positions, originals, drawn] = text(tokens);
            let got = run(&ids, &positions, &originals, &drawn).unwrap();
            let mut want_ids = ids.clone();
            let mut want = vec![0; tokens];
            for (m, &at) in positions.iter().enumerate() {
                want_ids[at as usize] = drawn[m];
                want[at as usize] = u32::from(drawn[m] != originals[m]);
            }
            assert_eq!((got.ids.read(), got.replaced.read()), (want_ids, want), "{tokens} tokens");
        }
    });
}

#[test]
fn nothing_masked_and_no_tokens_change_nothing() {
    on_each_device(|| {
        let got = run(&[4, 2], &[], &[], &[]).unwrap();
        assert_eq!((got.ids.read(), got.replaced.read()), (vec![4, 2], vec![0, 0]));
        let got = run(&[], &[], &[], &[]).unwrap();
        assert_eq!((got.ids.read(), got.replaced.read()), (vec![], vec![]));
    });
}

#[test]
fn values_out_of_range_and_wrong_lengths_are_errors() {
    on_each_device(|| {
        for (ids, positions, originals, drawn, message) in [
            ([4, 2], [2], &[1][..], &[1][..], "position 2 (number 0 of 1) is not below 2"),
            ([4, 300], [0], &[1], &[1], "id 300 (number 1 of 2) is not below 300"),
            ([4, 2], [0], &[1], &[1, 2], "positions has 1 values, it must have 2"),
            ([4, 2], [0], &[], &[1], "originals has 0 values, it must have 1"),
        ] {
            let error = run(&ids, &positions, originals, drawn).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
        // Only the CPU checks the drawn ids.
        let outside = run(&[4, 2], &[0], &[1], &[300]);
        match Gpu::of_device(&device()).unwrap() {
            None => assert!(outside.unwrap_err().to_string().contains("drawn id 300")),
            Some(_) => assert_eq!(outside.unwrap().ids.read(), [299, 2]),
        }
    });
}

/// An embedding of ids that only the device has, and the gradient of the word table, have the same bits as
/// for ids that the host has: for ids with one and with several pieces of rows, with and without a padding
/// row, and for no ids.
#[test]
fn computed_ids_embed_to_the_same_bits_as_known_ids() {
    on_each_device(|| {
        let sizes = [(0, 3), (1, 1), (500, 250), (1100, 3), (900, 1)];
        for (dtype, (tokens, bound)) in DTYPES.into_iter().flat_map(|dtype| sizes.map(|size| (dtype, size))) {
            let given = fresh_ids(tokens, bound, 1);
            let drawn = fresh_ids(tokens.div_ceil(2), bound, 2);
            let positions: Vec<u32> = (0..tokens as u32).step_by(2).collect();
            let computed = run(&given, &positions, &drawn, &drawn).unwrap().ids;
            let known = computed.read();
            let others = vec![0; tokens];
            for (hidden, padding) in
                [(40, Some(0)), (24, None), (7, Some(known.first().copied().unwrap_or(1)))]
            {
                let dy = fresh_in((tokens, hidden), 3, dtype);
                let [computed, known] = [(&computed).into(), (&known).into()].map(|word| {
                    let ids =
                        embedding::Ids { word, position: (&others).into(), token_type: (&others).into() };
                    embedded(ids, &dy, padding)
                });
                assert!(computed == known, "{tokens} tokens by {hidden} {dtype:?}");
            }
        }
    });
}

/// Bits of the embedding of `ids`, and of the three tables after the gradients from `dy` were added to them.
fn embedded(ids: embedding::Ids<'_>, dy: &Tensor, padding_word: Option<u32>) -> (Vec<u32>, [Vec<u32>; 3]) {
    let hidden = dy.dim(1).unwrap();
    let sums = [(VOCABULARY, 4), (1, 5), (1, 6)].map(|(rows, id)| fresh((rows, hidden), id));
    let [word_vd, position_pd, type_nd] = sums.each_ref();
    let tables = embedding::Tables { word_vd, position_pd: Some(position_pd), type_nd: Some(type_nd) };
    let y = embedding::forward(ids, &tables, dy.dtype()).unwrap();
    let padding = embedding::Padding { word: padding_word, position: None };
    embedding::backward(dy, ids, &tables, padding).unwrap();
    (bits(&y), sums.map(|t| bits(&t)))
}

#[test]
fn computed_marks_serve_as_labels() {
    on_each_device(|| {
        let [ids, positions, originals, drawn] = text(700);
        let marks = run(&ids, &positions, &originals, &drawn).unwrap().replaced;
        let known = marks.read();
        let x = fresh_in((700, 24), 1, DType::BF16);
        let [weight, dweight] = [2, 4].map(|id| fresh((1, 24), id));
        let [bias, dbias] = [3, 5].map(|id| fresh(1, id));
        let map = linear_binary_cross_entropy::Map { weight: &weight, bias: &bias };
        let into = linear_binary_cross_entropy::Map { weight: &dweight, bias: &dbias };
        let (want, want_dx) =
            linear_binary_cross_entropy::forward_backward(&x, map, &known, 0.5, into).unwrap();
        let (got, dx) = linear_binary_cross_entropy::forward_backward(&x, map, &marks, 0.5, into).unwrap();
        assert_eq!(got.to_vec1::<f64>().unwrap(), want.to_vec1::<f64>().unwrap());
        assert_eq!(bits(&dx), bits(&want_dx));
        let forward = linear_binary_cross_entropy::forward(&x, map, &marks).unwrap();
        assert_eq!(forward.to_vec1::<f64>().unwrap(), want.to_vec1::<f64>().unwrap());
    });
}
