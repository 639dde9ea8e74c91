//! A pretraining run: from shards to the model of a task.
//!
//! What a task brings along is [`Pretrained`]; `corpus.rs` holds the batches and scores of a run.

pub mod corpus;
pub mod origin;

use std::marker::PhantomData;
use std::sync::Arc;

use anyhow::Context;
use anyhow::Result;

use crate::batches::BatchPlan;
use crate::batches::Frame;
use crate::batches::LoaderOptions;
use crate::batches::Masking;
use crate::batches::Order;
use crate::batches::Packing;
use crate::batches::PackingReport;
use crate::batches::packing_report;
use crate::batches::rows_per_epoch;
use crate::config::MlmConfig;
use crate::config::PretrainConfig;
use crate::config::PretrainTask;
use crate::error::Problem;
use crate::families::ModelConfig;
use crate::models::memory::Outline;
use crate::prepare::Prepared;
use crate::scores::Better;
use crate::scores::unigram_entropy;
use crate::shards::ShardSet;
use crate::tasks::Loss;
use crate::tasks::Task;
use crate::tasks::Term;
use crate::tasks::fill_mask::Candidate;
use crate::tasks::fill_mask::fill_mask;
use crate::tasks::pretraining::corpus::Corpus;
use crate::tasks::pretraining::corpus::Validation;
use crate::tasks::pretraining::origin::OfFolders;
use crate::tasks::pretraining::origin::Origin;
use crate::tasks::run::Kind;
use crate::tasks::run::ModelFolder;
use crate::tasks::run::Parts;
use crate::tasks::run::Scores;
use crate::tasks::run::Setting;
use crate::tasks::run::Shapes;
use crate::tasks::run::TargetShare;
use crate::tasks::run::total_steps;
use crate::tokenizer::Tokenizer;

/// Candidates of each mask of the sample text.
const CANDIDATES: usize = 5;

/// A task that a model is pretrained for.
pub trait Pretrained: Task + Sized + Send {
    /// Its name.
    const NAME: PretrainTask;

    /// What would be trained.
    fn outline(config: &PretrainConfig, model: &ModelConfig) -> Result<Box<dyn Outline>>;

    /// The task with initial values, computing as the machine does.
    fn build(config: &PretrainConfig, model: &ModelConfig, setting: Setting<'_>) -> Result<Self>;

    /// The parameters that come out of the folders that a run may begin with.
    fn of_folders(&self) -> OfFolders;

    /// The model folders of a checkpoint.
    fn folders(&self, tokenizer: &Tokenizer) -> Vec<ModelFolder>;

    /// What the summed losses of an evaluation come to, `loss` first.
    fn scores(terms: &[Term], losses: &[Loss]) -> Scores;

    /// The longest text, in tokens, whose masks it fills in.
    fn longest(&self) -> usize;
}

/// A configuration and the data that it asks for.
pub struct Pretraining<'a, T> {
    config: &'a PretrainConfig,
    prepared: Prepared,
    model: ModelConfig,
    origin: Option<Origin>,
    task: PhantomData<T>,
}

impl<'a, T: Pretrained> Pretraining<'a, T> {
    /// A run on data that is ready; an error where model and tokenizer do not fit.
    pub fn new(config: &'a PretrainConfig, prepared: Prepared, origin: Option<Origin>) -> Result<Self> {
        let model = config.model().context("validation lets only one model family pass")?;
        let model = fitted_model(model, &prepared.tokenizer)?;
        Ok(Self { config, prepared, model, origin, task: PhantomData })
    }
}

/// The model of a configuration as far as it can be told before there is a tokenizer: a vocabulary of 0 is that
/// of the tokenizer at hand, or of the one that is to be trained.
pub fn planned_model(config: &PretrainConfig) -> Result<ModelConfig> {
    let mut model = config.model().context("validation lets only one model family pass")?;
    if model.encoder.vocab_size == 0 {
        model.encoder.vocab_size = match &config.tokenizer.path {
            Some(path) => Tokenizer::load(path)?.vocab_size(),
            None => config.tokenizer.padded_vocab_size(),
        };
    }
    Ok(model)
}

/// The largest share of the tokens that is masked in a run.
pub fn most_masked(mlm: &MlmConfig) -> f64 {
    mlm.mlm_probability.max(mlm.mlm_probability_end.unwrap_or(0.0))
}

/// The model for a tokenizer: a vocabulary of 0 is the tokenizer's.
fn fitted_model(mut model: ModelConfig, tokenizer: &Tokenizer) -> Result<ModelConfig> {
    let key = |key: &str| format!("model.{}.{key}", model.family.name);
    let (size, entries) = (model.encoder.vocab_size, tokenizer.vocab_size());
    if size != 0 && size < entries {
        return Err(Problem::usage(format!("is {size}, the tokenizer has {entries} entries"))
            .at(key("vocab_size"))
            .hint("leave the key out to take the tokenizer's number")
            .into());
    }
    let (given, pad) = (model.encoder.pad_token_id, tokenizer.special().pad);
    if given != pad && given != model.family.defaults.pad_token_id {
        return Err(Problem::usage(format!("is {given}, the tokenizer's padding token has the id {pad}"))
            .at(key("pad_token_id"))
            .hint("leave the key out to take the tokenizer's id")
            .into());
    }
    model.encoder.vocab_size = size.max(entries);
    model.encoder.pad_token_id = pad;
    Ok(model)
}

impl<T: Pretrained> Kind for Pretraining<'_, T> {
    type Task = T;
    type Data = Corpus;

    fn shapes(&self) -> Result<Shapes> {
        shapes::<T>(self.config, &self.model)
    }

    fn build(self, setting: Setting<'_>) -> Result<Parts<T, Corpus>> {
        let Self { config, prepared, model, origin, .. } = self;
        let Setting { training, machine, seed, .. } = setting;
        let Prepared { tokenizer, train, validation, .. } = prepared;
        let task = T::build(config, &model, setting)?;
        if let Some(origin) = origin {
            let names = task.of_folders();
            origin.fill(task.parameters(), &names, &model, &tokenizer, setting.progress)?;
        }
        // A text that cannot be filled in is better told now than after hours of training.
        sample(config, &task, &tokenizer)?;
        let folders = task.folders(&tokenizer);
        let plan = BatchPlan::new(training, config.data.max_seq_length);
        // Evaluation is always packed in segments, so that runs with other packings can be compared.
        let eval_frame = Frame::new(&tokenizer, config.data.max_seq_length)?;
        let frame = eval_frame.with_packing(Packing::new(&config.data.packing));
        let order = order(config);
        // Where the steps are given, no epoch has to be played through.
        let rows = if training.max_steps >= 0 { 0 } else { rows_per_epoch(&train, &order, frame)? };
        let validation = Validation {
            unigram_loss: unigram_loss(&validation)?,
            shards: Arc::new(validation),
            frame: eval_frame,
            masking: Masking::for_evaluation(T::NAME, &tokenizer)?,
            rows_per_batch: training.per_device_eval_batch_size,
        };
        let data = Corpus {
            masking: Masking::new(&config.mlm, &tokenizer)?,
            tokenizer,
            train: Arc::new(train),
            frame,
            options: LoaderOptions {
                order,
                workers: config.data.loader_workers,
                rank: machine.world.rank,
                world_size: machine.world.size,
                ..LoaderOptions::new(seed, plan)
            },
            loader: None,
            validation,
            scores: T::scores,
        };
        Ok(Parts {
            task,
            data,
            total_steps: total_steps(training, rows),
            folders,
            best: ("loss", Better::Lower),
        })
    }
}

/// The sizes of a run of `config` with `model`, whose vocabulary is known.
pub fn shapes<T: Pretrained>(config: &PretrainConfig, model: &ModelConfig) -> Result<Shapes> {
    let phases = config.training.phases.iter().map(|phase| phase.max_seq_length);
    Ok(Shapes {
        outline: T::outline(config, model)?,
        model: model.clone(),
        length: phases.fold(config.data.max_seq_length, usize::max),
        targets: TargetShare::OfTokens(most_masked(&config.mlm)),
    })
}

/// The order of training: each source as often as its weight says.
fn order(config: &PretrainConfig) -> Order {
    let weights = config.data.sources.iter().map(|source| source.weight).collect();
    Order::Weighted { seed: config.run.seed, weights }
}

/// How well packing as configured fills the rows of an epoch of `train`, at the length of the last phase.
pub fn packing(config: &PretrainConfig, tokenizer: &Tokenizer, train: &ShardSet) -> Result<PackingReport> {
    let frame = Frame::new(tokenizer, config.data.max_seq_length)?;
    packing_report(train, &order(config), frame.with_packing(Packing::new(&config.data.packing)))
}

/// The loss of the best model that knows only how frequent each token of the validation set is.
fn unigram_loss(validation: &ShardSet) -> Result<f64> {
    let mut counts = vec![0u64; validation.vocab_size()];
    for index in 0..validation.num_documents() {
        for id in validation.document(index)? {
            counts[id as usize] += 1;
        }
    }
    Ok(unigram_entropy(&counts))
}

/// The candidates of each mask of the sample text; none where there is no text.
pub fn sample<T: Pretrained>(
    config: &PretrainConfig,
    task: &T,
    tokenizer: &Tokenizer,
) -> Result<Vec<Vec<Candidate>>> {
    match &config.run.sample_text {
        Some(text) => fill_mask(task, task.longest(), tokenizer, text, CANDIDATES, "run.sample_text"),
        None => Ok(Vec::new()),
    }
}
