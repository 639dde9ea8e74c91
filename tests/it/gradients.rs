//! Gradients of whole models with dropout on, and steps made of them: nothing is left out, finite differences
//! agree, one batch can be learnt by heart, and numbers that are not finite stop the run before they do harm.

mod batches;

use candle_core::{DType, Device, Tensor};
use mlmtrain::batches::Batch;
use mlmtrain::config::TrainingConfig;
use mlmtrain::distributed::World;
use mlmtrain::families::{EncoderConfig, Family, HeadKind, ModelConfig, PositionKind};
use mlmtrain::layers::context::Pass;
use mlmtrain::layers::{Gradients, Parameters, Part};
use mlmtrain::models::{ClassificationHead, Model, Objective, TokenClassificationHead};
use mlmtrain::ops::biased_attention;
use mlmtrain::ops::disentangled_attention::Buckets;
use mlmtrain::ops::tensor::with_slice_mut;
use mlmtrain::optim::Optimizer;
use mlmtrain::rng::{Purpose, Stream};
use mlmtrain::tasks::masked_lm::MaskedLm;
use mlmtrain::tasks::{Loss, PendingLoss, Seen, Supervised, Task};
use mlmtrain::train::step::{Skip, Stepper};

use self::batches::{labelled_batch, masked_batch, numbered_batch, tagged_batch, with_types};

const VOCABULARY: u64 = 60;
const LABELS: usize = 3;
const LENGTHS: [u32; 6] = [7, 1, 12, 5, 9, 3];
const FAMILIES: [Family; Family::ALL.len()] = Family::ALL;

/// Weights ten times as wide as usual: at 0.02 so small a model is almost linear, and an error would hardly
/// show.
fn shape(family: Family, dropout: f64) -> ModelConfig {
    let is_relative = family.positions == PositionKind::Relative;
    let encoder = EncoderConfig {
        vocab_size: VOCABULARY as usize,
        embedding_size: family.embedding_map.map(|_| 16),
        hidden_size: 24,
        num_hidden_layers: 2,
        num_attention_heads: 2,
        intermediate_size: 40,
        hidden_dropout_prob: dropout,
        attention_probs_dropout_prob: dropout,
        embedding_dropout: dropout,
        mlp_dropout: dropout,
        classifier_dropout: Some(dropout),
        max_position_embeddings: 16,
        // Fewer tokens than the longest segments have.
        local_attention: 8,
        position_buckets: if is_relative { 6 } else { 0 },
        pooler_dropout: if is_relative { dropout } else { 0.0 },
        initializer_range: 0.2,
        ..EncoderConfig::of(family)
    };
    ModelConfig { family, encoder }
}

fn masked_lm(family: Family, dropout: f64, seed: u64) -> Box<dyn Task> {
    Box::new(MaskedLm { model: Model::masked_lm(&shape(family, dropout), seed, &Device::Cpu).unwrap() })
}

fn classifier(family: Family, dropout: f64, seed: u64) -> Box<dyn Task> {
    Box::new(Supervised {
        model: Model::classifier(&shape(family, dropout), LABELS, seed, &Device::Cpu).unwrap(),
    })
}

/// `None` for a family that has none.
fn token_classifier(family: Family, dropout: f64, seed: u64) -> Option<Supervised<TokenClassificationHead>> {
    let build = || Model::token_classifier(&shape(family, dropout), LABELS, seed, &Device::Cpu).unwrap();
    family.has(HeadKind::TokenClassification).then(|| Supervised { model: build() })
}

fn regressor(family: Family, dropout: f64, seed: u64) -> Box<dyn Task> {
    let model = Model::classifier(&shape(family, dropout), 2, seed, &Device::Cpu).unwrap();
    let head = model.head.clone().with_objective(Objective::Numbers);
    Box::new(Supervised { model: Model { head, ..model } })
}

/// The tasks of each family with a batch.
fn all_tasks(dropout: f64, seed: u64) -> Vec<(String, Box<dyn Task>, Batch)> {
    let of = |family| {
        let tokens = token_classifier(family, dropout, seed).map(|task| Box::new(task) as Box<dyn Task>);
        let tasks = [
            ("masked LM", Some(masked_lm(family, dropout, seed)), masked_batch()),
            ("classifier", Some(classifier(family, dropout, seed)), labelled_batch()),
            ("token classifier", tokens, tagged_batch()),
            ("regression", Some(regressor(family, dropout, seed)), numbered_batch()),
        ];
        tasks.map(|(name, task, batch)| {
            task.map(|task| (format!("{name} of {family:?}"), task, with_types(batch, family)))
        })
    };
    let mut decoding = shape(Family::DEBERTA_V2, dropout);
    decoding.encoder.enhanced_mask_decoder = true;
    let decoding = Box::new(MaskedLm { model: Model::masked_lm(&decoding, seed, &Device::Cpu).unwrap() });
    let decoding = ("mask decoder of DeBERTa-v2".to_string(), decoding as Box<dyn Task>, masked_batch());
    FAMILIES.into_iter().flat_map(of).flatten().chain([decoding]).collect()
}

fn gradients_of(task: &dyn Task, batch: &Batch, pass: Pass) -> (f64, Vec<f32>) {
    let gradients = Gradients::new(task.parameters()).unwrap();
    let loss = task.accumulate(batch, pass, &[1.0], &gradients).unwrap()[0].read().unwrap();
    (loss.sum, gradients.flat().unwrap().to_vec1::<f32>().unwrap())
}

fn stepper(task: &dyn Task) -> Stepper {
    Stepper {
        optimizer: Optimizer::new(task.parameters(), &TrainingConfig::default()).unwrap(),
        gradients: Gradients::new(task.parameters()).unwrap(),
        max_grad_norm: 1.0,
        seed: 1,
        loss_scale: None,
        world: World::ALONE,
        sums: None,
    }
}

const PASS: Pass = Pass { seed: 1, step: 1, model: 0, last_micro_batch: true };

#[test]
fn every_parameter_has_a_finite_gradient_that_is_not_zero() {
    for (name, task, batch) in all_tasks(0.1, 1) {
        let (_, gradients) = gradients_of(task.as_ref(), &batch, PASS);
        for spec in task.parameters().layout().specs() {
            let values = &gradients[spec.range.clone()];
            assert!(values.iter().all(|g| g.is_finite()), "{name}: `{}` is not finite", spec.name);
            // Softmax ignores a shift of all keys, so this gradient is zero but for rounding.
            let only_shifts = ["self.key.bias", "k_lin.bias", "attention.key.bias", "attn.k.bias"];
            if only_shifts.iter().any(|end| spec.name.ends_with(end)) {
                continue;
            }
            let live = values.iter().filter(|g| **g != 0.0).count() as f64 / values.len() as f64;
            let tables = ["embeddings.", "relative_attention_bias.", "model.encoder."];
            let is_table = spec.shape.len() == 2 && tables.iter().any(|table| spec.name.contains(table));
            assert!(
                if is_table { live > 0.0 } else { live > 0.9 },
                "{name}: {live} of `{}` have a gradient",
                spec.name
            );
            if is_table {
                check_rows(&name, &spec.name, values, &batch, task.as_ref());
            }
        }
    }
}

#[test]
fn what_is_frozen_gets_no_gradient_and_the_rest_the_same_one_to_the_bit() {
    for (family, gradient_checkpointing) in FAMILIES.into_iter().flat_map(|f| [(f, false), (f, true)]) {
        let batch = with_types(labelled_batch(), family);
        let model = Model::classifier(&shape(family, 0.1), LABELS, 1, &Device::Cpu).unwrap();
        let mut task = Supervised { model };
        task.model.encoder.gradient_checkpointing = gradient_checkpointing;
        let (loss, whole) = gradients_of(&task, &batch, PASS);
        let flops = task.flops(&batch);
        // Of layers that are one, the last one alone cannot be trained: a configuration that says so is
        // refused.
        let layers = [0, 1, 2].into_iter().filter(|&layer| !(family.shares_layers && layer == 1));
        for first_trained in layers.map(Part::Layer) {
            task.model.encoder.first_trained = first_trained;
            let (same_loss, gradients) = gradients_of(&task, &batch, PASS);
            assert_eq!(same_loss.to_bits(), loss.to_bits());
            assert!(
                task.flops(&batch) < flops
                    || first_trained == Part::Layer(0) && family.embedding_map.is_none()
            );
            for spec in task.parameters().layout().specs() {
                let (got, want) = (&gradients[spec.range.clone()], &whole[spec.range.clone()]);
                let is_frozen = spec.part < first_trained;
                let is_right = got
                    .iter()
                    .zip(want)
                    .all(|(got, want)| got.to_bits() == if is_frozen { 0 } else { want.to_bits() });
                assert!(is_right, "{family:?}, {first_trained:?}: `{}`", spec.name);
            }
        }
    }
}

/// Rows of a table have a gradient if and only if a token takes them; the decoder reaches every word.
fn check_rows(task_name: &str, name: &str, gradients: &[f32], batch: &Batch, task: &dyn Task) {
    let width = task.parameters().layout().specs().find(|s| s.name == name).map_or(1, |s| s.shape[1]);
    let offset = if name.starts_with("roberta") || name.starts_with("mpnet") { 2 } else { 0 };
    let distances = 1 - LENGTHS[2] as isize..LENGTHS[2] as isize;
    let used: Vec<u32> = match name.rsplit('.').nth(1) {
        Some("word_embeddings" | "tok_embeddings" | "encoder") => batch.ids.clone(),
        // A mask decoder asks for the masked tokens alone.
        Some("position_embeddings") if name.starts_with("deberta") => {
            batch.label_positions.iter().map(|&at| batch.position_ids[at as usize]).collect()
        }
        Some("position_embeddings") => batch.position_ids.iter().map(|position| position + offset).collect(),
        Some("rel_embeddings") => {
            let buckets = Buckets::new(6, 16);
            distances.map(|distance| buckets.row(distance) as u32).collect()
        }
        Some("relative_attention_bias") => distances.map(|d| biased_attention::row(d) as u32).collect(),
        _ => batch.token_type_ids.clone(),
    };
    let has_decoder = task.parameters().layout().specs().any(|s| {
        let biases = ["lm_head.bias", "generator_lm_head.bias", "decoder.bias", "vocab_projector.bias"];
        biases.contains(&s.name.as_str()) || s.name.ends_with("predictions.bias")
    });
    let is_word = name.contains("word_embeddings") || name.contains("tok_embeddings");
    let tied = is_word && has_decoder;
    for (row, values) in gradients.chunks(width).enumerate() {
        let live = values.iter().any(|g| *g != 0.0);
        assert_eq!(live, tied || used.contains(&(row as u32)), "{task_name}: row {row} of `{name}`");
    }
}

#[test]
fn finite_differences_agree_with_dropout_on() {
    for (name, task, batch) in all_tasks(0.1, 2) {
        let error = finite_difference_error(task.as_ref(), || gradients_of(task.as_ref(), &batch, PASS));
        // In some directions a step crosses the kink of DistilBERT's ReLU.
        let has_kink = ["classifier of DistilBERT", "regression of DistilBERT"].contains(&name.as_str());
        let most = if has_kink { 0.1 } else { 1e-2 };
        assert!(error < most, "{name}: finite differences are off by {error:.2e}");
    }
}

/// By how much the gradients of `pass`, which gives a loss and the flat gradients of the task's parameters,
/// are off the loss's slopes in six random directions.
pub(crate) fn finite_difference_error(task: &dyn Task, pass: impl Fn() -> (f64, Vec<f32>)) -> f64 {
    const DIRECTIONS: u64 = 6;
    // Wide enough that the loss moves by far more than its rounding, narrow enough for the third derivative.
    const STEP: f64 = 1e-3;
    let (_, gradients) = pass();
    let parameters = task.parameters();
    let start = parameters.flat().to_vec1::<f32>().unwrap();
    let (mut difference, mut size) = (0.0, 0.0);
    for number in 0..DIRECTIONS {
        let stream = Stream::new(5, Purpose::Test, number);
        let direction: Vec<f64> = (0..start.len() as u64).map(|i| stream.normal(i)).collect();
        let loss_at = |by: f64| {
            let moved =
                start.iter().zip(&direction).map(|(value, way)| (f64::from(*value) + by * way) as f32);
            parameters
                .set_all(&Tensor::from_vec(moved.collect(), start.len(), &Device::Cpu).unwrap())
                .unwrap();
            pass().0
        };
        let measured = (loss_at(STEP) - loss_at(-STEP)) / (2.0 * STEP);
        loss_at(0.0);
        let of_all = parameters.layout().specs().flat_map(|s| s.range.clone());
        let exact: f64 = of_all.map(|i| f64::from(gradients[i]) * direction[i]).sum();
        difference += (measured - exact).powi(2);
        size += exact * exact;
    }
    (difference / size).sqrt()
}

#[test]
fn the_loss_follows_from_the_seeds() {
    for (name, task, batch) in all_tasks(0.1, 3) {
        let loss = |task: &dyn Task, dropout| gradients_of(task, &batch, dropout).0.to_bits();
        let first = loss(task.as_ref(), PASS);
        assert_eq!(first, loss(task.as_ref(), PASS), "{name}: the same dropout again");
        assert_ne!(first, loss(task.as_ref(), Pass { step: 2, ..PASS }), "{name}: another step drops others");
        assert_ne!(first, loss(task.as_ref(), Pass { seed: 2, ..PASS }), "{name}: another seed drops others");
        let other = loss(task.as_ref(), Pass { model: 1, ..PASS });
        assert_ne!(first, other, "{name}: another model of the run drops others");
        let earlier = loss(task.as_ref(), Pass { last_micro_batch: false, ..PASS });
        assert_eq!(first, earlier, "{name}: the place in the step decides nothing");
    }
    for ((name, task, batch), (_, same, _), (_, other, _)) in all_tasks(0.1, 3)
        .into_iter()
        .zip(all_tasks(0.1, 3))
        .zip(all_tasks(0.1, 4))
        .map(|((a, b), c)| (a, b, c))
    {
        let loss = |task: &dyn Task| task.evaluate(&batch).unwrap()[0].sum.to_bits();
        assert_eq!(loss(task.as_ref()), loss(same.as_ref()), "{name}: the seed decides how a model begins");
        assert_ne!(loss(task.as_ref()), loss(other.as_ref()), "{name}: another seed, another model");
    }
}

#[test]
fn checkpointing_changes_no_bit() {
    let bits = |task: &dyn Task, batch: &Batch| {
        let (loss, gradients) = gradients_of(task, batch, PASS);
        (loss.to_bits(), gradients.into_iter().map(f32::to_bits).collect::<Vec<_>>())
    };
    for family in FAMILIES {
        let mut lm = MaskedLm { model: Model::masked_lm(&shape(family, 0.1), 8, &Device::Cpu).unwrap() };
        let mut classify =
            Supervised { model: Model::classifier(&shape(family, 0.1), LABELS, 8, &Device::Cpu).unwrap() };
        let mut tokens = token_classifier(family, 0.1, 8);
        let tagged = with_types(tagged_batch(), family);
        let (masked, labelled) = (with_types(masked_batch(), family), with_types(labelled_batch(), family));
        let all = |lm: &MaskedLm,
                   classify: &Supervised<ClassificationHead>,
                   tokens: &Option<Supervised<TokenClassificationHead>>| {
            let tokens = tokens.as_ref().map(|tokens| bits(tokens, &tagged));
            (bits(lm, &masked), bits(classify, &labelled), tokens)
        };
        let before = all(&lm, &classify, &tokens);
        lm.model.encoder.gradient_checkpointing = true;
        classify.model.encoder.gradient_checkpointing = true;
        if let Some(tokens) = &mut tokens {
            tokens.model.encoder.gradient_checkpointing = true;
        }
        assert!(all(&lm, &classify, &tokens) == before, "{family:?}");
    }
}

#[test]
fn one_batch_is_learnt_by_heart() {
    for (name, task, batch) in all_tasks(0.0, 5) {
        let mut stepper = stepper(task.as_ref());
        let loss = (1..=300).map(|step| {
            stepper.run(task.as_ref(), std::slice::from_ref(&batch), step, 3e-3).unwrap().losses[0]
        });
        let loss = loss.last().unwrap();
        let is_right = loss.correct == loss.count || name.starts_with("regression");
        assert!(loss.mean() < 0.05 && is_right, "{name}: {loss:?}");
    }
}

/// Parameters, moments and the number of updates, to see that a failed step leaves them alone.
fn bits(task: &dyn Task, stepper: &Stepper) -> Vec<Vec<u32>> {
    let mut tensors = vec![task.parameters().flat().clone()];
    tensors.extend(stepper.optimizer.snapshot().unwrap().into_iter().map(|(_, tensor)| tensor));
    let single = |t: &Tensor| t.to_dtype(DType::F32).unwrap().to_vec1::<f32>().unwrap();
    tensors.iter().map(|t| single(t).into_iter().map(f32::to_bits).collect()).collect()
}

/// A step is skipped because of `what`, and changes neither parameters nor moments.
fn assert_skips(task: &dyn Task, stepper: &mut Stepper, batch: &Batch, what: &str) {
    let before = bits(task, stepper);
    let outcome = stepper.run(task, std::slice::from_ref(batch), 7, 1e-3).unwrap();
    let Some(Skip::NotFinite(found, value)) = outcome.skipped else { panic!("not skipped: {outcome:?}") };
    assert!(found == what && !value.is_finite(), "{found} is {value}");
    assert!(bits(task, stepper) == before, "a step that fails changes neither parameters nor moments");
}

#[test]
fn a_loss_that_is_not_finite_updates_nothing_and_its_layer_is_found() {
    for (name, task, batch) in all_tasks(0.1, 6) {
        let mut stepper = stepper(task.as_ref());
        stepper.run(task.as_ref(), std::slice::from_ref(&batch), 6, 1e-3).unwrap();
        let spec = task
            .parameters()
            .layout()
            .specs()
            .find(|s| {
                let last_maps = [
                    "layer.1.output.dense.weight",
                    "layers.1.mlp.Wo.weight",
                    "layer.1.ffn.lin2.weight",
                    "albert_layers.0.ffn_output.weight",
                    "transformer_encoder.1.ffn.w3.weight",
                ];
                last_maps.iter().any(|last_map| s.name.ends_with(last_map))
            })
            .unwrap()
            .clone();
        let mut values = vec![0.1f32; spec.range.len()];
        values[17] = f32::NAN;
        task.parameters()
            .set(&spec.name, &Tensor::from_vec(values, spec.shape, &Device::Cpu).unwrap())
            .unwrap();
        assert_skips(task.as_ref(), &mut stepper, &batch, "loss");
        let mut not_finite = Vec::new();
        let seen = &mut |_: &'static str, part: Part, hidden_td: &Tensor| {
            let sum = hidden_td.to_dtype(DType::F32)?.sum_all()?.to_scalar::<f32>()?;
            not_finite.extend((!sum.is_finite()).then_some(part));
            Ok(())
        };
        task.observe(&batch, Pass::new(1, 7), seen).unwrap();
        // Of layers that are one, the first shows it.
        let layer = usize::from(!name.ends_with("ALBERT"));
        assert_eq!(not_finite.first(), Some(&Part::Layer(layer)), "{name}");
    }
}

/// A task whose backward overflows in one value; its loss is finite.
struct Overflows(Box<dyn Task>);

impl Task for Overflows {
    fn accumulate(
        &self,
        batch: &Batch,
        pass: Pass,
        scales: &[f32],
        gradients: &Gradients,
    ) -> candle_core::Result<Vec<PendingLoss>> {
        let loss = self.0.accumulate(batch, pass, scales, gradients)?;
        with_slice_mut(gradients.flat()?, |values| {
            // Between parameters there are gaps, of which nothing is read.
            let first = values.iter_mut().find(|value| **value != 0.0);
            *first.expect("there is a gradient") = f32::INFINITY;
        })?;
        Ok(loss)
    }

    fn observe(&self, batch: &Batch, pass: Pass, seen: &mut Seen<'_>) -> candle_core::Result<()> {
        self.0.observe(batch, pass, seen)
    }

    fn logits(&self, batch: &Batch) -> candle_core::Result<Tensor> {
        self.0.logits(batch)
    }

    fn evaluate(&self, batch: &Batch) -> candle_core::Result<Vec<Loss>> {
        self.0.evaluate(batch)
    }

    fn parameters(&self) -> &Parameters {
        self.0.parameters()
    }

    fn flops(&self, batch: &Batch) -> f64 {
        self.0.flops(batch)
    }
}

#[test]
fn a_gradient_that_is_not_finite_updates_nothing() {
    for (_, task, batch) in all_tasks(0.1, 7) {
        let task = Overflows(task);
        assert_skips(&task, &mut stepper(&task), &batch, "gradient norm");
    }
}

/// What a broken step leaves in the buffer is not part of the next one.
#[test]
fn a_step_after_an_overflow_is_as_if_there_had_been_none() {
    for (name, task, batch) in all_tasks(0.1, 7) {
        let task = Overflows(task);
        let step = |stepper: &mut Stepper| {
            let outcome = stepper.run(task.0.as_ref(), std::slice::from_ref(&batch), 8, 1e-3).unwrap();
            (outcome.grad_norm.to_bits(), stepper.gradients.flat().unwrap().to_vec1::<f32>().unwrap())
        };
        let mut broken = stepper(&task);
        assert_skips(&task, &mut broken, &batch, "gradient norm");
        let parameters = task.parameters().flat().copy().unwrap();
        let after = step(&mut broken);
        task.parameters().flat().slice_set(&parameters, 0, 0).unwrap();
        assert!(step(&mut stepper(&task)) == after, "{name}");
    }
}
