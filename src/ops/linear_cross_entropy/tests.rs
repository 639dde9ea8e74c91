//! The op compared with its reference in every dtype, over several pieces, and for no rows.

use candle_core::{DType, Device, Result, Tensor};

use super::*;
use crate::cross_entropy::Totals;
use crate::linear;
use crate::testing::{
    DTYPES, assert_close, assert_reference_is_differentiable, assert_same_for_any_thread_count, bits, double,
    fresh, fresh_ids, fresh_in, on_each_device, reference_gradients, within,
};
use base::rng::Purpose;

fn reference(inputs: &[Tensor], labels: &[u32]) -> Result<Tensor> {
    reference::forward(&inputs[0], &inputs[1], &inputs[2], labels)
}

fn loss_sum(entropy: &Entropy) -> f64 {
    Totals::read(&entropy.totals).unwrap().loss_sum
}

/// Ids on the host.
fn ids(drawn: Option<Tensor>) -> Vec<u32> {
    drawn.unwrap().to_device(&Device::Cpu).unwrap().to_vec1().unwrap()
}

fn compare(dtype: DType, rows: usize, inputs: usize, classes: usize) {
    let x = fresh_in((rows, inputs), 1, dtype);
    let weight = fresh_in((classes, inputs), 2, dtype);
    let bias = fresh(classes, 3);
    let labels = fresh_ids(rows, classes as u64, 4);
    let seed = Tensor::new(0.25f32, &Device::Cpu).unwrap();
    let (loss, gradients) = reference_gradients(|i| reference(i, &labels), &[&x, &weight, &bias], &seed);
    let loss = loss.to_scalar::<f64>().unwrap();
    let map = Map { weight_vd: &weight, bias_v: &bias };
    let dweight = fresh((classes, inputs), 5);
    let dbias = fresh(classes, 6);
    let wanted = [(double(&dweight) + &gradients[1]).unwrap(), (double(&dbias) + &gradients[2]).unwrap()];
    let into = MapGradients { dweight_vd: (&dweight).into(), dbias_v: (&dbias).into() };
    let stream = Stream::new(5, Purpose::Sample, 3);
    let keys: Vec<u64> = (0..rows as u64).map(|row| row << 20 | 7).collect();
    let draw = Draw { stream: &stream, keys: (&keys).into() };
    let passed = forward_backward(&x, map, &labels, 0.25, into, Some(draw)).unwrap();
    let Passed { entropy, dx_md: dx, drawn } = passed;
    let (without_gradient, drawn_again) = forward(&x, map, &labels, Some(draw)).unwrap();
    let got = Totals::read(&entropy.totals).unwrap();
    let drawn = ids(drawn);
    assert_eq!(ids(drawn_again), drawn);
    check_draws(&x, map, draw, &drawn);
    assert!((got.loss_sum - loss).abs() <= 2e-6 * loss.abs() + 1e-5, "{} is not {loss}", got.loss_sum);
    assert_eq!(Totals::read(&without_gradient.totals).unwrap(), got);
    assert_eq!(bits(&without_gradient.log_sum_exp_m), bits(&entropy.log_sum_exp_m));
    assert_eq!(dx.dtype(), dtype);
    // Two roundings: that of `dz`, and that of the result.
    assert_close("dx", &dx, &gradients[0], within(dtype, 1e-5, 2.0));
    assert_close("dweight", &dweight, &wanted[0], within(dtype, 1e-5, 1.0));
    assert_close("dbias", &dbias, &wanted[1], within(dtype, 1e-5, 1.0));
}

/// Asserts that each id has the largest sum of logit and noise, up to rounding.
fn check_draws(x: &Tensor, map: Map<'_>, draw: Draw<'_>, drawn: &[u32]) {
    let z =
        linear::reference::forward(&double(x), &double(map.weight_vd), Some(&double(map.bias_v))).unwrap();
    let scores = gumbel::reference::scores(&z, draw.stream, draw.keys.host()).unwrap();
    for (row, (scores, &id)) in scores.to_vec2::<f64>().unwrap().iter().zip(drawn).enumerate() {
        let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        assert!(most - scores[id as usize] < 1e-4, "row {row}: {id} has {}, not {most}", scores[id as usize]);
    }
}

#[test]
fn loss_and_gradients_agree_with_the_reference() {
    on_each_device(|| {
        for dtype in DTYPES {
            for (rows, inputs, classes) in [(1, 3, 2), (7, 24, 96), (40, 16, 1001), (3, 8, 30_001), (5, 4, 1)]
            {
                compare(dtype, rows, inputs, classes);
            }
        }
    });
}

#[test]
fn no_rows_give_no_loss_and_no_gradient() {
    on_each_device(|| {
        for dtype in DTYPES {
            let x = fresh_in((0, 4), 1, dtype);
            let weight = fresh_in((9, 4), 2, dtype);
            let bias = fresh(9, 3);
            let map = Map { weight_vd: &weight, bias_v: &bias };
            let dweight = fresh((9, 4), 5);
            let dbias = fresh(9, 6);
            let gradients = MapGradients { dweight_vd: (&dweight).into(), dbias_v: (&dbias).into() };
            let stream = Stream::new(5, Purpose::Sample, 3);
            let draw = Draw { stream: &stream, keys: (&[]).into() };
            let passed = forward_backward(&x, map, &[], 1.0, gradients, Some(draw)).unwrap();
            let (entropy, drawn) = forward(&x, map, &[], Some(draw)).unwrap();
            assert_eq!(
                (passed.dx_md.dims(), passed.drawn.unwrap().dims()),
                ([0, 4].as_slice(), [0].as_slice())
            );
            assert_eq!(drawn.unwrap().dims(), [0]);
            for entropy in [passed.entropy, entropy] {
                assert_eq!(Totals::read(&entropy.totals).unwrap(), Totals { loss_sum: 0.0, correct: 0 });
            }
            assert_eq!([bits(&dweight), bits(&dbias)], [bits(&fresh((9, 4), 5)), bits(&fresh(9, 6))]);
            forward_backward(&x, map, &[], 1.0, overwriting(&dweight, &dbias), None).unwrap();
            assert!([bits(&dweight), bits(&dbias)].concat().iter().all(|&bits| bits == 0));
        }
    });
}

/// Gradients whose current values are overwritten.
fn overwriting<'a>(dweight: &'a Tensor, dbias: &'a Tensor) -> MapGradients<'a> {
    let [dweight_vd, dbias_v] = [dweight, dbias].map(|sum| Accumulator { sum, begun: false });
    MapGradients { dweight_vd, dbias_v }
}

/// Small pieces on the GPU: pieces of eight rows and a last one with fewer, and single rows.
#[test]
fn pieces_on_a_gpu_give_the_loss_of_the_whole() {
    on_each_device(|| {
        for dtype in DTYPES {
            let x = fresh_in((21, 8), 1, dtype);
            let weight = fresh_in((1003, 8), 2, dtype);
            let bias = fresh(1003, 3);
            let Some(gpu) = Gpu::of(&x).unwrap() else { return };
            let map = Map { weight_vd: &weight, bias_v: &bias };
            let (whole, gradients) = in_pieces(&gpu, &x, map, cuda::PIECE_VALUES);
            for most_values in [1, 1003 * 9] {
                let (pieces, of_pieces) = in_pieces(&gpu, &x, map, most_values);
                assert!((loss_sum(&pieces) - loss_sum(&whole)).abs() < 1e-6 * loss_sum(&whole));
                assert_close("log sum exp", &pieces.log_sum_exp_m, &whole.log_sum_exp_m, 1e-6);
                for (what, (got, want)) in
                    ["dx", "dweight", "dbias"].iter().zip(of_pieces.iter().zip(&gradients))
                {
                    assert_close(what, got, want, within(dtype, 1e-6, 1.0));
                }
            }
        }
    });
}

/// Loss and gradients of 21 rows on a GPU, with at most `most_values` logits in memory.
fn in_pieces(gpu: &Gpu, x: &Tensor, map: Map<'_>, most_values: usize) -> (Entropy, [Tensor; 3]) {
    let labels = fresh_ids(21, 1003, 4);
    let labels = Indices::from(&labels);
    let stream = Stream::new(5, Purpose::Sample, 3);
    let keys: Vec<u64> = (100..121).collect();
    let draw = Draw { stream: &stream, keys: (&keys).into() };
    let dweight = fresh((1003, 8), 5);
    let dbias = fresh(1003, 6);
    let into = MapGradients { dweight_vd: (&dweight).into(), dbias_v: (&dbias).into() };
    let Passed { entropy, dx_md: dx, drawn } =
        cuda::forward_backward(gpu, x, map, labels, 0.5, into, Some(draw), most_values).unwrap();
    let (alone, drawn_again) = cuda::forward(gpu, x, map, labels, Some(draw), most_values).unwrap();
    let drawn = ids(drawn);
    assert_eq!(drawn, ids(drawn_again));
    check_draws(x, map, draw, &drawn);
    assert_eq!(bits(&alone.log_sum_exp_m), bits(&entropy.log_sum_exp_m));
    // Gradients that are not begun are overwritten, whatever their values.
    let added = [(&dweight, 5), (&dbias, 6)]
        .map(|(sum, id)| (double(sum) - double(&fresh(sum.shape().clone(), id))).unwrap());
    let first_weight = fresh((1003, 8), 7);
    let first_bias = fresh(1003, 8);
    let into = overwriting(&first_weight, &first_bias);
    cuda::forward_backward(gpu, x, map, labels, 0.5, into, None, most_values).unwrap();
    assert_close("first dweight", &first_weight, &added[0], 1e-5);
    assert_close("first dbias", &first_bias, &added[1], 1e-5);
    (entropy, [dx, dweight, dbias])
}

/// More rows than a piece has: the losses equal those of two separate calls, whose gradients add up.
#[test]
fn several_pieces_give_the_loss_of_the_whole() {
    let classes = 1 << 20;
    let inputs = 2;
    let rows = PIECE_VALUES / classes + 3;
    let x = fresh((rows, inputs), 1);
    let weight = fresh((classes, inputs), 2);
    let bias = fresh(classes, 3);
    let labels = fresh_ids(rows, classes as u64, 4);
    let map = Map { weight_vd: &weight, bias_v: &bias };
    let [dweight, dweight_parts] = [(); 2].map(|()| (&weight * f64::NAN).unwrap());
    let [dbias, dbias_parts] = [(); 2].map(|()| (&bias * f64::NAN).unwrap());
    let added = MapGradients { dweight_vd: (&dweight_parts).into(), dbias_v: (&dbias_parts).into() };
    let [whole, first, second] = [
        (0..rows, overwriting(&dweight, &dbias)),
        (0..5, overwriting(&dweight_parts, &dbias_parts)),
        (5..rows, added),
    ]
    .map(|(part, into)| {
        let x = x.narrow(0, part.start, part.len()).unwrap();
        forward_backward(&x, map, &labels[part], 1.0, into, None).unwrap()
    });
    let [loss, first_loss, second_loss] = [&whole, &first, &second].map(|passed| loss_sum(&passed.entropy));
    assert!((loss - first_loss - second_loss).abs() < 1e-6 * loss);
    assert_eq!(
        bits(&whole.entropy.log_sum_exp_m),
        [bits(&first.entropy.log_sum_exp_m), bits(&second.entropy.log_sum_exp_m)].concat()
    );
    assert_close("dx", &whole.dx_md, &Tensor::cat(&[first.dx_md, second.dx_md], 0).unwrap(), 1e-6);
    assert_close("dweight", &dweight, &dweight_parts, 1e-6);
    assert_close("dbias", &dbias, &dbias_parts, 1e-6);
}

#[test]
fn the_reference_is_differentiable() {
    let inputs = [&fresh((3, 4), 1), &fresh((5, 4), 2), &fresh(5, 3)];
    assert_reference_is_differentiable(
        |i| reference(i, &[4, 0, 2]),
        &inputs,
        &Tensor::new(1.5f32, &Device::Cpu).unwrap(),
    );
}

#[test]
fn the_number_of_threads_does_not_change_a_bit() {
    for dtype in DTYPES {
        let x = fresh_in((50, 32), 1, dtype);
        let weight = fresh_in((3000, 32), 2, dtype);
        let bias = fresh(3000, 3);
        let map = Map { weight_vd: &weight, bias_v: &bias };
        let labels = fresh_ids(50, 3000, 4);
        assert_same_for_any_thread_count(&format!("{dtype:?}"), || {
            let dweight = fresh((3000, 32), 5);
            let dbias = fresh(3000, 6);
            let into = MapGradients { dweight_vd: (&dweight).into(), dbias_v: (&dbias).into() };
            let passed = forward_backward(&x, map, &labels, 1.0, into, None).unwrap();
            (loss_sum(&passed.entropy).to_bits(), bits(&passed.dx_md), bits(&dweight), bits(&dbias))
        });
    }
}

#[test]
fn invalid_labels_and_dtypes_are_errors() {
    let x = fresh((2, 4), 1);
    let weight = fresh((3, 4), 2);
    let bias = fresh(3, 3);
    let map = Map { weight_vd: &weight, bias_v: &bias };
    assert!(forward(&x, map, &[0, 3], None).unwrap_err().to_string().contains("label 3"));
    assert!(forward(&x, map, &[0], None).is_err());
    let half = x.to_dtype(DType::BF16).unwrap();
    assert!(forward(&half, map, &[0, 1], None).unwrap_err().to_string().contains("BF16"));
    // The fused op gives the loss of the two separate ops.
    let logits = linear::forward(&x, &weight, Some(&bias)).unwrap();
    let apart = crate::cross_entropy::forward(&logits, &[2, 1]).unwrap();
    assert!((loss_sum(&forward(&x, map, &[2, 1], None).unwrap().0) - loss_sum(&apart)).abs() < 1e-6);
}
