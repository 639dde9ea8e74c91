//! Replaced-token detection (Clark et al. 2020, ELECTRA): a generator fills in masked tokens, and a
//! discriminator decides for every token if it is the original one.
//!
//! Both are trained in one step: the generator as a masked language model, on the masked tokens only; no
//! gradient passes through the tokens that it draws. `corrupt.rs` inserts the drawn tokens; on a GPU they
//! stay there, so that a step waits for nothing. `scores.rs` has the scores of an evaluation,
//! `discriminator.rs` the use of a discriminator alone, `pair_folder.rs` the use of both models.

mod corrupt;
pub mod discriminator;
pub mod pair_folder;
pub mod scores;

use std::path::Path;

use anyhow::Result;
use candle_core::{DType, Device, Tensor};

use crate::tasks::inputs::Inputs;
use crate::tasks::pretraining::Pretrained;
use crate::tasks::pretraining::origin::FolderNames;
use crate::tasks::replaced_token_detection::corrupt::Corrupted;
use crate::tasks::run::{ModelFolder, Scores, Setting};
use crate::tasks::supervised::mean_length;
use crate::tasks::trained::Trained;
use crate::tasks::{Loss, PendingLoss, Seen, Task, Term, inputs};
use base::error::Problem;
use base::families::{EncoderConfig, HeadKind, ModelConfig};
use base::rng::{Purpose, Stream};
use config::{PretrainConfig, PretrainTask, RtdConfig};
use data::batches::{Batch, Planner};
use data::tokenizer::Tokenizer;
use model::interop::{
    DISCRIMINATOR, DISCRIMINATOR_PLACE, GENERATOR, GENERATOR_PLACE, HubConfig, read_folder,
};
use model::layers::context::Pass;
use model::layers::{Context, Gradients, Parameters};
use model::models::memory::Outline;
use model::models::{Head, Pair, PairBlueprint, pair};
use ops::gather_rows;
use ops::linear_binary_cross_entropy::Totals;
use ops::linear_cross_entropy::Draw;

pub use discriminator::Discriminator;
pub use pair_folder::PairFolder;

/// The task and its models.
#[derive(Debug)]
pub struct ReplacedTokenDetection {
    /// Generator and discriminator.
    pub pair: Pair,
    terms: [Term; 2],
}

/// Describes both models of a configuration, without allocating them. Returns an error for a family that has
/// no such head.
pub fn blueprint(config: &RtdConfig, model: &ModelConfig) -> Result<PairBlueprint> {
    blueprint_of(&config.generator(model), model)
}

fn blueprint_of(generator: &ModelConfig, discriminator: &ModelConfig) -> Result<PairBlueprint> {
    let family = discriminator.family;
    let Some(form) = family.replaced_tokens else {
        return Err(Problem::usage(format!("{} has no head that tells replaced tokens", family.title))
            .hint("use `task: masked_lm`")
            .into());
    };
    Ok(PairBlueprint::new(generator, discriminator, form))
}

impl ReplacedTokenDetection {
    /// The task of these models, with the loss weights of `config`.
    pub fn new(pair: Pair, config: &RtdConfig) -> Self {
        let terms = [
            Term { name: "generator", weight: config.generator_weight },
            Term { name: "discriminator", weight: config.discriminator_weight },
        ];
        Self { pair, terms }
    }

    /// Loads the two model folders of a run, with their tokenizer.
    pub fn load(path: &Path, device: &Device) -> Result<(Self, Tokenizer)> {
        Ok((Self::load_models(path, device)?, Tokenizer::load(&path.join(DISCRIMINATOR))?))
    }

    /// As [`Self::load`], without the tokenizer.
    pub fn load_models(path: &Path, device: &Device) -> Result<Self> {
        let generator = read_folder(&path.join(GENERATOR))?;
        let discriminator = read_folder(&path.join(DISCRIMINATOR))?;
        if table_sizes(&generator.config.encoder) != table_sizes(&discriminator.config.encoder) {
            let message = "generator and discriminator have embeddings of different sizes";
            return Err(Problem::new(message).at(path.display()).into());
        }
        let pair = blueprint_of(&generator.config, &discriminator.config)?.zeros(device)?;
        generator.fill_as(&pair.parameters, &pair.generator_names(), false)?;
        discriminator.fill_as(&pair.parameters, &pair.discriminator_names(), false)?;
        pair.take_apart()?;
        Ok(Self::new(pair, &RtdConfig::default()))
    }

    /// Converts the models to compute in `dtype`.
    pub fn computing_in(self, dtype: DType) -> Result<Self> {
        Ok(Self { pair: self.pair.computing_in(dtype)?, ..self })
    }

    fn inputs<'a>(&self, batch: &'a Batch, backward: bool) -> candle_core::Result<Inputs<'a>> {
        let Pair { discriminator, parameters, .. } = &self.pair;
        // The inputs depend only on padding and positions, which are the same for both models.
        Inputs::new(batch, &discriminator.config, parameters.flat().device(), backward)
    }

    fn corrupted<'a>(
        &self,
        inputs: &'a Inputs<'a>,
        drawn: Option<&Tensor>,
    ) -> candle_core::Result<Corrupted<'a>> {
        Corrupted::new(inputs, drawn, self.pair.discriminator.config.encoder.vocab_size)
    }
}

/// Sizes of the embedding tables, which both models must share.
fn table_sizes(shape: &EncoderConfig) -> [usize; 4] {
    [shape.vocab_size, shape.embedding_width(), shape.max_position_embeddings, shape.type_vocab_size]
}

impl Pretrained for ReplacedTokenDetection {
    const NAME: PretrainTask = PretrainTask::ReplacedTokenDetection;
    const HEAD: HeadKind = HeadKind::ReplacedTokenDetection;
    const SCORES: &'static [&'static str] = &scores::NAMES;

    fn outline(config: &PretrainConfig, model: &ModelConfig) -> Result<Box<dyn Outline>> {
        Ok(Box::new(blueprint(&config.rtd, model)?))
    }

    fn build(config: &PretrainConfig, model: &ModelConfig, setting: Setting<'_>) -> Result<Self> {
        let Setting { training, machine, seed, is_beginning, .. } = setting;
        let blueprint = blueprint(&config.rtd, model)?;
        let mut pair = if is_beginning {
            blueprint.initialise(seed, &machine.device)?
        } else {
            blueprint.zeros(&machine.device)?
        };
        pair.checkpoint_gradients(training.gradient_checkpointing.is_on());
        Self::new(pair, &config.rtd).computing_in(machine.policy.compute)
    }

    fn folder_names(&self) -> FolderNames {
        let model = self.pair.discriminator_names();
        let mut generator = self.pair.generator_names();
        generator.retain(|(own, _)| !model.iter().any(|(shared, _)| shared == own));
        FolderNames { model, generator }
    }

    fn folders(&self, tokenizer: &Tokenizer) -> Vec<ModelFolder> {
        let Pair { generator, discriminator, .. } = &self.pair;
        let generator = HubConfig::new(generator.config.clone(), HeadKind::MaskedLm, None);
        let discriminator =
            HubConfig::new(discriminator.config.clone(), HeadKind::ReplacedTokenDetection, None);
        vec![
            ModelFolder::new(GENERATOR_PLACE, &generator, tokenizer, self.pair.generator_names()),
            ModelFolder::new(DISCRIMINATOR_PLACE, &discriminator, tokenizer, self.pair.discriminator_names())
                .with_added(self.pair.added_names()),
        ]
    }

    fn filled(&self) -> Result<()> {
        Ok(self.pair.take_apart()?)
    }

    fn scores(terms: &[Term], losses: &[Loss]) -> Scores {
        scores::scores(terms, losses)
    }

    /// Returns the limit of the generator, which fills in masks.
    fn longest(&self) -> usize {
        self.pair.generator.config.max_sequence_length()
    }

    fn open(path: &Path, device: &Device) -> Result<Box<dyn Trained>> {
        Ok(Box::new(Discriminator::load(path, device)?))
    }
}

impl ReplacedTokenDetection {
    /// Returns the discriminator's logit of each token, `[T]`, after `drawn` is put at the labelled
    /// positions.
    pub fn discriminator_logits(&self, batch: &Batch, drawn: &Tensor) -> candle_core::Result<Tensor> {
        let Pair { discriminator, parameters, .. } = &self.pair;
        let inputs = self.inputs(batch, false)?;
        let corrupted = self.corrupted(&inputs, Some(drawn))?;
        let ctx = Context { parameters, rows: inputs.rows(), pass: None };
        let hidden_td = discriminator.encoder.infer(corrupted.tokens(), None, &ctx)?;
        discriminator.head.logits(&hidden_td, &ctx)
    }

    /// As [`Task::accumulate`], but if `given`, u32 `[M]`, is set, the discriminator reads it instead of the
    /// tokens that the generator draws.
    pub fn accumulate_with(
        &self,
        batch: &Batch,
        pass: Pass,
        scales: &[f32],
        gradients: &Gradients,
        given: Option<&Tensor>,
    ) -> candle_core::Result<Vec<PendingLoss>> {
        let Pair { generator, discriminator, parameters } = &self.pair;
        let inputs = self.inputs(batch, true)?;
        let rows = inputs.rows();
        let mut generator_loss = PendingLoss::default();
        let mut drawn = None;
        if batch.num_labels() > 0 {
            let ctx = Context { parameters, rows, pass: Some(Pass { model: pair::GENERATOR, ..pass }) };
            let stream = Stream::new(pass.seed, Purpose::Sample, pass.step);
            let targets = inputs.targets();
            let draw = Some(Draw { stream: &stream, keys: targets.keys });
            let chosen = generator.head.chosen(targets);
            let (hidden_md, saved) = generator.encoder.forward(inputs.tokens(), chosen, &ctx)?;
            let passed = generator.head.pass(&hidden_md, targets, scales[0], draw, &ctx, gradients)?;
            drop(hidden_md);
            generator.encoder.backward(passed.d_hidden, inputs.tokens(), chosen, saved, &ctx, gradients)?;
            generator_loss = PendingLoss::of(passed.entropy, batch.num_labels());
            drawn = passed.drawn;
        }
        let corrupted = self.corrupted(&inputs, given.or(drawn.as_ref()))?;
        let ctx = Context { parameters, rows, pass: Some(Pass { model: pair::DISCRIMINATOR, ..pass }) };
        let (hidden_td, saved) = discriminator.encoder.forward(corrupted.tokens(), None, &ctx)?;
        let replaced = corrupted.replaced();
        let (totals, d_hidden) =
            discriminator.head.totals_and_gradient(&hidden_td, replaced, scales[1], &ctx, gradients)?;
        drop(hidden_td);
        discriminator.encoder.backward(d_hidden, corrupted.tokens(), None, saved, &ctx, gradients)?;
        Ok(vec![generator_loss, PendingLoss::of_totals(totals, batch.num_tokens())])
    }
}

impl Task for ReplacedTokenDetection {
    fn terms(&self) -> &[Term] {
        &self.terms
    }

    /// Returns the number of masked tokens (for the generator) and of all tokens (for the discriminator).
    fn counts(&self, batch: &Batch) -> Vec<usize> {
        vec![batch.num_labels(), batch.num_tokens()]
    }

    fn accumulate(
        &self,
        batch: &Batch,
        pass: Pass,
        scales: &[f32],
        gradients: &Gradients,
    ) -> candle_core::Result<Vec<PendingLoss>> {
        self.accumulate_with(batch, pass, scales, gradients, None)
    }

    fn planner(&self) -> Option<Planner> {
        inputs::planner(&self.pair.discriminator.config, self.pair.parameters.flat().device())
    }

    fn send(&self, batch: &mut Batch) -> candle_core::Result<()> {
        inputs::send(batch, &self.pair.discriminator.config, self.pair.parameters.flat().device())
    }

    fn observe(&self, batch: &Batch, pass: Pass, seen: &mut Seen<'_>) -> candle_core::Result<()> {
        let Pair { generator, discriminator, parameters } = &self.pair;
        let inputs = self.inputs(batch, true)?;
        let rows = inputs.rows();
        let mut drawn = None;
        if batch.num_labels() > 0 {
            let ctx = Context { parameters, rows, pass: Some(Pass { model: pair::GENERATOR, ..pass }) };
            let stream = Stream::new(pass.seed, Purpose::Sample, pass.step);
            let targets = inputs.targets();
            let draw = Some(Draw { stream: &stream, keys: targets.keys });
            let (hidden_td, _) =
                generator.encoder.observed(inputs.tokens(), None, &ctx, &mut |part, hidden_td| {
                    seen("generator", part, hidden_td)
                })?;
            let hidden_md = gather_rows::forward(&hidden_td, targets.positions)?;
            drawn = generator.head.loss_and_draws(&hidden_md, targets, draw, &ctx)?.1;
        }
        let corrupted = self.corrupted(&inputs, drawn.as_ref())?;
        let ctx = Context { parameters, rows, pass: Some(Pass { model: pair::DISCRIMINATOR, ..pass }) };
        discriminator.encoder.observed(corrupted.tokens(), None, &ctx, &mut |part, hidden_td| {
            seen("discriminator", part, hidden_td)
        })?;
        Ok(())
    }

    /// Returns the logits of the generator.
    fn logits(&self, batch: &Batch) -> candle_core::Result<Tensor> {
        let Pair { generator, parameters, .. } = &self.pair;
        let inputs = self.inputs(batch, false)?;
        let ctx = Context { parameters, rows: inputs.rows(), pass: None };
        let targets = inputs.targets();
        let hidden_md = generator.encoder.infer(inputs.tokens(), generator.head.chosen(targets), &ctx)?;
        generator.head.logits(&hidden_md, targets, &ctx)
    }

    /// Returns the two losses, then three pairs of counts: tokens predicted as replaced and those of them
    /// that are; replaced tokens and those of them that are found; drawn tokens and those of them that equal
    /// the original. The drawn tokens depend only on the position of a token in the evaluation.
    fn evaluate(&self, batch: &Batch) -> candle_core::Result<Vec<Loss>> {
        let Pair { generator, discriminator, parameters } = &self.pair;
        let inputs = self.inputs(batch, false)?;
        let ctx = Context { parameters, rows: inputs.rows(), pass: None };
        let stream = Stream::new(0, Purpose::Sample, 0);
        let targets = inputs.targets();
        let hidden_md = generator.encoder.infer(inputs.tokens(), generator.head.chosen(targets), &ctx)?;
        let draw = Some(Draw { stream: &stream, keys: targets.keys });
        let (entropy, drawn) = generator.head.loss_and_draws(&hidden_md, targets, draw, &ctx)?;
        drop(hidden_md);
        let corrupted = self.corrupted(&inputs, drawn.as_ref())?;
        let hidden_td = discriminator.encoder.infer(corrupted.tokens(), None, &ctx)?;
        let totals = discriminator.head.totals(&hidden_td, corrupted.replaced(), &ctx)?;
        let counts = Totals::read(&totals)?;
        let replaced = counts.ones(batch.num_tokens());
        let masked = batch.num_labels();
        Ok(vec![
            PendingLoss::of(entropy, masked).read()?,
            PendingLoss::of_totals(totals, batch.num_tokens()).read()?,
            Loss { sum: 0.0, count: counts.predicted, correct: counts.hits },
            Loss { sum: 0.0, count: replaced, correct: counts.hits },
            Loss { sum: 0.0, count: masked, correct: masked - replaced },
        ])
    }

    fn parameters(&self) -> &Parameters {
        &self.pair.parameters
    }

    fn flops(&self, batch: &Batch) -> f64 {
        self.pair.flops(batch.num_tokens() as f64, mean_length(batch), batch.num_labels() as f64)
    }
}
