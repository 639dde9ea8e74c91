//! Tests that the tensor-core kernels and the earlier ones, which a switch selects, give the same bits,
//! including the dropout decisions.

use candle_core::{DType, Tensor};

use super::bounds;
use crate::attention;
use crate::attention::earlier::assert_same_bits;
use crate::attention::{Activations, Reach, Segments, earlier};
use crate::cuda::Gpu;
use crate::dropout::Dropout;
use crate::testing::{fresh_in, on_each_device};
use base::rng::{Purpose, Stream};

/// Returns dropout keys whose upper 32 bits are not zero, either.
fn keys(tokens: usize) -> Vec<u64> {
    (0..tokens as u64).map(|t| (t << 32 | 0xabc0_0000) + 7 * t).collect()
}

fn dropout(probability: f32) -> Dropout {
    Dropout { probability, stream: Stream::new(0x1234_5678_9abc, Purpose::Dropout, 1 << 33 | 5) }
}

/// Returns the output, log-sum-exp, gradients and, with dropout, its decisions.
fn all(segments: &Segments<'_>, hidden: usize, dtype: DType) -> Vec<Tensor> {
    let tokens = segments.token_keys.len();
    let [q, k, v, d_out] = [1, 2, 3, 4].map(|id| fresh_in((tokens, hidden), id, dtype));
    let (o, saved) = attention::forward(&q, &k, &v, segments).unwrap();
    let activations = Activations { q_td: &q, k_td: &k, v_td: &v, o_td: &o };
    let gradients = attention::backward(&d_out, activations, &saved, segments).unwrap();
    [o, saved.log_sum_exp_th].into_iter().chain(gradients).chain(saved.kept).collect()
}

fn compare(heads: usize, head_size: usize, lengths: &[u32], reach: Reach, probability: f32) {
    let cu_seqlens = bounds(lengths);
    let token_keys = keys(cu_seqlens[lengths.len()] as usize);
    let dropout = dropout(probability);
    let segments = Segments {
        heads,
        cu_seqlens: (&cu_seqlens).into(),
        token_keys: (&token_keys).into(),
        reach,
        dropout: Some(&dropout),
    };
    for dtype in [DType::BF16, DType::F16] {
        let name = format!("{dtype:?}, {heads} heads of {head_size}, {lengths:?}, {reach:?}, {probability}");
        assert_same_bits(&name, || all(&segments, heads * head_size, dtype));
    }
}

fn is_gpu() -> bool {
    Gpu::of(&fresh_in(1, 1, DType::F32)).unwrap().is_some()
}

/// Whole tiles and partial ones, of one segment and of several; a segment that ends in the middle of a
/// square.
#[test]
fn every_head_size_gives_the_bits_of_the_earlier_kernels() {
    on_each_device(|| {
        for &head_size in earlier::HEAD_SIZES.iter().filter(|_| is_gpu()) {
            // Long enough for wide tiles, with which the narrow ones are compared, too.
            compare(1, head_size, &[200, 70], Reach::ALL, 0.1);
            compare(1, head_size, &[290], Reach::window(30), 0.0);
        }
        // Other reaches and lengths, which no head size has kernels of its own for.
        if is_gpu() {
            compare(1, 64, &[130, 1, 0, 16], Reach::ALL, 0.0);
            compare(1, 64, &[5, 129], Reach::window(40), 0.1);
            compare(1, 64, &[130], Reach::ALL.causal(), 0.1);
        }
    });
}

/// Backward runs in one launch.
#[test]
fn short_segments_give_the_bits_of_the_earlier_kernels() {
    on_each_device(|| {
        for &head_size in earlier::HEAD_SIZES.iter().filter(|&&size| size <= 64 && is_gpu()) {
            for probability in [0.0, 0.1] {
                compare(1, head_size, &[128, 17, 1], Reach::ALL, probability);
                compare(2, head_size, &[5, 40], Reach::window(20), probability);
                compare(1, head_size, &[128, 9], Reach::ALL.causal(), probability);
            }
        }
    });
}

/// Dropout thresholds of one unit, just below, at and just above half of the range, and large ones.
#[test]
fn every_threshold_gives_the_bits_of_the_earlier_kernels() {
    let units = [1.0, 32767.0, 32768.0, 32769.0, 60000.0, 65000.0];
    on_each_device(|| {
        for unit in units.into_iter().filter(|_| is_gpu()) {
            compare(2, 64, &[40, 16], Reach::ALL, unit / 65536.0);
        }
    });
}

/// Control of these tests: a launch uses the kernels that were requested.
#[cfg(all(feature = "cuda-on-host", not(feature = "cuda")))]
#[test]
fn the_switch_takes_other_kernels() {
    use crate::attention::earlier::Way;
    use crate::cuda;
    use crate::cuda::Event;
    let launches = |probability: f32, lengths: &[u32]| {
        let cu_seqlens = bounds(lengths);
        let dropout = dropout(probability);
        let token_keys = keys(cu_seqlens[lengths.len()] as usize);
        let segments = Segments {
            heads: 1,
            cu_seqlens: (&cu_seqlens).into(),
            token_keys: (&token_keys).into(),
            reach: Reach::ALL,
            dropout: Some(&dropout),
        };
        let events = cuda::recorded(|| {
            all(&segments, 64, DType::BF16);
            cuda::take()
        });
        let names = events.into_iter().filter_map(|event| match event {
            Event::Launch { kernel, .. } => Some(kernel),
            _ => None,
        });
        names.collect::<Vec<_>>()
    };
    let named = |way: &str, short: bool| {
        let backward: &[&str] = if short { &["short"] } else { &["queries", "keys"] };
        let backward = backward.iter().map(|of| format!("attention_backward_{of}_64{way}_bf16"));
        std::iter::once(format!("attention_forward_64{way}_bf16")).chain(backward).collect::<Vec<_>>()
    };
    for (lengths, short) in [(&[40, 3][..], true), (&[130, 3, 3], false)] {
        assert_eq!(launches(0.0, lengths), named("", short));
        assert_eq!(launches(0.1, lengths), named("_dropout", short));
        assert_eq!(earlier::with(Way::Earlier, || launches(0.1, lengths)), named("_earlier", short));
    }
    // Wide tiles are used if they are full enough.
    assert_eq!(launches(0.0, &[160]), named("_wide", false));
    assert_eq!(launches(0.1, &[160]), named("_wide_dropout", false));
    assert_eq!(earlier::with(Way::Narrow, || launches(0.1, &[160])), named("_dropout", false));
}
