//! Disentangled attention compared with the reference: either term of positions, both and none, distances
//! beyond the last bucket, several blocks of queries, several groups of segments, dropout; for the GPU, head
//! sizes with and without tensor-core kernels, lengths around the size of a tile, and buckets with more
//! distances than a tile has rows.

use candle_core::{DType, Device, Tensor};

use crate::attention::drawn::Batch;
use crate::attention::earlier::assert_same_bits;
use crate::attention::{Activations, Reach, Segments};
use crate::cuda::Gpu;
use crate::disentangled_attention::{Buckets, Relative, reference};
use crate::dropout::Dropout;
use crate::element::rounding;
use crate::testing::{
    DTYPES, assert_close, assert_reference_is_differentiable, assert_same_for_any_thread_count, bits, double,
    fresh, fresh_in, on_each_device, placed, reference_gradients,
};
use crate::{attention, disentangled_attention as op};
use base::rng::{Purpose, Stream};

/// True for each term of positions that is used: `c2p`, `p2c`.
type Kinds = [bool; 2];

const BOTH: Kinds = [true, true];

/// The reference on `q`, `k`, `v` and the tables that follow them.
fn composed(
    inputs: &[Tensor],
    kinds: Kinds,
    buckets: &Buckets,
    batch: &Batch,
) -> candle_core::Result<Tensor> {
    let keys = kinds[0].then(|| &inputs[3]);
    let queries = kinds[1].then(|| &inputs[3 + usize::from(kinds[0])]);
    let contents = [&inputs[0], &inputs[1], &inputs[2]];
    let factors = batch.factors();
    reference::forward(contents, keys, queries, buckets, batch.heads, &batch.cu_seqlens, factors.as_deref())
}

/// Compares every dtype with the reference. As in attention, bf16 and f16 round probabilities and gradients
/// of scores once; the gradients of position scores are rounded once more, and then the results.
fn compare(kinds: Kinds, buckets: &Buckets, head_size: usize, batch: &Batch) {
    for dtype in DTYPES {
        let half = if dtype == DType::F32 { 0.0 } else { rounding(dtype) };
        let hidden = batch.heads * head_size;
        let tokens = batch.token_keys.len();
        let [q, k, v, d_out] = [1, 2, 3, 4].map(|id| fresh_in((tokens, hidden), id, dtype));
        let tables = [5, 6].map(|id| fresh_in((buckets.rows(), hidden), id, dtype));
        let mut inputs = vec![&q, &k, &v];
        inputs.extend(tables.iter().zip(kinds).filter_map(|(table, is_there)| is_there.then_some(table)));
        let (want, gradients) =
            reference_gradients(|i: &[Tensor]| composed(i, kinds, buckets, batch), &inputs, &d_out);
        let [keys_rd, queries_rd] = [0, 1].map(|kind| kinds[kind].then_some(&tables[kind]));
        let relative = Relative { buckets, keys_rd, queries_rd };
        let (o, saved) = op::forward(&q, &k, &v, &relative, &batch.segments()).unwrap();
        let case = format!("of {kinds:?} in {dtype:?}, heads of {head_size}");
        assert_close(&format!("o {case}"), &o, &want, 2e-6 + half);
        let activations = Activations { q_td: &q, k_td: &k, v_td: &v, o_td: &o };
        let got = op::backward(&d_out, activations, &relative, &saved, &batch.segments()).unwrap();
        let tables = [got.dkeys_rd, got.dqueries_rd].into_iter().flatten();
        let got: Vec<Tensor> = got.of_contents.into_iter().chain(tables).collect();
        assert_eq!(got.len(), inputs.len());
        for (index, (got, want)) in got.iter().zip(&gradients).enumerate() {
            assert_close(&format!("gradient {index} {case}"), got, want, 5e-6 + 4.0 * half);
        }
    }
}

#[test]
fn forward_and_backward_agree_with_the_reference() {
    on_each_device(|| {
        for kinds in [BOTH, [true, false], [false, true]] {
            compare(kinds, &Buckets::new(6, 20), 8, &Batch::new(2, &[1, 29, 0, 4], None));
        }
        compare(BOTH, &Buckets::new(4, 12), 24, &Batch::new(1, &[2], None));
        compare(BOTH, &Buckets::new(0, 7), 5, &Batch::new(3, &[5, 13, 1, 1, 20], None));
        compare(BOTH, &Buckets::new(16, 40), 16, &Batch::new(1, &[300, 7], None));
        compare(BOTH, &Buckets::new(8, 30), 136, &Batch::new(1, &[70], None));
    });
}

/// Segment lengths around multiples of 16, the side of a square, and of 64, the rows of a tile; the last
/// buckets have up to 100 distances.
#[test]
fn head_sizes_of_tensor_cores_agree_with_the_reference() {
    on_each_device(|| {
        for kinds in [[true, false], [false, true]] {
            compare(kinds, &Buckets::new(6, 30), 32, &Batch::new(2, &[1, 37, 0, 16], None));
        }
        compare(BOTH, &Buckets::new(24, 150), 64, &Batch::new(2, &[63, 65], None));
        compare(BOTH, &Buckets::new(8, 90), 64, &Batch::new(1, &[15, 129, 17], None));
        compare(BOTH, &Buckets::new(0, 20), 32, &Batch::new(1, &[64, 49, 1], None));
    });
}

#[test]
fn dropped_probabilities_are_drawn_again_in_backward() {
    let dropout = Dropout { probability: 0.3, stream: Stream::new(3, Purpose::Dropout, 9) };
    on_each_device(|| {
        compare(BOTH, &Buckets::new(6, 20), 8, &Batch::new(2, &[1, 29, 0, 4], Some(dropout)));
        compare(BOTH, &Buckets::new(32, 140), 32, &Batch::new(3, &[7, 140], Some(dropout)));
        compare(BOTH, &Buckets::new(16, 40), 64, &Batch::new(1, &[70], Some(dropout)));
    });
}

/// The switch to earlier kernels is the same as in attention.
#[test]
fn the_earlier_kernels_give_the_same_bits() {
    let buckets = Buckets::new(16, 60);
    on_each_device(|| {
        for (kinds, probability) in [(BOTH, 0.0), (BOTH, 0.1), ([true, false], 0.7)] {
            let dropout = Dropout { probability, stream: Stream::new(3, Purpose::Dropout, 9) };
            let batch = Batch::new(2, &[1, 80, 0, 19], Some(dropout));
            for (dtype, head_size) in [(DType::BF16, 64), (DType::F16, 64), (DType::BF16, 32)] {
                let [q, k, v, d_out] = [1, 2, 3, 4].map(|id| fresh_in((100, 2 * head_size), id, dtype));
                if Gpu::of(&q).unwrap().is_none() {
                    return;
                }
                let tables = [5, 6].map(|id| fresh_in((buckets.rows(), 2 * head_size), id, dtype));
                let [keys_rd, queries_rd] = [0, 1].map(|kind| kinds[kind].then_some(&tables[kind]));
                let relative = Relative { buckets: &buckets, keys_rd, queries_rd };
                let name = format!("{kinds:?}, {dtype:?}, heads of {head_size}, {probability}");
                assert_same_bits(&name, || {
                    let (o, saved) = op::forward(&q, &k, &v, &relative, &batch.segments()).unwrap();
                    let activations = Activations { q_td: &q, k_td: &k, v_td: &v, o_td: &o };
                    let got =
                        op::backward(&d_out, activations, &relative, &saved, &batch.segments()).unwrap();
                    let tables = [got.dkeys_rd, got.dqueries_rd].into_iter().flatten();
                    std::iter::once(o).chain(got.of_contents).chain(tables).chain(saved.kept).collect()
                });
            }
        }
    });
}

#[test]
fn without_positions_the_result_is_plain_attention() {
    let batch = Batch::new(2, &[9, 150], None);
    let buckets = Buckets::new(6, 20);
    let [q, k, v] = [1, 2, 3].map(|id| fresh((159, 16), id));
    let relative = Relative { buckets: &buckets, keys_rd: None, queries_rd: None };
    let (o, _) = op::forward(&q, &k, &v, &relative, &batch.segments()).unwrap();
    let (want, _) = attention::forward(&q, &k, &v, &batch.segments()).unwrap();
    assert_eq!(bits(&o), bits(&want));
}

#[test]
fn the_number_of_threads_changes_no_bit() {
    let batch = Batch::new(3, &[40, 3, 150, 9, 70, 1, 60], None);
    let buckets = Buckets::new(8, 64);
    let [q, k, v, d_out] = [1, 2, 3, 4].map(|id| fresh((333, 24), id));
    let tables = [5, 6].map(|id| fresh((16, 24), id));
    let relative = Relative { buckets: &buckets, keys_rd: Some(&tables[0]), queries_rd: Some(&tables[1]) };
    assert_same_for_any_thread_count("disentangled attention", || {
        let (o, saved) = op::forward(&q, &k, &v, &relative, &batch.segments()).unwrap();
        let activations = Activations { q_td: &q, k_td: &k, v_td: &v, o_td: &o };
        let got = op::backward(&d_out, activations, &relative, &saved, &batch.segments()).unwrap();
        [o, got.of_contents[0].clone(), got.dkeys_rd.unwrap(), got.dqueries_rd.unwrap()].map(|t| bits(&t))
    });
}

#[test]
fn no_tokens_work() {
    on_each_device(|| {
        let batch = Batch::new(1, &[0, 0], None);
        let buckets = Buckets::new(2, 8);
        let x = fresh((0, 8), 1);
        let table = fresh((4, 8), 2);
        let relative = Relative { buckets: &buckets, keys_rd: Some(&table), queries_rd: None };
        let (o, saved) = op::forward(&x, &x, &x, &relative, &batch.segments()).unwrap();
        let activations = Activations { q_td: &x, k_td: &x, v_td: &x, o_td: &o };
        let got = op::backward(&x, activations, &relative, &saved, &batch.segments()).unwrap();
        assert_eq!((o.dims(), got.of_contents[2].dims()), (&[0, 8][..], &[0, 8][..]));
        assert!(bits(&got.dkeys_rd.unwrap()).iter().all(|&bits| bits == 0));
    });
}

/// All scores are equal, and the values and the output gradients are one-hot vectors of the token's position
/// in its segment. So outputs are the probabilities after dropout, and the gradients of values reveal the
/// mask of backward.
#[test]
fn every_device_drops_the_same_probabilities_as_the_cpu() {
    let dropout = Dropout { probability: 0.4, stream: Stream::new(11, Purpose::Dropout, 2) };
    let batch = Batch::new(1, &[28, 64], Some(dropout));
    let buckets = Buckets::new(6, 20);
    on_each_device(|| {
        for dtype in DTYPES {
            let mut one_hot = vec![0f32; 92 * 64];
            for (token, position) in (0..28).chain(0..64).enumerate() {
                one_hot[token * 64 + position] = 1.0;
            }
            let one_hot = Tensor::from_vec(one_hot, (92, 64), &Device::Cpu).unwrap();
            let one_hot = placed(&one_hot.to_dtype(dtype).unwrap());
            let zero = one_hot.zeros_like().unwrap();
            let table = one_hot.narrow(0, 0, 12).unwrap().zeros_like().unwrap();
            let relative = Relative { buckets: &buckets, keys_rd: Some(&table), queries_rd: Some(&table) };
            let (o, saved) = op::forward(&zero, &zero, &one_hot, &relative, &batch.segments()).unwrap();
            let activations = Activations { q_td: &zero, k_td: &zero, v_td: &one_hot, o_td: &o };
            let got = op::backward(&one_hot, activations, &relative, &saved, &batch.segments()).unwrap();
            let [o, dv] = [&o, &got.of_contents[2]].map(|t| double(t).to_vec2::<f64>().unwrap());
            for (segment, of_heads) in batch.factors().unwrap().iter().enumerate() {
                let start = batch.cu_seqlens[segment] as usize;
                for (row, factors) in of_heads[0].to_vec2::<f64>().unwrap().iter().enumerate() {
                    for (column, factor) in factors.iter().enumerate() {
                        let kept = [o[start + row][column], dv[start + column][row]];
                        let at = (segment, row, column);
                        assert_eq!(kept.map(|value| value != 0.0), [*factor != 0.0; 2], "{dtype:?}: {at:?}");
                    }
                }
            }
        }
    });
}

/// On a GPU, position scores are padded, squares may be partial, and sums are carried from square to square;
/// none of this may depend on the other segments of the batch.
#[test]
fn a_segment_gives_the_same_bits_in_any_batch() {
    on_each_device(|| {
        for (dtype, head_size) in DTYPES.into_iter().flat_map(|dtype| [(dtype, 64), (dtype, 24)]) {
            let buckets = Buckets::new(16, 60);
            let all = [1, 2, 3, 4].map(|id| fresh_in((150, head_size), id, dtype));
            let tables = [5, 6].map(|id| fresh_in((32, head_size), id, dtype));
            let relative =
                Relative { buckets: &buckets, keys_rd: Some(&tables[0]), queries_rd: Some(&tables[1]) };
            let second = all.each_ref().map(|t| t.narrow(0, 70, 80).unwrap().copy().unwrap());
            let [whole, alone] = [(&all, &[70, 80][..]), (&second, &[80])].map(|(contents, lengths)| {
                let [q, k, v, d_out] = contents;
                let batch = Batch::new(1, lengths, None);
                let (o, saved) = op::forward(q, k, v, &relative, &batch.segments()).unwrap();
                let activations = Activations { q_td: q, k_td: k, v_td: v, o_td: &o };
                let got = op::backward(d_out, activations, &relative, &saved, &batch.segments()).unwrap();
                let [dq, dk, dv] = got.of_contents;
                [o, dq, dk, dv]
            });
            for (whole, alone) in whole.iter().zip(&alone) {
                let part = whole.narrow(0, 70, 80).unwrap();
                assert!(bits(&part) == bits(alone), "{dtype:?}, heads of {head_size}");
            }
        }
    });
}

#[test]
fn the_reference_is_differentiable() {
    let batch = Batch::new(2, &[1, 5], None);
    let buckets = Buckets::new(2, 8);
    let contents = [1, 2, 3].map(|id| fresh((6, 4), id));
    let tables = [4, 5].map(|id| fresh((4, 4), id));
    let inputs: Vec<&Tensor> = contents.iter().chain(&tables).collect();
    assert_reference_is_differentiable(|i| composed(i, BOTH, &buckets, &batch), &inputs, &fresh((6, 4), 6));
}

#[test]
fn a_table_with_a_wrong_number_of_rows_is_an_error() {
    let batch = Batch::new(1, &[3], None);
    let buckets = Buckets::new(2, 8);
    let x = fresh((3, 8), 1);
    let table = fresh((5, 8), 2);
    let relative = Relative { buckets: &buckets, keys_rd: None, queries_rd: Some(&table) };
    let error = op::forward(&x, &x, &x, &relative, &batch.segments()).unwrap_err().to_string();
    assert!(error.contains("queries of positions is [5, 8], it must be [4, 8]"), "{error}");
    let windowed = Segments { reach: Reach::window(3), ..batch.segments() };
    let relative = Relative { queries_rd: None, ..relative };
    let error = op::forward(&x, &x, &x, &relative, &windowed).unwrap_err().to_string();
    assert!(error.contains("another reach is not built"), "{error}");
}
