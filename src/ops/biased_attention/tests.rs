//! Biased attention compared with the reference: distances of all rows of the table and larger ones, several
//! blocks of queries, dropout; for the GPU, head sizes with and without tensor-core kernels, and lengths
//! around the size of a tile.

use candle_core::{DType, Device, Tensor};

use crate::attention::drawn::Batch;
use crate::attention::earlier::assert_same_bits;
use crate::attention::{Activations, Reach, Segments};
use crate::biased_attention::{ROWS, reference, row};
use crate::cuda::Gpu;
use crate::dropout::Dropout;
use crate::element::rounding;
use crate::testing::{
    DTYPES, assert_close, assert_reference_is_differentiable, assert_same_for_any_thread_count, bits, double,
    fresh, fresh_in, on_each_device, placed, reference_gradients,
};
use crate::{attention, biased_attention as op};
use base::rng::{Purpose, Stream};

/// The reference on `q`, `k`, `v` and the table.
fn composed(inputs: &[Tensor], batch: &Batch) -> candle_core::Result<Tensor> {
    let contents = [&inputs[0], &inputs[1], &inputs[2]];
    reference::forward(contents, &inputs[3], batch.heads, &batch.cu_seqlens, batch.factors().as_deref())
}

/// The output, then the gradients of `q`, `k`, `v` and the table.
fn run([q, k, v, d_out]: [&Tensor; 4], bias: &Tensor, batch: &Batch) -> [Tensor; 5] {
    let (o, saved) = op::forward(q, k, v, bias, &batch.segments()).unwrap();
    let activations = Activations { q_td: q, k_td: k, v_td: v, o_td: &o };
    let got = op::backward(d_out, activations, bias, &saved, &batch.segments()).unwrap();
    let [dq, dk, dv] = got.of_contents;
    [o, dq, dk, dv, got.dbias_rh]
}

/// Compares every dtype with the reference. As in attention, bf16 and f16 round probabilities and gradients
/// of scores once, and then the results.
fn compare(head_size: usize, batch: &Batch) {
    for dtype in DTYPES {
        let half = if dtype == DType::F32 { 0.0 } else { rounding(dtype) };
        let shape = (batch.token_keys.len(), batch.heads * head_size);
        let all = [1, 2, 3, 4].map(|id| fresh_in(shape, id, dtype));
        let [q, k, v, d_out] = all.each_ref();
        let bias = fresh((ROWS, batch.heads), 5);
        let (want, gradients) =
            reference_gradients(|i: &[Tensor]| composed(i, batch), &[q, k, v, &bias], d_out);
        let [o, of_inputs @ ..] = run(all.each_ref(), &bias, batch);
        let case = format!("in {dtype:?}, heads of {head_size}");
        assert_close(&format!("o {case}"), &o, &want, 2e-6 + half);
        for (index, (got, want)) in of_inputs.iter().zip(&gradients).enumerate() {
            assert_close(&format!("gradient {index} {case}"), got, want, 5e-6 + 4.0 * half);
        }
    }
}

#[test]
fn forward_and_backward_agree_with_the_reference() {
    on_each_device(|| {
        compare(8, &Batch::new(2, &[1, 29, 0, 4], None));
        compare(24, &Batch::new(1, &[2], None));
        compare(5, &Batch::new(3, &[5, 13, 1, 1, 20], None));
        compare(16, &Batch::new(1, &[300, 7], None));
        compare(136, &Batch::new(2, &[110], None));
    });
}

/// Segment lengths around multiples of 16, the side of a square, and of 64, the rows of a tile.
#[test]
fn head_sizes_of_tensor_cores_agree_with_the_reference() {
    on_each_device(|| {
        compare(32, &Batch::new(2, &[1, 37, 0, 16], None));
        compare(64, &Batch::new(2, &[63, 65], None));
        compare(64, &Batch::new(1, &[15, 129, 17], None));
        compare(32, &Batch::new(1, &[64, 49, 1], None));
    });
}

#[test]
fn dropped_probabilities_are_drawn_again_in_backward() {
    let dropout = Dropout { probability: 0.3, stream: Stream::new(3, Purpose::Dropout, 9) };
    on_each_device(|| {
        compare(8, &Batch::new(2, &[1, 29, 0, 4], Some(dropout)));
        compare(32, &Batch::new(3, &[7, 140], Some(dropout)));
        compare(64, &Batch::new(1, &[70], Some(dropout)));
    });
}

/// The switch to earlier kernels is the same as in attention.
#[test]
fn the_earlier_kernels_give_the_same_bits() {
    on_each_device(|| {
        for probability in [0.0, 0.1, 0.7] {
            let dropout = Dropout { probability, stream: Stream::new(3, Purpose::Dropout, 9) };
            let batch = Batch::new(2, &[1, 80, 0, 19], Some(dropout));
            let segments = batch.segments();
            for (dtype, head_size) in [(DType::BF16, 64), (DType::F16, 64), (DType::BF16, 32)] {
                let [q, k, v, d_out] = [1, 2, 3, 4].map(|id| fresh_in((100, 2 * head_size), id, dtype));
                if Gpu::of(&q).unwrap().is_none() {
                    return;
                }
                let bias = fresh((ROWS, 2), 5);
                let name = format!("{dtype:?}, heads of {head_size}, {probability}");
                assert_same_bits(&name, || {
                    let (o, saved) = op::forward(&q, &k, &v, &bias, &segments).unwrap();
                    let activations = Activations { q_td: &q, k_td: &k, v_td: &v, o_td: &o };
                    let got = op::backward(&d_out, activations, &bias, &saved, &segments).unwrap();
                    [o, got.dbias_rh].into_iter().chain(got.of_contents).chain(saved.kept).collect()
                });
            }
        }
    });
}

/// A table of zeros adds nothing. A table with one value for all distances shifts all scores equally, which
/// softmax ignores.
#[test]
fn constant_tables_give_plain_attention() {
    on_each_device(|| {
        let batch = Batch::new(2, &[9, 150], None);
        let [q, k, v] = [1, 2, 3].map(|id| fresh((159, 16), id));
        let zeros = placed(&Tensor::zeros((ROWS, 2), DType::F32, &Device::Cpu).unwrap());
        let (o, _) = op::forward(&q, &k, &v, &zeros, &batch.segments()).unwrap();
        let (want, _) = attention::forward(&q, &k, &v, &batch.segments()).unwrap();
        assert_eq!(bits(&o), bits(&want));
        let ones = placed(&Tensor::ones((ROWS, 2), DType::F32, &Device::Cpu).unwrap());
        let (o, _) = op::forward(&q, &k, &v, &ones, &batch.segments()).unwrap();
        assert_close("shifted", &o, &double(&want), 1e-6);
    });
}

#[test]
fn the_number_of_threads_changes_no_bit() {
    let batch = Batch::new(3, &[40, 3, 150, 9, 70, 1, 60], None);
    let all = [1, 2, 3, 4].map(|id| fresh((333, 24), id));
    let bias = fresh((ROWS, 3), 5);
    assert_same_for_any_thread_count("biased attention", || {
        run(all.each_ref(), &bias, &batch).map(|t| bits(&t))
    });
}

#[test]
fn no_tokens_work() {
    on_each_device(|| {
        let x = fresh((0, 8), 1);
        let [o, _, _, dv, dbias] = run([&x; 4], &fresh((ROWS, 1), 2), &Batch::new(1, &[0, 0], None));
        assert_eq!((o.dims(), dv.dims()), (&[0, 8][..], &[0, 8][..]));
        assert!(bits(&dbias).iter().all(|&bits| bits == 0));
    });
}

/// Rows of the table that no distance uses have a gradient of zero; all others have a gradient.
#[test]
fn rows_have_a_gradient_if_a_distance_uses_them() {
    on_each_device(|| {
        for (dtype, tokens) in DTYPES.into_iter().flat_map(|dtype| [(dtype, 10), (dtype, 100)]) {
            let all = [1, 2, 3, 4].map(|id| fresh_in((tokens, 64), id, dtype));
            let batch = Batch::new(1, &[tokens as u32], None);
            let [.., dbias] = run(all.each_ref(), &fresh((ROWS, 1), 5), &batch);
            let last = tokens as isize - 1;
            let reached: Vec<usize> = (-last..=last).map(row).collect();
            for (index, value) in bits(&dbias).into_iter().enumerate() {
                let is_zero = f32::from_bits(value) == 0.0;
                assert_eq!(is_zero, !reached.contains(&index), "{dtype:?}, {tokens} tokens: row {index}");
            }
        }
    });
}

/// The results of a segment do not depend on the other segments of the batch.
#[test]
fn a_segment_gives_the_same_bits_in_any_batch() {
    on_each_device(|| {
        for (dtype, head_size) in DTYPES.into_iter().flat_map(|dtype| [(dtype, 64), (dtype, 24)]) {
            let all = [1, 2, 3, 4].map(|id| fresh_in((150, head_size), id, dtype));
            let bias = fresh((ROWS, 1), 5);
            let [whole @ .., _] = run(all.each_ref(), &bias, &Batch::new(1, &[70, 80], None));
            let second = all.each_ref().map(|t| t.narrow(0, 70, 80).unwrap().copy().unwrap());
            let [alone @ .., _] = run(second.each_ref(), &bias, &Batch::new(1, &[80], None));
            for (whole, alone) in whole.iter().zip(&alone) {
                let part = whole.narrow(0, 70, 80).unwrap();
                assert!(bits(&part) == bits(alone), "{dtype:?}, heads of {head_size}");
            }
        }
    });
}

#[test]
fn the_reference_is_differentiable() {
    let batch = Batch::new(2, &[1, 5, 11], None);
    let contents = [1, 2, 3].map(|id| fresh((17, 4), id));
    let bias = fresh((ROWS, 2), 4);
    let inputs: Vec<&Tensor> = contents.iter().chain([&bias]).collect();
    assert_reference_is_differentiable(|i| composed(i, &batch), &inputs, &fresh((17, 4), 6));
}

#[test]
fn a_table_of_another_shape_or_dtype_is_an_error() {
    let batch = Batch::new(2, &[3], None);
    let x = fresh((3, 8), 1);
    for (bias, reach, message) in [
        (fresh((32, 1), 2), Reach::ALL, "the bias is [32, 1], it must be [32, 2]"),
        (fresh_in((32, 2), 2, DType::BF16), Reach::ALL, "the bias is BF16, it must be f32"),
        (fresh((32, 2), 2), Reach::ALL.causal(), "another reach is not built"),
    ] {
        let segments = Segments { reach, ..batch.segments() };
        let error = op::forward(&x, &x, &x, &bias, &segments).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
}
