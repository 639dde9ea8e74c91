//! The joint loss of masked tokens and pairs of segments: finite differences with dropout on, the same bits
//! with layers computed again, gradients that are told of once, and batches that lack one of the two.

use std::sync::{Arc, Mutex};

use candle_core::Device;
use mlmtrain::batches::Batch;
use mlmtrain::config::TrainingConfig;
use mlmtrain::distributed::World;
use mlmtrain::families::{EncoderConfig, Family, ModelConfig};
use mlmtrain::layers::Gradients;
use mlmtrain::layers::context::Pass;
use mlmtrain::models::Blueprint;
use mlmtrain::optim::Optimizer;
use mlmtrain::tasks::Task;
use mlmtrain::tasks::sentence_pairs::{NextSentence, SentencePairs};
use mlmtrain::train::step::Stepper;

use crate::gradients::finite_difference_error;

const SCALES: [f32; 2] = [0.5, 2.0];
const LENGTHS: [u32; 4] = [12, 9, 14, 7];

fn task(family: Family, dropout: f64, gradient_checkpointing: bool) -> SentencePairs<NextSentence> {
    let encoder = EncoderConfig {
        vocab_size: 60,
        embedding_size: family.embedding_map.map(|_| 16),
        hidden_size: 24,
        num_hidden_layers: 2,
        num_attention_heads: 2,
        intermediate_size: 40,
        hidden_dropout_prob: dropout,
        attention_probs_dropout_prob: dropout,
        classifier_dropout: Some(dropout),
        max_position_embeddings: 16,
        initializer_range: 0.2,
        ..EncoderConfig::of(family)
    };
    let blueprint = Blueprint::sentence_pairs(&ModelConfig { family, encoder }).unwrap();
    let mut model = blueprint.initialise(3, &Device::Cpu).unwrap();
    model.encoder.gradient_checkpointing = gradient_checkpointing;
    SentencePairs::new(model)
}

/// Four segments, three of which are pairs, with every third token masked.
fn batch() -> Batch {
    let mut batch = Batch { cu_seqlens: vec![0], sample_ids: vec![1], ..Batch::default() };
    for length in LENGTHS {
        batch.position_ids.extend(0..length);
        batch.token_type_ids.extend((0..length).map(|place| u32::from(2 * place > length)));
        batch.cu_seqlens.push(batch.position_ids.len() as u32);
    }
    let count = batch.position_ids.len() as u32;
    batch.ids = (0..count).map(|token| 5 + token * 7 % 55).collect();
    batch.token_keys = (100..).take(count as usize).collect();
    batch.label_positions = (1..count).step_by(3).collect();
    batch.labels = batch.label_positions.iter().map(|&at| batch.ids[at as usize]).collect();
    for &at in &batch.label_positions {
        batch.ids[at as usize] = 4;
    }
    batch.pair_positions = vec![batch.cu_seqlens[0], batch.cu_seqlens[2], batch.cu_seqlens[3]];
    batch.pair_labels = vec![1, 0, 1];
    batch
}

fn pass(task: &dyn Task, batch: &Batch) -> (f64, Vec<f32>) {
    let gradients = Gradients::new(task.parameters()).unwrap();
    let losses = task.accumulate(batch, Pass::new(1, 1), &SCALES, &gradients).unwrap();
    let sums = losses.iter().zip(SCALES).map(|(loss, scale)| loss.read().unwrap().sum * f64::from(scale));
    (sums.sum(), gradients.flat().unwrap().to_vec1::<f32>().unwrap())
}

#[test]
fn finite_differences_of_the_joint_loss_agree_with_dropout_on() {
    for family in [Family::BERT, Family::ALBERT] {
        let (task, batch) = (task(family, 0.1, false), batch());
        let error = finite_difference_error(&task, || pass(&task, &batch));
        assert!(error < 1e-2, "{family:?}: finite differences are off by {error:.2e}");
    }
}

#[test]
fn layers_that_are_computed_again_change_no_bit() {
    for family in [Family::BERT, Family::ALBERT] {
        let bits = |gradient_checkpointing| {
            let (loss, gradients) = pass(&task(family, 0.1, gradient_checkpointing), &batch());
            (loss.to_bits(), gradients.into_iter().map(f32::to_bits).collect::<Vec<_>>())
        };
        assert!(bits(false) == bits(true), "{family:?}");
    }
}

/// Without masks the gradient is that of pairs alone, without pairs that of masks, and both add up.
#[test]
fn each_of_the_two_losses_has_gradients_of_its_own_and_they_add_up() {
    let task = task(Family::BERT, 0.0, false);
    let (both, mut masks, mut pairs) = (batch(), batch(), batch());
    masks.pair_positions.clear();
    masks.pair_labels.clear();
    pairs.label_positions.clear();
    pairs.labels.clear();
    assert_eq!([&both, &masks, &pairs].map(|b| task.counts(b)), [[14, 3], [14, 0], [0, 3]]);
    let [both, masks, pairs] = [both, masks, pairs].map(|batch| pass(&task, &batch));
    assert!((both.0 - masks.0 - pairs.0).abs() < 1e-5 * both.0, "{} {} {}", both.0, masks.0, pairs.0);
    for spec in task.parameters().layout().specs() {
        let of = |gradients: &[f32]| gradients[spec.range.clone()].to_vec();
        let (both, masks, pairs) = (of(&both.1), of(&masks.1), of(&pairs.1));
        let live = |gradients: &[f32]| gradients.iter().any(|g| *g != 0.0);
        let is_of_pairs = spec.name.contains("pooler") || spec.name.contains("seq_relationship");
        assert_eq!(live(&masks), !is_of_pairs, "`{}` by masks", spec.name);
        assert_eq!(live(&pairs), !spec.name.starts_with("cls.predictions"), "`{}` by pairs", spec.name);
        let size = both.iter().fold(1e-3f32, |size, g| size.max(g.abs()));
        let apart = both.iter().zip(masks.iter().zip(&pairs)).map(|(both, (m, p))| (both - m - p).abs());
        assert!(apart.fold(0.0, f32::max) < 1e-4 * size, "`{}`", spec.name);
    }
    let nothing = Batch { labels: Vec::new(), label_positions: Vec::new(), ..Batch::default() };
    let gradients = Gradients::new(task.parameters()).unwrap();
    assert_eq!(task.accumulate(&nothing, Pass::new(1, 1), &SCALES, &gradients).unwrap().len(), 2);
}

#[test]
fn every_range_is_told_of_once_with_the_gradients_that_the_step_ends_with() {
    let mut without_masks = batch();
    without_masks.label_positions.clear();
    without_masks.labels.clear();
    for (family, batch) in [(Family::BERT, batch()), (Family::ALBERT, batch()), (Family::BERT, without_masks)]
    {
        let task = task(family, 0.1, false);
        let mut gradients = Gradients::new(task.parameters()).unwrap();
        let told = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&told);
        gradients.tell(move |range, values| {
            sink.lock().unwrap().push((range, values.to_vec1::<f32>()?));
            Ok(())
        });
        task.accumulate(&batch, Pass::new(1, 1), &SCALES, &gradients).unwrap();
        let (told, last) = (told.lock().unwrap(), gradients.flat().unwrap().to_vec1::<f32>().unwrap());
        for spec in task.parameters().layout().specs() {
            let (start, end) = (spec.range.start, spec.range.end);
            let of_spec: Vec<_> = told.iter().filter(|(r, _)| r.start <= start && end <= r.end).collect();
            assert_eq!(of_spec.len(), 1, "{family:?}: `{}`", spec.name);
            let (range, values) = of_spec[0];
            let values = &values[start - range.start..end - range.start];
            assert_eq!(*values, last[spec.range.clone()], "{family:?}: `{}`", spec.name);
        }
    }
}

#[test]
fn one_batch_is_learnt_by_heart() {
    for family in [Family::BERT, Family::ALBERT] {
        let (task, batch) = (task(family, 0.0, false), batch());
        let mut stepper = Stepper {
            optimizer: Optimizer::new(task.parameters(), &TrainingConfig::default()).unwrap(),
            gradients: Gradients::new(task.parameters()).unwrap(),
            max_grad_norm: 1.0,
            seed: 1,
            loss_scale: None,
            world: World::ALONE,
            sums: None,
        };
        for step in 1..=200 {
            stepper.run(&task, std::slice::from_ref(&batch), step, 3e-3).unwrap();
        }
        let losses = task.evaluate(&batch).unwrap();
        for loss in &losses[..2] {
            assert!(loss.mean() < 0.1 && loss.correct == loss.count, "{family:?}: {losses:?}");
        }
        assert_eq!((losses[2].count, losses[2].correct), (3, 2), "two pairs are of class 1");
    }
}
