//! The op against its reference in every type, over several pieces, and at the edges.

use candle_core::DType;
use candle_core::Device;
use candle_core::Result;
use candle_core::Tensor;

use super::*;
use crate::cross_entropy::Totals;
use crate::linear;
use crate::testing::DTYPES;
use crate::testing::assert_close;
use crate::testing::assert_reference_is_differentiable;
use crate::testing::bits;
use crate::testing::double;
use crate::testing::fresh;
use crate::testing::fresh_ids;
use crate::testing::fresh_in;
use crate::testing::on_each_device;
use crate::testing::reference_gradients;
use crate::testing::within;
use base::rng::Purpose;

fn reference(inputs: &[Tensor], labels: &[u32]) -> Result<Tensor> {
    reference::forward(&inputs[0], &inputs[1], &inputs[2], labels)
}

fn loss_sum(entropy: &Entropy) -> f64 {
    Totals::read(&entropy.totals).unwrap().loss_sum
}

fn compare(dtype: DType, (rows, inputs, classes): (usize, usize, usize)) {
    let (x, weight, bias) =
        (fresh_in((rows, inputs), 1, dtype), fresh_in((classes, inputs), 2, dtype), fresh(classes, 3));
    let labels = fresh_ids(rows, classes as u64, 4);
    let seed = Tensor::new(0.25f32, &Device::Cpu).unwrap();
    let (loss, gradients) = reference_gradients(|i| reference(i, &labels), &[&x, &weight, &bias], &seed);
    let loss = loss.to_scalar::<f64>().unwrap();
    let map = Map { weight_vd: &weight, bias_v: &bias };
    let (dweight, dbias) = (fresh((classes, inputs), 5), fresh(classes, 6));
    let wanted = [(double(&dweight) + &gradients[1]).unwrap(), (double(&dbias) + &gradients[2]).unwrap()];
    let into = MapGradients { dweight_vd: (&dweight).into(), dbias_v: (&dbias).into() };
    let stream = Stream::new(5, Purpose::Sample, 3);
    let keys: Vec<u64> = (0..rows as u64).map(|row| row << 20 | 7).collect();
    let draw = || Some(Draw { stream: &stream, keys: (&keys).into() });
    let passed = forward_backward(&x, map, &labels, 0.25, into, draw()).unwrap();
    let Passed { entropy, dx_md: dx, drawn } = passed;
    let (without_gradient, drawn_again) = forward(&x, map, &labels, draw()).unwrap();
    let got = Totals::read(&entropy.totals).unwrap();
    let ids =
        |drawn: Option<Tensor>| drawn.unwrap().to_device(&Device::Cpu).unwrap().to_vec1::<u32>().unwrap();
    let drawn = ids(drawn);
    assert_eq!(ids(drawn_again), drawn);
    check_draws(&x, map, draw().unwrap(), &drawn);
    assert!((got.loss_sum - loss).abs() <= 2e-6 * loss.abs() + 1e-5, "{} is not {loss}", got.loss_sum);
    assert_eq!(Totals::read(&without_gradient.totals).unwrap(), got);
    assert_eq!(bits(&without_gradient.log_sum_exp_m), bits(&entropy.log_sum_exp_m));
    assert_eq!(dx.dtype(), dtype);
    // `dz` is rounded once, then the sum.
    assert_close("dx", &dx, &gradients[0], within(dtype, 1e-5, 2.0));
    assert_close("dweight", &dweight, &wanted[0], within(dtype, 1e-5, 1.0));
    assert_close("dbias", &dbias, &wanted[1], within(dtype, 1e-5, 1.0));
}

/// Each id has the largest sum of logit and noise, but where rounding decides.
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
            for size in [(1, 3, 2), (7, 24, 96), (40, 16, 1001), (3, 8, 30_001), (5, 4, 1)] {
                compare(dtype, size);
            }
        }
    });
}

#[test]
fn no_rows_give_no_loss_and_no_gradient() {
    on_each_device(|| {
        for dtype in DTYPES {
            let (x, weight, bias) = (fresh_in((0, 4), 1, dtype), fresh_in((9, 4), 2, dtype), fresh(9, 3));
            let (map, into) = (Map { weight_vd: &weight, bias_v: &bias }, (fresh((9, 4), 5), fresh(9, 6)));
            let gradients = MapGradients { dweight_vd: (&into.0).into(), dbias_v: (&into.1).into() };
            let stream = Stream::new(5, Purpose::Sample, 3);
            let draw = || Some(Draw { stream: &stream, keys: (&[]).into() });
            let passed = forward_backward(&x, map, &[], 1.0, gradients, draw()).unwrap();
            let (entropy, drawn) = forward(&x, map, &[], draw()).unwrap();
            assert_eq!(
                (passed.dx_md.dims(), passed.drawn.unwrap().dims()),
                ([0, 4].as_slice(), [0].as_slice())
            );
            assert_eq!(drawn.unwrap().dims(), [0]);
            for entropy in [passed.entropy, entropy] {
                assert_eq!(Totals::read(&entropy.totals).unwrap(), Totals { loss_sum: 0.0, correct: 0 });
            }
            assert_eq!([bits(&into.0), bits(&into.1)], [bits(&fresh((9, 4), 5)), bits(&fresh(9, 6))]);
            forward_backward(&x, map, &[], 1.0, first((&into.0, &into.1)), None).unwrap();
            assert!([bits(&into.0), bits(&into.1)].concat().iter().all(|&bits| bits == 0));
        }
    });
}

/// Gradients that begin here.
fn first<'a>((weight, bias): (&'a Tensor, &'a Tensor)) -> MapGradients<'a> {
    let first = |sum| Accumulator { sum, begun: false };
    MapGradients { dweight_vd: first(weight), dbias_v: first(bias) }
}

/// The GPU's pieces, made small: whole eights of rows with a rest, and single rows.
#[test]
fn pieces_on_a_gpu_are_one_loss() {
    on_each_device(|| {
        for dtype in DTYPES {
            let (x, weight, bias) =
                (fresh_in((21, 8), 1, dtype), fresh_in((1003, 8), 2, dtype), fresh(1003, 3));
            let Some(gpu) = Gpu::of(&x).unwrap() else { return };
            let (map, labels) = (Map { weight_vd: &weight, bias_v: &bias }, fresh_ids(21, 1003, 4));
            let (stream, keys) = (Stream::new(5, Purpose::Sample, 3), (100..121).collect::<Vec<u64>>());
            let run = |most_values| {
                let (dweight, dbias) = (fresh((1003, 8), 5), fresh(1003, 6));
                let into = MapGradients { dweight_vd: (&dweight).into(), dbias_v: (&dbias).into() };
                let labels = || (&labels).into();
                let draw = || Some(Draw { stream: &stream, keys: (&keys).into() });
                let Passed { entropy, dx_md: dx, drawn } =
                    cuda::forward_backward(&gpu, &x, map, labels(), 0.5, into, draw(), most_values).unwrap();
                let (alone, drawn_again) =
                    cuda::forward(&gpu, &x, map, labels(), draw(), most_values).unwrap();
                let drawn = [drawn, drawn_again].map(|ids| ids.unwrap().to_vec1::<u32>().unwrap());
                assert_eq!(drawn[0], drawn[1]);
                check_draws(&x, map, draw().unwrap(), &drawn[0]);
                assert_eq!(bits(&alone.log_sum_exp_m), bits(&entropy.log_sum_exp_m));
                // From nothing: what stood there is neither kept nor added to.
                let begun = [(dweight.clone(), 5), (dbias.clone(), 6)]
                    .map(|(sum, id)| (double(&sum) - double(&fresh(sum.shape().clone(), id))).unwrap());
                let (dweight_first, dbias_first) = (fresh((1003, 8), 7), fresh(1003, 8));
                cuda::forward_backward(
                    &gpu,
                    &x,
                    map,
                    labels(),
                    0.5,
                    first((&dweight_first, &dbias_first)),
                    None,
                    most_values,
                )
                .unwrap();
                assert_close("first dweight", &dweight_first, &begun[0], 1e-5);
                assert_close("first dbias", &dbias_first, &begun[1], 1e-5);
                (entropy, [dx, dweight, dbias])
            };
            let (whole, gradients) = run(cuda::PIECE_VALUES);
            for most_values in [1, 1003 * 9] {
                let (pieces, of_pieces) = run(most_values);
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

/// More logits than one piece holds: the losses are those of the parts on their own, gradients add up.
#[test]
fn several_pieces_are_one_loss() {
    let (classes, inputs) = (1 << 20, 2);
    let rows = PIECE_VALUES / classes + 3;
    let (x, weight, bias) = (fresh((rows, inputs), 1), fresh((classes, inputs), 2), fresh(classes, 3));
    let labels = fresh_ids(rows, classes as u64, 4);
    let map = Map { weight_vd: &weight, bias_v: &bias };
    let run = |from: usize, count: usize, into: MapGradients<'_>| {
        let x = x.narrow(0, from, count).unwrap();
        let passed = forward_backward(&x, map, &labels[from..from + count], 1.0, into, None).unwrap();
        (passed.entropy, passed.dx_md)
    };
    let nothing = || ((&weight * f64::NAN).unwrap(), (&bias * f64::NAN).unwrap());
    let (whole, parts) = (nothing(), nothing());
    let (entropy, dx) = run(0, rows, first((&whole.0, &whole.1)));
    let (first, dx_first) = run(0, 5, first((&parts.0, &parts.1)));
    let added = MapGradients { dweight_vd: (&parts.0).into(), dbias_v: (&parts.1).into() };
    let (second, dx_second) = run(5, rows - 5, added);
    assert!((loss_sum(&entropy) - loss_sum(&first) - loss_sum(&second)).abs() < 1e-6 * loss_sum(&entropy));
    assert_eq!(
        bits(&entropy.log_sum_exp_m),
        [bits(&first.log_sum_exp_m), bits(&second.log_sum_exp_m)].concat()
    );
    assert_close("dx", &dx, &Tensor::cat(&[dx_first, dx_second], 0).unwrap(), 1e-6);
    assert_close("dweight", &whole.0, &parts.0, 1e-6);
    assert_close("dbias", &whole.1, &parts.1, 1e-6);
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
        let (x, weight, bias) =
            (fresh_in((50, 32), 1, dtype), fresh_in((3000, 32), 2, dtype), fresh(3000, 3));
        let labels = fresh_ids(50, 3000, 4);
        let run = |threads| {
            rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(|| {
                let (dweight, dbias) = (fresh((3000, 32), 5), fresh(3000, 6));
                let into = MapGradients { dweight_vd: (&dweight).into(), dbias_v: (&dbias).into() };
                let map = Map { weight_vd: &weight, bias_v: &bias };
                let passed = forward_backward(&x, map, &labels, 1.0, into, None).unwrap();
                (loss_sum(&passed.entropy).to_bits(), bits(&passed.dx_md), bits(&dweight), bits(&dbias))
            })
        };
        let one = run(1);
        assert!((2..4).all(|threads| run(threads) == one));
    }
}

#[test]
fn what_does_not_fit_is_named() {
    let (x, weight, bias) = (fresh((2, 4), 1), fresh((3, 4), 2), fresh(3, 3));
    let map = Map { weight_vd: &weight, bias_v: &bias };
    assert!(forward(&x, map, &[0, 3], None).unwrap_err().to_string().contains("label 3"));
    assert!(forward(&x, map, &[0], None).is_err());
    let half = x.to_dtype(DType::BF16).unwrap();
    assert!(forward(&half, map, &[0, 1], None).unwrap_err().to_string().contains("BF16"));
    // Two ways to the same logits.
    let logits = linear::forward(&x, &weight, Some(&bias)).unwrap();
    let apart = crate::cross_entropy::forward(&logits, &[2, 1]).unwrap();
    assert!((loss_sum(&forward(&x, map, &[2, 1], None).unwrap().0) - loss_sum(&apart)).abs() < 1e-6);
}
