//! Tests of the order, the values and the copies of parameters.

use super::*;

fn layout() -> (ParameterId, ParameterId, Layout) {
    let mut registry = Registry::default();
    let weight = registry.weight("b.weight", &[3, 5], Init::NormalWithZeroRow(1));
    let bias = registry.vector("a.bias", 7, Init::Ones);
    (weight, bias, registry.layout())
}

#[test]
fn parameters_are_ordered_by_name_and_aligned() {
    let (_, _, layout) = layout();
    let placed: Vec<_> = layout.specs().map(|s| (s.name.as_str(), s.range.clone())).collect();
    assert_eq!(placed, [("a.bias", 0..7), ("b.weight", 64..79)]);
    assert_eq!((layout.len(), layout.num_elements()), (128, 22));
}

#[test]
fn rows_in_another_order_in_files_are_read_and_written_in_it() {
    let mut registry = Registry::default();
    let maps: [ParameterId; 2] = registry.weight_of_maps("maps.weight", 2, 3, Init::Normal);
    registry.order_in_files(maps[0], [2, 0, 3, 1].into());
    let parameters = Parameters::initialise(registry.layout(), 0.02, 1, &Device::Cpu).unwrap();
    let in_file = Tensor::arange(0f32, 12., &Device::Cpu).unwrap().reshape((4, 3)).unwrap();
    parameters.set("maps.weight", &in_file).unwrap();
    let rows = maps.map(|map| parameters.get(map).to_vec2::<f32>().unwrap());
    assert_eq!(rows, [[[3., 4., 5.], [9., 10., 11.]], [[0., 1., 2.], [6., 7., 8.]]]);
    let named = parameters.named().unwrap();
    assert_eq!(named[0].1.to_vec2::<f32>().unwrap(), in_file.to_vec2::<f32>().unwrap());
    assert_eq!(parameters.layout().copied_bytes(), 4 * 12);
}

#[test]
fn maps_that_share_a_tensor_have_a_view_each_and_one_name() {
    let mut registry = Registry::default();
    let [first, second] = registry.weight_of_maps("maps.weight", 2, 3, Init::Normal);
    let after = registry.vector("z.bias", 1, Init::Ones);
    let parameters = Parameters::initialise(registry.layout(), 0.02, 1, &Device::Cpu).unwrap();
    let whole = Tensor::arange(0f32, 12., &Device::Cpu).unwrap().reshape((4, 3)).unwrap();
    parameters.set("maps.weight", &whole).unwrap();
    assert_eq!(parameters.get(first).to_vec2::<f32>().unwrap(), [[0., 1., 2.], [3., 4., 5.]]);
    assert_eq!(parameters.get(second).to_vec2::<f32>().unwrap(), [[6., 7., 8.], [9., 10., 11.]]);
    assert!(parameters.get(second).is_contiguous());
    assert_eq!(parameters.get(after).to_vec1::<f32>().unwrap(), [1.0]);
    let named = parameters.named().unwrap();
    assert_eq!(named.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["maps.weight", "z.bias"]);
    assert_eq!(named[0].1.to_vec2::<f32>().unwrap(), whole.to_vec2::<f32>().unwrap());
}

#[test]
fn writing_a_view_writes_the_flat_buffer() {
    let (weight, bias, layout) = layout();
    let parameters = Parameters::initialise(layout, 0.02, 1, &Device::Cpu).unwrap();
    let rows = parameters.get(weight).to_vec2::<f32>().unwrap();
    assert!(rows[1].iter().all(|&v| v == 0.0) && rows[0].iter().all(|&v| v != 0.0));
    parameters.set("a.bias", &Tensor::arange(0f32, 7., &Device::Cpu).unwrap()).unwrap();
    assert_eq!(parameters.get(bias).to_vec1::<f32>().unwrap()[6..], [6.0]);
    assert_eq!(parameters.flat().to_vec1::<f32>().unwrap()[6..7], [6.0]);
    assert_eq!((parameters.compute_dtype(), parameters.shadow().is_none()), (DType::F32, true));
    let error =
        parameters.set("b.weight", &Tensor::zeros((2, 5), DType::F32, &Device::Cpu).unwrap()).unwrap_err();
    assert!(error.to_string().contains("`b.weight` is [2, 5], the model wants [3, 5]"), "{error}");
}

#[test]
fn the_shadow_is_the_rounded_copy_and_follows_what_is_set() {
    let (weight, bias, layout) = layout();
    let parameters =
        Parameters::initialise(layout, 0.02, 1, &Device::Cpu).unwrap().computing_in(DType::BF16).unwrap();
    assert_rounded(&parameters, weight);
    parameters
        .set("b.weight", &Tensor::arange(0.1f32, 15., &Device::Cpu).unwrap().reshape((3, 5)).unwrap())
        .unwrap();
    assert_rounded(&parameters, weight);
    assert_rounded(&parameters, bias);
}

#[test]
fn exchanged_and_overwritten_values_are_rounded_into_the_shadow() {
    let (weight, bias, layout) = layout();
    let other = Tensor::arange(0.1f32, 128., &Device::Cpu).unwrap();
    let parameters =
        Parameters::initialise(layout, 0.02, 1, &Device::Cpu).unwrap().computing_in(DType::BF16).unwrap();
    let [own, flat] = [parameters.flat(), &other].map(|t| t.to_vec1::<f32>().unwrap());
    parameters.exchange(&other).unwrap();
    assert_eq!([parameters.flat(), &other].map(|t| t.to_vec1::<f32>().unwrap()), [flat, own.clone()]);
    assert_rounded(&parameters, weight);
    parameters.set_all(&other).unwrap();
    assert_eq!(parameters.flat().to_vec1::<f32>().unwrap(), own);
    assert_rounded(&parameters, weight);
    assert_rounded(&parameters, bias);
}

/// Asserts that the bf16 copy of a parameter is its rounded value.
fn assert_rounded(parameters: &Parameters, id: ParameterId) {
    let rounded = parameters.get(id).to_dtype(DType::BF16).unwrap().to_dtype(DType::F32).unwrap();
    let shadow = parameters.compute(id).to_dtype(DType::F32).unwrap().flatten_all().unwrap();
    assert_eq!(parameters.compute(id).dtype(), DType::BF16);
    assert_eq!(rounded.flatten_all().unwrap().to_vec1::<f32>().unwrap(), shadow.to_vec1::<f32>().unwrap());
}
