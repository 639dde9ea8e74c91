//! The products compared with the reference: odd sizes, one row, no rows, and addition to existing gradients.

use candle_core::{DType, Result, Tensor};

use crate::accumulator::Accumulator;
use crate::cuda::Gpu;
use crate::linear;
use crate::linear::reference;
use crate::testing::{
    DTYPES, assert_close, assert_reference_is_differentiable, bits, double, fresh, fresh_in, on_each_device,
    on_host, placed, reference_gradients, within,
};

fn composed(inputs: &[Tensor]) -> Result<Tensor> {
    reference::forward(&inputs[0], &inputs[1], inputs.get(2))
}

#[test]
fn forward_and_backward_agree_with_the_reference() {
    on_each_device(|| {
        for dtype in DTYPES {
            for (rows, inputs, outputs) in [(1, 1, 1), (1, 24, 96), (7, 5, 3), (65, 96, 24), (130, 131, 129)]
            {
                compare(dtype, rows, inputs, outputs);
            }
        }
    });
}

fn compare(dtype: DType, rows: usize, inputs: usize, outputs: usize) {
    let tolerance = within(dtype, 1e-6, 1.0);
    let x = fresh_in((rows, inputs), 1, dtype);
    let weight = fresh_in((outputs, inputs), 2, dtype);
    let dy = fresh_in((rows, outputs), 4, dtype);
    let bias = fresh(outputs, 3);
    let (want, gradients) = reference_gradients(composed, &[&x, &weight, &bias], &dy);
    assert_close("y", &linear::forward(&x, &weight, Some(&bias)).unwrap(), &want, tolerance);
    assert_close("dx", &linear::backward_input(&dy, &weight).unwrap(), &gradients[0], tolerance);

    // All sums are added to existing values, and `dx` is summed over two maps of one input.
    let dx = fresh_in((rows, inputs), 5, dtype);
    let dweight = fresh((outputs, inputs), 6);
    let dbias = fresh(outputs, 7);
    let twice = (&gradients[0] * 2.0).unwrap();
    let wanted = [&dx, &dweight, &dbias].into_iter().zip([&twice, &gradients[1], &gradients[2]]);
    let wanted: Vec<Tensor> = wanted.map(|(start, g)| (double(start) + g).unwrap()).collect();
    linear::backward_inputs_accumulate(&[(&dy, &weight), (&dy, &weight)], &dx).unwrap();
    linear::backward_parameters(&dy, &x, &dweight, Some((&dbias).into())).unwrap();
    // A GPU rounds after each of the two maps, the CPU once.
    assert_close("dx", &dx, &wanted[0], within(dtype, 1e-6, 2.0));
    // Gradients of parameters are f32 sums of exact products.
    assert_close("dweight", &dweight, &wanted[1], 1e-6);
    assert_close("dbias", &dbias, &wanted[2], 1e-6);
    // Accumulators that are not begun are overwritten, whatever their values.
    let [dweight, dbias] = [dweight, dbias].map(|t| (t * f64::NAN).unwrap());
    let [first_weight, first_bias] = [&dweight, &dbias].map(|sum| Accumulator { sum, begun: false });
    linear::backward_parameters(&dy, &x, first_weight, Some(first_bias)).unwrap();
    assert_close("first dweight", &dweight, &gradients[1], 1e-6);
    assert_close("first dbias", &dbias, &gradients[2], 1e-6);
}

/// Several blocks of rows, and columns that are read 16 bytes at a time, in pairs, and one by one.
#[test]
fn bias_gradients_sum_every_row_of_every_column() {
    on_each_device(|| {
        for (dtype, (rows, cols)) in DTYPES
            .into_iter()
            .flat_map(|dtype| [(700, 264), (41, 1030), (2200, 7), (9, 1)].map(|s| (dtype, s)))
        {
            let dy = fresh_in((rows, cols), 1, dtype);
            let x = fresh_in((rows, 1), 2, dtype);
            let dweight = fresh((cols, 1), 3);
            let dbias = fresh(cols, 4);
            let want = (double(&dbias) + double(&dy).sum(0).unwrap()).unwrap();
            linear::backward_parameters(&dy, &x, &dweight, Some((&dbias).into())).unwrap();
            assert_close("dbias", &dbias, &want, 1e-6);
        }
    });
}

#[test]
fn the_reference_is_differentiable() {
    assert_reference_is_differentiable(
        composed,
        &[&fresh((3, 4), 1), &fresh((2, 4), 2), &fresh(2, 3)],
        &fresh((3, 2), 4),
    );
}

#[test]
fn no_rows_give_no_output_and_no_gradient() {
    on_each_device(|| {
        for dtype in DTYPES {
            let x = fresh_in((0, 4), 1, dtype);
            let dy = fresh_in((0, 3), 1, dtype);
            let weight = fresh_in((3, 4), 1, dtype);
            let dweight = fresh((3, 4), 2);
            let dbias = fresh(3, 3);
            assert_eq!(linear::forward(&x, &weight, None).unwrap().dims(), [0, 3]);
            assert_eq!(linear::backward_input(&dy, &weight).unwrap().dims(), [0, 4]);
            let before = [bits(&dweight), bits(&dbias)];
            linear::backward_parameters(&dy, &x, &dweight, Some((&dbias).into())).unwrap();
            linear::backward_inputs_accumulate(&[(&dy, &weight)], &x).unwrap();
            assert_eq!([bits(&dweight), bits(&dbias)], before);
            let [first_weight, first_bias] = [&dweight, &dbias].map(|sum| Accumulator { sum, begun: false });
            linear::backward_parameters(&dy, &x, first_weight, Some(first_bias)).unwrap();
            assert!([bits(&dweight), bits(&dbias)].concat().iter().all(|&bits| bits == 0));
        }
    });
}

#[test]
fn shapes_that_do_not_fit_are_named() {
    let error = linear::forward(&fresh((2, 5), 1), &fresh((3, 4), 2), None).unwrap_err().to_string();
    assert!(error.contains("[2, 5]") && error.contains("[3, 4]"), "{error}");
}

#[test]
fn a_rounded_bias_gives_the_same_bits_on_a_gpu() {
    on_each_device(|| {
        for dtype in DTYPES {
            let x = fresh_in((5, 24), 1, dtype);
            let weight = fresh_in((7, 24), 2, dtype);
            let bias = fresh(7, 3);
            let outcome = linear::forward(&x, &weight, Some(&bias.to_dtype(dtype).unwrap()));
            if dtype != DType::F32 && Gpu::of(&x).unwrap().is_none() {
                let error = outcome.unwrap_err().to_string();
                assert!(error.contains(&format!("linear: the bias is {dtype:?}, the input")), "{error}");
            } else {
                let want = linear::forward(&x, &weight, Some(&bias)).unwrap();
                assert_eq!(bits(&outcome.unwrap()), bits(&want), "{dtype:?}");
            }
        }
    });
}

/// Weights, biases and gradients are views of flat buffers, as in a model, where key, query and value are
/// sorted by name: at equal distances with that of the queries in the middle, or with one of them at another
/// distance. Gradients are overwritten, and added to.
#[test]
fn several_maps_of_one_input_equal_the_single_maps() {
    on_each_device(|| {
        let sizes = [(7usize, 24usize, 16usize), (65, 16, 40), (3, 5, 6)];
        for (dtype, (rows, inputs, outputs)) in
            DTYPES.into_iter().flat_map(|dtype| sizes.map(|size| (dtype, size)))
        {
            for (places, has_bias) in [([1, 0, 2], true), ([0, 1, 2], false), ([1, 0, 3], true)] {
                let step = 64 + (outputs * inputs).next_multiple_of(64);
                let flat = fresh_in(4 * step, 1, dtype);
                let (weights, biases) = views(&flat, places, step, outputs, inputs);
                let x = fresh_in((rows, inputs), 2, dtype);
                // A CPU accepts only f32 biases.
                let biases = biases.map(|bias| match Gpu::of(&x).unwrap() {
                    Some(_) => bias,
                    None => bias.to_dtype(DType::F32).unwrap(),
                });
                let maps = [0, 1, 2]
                    .map(|i| linear::Map { weight_oi: &weights[i], bias_o: has_bias.then_some(&biases[i]) });
                for (i, y) in linear::forward_maps(&x, maps).unwrap().iter().enumerate() {
                    let want = linear::forward(&x, &weights[i], has_bias.then_some(&biases[i])).unwrap();
                    assert_close(
                        &format!("map {i} of {places:?}"),
                        y,
                        &double(&want),
                        within(dtype, 1e-6, 1.0),
                    );
                }
                let all = fresh_in((4, rows, outputs), 3, dtype);
                let dys = places.map(|p| all.get(p).unwrap());
                for begun in [false, true] {
                    let [together, apart] = [fresh(4 * step, 4), fresh(4 * step, 4)];
                    let [into, alone] = [&together, &apart].map(|t| views(t, places, step, outputs, inputs));
                    let [gradients, single] = [&into, &alone].map(|(dweights, dbiases)| {
                        [0, 1, 2].map(|i| linear::MapGradients {
                            dy_to: &dys[i],
                            dweight_oi: Accumulator { sum: &dweights[i], begun },
                            dbias_o: has_bias.then_some(Accumulator { sum: &dbiases[i], begun }),
                        })
                    });
                    linear::backward_parameters_of_maps(&x, gradients).unwrap();
                    for map in single {
                        linear::backward_parameters(map.dy_to, &x, map.dweight_oi, map.dbias_o).unwrap();
                    }
                    assert_close("gradients of maps", &together, &double(&apart), 1e-6);
                }
            }
        }
    });
}

/// Views of the weights and biases of three maps in the flat buffer `t`, at the multiples `places` of `step`:
/// a bias, then after 64 values the weight.
fn views(
    t: &Tensor,
    places: [usize; 3],
    step: usize,
    outputs: usize,
    inputs: usize,
) -> ([Tensor; 3], [Tensor; 3]) {
    let weights = places.map(|place| {
        let weight = t.narrow(0, place * step + 64, outputs * inputs).unwrap();
        weight.reshape((outputs, inputs)).unwrap()
    });
    let biases = places.map(|place| t.narrow(0, place * step, outputs).unwrap());
    (weights, biases)
}

/// Gradients in the compute type: overwritten they are those in f32, rounded once; added to, the sum is
/// rounded once more. The bias of the weight may have either type.
#[test]
fn gradients_in_a_half_type_are_those_in_f32_rounded() {
    on_each_device(|| {
        for dtype in [DType::BF16, DType::F16] {
            for (rows, inputs, outputs) in [(1, 1, 1), (7, 5, 3), (65, 96, 24), (1100, 33, 16), (0, 8, 8)] {
                let x = fresh_in((rows, inputs), 1, dtype);
                let dy = fresh_in((rows, outputs), 2, dtype);
                for (begun, bias_dtype) in
                    [(false, dtype), (true, dtype), (false, DType::F32), (true, DType::F32)]
                {
                    let half = [
                        fresh_in((outputs, inputs), 3, dtype),
                        fresh_in((outputs, 1), 4, bias_dtype).flatten_all().unwrap(),
                    ];
                    let single = half.each_ref().map(|t| placed(&on_host(t).to_dtype(DType::F32).unwrap()));
                    for [weight, bias] in [half.each_ref(), single.each_ref()] {
                        let [dweight, dbias] = [weight, bias].map(|sum| Accumulator { sum, begun });
                        linear::backward_parameters(&dy, &x, dweight, Some(dbias)).unwrap();
                    }
                    for ((got, want), dtype) in half.iter().zip(&single).zip([dtype, bias_dtype]) {
                        assert_close("gradient", got, &double(want), within(dtype, 1e-6, 1.0));
                    }
                }
            }
        }
    });
}

/// Weights and biases of three maps in one buffer of the compute type, as those of queries, keys and values,
/// overwritten and added to.
#[test]
fn gradients_of_several_maps_may_have_a_half_type() {
    on_each_device(|| {
        let rows = 65;
        let inputs = 16;
        let outputs: usize = 40;
        let step = 64 + (outputs * inputs).next_multiple_of(64);
        let x = fresh_in((rows, inputs), 1, DType::BF16);
        let all = fresh_in((3, rows, outputs), 2, DType::BF16);
        for (places, has_bias, begun) in [
            ([1, 0, 2], true, false),
            ([1, 0, 2], true, true),
            ([0, 1, 2], false, false),
            ([1, 0, 3], true, false),
        ] {
            let half = fresh_in(4 * step, 3, DType::BF16);
            let single = placed(&on_host(&half).to_dtype(DType::F32).unwrap());
            for whole in [&half, &single] {
                let (weights, biases) = views(whole, places, step, outputs, inputs);
                let dys = [0, 1, 2].map(|map| all.get(map).unwrap());
                let maps = [0, 1, 2].map(|map| linear::MapGradients {
                    dy_to: &dys[map],
                    dweight_oi: Accumulator { sum: &weights[map], begun },
                    dbias_o: has_bias.then_some(Accumulator { sum: &biases[map], begun }),
                });
                linear::backward_parameters_of_maps(&x, maps).unwrap();
            }
            assert_close("gradients", &half, &double(&single), within(DType::BF16, 1e-6, 1.0));
        }
    });
}

#[test]
fn gradients_of_a_type_that_no_product_has_are_refused() {
    let [x, dy] = [(3, 5), (3, 4)].map(|shape| fresh_in(shape, 1, DType::BF16));
    let error = |weight: DType, bias: DType| {
        let [dweight, dbias] = [fresh_in((4, 5), 1, weight), fresh_in(4, 2, bias)];
        linear::backward_parameters(&dy, &x, &dweight, Some((&dbias).into())).unwrap_err().to_string()
    };
    assert!(error(DType::F16, DType::F32).contains("the weight gradient is F16, dy is BF16"));
    assert!(error(DType::F32, DType::BF16).contains("the bias gradient is BF16, that of the weight F32"));
}
