//! Layers that are one: its gradients are told of once, when every layer has added its own.

use std::sync::{Arc, Mutex};

use candle_core::Device;
use mlmtrain::batches::Batch;
use mlmtrain::families::{EncoderConfig, Family, ModelConfig};
use mlmtrain::layers::Gradients;
use mlmtrain::layers::context::Pass;
use mlmtrain::models::Model;
use mlmtrain::tasks::Task;
use mlmtrain::tasks::masked_lm::MaskedLm;

fn task(num_hidden_layers: usize) -> MaskedLm {
    let encoder = EncoderConfig {
        vocab_size: 60,
        embedding_size: Some(16),
        hidden_size: 24,
        num_hidden_layers,
        num_attention_heads: 2,
        intermediate_size: 40,
        max_position_embeddings: 16,
        initializer_range: 0.2,
        ..EncoderConfig::of(Family::ALBERT)
    };
    let config = ModelConfig { family: Family::ALBERT, encoder };
    MaskedLm { model: Model::masked_lm(&config, 3, &Device::Cpu).unwrap() }
}

#[test]
fn every_range_is_told_of_once_with_the_gradients_that_the_step_ends_with() {
    let batch = Batch::of_segment((0..13).map(|token| 5 + token * 7 % 50).collect(), vec![1, 4, 9]);
    let task = task(3);
    let mut gradients = Gradients::new(task.parameters()).unwrap();
    let told = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&told);
    gradients.tell(move |range, values| {
        sink.lock().unwrap().push((range, values.to_vec1::<f32>()?));
        Ok(())
    });
    let earlier = Pass { last_micro_batch: false, ..Pass::new(1, 1) };
    task.accumulate(&batch, earlier, &[1.0], &gradients).unwrap();
    assert!(told.lock().unwrap().is_empty());
    task.accumulate(&batch, Pass::new(1, 1), &[1.0], &gradients).unwrap();
    let (told, last) = (told.lock().unwrap(), gradients.flat().unwrap().to_vec1::<f32>().unwrap());
    for spec in task.parameters().layout().specs() {
        let (start, end) = (spec.range.start, spec.range.end);
        let of_spec: Vec<_> = told.iter().filter(|(r, _)| r.start <= start && end <= r.end).collect();
        assert_eq!(of_spec.len(), 1, "`{}`", spec.name);
        let (range, values) = of_spec[0];
        assert_eq!(
            values[start - range.start..end - range.start],
            last[spec.range.clone()],
            "`{}`",
            spec.name
        );
    }
}

#[test]
fn more_layers_are_no_more_parameters() {
    let [three, twelve] = [3, 12].map(|layers| task(layers).parameters().layout().own_names());
    assert_eq!(three, twelve);
    assert!(three.iter().any(|(name, _)| name.contains("albert_layers.0.ffn.")));
    assert!(!three.iter().any(|(name, _)| name.contains("albert_layers.1.")));
}
