//! Two models in one run, a generator and a discriminator on shared embeddings: finite differences with
//! dropout on, the same bits with layers computed again, and gradients that are told of once, when they are
//! final.

use std::sync::{Arc, Mutex};

use candle_core::{Device, Tensor};
use mlmtrain::batches::Batch;
use mlmtrain::config::RtdConfig;
use mlmtrain::families::{EncoderConfig, Family, ModelConfig};
use mlmtrain::layers::Gradients;
use mlmtrain::layers::context::Pass;
use mlmtrain::rng::{Purpose, Stream};
use mlmtrain::tasks::Task;
use mlmtrain::tasks::replaced_token_detection::{ReplacedTokenDetection, blueprint};

use crate::golden_pair::Given;
use crate::gradients::finite_difference_error;

const VOCABULARY: u64 = 60;
const SCALES: [f32; 2] = [1.0, 5.0];

fn task(gradient_checkpointing: bool) -> ReplacedTokenDetection {
    let encoder = EncoderConfig {
        vocab_size: VOCABULARY as usize,
        embedding_size: Some(16),
        hidden_size: 24,
        num_hidden_layers: 2,
        num_attention_heads: 2,
        intermediate_size: 40,
        max_position_embeddings: 16,
        initializer_range: 0.2,
        ..EncoderConfig::of(Family::ELECTRA)
    };
    let (rtd, model) = (RtdConfig::default(), ModelConfig { family: Family::ELECTRA, encoder });
    let mut pair = blueprint(&rtd, &model).unwrap().initialise(3, &Device::Cpu).unwrap();
    pair.checkpoint_gradients(gradient_checkpointing);
    ReplacedTokenDetection::new(pair, &rtd)
}

fn batch() -> Batch {
    let stream = Stream::new(11, Purpose::Test, 0);
    let mut batch = Batch { cu_seqlens: vec![0], sample_ids: vec![1], ..Batch::default() };
    for length in [7, 1, 12, 9] {
        batch.position_ids.extend(0..length);
        batch.cu_seqlens.push(batch.position_ids.len() as u32);
    }
    let count = batch.position_ids.len();
    batch.ids = (0..count).map(|i| 5 + stream.below(i as u64, VOCABULARY - 5) as u32).collect();
    batch.token_type_ids = vec![0; count];
    batch.token_keys = (100..).take(count).collect();
    batch.label_positions = (0..count as u32).step_by(3).collect();
    batch.labels = batch.label_positions.iter().map(|&at| batch.ids[at as usize]).collect();
    for &at in &batch.label_positions {
        batch.ids[at as usize] = 4;
    }
    batch
}

/// Half of the tokens as they were, half of them others.
fn given() -> Given {
    let labels = batch().labels;
    let drawn = labels.iter().enumerate().map(|(i, &id)| if i % 2 == 0 { id } else { 5 + (id + 1) % 50 });
    Given { task: task(false), drawn: Tensor::new(drawn.collect::<Vec<u32>>(), &Device::Cpu).unwrap() }
}

fn pass(task: &dyn Task, batch: &Batch) -> (f64, Vec<f32>) {
    let gradients = Gradients::new(task.parameters()).unwrap();
    let losses = task.accumulate(batch, Pass::new(1, 1), &SCALES, &gradients).unwrap();
    let sums = losses.iter().zip(SCALES).map(|(loss, scale)| loss.read().unwrap().sum * f64::from(scale));
    (sums.sum(), gradients.flat().unwrap().to_vec1::<f32>().unwrap())
}

#[test]
fn finite_differences_of_the_joint_loss_agree_with_dropout_on() {
    let (task, batch) = (given(), batch());
    let error = finite_difference_error(&task, || pass(&task, &batch));
    assert!(error < 1e-2, "finite differences are off by {error:.2e}");
}

#[test]
fn layers_that_are_computed_again_change_no_bit() {
    let bits = |task: &ReplacedTokenDetection| {
        let (loss, gradients) = pass(task, &batch());
        (loss.to_bits(), gradients.into_iter().map(f32::to_bits).collect::<Vec<_>>())
    };
    assert!(bits(&task(false)) == bits(&task(true)));
}

#[test]
fn a_batch_without_masks_trains_the_discriminator_alone() {
    let mut batch = batch();
    batch.label_positions.clear();
    batch.labels.clear();
    let task = task(false);
    let (loss, gradients) = pass(&task, &batch);
    assert!(loss.is_finite() && loss > 0.0);
    for spec in task.parameters().layout().specs() {
        let live = gradients[spec.range.clone()].iter().any(|g| *g != 0.0);
        assert_eq!(live, spec.name.starts_with("discriminator."), "{}", spec.name);
    }
}

#[test]
fn every_range_is_told_of_once_and_the_shared_embeddings_last() {
    let task = task(false);
    let mut gradients = Gradients::new(task.parameters()).unwrap();
    let told = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&told);
    gradients.tell(move |range, _| {
        sink.lock().unwrap().push(range);
        Ok(())
    });
    let earlier = Pass { last_micro_batch: false, ..Pass::new(1, 1) };
    task.accumulate(&batch(), earlier, &SCALES, &gradients).unwrap();
    assert!(told.lock().unwrap().is_empty());
    task.accumulate(&batch(), Pass::new(1, 1), &SCALES, &gradients).unwrap();
    let told = told.lock().unwrap();
    let specs: Vec<_> = task.parameters().layout().specs().cloned().collect();
    for spec in &specs {
        let times = told.iter().filter(|r| r.start <= spec.range.start && spec.range.end <= r.end).count();
        assert_eq!(times, 1, "`{}`", spec.name);
    }
    let name_at = |at: usize| &specs.iter().find(|spec| spec.range.contains(&at)).unwrap().name;
    let order: Vec<&String> = told.iter().map(|range| name_at(range.start)).collect();
    assert!(order.last().unwrap().starts_with("discriminator.electra.embeddings"), "{order:?}");
    assert!(order[0].starts_with("generator."), "{order:?}");
}
