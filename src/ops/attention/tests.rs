//! Tests of attention over packed rows against the reference: odd head sizes and those of tensor cores, one
//! token, no tokens, empty segments, several blocks of queries and keys, dropout.

mod keys;
mod same_bits;
mod short;

use candle_core::{DType, Device, Tensor};

use crate::attention;
use crate::attention::drawn::factors;
use crate::attention::{Activations, Reach, Segments, cuda, reference};
use crate::cuda::Gpu;
use crate::dropout::Dropout;
use crate::element::rounding;
use crate::indices::Indices;
use crate::testing::{
    DTYPES, assert_close, assert_reference_is_differentiable, bits, device, double, far, fresh, fresh_in,
    has_room, on_each_device, on_host, placed, reference_gradients,
};
use crate::upload::{Numbers, Plans, upload};
use base::rng::{Purpose, Stream};

/// Compares forward and backward with the reference in every type. A half type rounds probabilities and
/// gradients of scores once and its results once more, and the gradients of scores are differences that
/// contain the rounded output; hence the tolerances.
fn compare(heads: usize, head_size: usize, lengths: &[u32], dropout: Option<&Dropout>) {
    compare_within(Reach::ALL, heads, head_size, lengths, dropout);
}

/// Compares as [`compare`] does, with tokens that see only what is within reach.
fn compare_within(reach: Reach, heads: usize, head_size: usize, lengths: &[u32], dropout: Option<&Dropout>) {
    compare_in(DType::F32, (2e-6, 5e-6), reach, heads, head_size, lengths, dropout);
    for dtype in [DType::BF16, DType::F16] {
        let tolerances = (rounding(dtype), 4.0 * rounding(dtype));
        compare_in(dtype, tolerances, reach, heads, head_size, lengths, dropout);
    }
}

fn compare_in(
    dtype: DType,
    tolerances: (f64, f64),
    reach: Reach,
    heads: usize,
    head_size: usize,
    lengths: &[u32],
    dropout: Option<&Dropout>,
) {
    let cu_seqlens = bounds(lengths);
    let tokens = *cu_seqlens.last().unwrap() as usize;
    let token_keys: Vec<u64> = (0..tokens as u64).map(|t| t * 3 + 5).collect();
    let hidden = heads * head_size;
    let [q, k, v, d_out] = [1, 2, 3, 4].map(|id| fresh_in((tokens, hidden), id, dtype));
    let factors = dropout.map(|d| factors(d, heads, &cu_seqlens, &token_keys));
    let (want, gradients) = reference_gradients(
        |i| reference::forward(&i[0], &i[1], &i[2], heads, &cu_seqlens, reach, factors.as_deref()),
        &[&q, &k, &v],
        &d_out,
    );
    let segments = Segments {
        heads,
        cu_seqlens: (&cu_seqlens).into(),
        token_keys: (&token_keys).into(),
        reach,
        dropout,
    };
    let (o, saved) = attention::forward(&q, &k, &v, &segments).unwrap();
    let name = format!("in {dtype:?}, heads of {head_size}");
    assert_close(&format!("o {name}"), &o, &want, tolerances.0);
    let activations = Activations { q_td: &q, k_td: &k, v_td: &v, o_td: &o };
    let got = attention::backward(&d_out, activations, &saved, &segments).unwrap();
    for ((what, got), want) in ["dq", "dk", "dv"].into_iter().zip(&got).zip(&gradients) {
        assert_close(&format!("{what} {name}"), got, want, tolerances.1);
    }
}

/// Returns the bounds of segments of these lengths.
fn bounds(lengths: &[u32]) -> Vec<u32> {
    let ends = lengths.iter().scan(0, |sum, n| {
        *sum += n;
        Some(*sum)
    });
    std::iter::once(0).chain(ends).collect()
}

#[test]
fn forward_and_backward_are_the_reference() {
    on_each_device(|| {
        compare(1, 1, &[2], None);
        compare(2, 24, &[1, 5, 0, 17], None);
        compare(3, 32, &[33, 2], None);
        compare(1, 8, &[300, 7], None);
        compare(1, 160, &[9, 70], None);
    });
}

#[test]
fn head_sizes_of_tensor_cores_are_the_reference() {
    on_each_device(|| {
        compare(2, 32, &[1, 150, 0, 64], None);
        compare(2, 64, &[130, 5], None);
        compare(1, 80, &[0, 16, 81], None);
        compare(1, 96, &[70, 33], None);
        compare(2, 128, &[90], None);
    });
}

#[test]
fn dropped_probabilities_are_drawn_again_in_backward() {
    let dropout = Dropout { probability: 0.3, stream: Stream::new(3, Purpose::Dropout, 9) };
    on_each_device(|| {
        compare(2, 24, &[1, 5, 19], Some(&dropout));
        compare(1, 16, &[150], Some(&dropout));
        compare(3, 32, &[7, 140], Some(&dropout));
        compare(2, 64, &[75], Some(&dropout));
        compare(1, 128, &[65, 20], Some(&dropout));
    });
}

/// Windows that end inside tiles and blocks, at their edges, and past the segment.
#[test]
fn tokens_see_their_window_only() {
    let dropout = Dropout { probability: 0.3, stream: Stream::new(3, Purpose::Dropout, 4) };
    on_each_device(|| {
        compare_within(Reach::window(0), 2, 8, &[5, 70], None);
        compare_within(Reach::window(1), 1, 16, &[3, 0, 131], Some(&dropout));
        compare_within(Reach::window(5), 2, 32, &[150, 4], Some(&dropout));
        compare_within(Reach::window(64), 1, 64, &[300, 64], None);
        compare_within(Reach::window(63), 1, 24, &[200, 65], Some(&dropout));
        compare_within(Reach::window(130), 1, 64, &[290, 131], Some(&dropout));
        compare_within(Reach::window(usize::MAX), 1, 64, &[140], None);
        compare_within(Reach::window(10), 1, 128, &[90, 17], Some(&dropout));
    });
}

/// Segments of several blocks and tiles, with keys before a query in all of its segment or in a window.
#[test]
fn causal_tokens_see_themselves_and_those_before() {
    let dropout = Dropout { probability: 0.3, stream: Stream::new(3, Purpose::Dropout, 6) };
    let all = Reach::ALL.causal();
    on_each_device(|| {
        compare_within(all, 2, 24, &[5, 70, 0, 1], Some(&dropout));
        compare_within(all, 1, 32, &[150, 4], Some(&dropout));
        compare_within(all, 1, 64, &[200], None);
        compare_within(Reach::window(40).causal(), 1, 64, &[140, 64], Some(&dropout));
        compare_within(Reach::window(5).causal(), 1, 16, &[140], None);
    });
}

/// All scores are equal and each value vector is the one-hot vector of its key, so the outputs are the
/// probabilities; output gradients are the one-hot vectors of their queries, so the gradients of the values
/// are the probabilities, too.
#[test]
fn every_device_draws_the_mask_of_the_cpu() {
    const HEADS: usize = 2;
    let dropout = Dropout { probability: 0.4, stream: Stream::new(11, Purpose::Dropout, 2) };
    on_each_device(|| {
        for (dtype, head_size) in DTYPES.into_iter().flat_map(|dtype| [(dtype, 128), (dtype, 100)]) {
            let cu_seqlens = bounds(&[28, 100]);
            let token_keys: Vec<u64> = (0..128).map(|t| (t << 32) + 77).collect();

            let columns = HEADS * head_size;
            // One-hot vectors of the tokens' positions in their segments, for each head.
            let positions = (0..28usize).chain(0..100);
            let one_hot: Vec<f32> = positions
                .flat_map(|position| (0..columns).map(move |c| f32::from(c % head_size == position)))
                .collect();
            let one_hot = placed(
                &Tensor::from_vec(one_hot, (128, columns), &Device::Cpu).unwrap().to_dtype(dtype).unwrap(),
            );
            let zero = one_hot.zeros_like().unwrap();
            let segments = Segments {
                heads: HEADS,
                cu_seqlens: (&cu_seqlens).into(),
                token_keys: (&token_keys).into(),
                reach: Reach::ALL,
                dropout: Some(&dropout),
            };
            let (o, saved) = attention::forward(&zero, &zero, &one_hot, &segments).unwrap();
            let activations = Activations { q_td: &zero, k_td: &zero, v_td: &one_hot, o_td: &o };
            let [_, _, dv] = attention::backward(&one_hot, activations, &saved, &segments).unwrap();
            let [o, dv] = [o, dv].map(|t| double(&t).to_vec2::<f64>().unwrap());
            let want = factors(&dropout, HEADS, &cu_seqlens, &token_keys);
            for (segment, heads) in want.iter().enumerate() {
                let start = cu_seqlens[segment] as usize;
                for (head, factors) in heads.iter().enumerate() {
                    for (row, factors) in factors.to_vec2::<f64>().unwrap().iter().enumerate() {
                        for (column, factor) in factors.iter().enumerate() {
                            let kept = [
                                o[start + row][head * head_size + column],
                                dv[start + column][head * head_size + row],
                            ];
                            let at = (segment, head, row, column);
                            assert_eq!(
                                kept.map(|value| value != 0.0),
                                [*factor != 0.0; 2],
                                "{dtype:?}, heads of {head_size}: {at:?}"
                            );
                        }
                    }
                }
            }
        }
    });
}

/// Scores that grow along the keys change the base of the exponentials from tile to tile, far enough to
/// overflow otherwise. With scores far below zero, the rows that pad a tile have the largest scores.
#[test]
fn large_scores_do_not_overflow() {
    on_each_device(|| {
        let head_sizes = DTYPES.into_iter().flat_map(|dtype| [(dtype, 32), (dtype, 128), (dtype, 12)]);
        for ((dtype, head_size), below) in head_sizes.flat_map(|sizes| [(sizes, false), (sizes, true)]) {
            let tokens = 140;
            let ramp = (0..tokens).map(|t| if below { -100.0 - t as f32 } else { t as f32 });
            let ramp: Vec<f32> = ramp.flat_map(|score| vec![score; head_size]).collect();
            let k =
                Tensor::from_vec(ramp, (tokens, head_size), &Device::Cpu).unwrap().to_dtype(dtype).unwrap();
            let q = placed(&k.ones_like().unwrap());
            let v = fresh_in((tokens, head_size), 3, dtype);
            let k = placed(&k);
            let cu_seqlens = bounds(&[tokens as u32]);
            let keys = vec![0; tokens];
            let segments = Segments {
                heads: 1,
                cu_seqlens: (&cu_seqlens).into(),
                token_keys: (&keys).into(),
                reach: Reach::ALL,
                dropout: None,
            };
            let (want, gradients) = reference_gradients(
                |i| reference::forward(&i[0], &i[1], &i[2], 1, &cu_seqlens, Reach::ALL, None),
                &[&q, &k, &v],
                &v,
            );
            let (o, saved) = attention::forward(&q, &k, &v, &segments).unwrap();
            let activations = Activations { q_td: &q, k_td: &k, v_td: &v, o_td: &o };
            let [dq, dk, dv] = attention::backward(&v, activations, &saved, &segments).unwrap();
            // Scores are up to 2,700: their own rounding is most of the error in f32.
            let name = format!("{dtype:?}, heads of {head_size}, below zero: {below}");
            let tolerance = 4.0 * rounding(dtype).max(1e-4);
            assert_close(&format!("o in {name}"), &o, &want, tolerance);
            assert_close(&format!("dv in {name}"), &dv, &gradients[2], tolerance);
            // The other gradients cancel to rounding errors.
            for t in [dq, dk] {
                assert!(
                    double(&t)
                        .flatten_all()
                        .unwrap()
                        .to_vec1::<f64>()
                        .unwrap()
                        .iter()
                        .all(|value| value.is_finite()),
                    "{name}"
                );
            }
        }
    });
}

/// Bounds and keys are uploaded beforehand, as a training step does.
#[test]
fn uploaded_segments_give_the_same_bits() {
    let dropout = Dropout { probability: 0.2, stream: Stream::new(5, Purpose::Dropout, 1) };
    on_each_device(|| {
        let [q, k, v] = [1, 2, 3].map(|id| fresh_in((70, 64), id, DType::F16));
        let Some(gpu) = Gpu::of(&q).unwrap() else { return };
        let cu_seqlens = bounds(&[3, 67]);
        let keys: Vec<u64> = (100..170).collect();
        let arrays = [Numbers::Bounds(&cu_seqlens), Numbers::Keys(&keys)];
        let [on_gpu, keys_on_gpu] = upload(&gpu, arrays, &Plans::of(arrays)).unwrap();
        let uploaded = (Indices::uploaded(&cu_seqlens, &on_gpu), Indices::uploaded(&keys, &keys_on_gpu));
        let outputs = [uploaded, ((&cu_seqlens).into(), (&keys).into())].map(|(cu_seqlens, token_keys)| {
            let segments =
                Segments { heads: 2, cu_seqlens, token_keys, reach: Reach::ALL, dropout: Some(&dropout) };
            let (o, saved) = attention::forward(&q, &k, &v, &segments).unwrap();
            let activations = Activations { q_td: &q, k_td: &k, v_td: &v, o_td: &o };
            let gradients = attention::backward(&v, activations, &saved, &segments).unwrap();
            (bits(&o), gradients.map(|t| bits(&t)))
        });
        assert_eq!(outputs[0], outputs[1]);
    });
}

/// Dropout is drawn only once: backward on a GPU gets other keys and still drops what forward has dropped,
/// even if it takes other kernels because its gradient begins at an odd address.
#[test]
fn backward_on_a_gpu_uses_the_dropout_decisions_of_forward() {
    let dropout = Dropout { probability: 0.4, stream: Stream::new(7, Purpose::Dropout, 3) };
    let cases = [
        (DType::F32, 24, Reach::ALL),
        (DType::BF16, 64, Reach::ALL),
        (DType::BF16, 64, Reach::window(40)),
        (DType::BF16, 64, Reach::ALL.causal()),
        (DType::F16, 128, Reach::ALL),
        (DType::BF16, 160, Reach::window(40)),
    ];
    on_each_device(|| {
        for (dtype, head_size, reach) in cases {
            let hidden = 2 * head_size;
            let [q, k, v] = [1, 2, 3].map(|id| fresh_in((109, hidden), id, dtype));
            let both = fresh_in(109 * hidden + 1, 4, dtype);
            let [d_out, odd] = [0, 1]
                .map(|first| both.narrow(0, first, 109 * hidden).unwrap().reshape((109, hidden)).unwrap());
            if Gpu::of(&q).unwrap().is_none() {
                return;
            }
            let cu_seqlens = bounds(&[70, 0, 39]);
            let keys = [0, 1000].map(|first| (first..first + 109).collect::<Vec<u64>>());
            let segments = keys.each_ref().map(|keys| Segments {
                heads: 2,
                cu_seqlens: (&cu_seqlens).into(),
                token_keys: keys.into(),
                reach,
                dropout: Some(&dropout),
            });
            let (o, saved) = attention::forward(&q, &k, &v, &segments[0]).unwrap();
            let kept = saved.kept.as_ref().map_or(0, Tensor::elem_count) * size_of::<u32>();
            assert_eq!(kept as u64, attention::kept_bytes(2, 70, 70) + attention::kept_bytes(2, 39, 39));
            let activations = Activations { q_td: &q, k_td: &k, v_td: &v, o_td: &o };
            let [same, other] = segments
                .each_ref()
                .map(|segments| attention::backward(&d_out, activations, &saved, segments).unwrap());
            assert_eq!(same.each_ref().map(bits), other.map(|t| bits(&t)), "{dtype:?}, heads of {head_size}");
            let aligned = placed(&on_host(&odd).affine(1.0, 0.0).unwrap());
            let [odd, aligned] = [odd, aligned]
                .map(|d_out| attention::backward(&d_out, activations, &saved, &segments[0]).unwrap());
            for (odd, aligned) in odd.iter().zip(&aligned) {
                assert_close("at an odd address", odd, &double(aligned), 4.0 * rounding(dtype).max(1e-6));
            }
        }
    });
}

#[test]
fn no_tokens_work() {
    on_each_device(|| {
        for (dtype, cu_seqlens) in
            DTYPES.into_iter().flat_map(|dtype| [(dtype, vec![0]), (dtype, vec![0, 0, 0])])
        {
            let x = fresh_in((0, 64), 1, dtype);
            let segments = Segments {
                heads: 1,
                cu_seqlens: (&cu_seqlens).into(),
                token_keys: (&[]).into(),
                reach: Reach::ALL,
                dropout: None,
            };
            let (o, saved) = attention::forward(&x, &x, &x, &segments).unwrap();
            let activations = Activations { q_td: &x, k_td: &x, v_td: &x, o_td: &o };
            let gradients = attention::backward(&x, activations, &saved, &segments).unwrap();
            assert!(
                [vec![o], gradients.to_vec()]
                    .concat()
                    .iter()
                    .all(|t| t.dims() == [0, 64] && t.dtype() == dtype)
            );
        }
    });
}

#[test]
fn the_reference_is_differentiable() {
    assert_reference_is_differentiable(
        |i| reference::forward(&i[0], &i[1], &i[2], 2, &[0, 1, 4], Reach { before: 1, after: 0 }, None),
        &[&fresh((4, 4), 1), &fresh((4, 4), 2), &fresh((4, 4), 3)],
        &fresh((4, 4), 4),
    );
}

#[test]
fn a_token_never_sees_another_segment() {
    on_each_device(|| {
        for (dtype, hidden) in DTYPES.into_iter().flat_map(|dtype| [(dtype, 8), (dtype, 64)]) {
            let [q, k, v] = [1, 2, 3].map(|id| fresh_in((6, hidden), id, dtype));
            let packed = attend(&q, &k, &v, &[0, 4, 6]);
            let alone = [&q, &k, &v].map(|t| t.narrow(0, 4, 2).unwrap().contiguous().unwrap());
            assert_close(
                "second segment",
                &packed.narrow(0, 4, 2).unwrap(),
                &attend(&alone[0], &alone[1], &alone[2], &[0, 2]),
                1e-6,
            );
        }
    });
}

/// Output of two heads without dropout.
fn attend(q: &Tensor, k: &Tensor, v: &Tensor, cu_seqlens: &[u32]) -> Tensor {
    let token_keys = vec![0; q.dim(0).unwrap()];
    let segments = Segments {
        heads: 2,
        cu_seqlens: cu_seqlens.into(),
        token_keys: (&token_keys).into(),
        reach: Reach::ALL,
        dropout: None,
    };
    attention::forward(q, k, v, &segments).unwrap().0
}

/// Offsets are 64 bits: tokens whose rows are stored after 2^31 values attend as those at the beginning do.
/// The rows before them belong to no segment, which only the kernels accept.
#[test]
fn tokens_after_two_billion_values_attend_as_any_other() {
    on_each_device(|| {
        let hidden = 64;
        let tokens = 130;
        for (dtype, head_size) in [(DType::F32, 64), (DType::BF16, 64), (DType::BF16, 16)] {
            // Zeros of a half type are written one by one on a CPU, so they would take up memory.
            if dtype != DType::F32 && device().is_cpu() {
                continue;
            }
            // One tensor serves as queries, keys and values; in addition there are the output and three
            // gradients.
            let bytes = 5 * (1u64 << 31) * dtype.size_in_bytes() as u64;
            let x = fresh_in((tokens, hidden), 1, dtype);
            let Some(gpu) = Gpu::of(&x).unwrap().filter(|_| has_room(bytes + bytes / 4)) else { continue };
            let near = bits_after(&gpu, &x, hidden / head_size, 0);
            assert!(near.iter().flatten().all(|&value| f32::from_bits(value).is_finite()));
            let far = bits_after(&gpu, &x, hidden / head_size, (1 << 31) / hidden + 3);
            assert!(far == near, "{dtype:?}, heads of {head_size}");
        }
    });
}

/// Bits of output and gradients for the 130 tokens of `x`, stored after `before` other rows.
fn bits_after(gpu: &Gpu, x: &Tensor, heads: usize, before: usize) -> [Vec<u32>; 4] {
    let (tokens, hidden) = x.dims2().unwrap();
    let whole = far(&x.flatten_all().unwrap(), before * hidden).reshape((before + tokens, hidden)).unwrap();
    let cu_seqlens = [0, 70, 130].map(|bound| before as u32 + bound);
    let segments = Segments {
        heads,
        cu_seqlens: (&cu_seqlens).into(),
        token_keys: (&[]).into(),
        reach: Reach::ALL,
        dropout: None,
    };
    let (o, saved) = cuda::forward(gpu, &whole, &whole, &whole, &segments).unwrap();
    let activations = Activations { q_td: &whole, k_td: &whole, v_td: &whole, o_td: &o };
    let [dq, dk, dv] = cuda::backward(gpu, &whole, activations, &saved, &segments).unwrap();
    [o, dq, dk, dv].map(|t| bits(&t.narrow(0, before, tokens).unwrap()))
}

#[test]
fn segments_that_do_not_cover_the_tokens_are_refused() {
    let x = fresh((4, 8), 1);
    let segments = Segments {
        heads: 2,
        cu_seqlens: (&[0, 3]).into(),
        token_keys: (&[0; 4]).into(),
        reach: Reach::ALL,
        dropout: None,
    };
    assert!(
        attention::forward(&x, &x, &x, &segments).unwrap_err().to_string().contains("do not cover 4 tokens")
    );
    let segments = Segments {
        heads: 3,
        cu_seqlens: (&[0, 4]).into(),
        token_keys: (&[0; 4]).into(),
        reach: Reach::ALL,
        dropout: None,
    };
    assert!(
        attention::forward(&x, &x, &x, &segments).unwrap_err().to_string().contains("3 heads do not divide")
    );
}
