//! Masked language modelling together with the classification of pairs of segments: if the second one follows
//! the first (BERT's next-sentence prediction), or if the two were swapped (ALBERT's sentence-order
//! prediction).
//!
//! The loss is the sum of both (`BertForPreTraining` and `AlbertForPreTraining` of transformers). Pairs are
//! made in `batches/pairs.rs`, which defines a segment.

use std::marker::PhantomData;
use std::path::Path;

use anyhow::Result;
use candle_core::{DType, Device, Tensor};

use crate::tasks::inputs::Inputs;
use crate::tasks::masked_lm::MaskFiller;
use crate::tasks::pretraining::Pretrained;
use crate::tasks::pretraining::origin::FolderNames;
use crate::tasks::run::{ModelFolder, Scores, Setting};
use crate::tasks::start::refuse_rates_of_layers;
use crate::tasks::supervised::mean_length;
use crate::tasks::trained::Trained;
use crate::tasks::{Loss, PendingLoss, Seen, Task, Term, inputs};
use base::families::{HeadKind, ModelConfig};
use base::scores::unigram_entropy;
use config::{PretrainConfig, PretrainTask};
use data::batches::{Batch, Planner};
use data::tokenizer::Tokenizer;
use model::interop::HubConfig;
use model::layers::context::Pass;
use model::layers::{Context, Gradients, Parameters};
use model::models::memory::Outline;
use model::models::{Blueprint, Head, Model, SentencePairHeads, Targets};

/// The question that the model answers about a pair.
pub trait About: Send + 'static {
    /// The pretraining task.
    const TASK: PretrainTask;
    /// The terms of the loss.
    const TERMS: [Term; 2];
    /// The names of the scores.
    const SCORES: [&'static str; 8];
}

/// Next-sentence prediction: does the second segment follow the first?
#[derive(Debug)]
pub struct NextSentence;

/// Sentence-order prediction: were the two segments swapped?
#[derive(Debug)]
pub struct SentenceOrder;

impl About for NextSentence {
    const TASK: PretrainTask = PretrainTask::NextSentencePrediction;
    const TERMS: [Term; 2] = [Term { name: "mlm", weight: 1.0 }, Term { name: "nsp", weight: 1.0 }];
    const SCORES: [&'static str; 8] = [
        "loss",
        "mlm_loss",
        "perplexity",
        "accuracy",
        "nsp_loss",
        "nsp_accuracy",
        "nsp_baseline_loss",
        "nsp_baseline_accuracy",
    ];
}

impl About for SentenceOrder {
    const TASK: PretrainTask = PretrainTask::SentenceOrderPrediction;
    const TERMS: [Term; 2] = [Term { name: "mlm", weight: 1.0 }, Term { name: "sop", weight: 1.0 }];
    const SCORES: [&'static str; 8] = [
        "loss",
        "mlm_loss",
        "perplexity",
        "accuracy",
        "sop_loss",
        "sop_accuracy",
        "sop_baseline_loss",
        "sop_baseline_accuracy",
    ];
}

/// The task and its model.
#[derive(Debug)]
pub struct SentencePairs<A> {
    /// Encoder and both heads.
    pub model: Model<SentencePairHeads>,
    about: PhantomData<A>,
}

impl<A: About> SentencePairs<A> {
    /// Wraps a model.
    pub fn new(model: Model<SentencePairHeads>) -> Self {
        Self { model, about: PhantomData }
    }

    /// Converts the model to compute in `dtype`.
    pub fn computing_in(self, dtype: DType) -> candle_core::Result<Self> {
        Ok(Self::new(self.model.computing_in(dtype)?))
    }

    /// Returns the logits of the pairs, `[P, 2]`, without dropout.
    pub fn pair_logits(&self, batch: &Batch) -> candle_core::Result<Tensor> {
        let inputs = self.inputs(batch, false)?;
        let keys = pair_keys(batch);
        self.head_logits(&inputs, pair_targets(batch, &keys), &self.model.head.pairs)
    }

    fn inputs<'a>(&self, batch: &'a Batch, backward: bool) -> candle_core::Result<Inputs<'a>> {
        Inputs::new(batch, &self.model.config, self.model.parameters.flat().device(), backward)
    }

    /// Returns the logits of one of the heads for its targets, without dropout.
    fn head_logits(
        &self,
        inputs: &Inputs<'_>,
        targets: Targets<'_>,
        head: &impl Head,
    ) -> candle_core::Result<Tensor> {
        let ctx = Context { parameters: &self.model.parameters, rows: inputs.rows(), pass: None };
        let hidden = self.model.encoder.infer(inputs.tokens(), head.chosen(targets), &ctx)?;
        head.logits(&hidden, targets, &ctx)
    }
}

/// Dropout keys of the pairs, `[P]`.
fn pair_keys(batch: &Batch) -> Vec<u64> {
    batch.pair_positions.iter().map(|&position| batch.token_keys[position as usize]).collect()
}

/// The pairs with their labels. They are too few to be worth sending to a GPU ahead of their step.
fn pair_targets<'a>(batch: &'a Batch, keys: &'a [u64]) -> Targets<'a> {
    Targets {
        positions: (&batch.pair_positions).into(),
        labels: (&batch.pair_labels).into(),
        teacher: &[],
        keys: keys.into(),
    }
}

/// The losses of masked tokens and of pairs, from the totals of each.
fn pending(batch: &Batch, [masked, pairs]: [Option<Tensor>; 2]) -> [PendingLoss; 2] {
    [pending_loss(masked, batch.num_labels()), pending_loss(pairs, batch.pair_labels.len())]
}

fn pending_loss(totals: Option<Tensor>, count: usize) -> PendingLoss {
    totals.map_or(PendingLoss::default(), |totals| PendingLoss::of_totals(totals, count))
}

impl<A: About> Task for SentencePairs<A> {
    fn terms(&self) -> &[Term] {
        &A::TERMS
    }

    /// Returns the number of masked tokens and of pairs.
    fn counts(&self, batch: &Batch) -> Vec<usize> {
        vec![batch.num_labels(), batch.pair_labels.len()]
    }

    /// A batch without labels has no loss and no gradient.
    fn accumulate(
        &self,
        batch: &Batch,
        pass: Pass,
        scales: &[f32],
        gradients: &Gradients,
    ) -> candle_core::Result<Vec<PendingLoss>> {
        if batch.num_labels() + batch.pair_labels.len() == 0 {
            return Ok(pending(batch, [None, None]).into());
        }
        let Model { encoder, head, parameters, .. } = &self.model;
        let inputs = self.inputs(batch, true)?;
        let keys = pair_keys(batch);
        let ctx = Context { parameters, rows: inputs.rows(), pass: Some(pass) };
        let (hidden_td, saved) = encoder.forward(inputs.tokens(), None, &ctx)?;
        let targets = [inputs.targets(), pair_targets(batch, &keys)];
        let scales = [scales[0], scales[1]];
        let (totals, d_hidden) = head.loss_and_gradient(&hidden_td, targets, scales, &ctx, gradients)?;
        drop(hidden_td);
        encoder.backward(d_hidden, inputs.tokens(), None, saved, &ctx, gradients)?;
        Ok(pending(batch, totals).into())
    }

    fn planner(&self) -> Option<Planner> {
        inputs::planner(&self.model.config, self.model.parameters.flat().device())
    }

    fn send(&self, batch: &mut Batch) -> candle_core::Result<()> {
        inputs::send(batch, &self.model.config, self.model.parameters.flat().device())
    }

    fn observe(&self, batch: &Batch, pass: Pass, seen: &mut Seen<'_>) -> candle_core::Result<()> {
        let Model { encoder, parameters, .. } = &self.model;
        let inputs = self.inputs(batch, true)?;
        let ctx = Context { parameters, rows: inputs.rows(), pass: Some(pass) };
        encoder.observed(inputs.tokens(), None, &ctx, &mut |part, hidden_td| seen("", part, hidden_td))?;
        Ok(())
    }

    /// Returns the logits of the masked tokens.
    fn logits(&self, batch: &Batch) -> candle_core::Result<Tensor> {
        let inputs = self.inputs(batch, false)?;
        self.head_logits(&inputs, inputs.targets(), &self.model.head.masked_lm)
    }

    /// Returns the two losses, then the number of pairs with the number of those of class 1.
    fn evaluate(&self, batch: &Batch) -> candle_core::Result<Vec<Loss>> {
        let Model { encoder, head, parameters, .. } = &self.model;
        let inputs = self.inputs(batch, false)?;
        let keys = pair_keys(batch);
        let ctx = Context { parameters, rows: inputs.rows(), pass: None };
        let hidden_td = encoder.infer(inputs.tokens(), None, &ctx)?;
        let totals = head.losses(&hidden_td, [inputs.targets(), pair_targets(batch, &keys)], &ctx)?;
        let [masked, pairs] = pending(batch, totals);
        let ones = batch.pair_labels.iter().filter(|&&label| label == 1).count();
        let labels = Loss { sum: 0.0, count: batch.pair_labels.len(), correct: ones };
        Ok(vec![masked.read()?, pairs.read()?, labels])
    }

    fn parameters(&self) -> &Parameters {
        &self.model.parameters
    }

    fn flops(&self, batch: &Batch) -> f64 {
        let Model { encoder, head, .. } = &self.model;
        let masked = batch.num_labels() as f64;
        let pairs = batch.pair_labels.len() as f64;
        let tokens = batch.num_tokens() as f64;
        encoder.flops(tokens, mean_length(batch), tokens) + head.flops(masked, pairs)
    }
}

impl<A: About> Pretrained for SentencePairs<A> {
    const NAME: PretrainTask = A::TASK;
    const HEAD: HeadKind = HeadKind::SentencePairs;
    const SCORES: &'static [&'static str] = &A::SCORES;

    fn outline(config: &PretrainConfig, model: &ModelConfig) -> Result<Box<dyn Outline>> {
        let blueprint = Blueprint::sentence_pairs(model)?;
        refuse_rates_of_layers(&config.training, &blueprint.encoder)?;
        Ok(Box::new(blueprint))
    }

    fn build(_: &PretrainConfig, model: &ModelConfig, setting: Setting<'_>) -> Result<Self> {
        let Setting { training, machine, seed, is_beginning, .. } = setting;
        let blueprint = Blueprint::sentence_pairs(model)?;
        let mut model = if is_beginning {
            blueprint.initialise(seed, &machine.device)?
        } else {
            blueprint.zeros(&machine.device)?
        };
        model.encoder.gradient_checkpointing = training.gradient_checkpointing.is_on();
        Ok(Self::new(model).computing_in(machine.policy.compute)?)
    }

    fn folder_names(&self) -> FolderNames {
        FolderNames { model: self.model.parameters.layout().own_names(), generator: Vec::new() }
    }

    fn folders(&self, tokenizer: &Tokenizer) -> Vec<ModelFolder> {
        let hub = HubConfig::new(self.model.config.clone(), HeadKind::SentencePairs, None);
        vec![ModelFolder::whole(&hub, tokenizer, self.model.parameters.layout())]
    }

    /// `loss` is the sum of both losses; perplexity and accuracy are those of masked tokens. The baselines
    /// know only the frequencies of the two classes of pairs.
    fn scores(_: &[Term], losses: &[Loss]) -> Scores {
        let [masked, pairs, labels] = losses else { return Scores::new() };
        let ones = labels.accuracy();
        let values = [
            masked.mean() + pairs.mean(),
            masked.mean(),
            masked.mean().exp(),
            masked.accuracy(),
            pairs.mean(),
            pairs.accuracy(),
            unigram_entropy(&[labels.correct as u64, (labels.count - labels.correct) as u64]),
            ones.max(1.0 - ones),
        ];
        A::SCORES.iter().zip(values).map(|(name, value)| ((*name).to_string(), value)).collect()
    }

    fn longest(&self) -> usize {
        self.model.config.max_sequence_length()
    }

    /// Opens the masked language model, without the head for pairs.
    fn open(path: &Path, device: &Device) -> Result<Box<dyn Trained>> {
        Ok(Box::new(MaskFiller::load(path, device)?))
    }
}
