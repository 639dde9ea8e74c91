//! Attention over packed rows against the reference: odd head sizes, one token, empty segments, several query blocks, dropout.

use candle_core::DType;
use candle_core::Device;
use candle_core::Result;
use candle_core::Tensor;

use crate::ops::attention;
use crate::ops::attention::Activations;
use crate::ops::attention::Segments;
use crate::ops::attention::reference;
use crate::ops::dropout::Dropout;
use crate::ops::element::rounding;
use crate::ops::testing::assert_close;
use crate::ops::testing::assert_reference_is_differentiable;
use crate::ops::testing::fresh;
use crate::ops::testing::reference_gradients;
use crate::rng::Purpose;
use crate::rng::Stream;

/// The dropout factors that the op draws, as the matrices that the reference takes.
fn factors(dropout: &Dropout, heads: usize, cu_seqlens: &[u32], token_keys: &[u64]) -> Vec<Vec<Tensor>> {
    let matrix = |start: usize, n: usize, head: usize| {
        let mut values = vec![0.0f32; n * n];
        for row in 0..n {
            dropout.keep_row(token_keys[start + row] * heads as u64 + head as u64, &mut values[row * n..(row + 1) * n]);
        }
        Tensor::from_vec(values, (n, n), &Device::Cpu).unwrap().to_dtype(DType::F64).unwrap()
    };
    let segment = |w: &[u32]| (0..heads).map(|head| matrix(w[0] as usize, (w[1] - w[0]) as usize, head)).collect();
    cu_seqlens.windows(2).map(segment).collect()
}

/// In every type: a half type rounds probabilities and gradients of scores once and its results once more, and the gradients
/// of scores are differences that contain the rounded output.
fn compare(heads: usize, head_size: usize, lengths: &[u32], dropout: Option<&Dropout>) {
    compare_in(DType::F32, (2e-6, 5e-6), heads, head_size, lengths, dropout);
    for dtype in [DType::BF16, DType::F16] {
        compare_in(dtype, (rounding(dtype), 4.0 * rounding(dtype)), heads, head_size, lengths, dropout);
    }
}

fn compare_in(dtype: DType, tolerances: (f64, f64), heads: usize, head_size: usize, lengths: &[u32], dropout: Option<&Dropout>) {
    let cu_seqlens: Vec<u32> = std::iter::once(0)
        .chain(lengths.iter().scan(0, |sum, n| {
            Some({
                *sum += n;
                *sum
            })
        }))
        .collect();
    let tokens = *cu_seqlens.last().unwrap() as usize;
    let token_keys: Vec<u64> = (0..tokens as u64).map(|t| t * 3 + 5).collect();
    let hidden = heads * head_size;
    let [q, k, v, d_out] = [1, 2, 3, 4].map(|id| fresh((tokens, hidden), id).to_dtype(dtype).unwrap());
    let factors = dropout.map(|d| factors(d, heads, &cu_seqlens, &token_keys));
    let composed = |i: &[Tensor]| reference::forward(&i[0], &i[1], &i[2], heads, &cu_seqlens, factors.as_deref());
    let (want, gradients) = reference_gradients(composed, &[&q, &k, &v], &d_out);
    let segments = Segments { heads, cu_seqlens: (&cu_seqlens).into(), token_keys: (&token_keys).into(), dropout };
    let (o, saved) = attention::forward(&q, &k, &v, &segments).unwrap();
    assert_close("o", &o, &want, tolerances.0);
    let activations = Activations { q_td: &q, k_td: &k, v_td: &v, o_td: &o };
    let got = attention::backward(&d_out, activations, &saved, &segments).unwrap();
    for ((what, got), want) in ["dq", "dk", "dv"].into_iter().zip(&got).zip(&gradients) {
        assert_close(what, got, want, tolerances.1);
    }
}

#[test]
fn forward_and_backward_are_the_reference() {
    compare(1, 1, &[2], None);
    compare(2, 24, &[1, 5, 0, 17], None);
    compare(3, 32, &[33, 2], None);
    compare(1, 8, &[300, 7], None);
}

#[test]
fn dropped_probabilities_are_drawn_again_in_backward() {
    let dropout = Dropout { probability: 0.3, stream: Stream::new(3, Purpose::Dropout, 9) };
    compare(2, 24, &[1, 5, 19], Some(&dropout));
    compare(1, 16, &[150], Some(&dropout));
}

#[test]
fn the_reference_is_differentiable() {
    let composed = |i: &[Tensor]| -> Result<Tensor> { reference::forward(&i[0], &i[1], &i[2], 2, &[0, 1, 4], None) };
    assert_reference_is_differentiable(composed, &[&fresh((4, 4), 1), &fresh((4, 4), 2), &fresh((4, 4), 3)], &fresh((4, 4), 4));
}

#[test]
fn a_token_never_sees_another_segment() {
    let [q, k, v] = [1, 2, 3].map(|id| fresh((6, 8), id));
    let keys = [0u64; 6];
    let run = |q: &Tensor, k: &Tensor, v: &Tensor, cu_seqlens: &[u32]| {
        attention::forward(
            q,
            k,
            v,
            &Segments { heads: 2, cu_seqlens: cu_seqlens.into(), token_keys: (&keys[..q.dim(0).unwrap()]).into(), dropout: None },
        )
        .unwrap()
        .0
    };
    let packed = run(&q, &k, &v, &[0, 4, 6]);
    let alone = [&q, &k, &v].map(|t| t.narrow(0, 4, 2).unwrap().contiguous().unwrap());
    assert_close("second segment", &packed.narrow(0, 4, 2).unwrap(), &run(&alone[0], &alone[1], &alone[2], &[0, 2]), 1e-6);
}

#[test]
fn segments_that_do_not_cover_the_tokens_are_refused() {
    let x = fresh((4, 8), 1);
    let segments = Segments { heads: 2, cu_seqlens: (&[0, 3]).into(), token_keys: (&[0; 4]).into(), dropout: None };
    assert!(attention::forward(&x, &x, &x, &segments).unwrap_err().to_string().contains("do not cover 4 tokens"));
    let segments = Segments { heads: 3, cu_seqlens: (&[0, 4]).into(), token_keys: (&[0; 4]).into(), dropout: None };
    assert!(attention::forward(&x, &x, &x, &segments).unwrap_err().to_string().contains("3 heads do not divide"));
}
