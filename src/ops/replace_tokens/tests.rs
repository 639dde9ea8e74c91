//! Drawn ids at their places on each device, how other ops take what comes out, and the edges.

use candle_core::DType;
use candle_core::Device;

use super::*;
use crate::embedding;
use crate::linear_binary_cross_entropy;
use crate::testing::DTYPES;
use crate::testing::bits;
use crate::testing::device;
use crate::testing::fresh;
use crate::testing::fresh_ids;
use crate::testing::fresh_in;
use crate::testing::on_each_device;
use crate::testing::placed;

const VOCABULARY: usize = 300;

/// Ids, positions of every third token from the last one on, originals and drawn ids.
fn text(tokens: usize) -> [Vec<u32>; 4] {
    let positions: Vec<u32> = (0..tokens as u32).rev().step_by(3).collect();
    let masked = positions.len();
    // Of few values, so that many drawn ids are the original ones.
    [fresh_ids(tokens, VOCABULARY as u64, 1), positions, fresh_ids(masked, 4, 2), fresh_ids(masked, 4, 3)]
}

fn run(ids: &[u32], positions: &[u32], originals: &[u32], drawn: &[u32]) -> Result<Replaced> {
    let masked = Masked { ids: ids.into(), positions: positions.into(), originals: originals.into() };
    let drawn = Tensor::from_slice(drawn, drawn.len(), &Device::Cpu).unwrap();
    forward(masked, &placed(&drawn), VOCABULARY)
}

#[test]
fn drawn_tokens_stand_at_their_places_and_equal_ones_are_originals() {
    on_each_device(|| {
        let Replaced { ids, replaced } = run(&[2, 4, 9, 4, 3], &[1, 2, 3], &[7, 9, 8], &[7, 5, 6]).unwrap();
        assert_eq!((ids.read(), replaced.read()), (vec![2, 7, 5, 6, 3], vec![0, 0, 1, 1, 0]));
        for tokens in [1, 2, 256, 257, 5000] {
            let [ids, positions, originals, drawn] = text(tokens);
            let got = run(&ids, &positions, &originals, &drawn).unwrap();
            let place = |t: usize| positions.iter().position(|&at| at as usize == t);
            let want_ids: Vec<u32> = (0..tokens).map(|t| place(t).map_or(ids[t], |m| drawn[m])).collect();
            let differs = |t| place(t).is_some_and(|m| drawn[m] != originals[m]);
            let want: Vec<u32> = (0..tokens).map(|t| u32::from(differs(t))).collect();
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
fn what_is_outside_or_missing_is_named() {
    on_each_device(|| {
        let error = |ids: &[u32], positions: &[u32], originals: &[u32], drawn: &[u32]| {
            run(ids, positions, originals, drawn).unwrap_err().to_string()
        };
        assert!(error(&[4, 2], &[2], &[1], &[1]).contains("position 2 (number 0 of 1) is not below 2"));
        assert!(error(&[4, 300], &[0], &[1], &[1]).contains("id 300 (number 1 of 2) is not below 300"));
        assert!(error(&[4, 2], &[0], &[1], &[1, 2]).contains("positions has 1 values, it must have 2"));
        assert!(error(&[4, 2], &[0], &[], &[1]).contains("originals has 0 values, it must have 1"));
        // Only the CPU sees what was drawn.
        let outside = run(&[4, 2], &[0], &[1], &[300]);
        match Gpu::of_device(&device()).unwrap() {
            None => assert!(outside.unwrap_err().to_string().contains("drawn id 300")),
            Some(_) => assert_eq!(outside.unwrap().ids.read(), [299, 2]),
        }
    });
}

/// An embedding of the ids, and the gradient of its word table: the same bits as for ids that the host has,
/// with ids that have one piece of rows and several, a padding row, and none at all.
#[test]
fn ids_that_the_host_has_not_seen_embed_to_the_same_bits() {
    on_each_device(|| {
        let sizes = [(0, 3), (1, 1), (500, 250), (1100, 3), (900, 1)];
        for (dtype, (tokens, bound)) in DTYPES.into_iter().flat_map(|dtype| sizes.map(|size| (dtype, size))) {
            let (given, drawn) = (fresh_ids(tokens, bound, 1), fresh_ids(tokens.div_ceil(2), bound, 2));
            let positions: Vec<u32> = (0..tokens as u32).step_by(2).collect();
            let computed = run(&given, &positions, &drawn, &drawn).unwrap().ids;
            let known = computed.read();
            let others = vec![0; tokens];
            for (hidden, padding) in
                [(40, Some(0)), (24, None), (7, Some(known.first().copied().unwrap_or(1)))]
            {
                let dy = fresh_in((tokens, hidden), 3, dtype);
                let run = |word| {
                    let sums = [(VOCABULARY, 4), (1, 5), (1, 6)].map(|(rows, id)| fresh((rows, hidden), id));
                    let [word_vd, position_pd, type_nd] = sums.each_ref();
                    let (position_pd, type_nd) = (Some(position_pd), Some(type_nd));
                    let tables = embedding::Tables { word_vd, position_pd, type_nd };
                    let ids =
                        embedding::Ids { word, position: (&others).into(), token_type: (&others).into() };
                    let y = embedding::forward(ids, &tables, dtype).unwrap();
                    let padding = embedding::Padding { word: padding, position: None };
                    embedding::backward(&dy, ids, &tables, padding).unwrap();
                    (bits(&y), sums.map(|t| bits(&t)))
                };
                assert!(
                    run((&computed).into()) == run((&known).into()),
                    "{tokens} tokens by {hidden} {dtype:?}"
                );
            }
        }
    });
}

#[test]
fn marks_that_the_host_has_not_seen_are_labels() {
    on_each_device(|| {
        let [ids, positions, originals, drawn] = text(700);
        let marks = run(&ids, &positions, &originals, &drawn).unwrap().replaced;
        let known = marks.read();
        let (x, weight, bias) = (fresh_in((700, 24), 1, DType::BF16), fresh((1, 24), 2), fresh(1, 3));
        let map = linear_binary_cross_entropy::Map { weight: &weight, bias: &bias };
        let (dweight, dbias) = (fresh((1, 24), 4), fresh(1, 5));
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
