//! Histograms of the weights of each part of a model, for experiment trackers.

use std::collections::BTreeMap;

use candle_core::{Result, Tensor};

use crate::telemetry::{Histogram, SAMPLE};
use model::layers::{Parameters, Part};
use model::models::pair::GENERATOR;
use ops::tensor::with_slice;

/// A histogram of the matrices of each part, from evenly spaced samples of their values.
pub(super) fn spread(parameters: &Parameters) -> Result<Vec<(String, Histogram)>> {
    let matrices =
        parameters.layout().specs().zip(parameters.named()?).filter(|(spec, _)| spec.shape.len() > 1);
    let mut parts: BTreeMap<(u8, Part), Vec<Tensor>> = BTreeMap::new();
    for (spec, (_, tensor)) in matrices {
        parts.entry((spec.model, spec.part)).or_default().push(tensor);
    }
    let mut spread = Vec::new();
    for ((model, part), tensors) in parts {
        let step = tensors.iter().map(Tensor::elem_count).sum::<usize>().div_ceil(SAMPLE).max(1);
        let mut sample: Vec<f32> = Vec::new();
        for tensor in &tensors {
            with_slice(tensor, |values: &[f32]| sample.extend(values.iter().step_by(step)))?;
        }
        let of_model = if model == GENERATOR { "generator." } else { "" };
        let name = match part {
            Part::Embeddings => "embeddings".to_string(),
            Part::Layer(layer) => format!("layer.{layer}"),
            Part::Head => "head".to_string(),
        };
        spread.extend(Histogram::of(sample.into_iter()).map(|found| (format!("{of_model}{name}"), found)));
    }
    Ok(spread)
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;
    use base::families::named_model;
    use model::models::Model;

    #[test]
    fn each_part_has_a_histogram_of_its_matrices() {
        let model = Model::masked_lm(&named_model("tiny").unwrap(), 1, &Device::Cpu).unwrap();
        let spread = spread(&model.parameters).unwrap();
        let names: Vec<&str> = spread.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["embeddings", "layer.0", "layer.1", "head"]);
        for (name, Histogram { num, sum_squares, max, .. }) in &spread {
            assert!(*num > 10_000.0 && *num < 2.0 * SAMPLE as f64, "{name}: {num}");
            // Norms and biases, initialised with one and zero, are not matrices and so not included.
            let deviation = (sum_squares / num).sqrt();
            assert!((deviation - 0.02).abs() < 0.001 && *max < 0.2, "{name}: {deviation} {max}");
        }
    }
}
