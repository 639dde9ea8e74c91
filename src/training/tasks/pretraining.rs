//! A pretraining run: from shards to the trained model of a task.
//!
//! [`Pretrained`] is the interface of a pretraining task; `corpus.rs` has the batches and scores of a run.

pub mod corpus;
mod embeddings;
pub mod mixes;
pub mod origin;
pub mod scored;
pub mod shown;
mod word_vectors;

use std::marker::PhantomData;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use candle_core::Device;

use crate::tasks::fill_mask::{Candidate, fill_mask};
use crate::tasks::pretraining::corpus::{Corpus, Validation};
use crate::tasks::pretraining::mixes::Mixes;
use crate::tasks::pretraining::origin::{FolderNames, Origin};
use crate::tasks::run::{
    Inputs, Kind, ModelFolder, Parts, Scores, Setting, Shapes, TargetShare, total_steps,
};
use crate::tasks::trained::Trained;
use crate::tasks::{Loss, Task, Term};
use base::error::Problem;
use base::families::{HeadKind, ModelConfig};
use base::scores::{Better, unigram_entropy};
use config::{InitialEmbeddings, MlmConfig, PretrainConfig, PretrainTask, Shuffle};
use data::batches::{
    BatchPlan, Frame, LoaderOptions, Masking, Order, Packing, PackingReport, packing_report, rows_per_epoch,
};
use data::prepare::Prepared;
use data::shards::ShardSet;
use data::tokenizer::Tokenizer;
use model::models::memory::Outline;

/// A task that a model is pretrained for.
pub trait Pretrained: Task + Sized + Send + 'static {
    /// Name of the task.
    const NAME: PretrainTask;

    /// Head of the trained model.
    const HEAD: HeadKind;

    /// Describes the model to be trained, without allocating it.
    fn outline(config: &PretrainConfig, model: &ModelConfig) -> Result<Box<dyn Outline>>;

    /// Builds the task with initial values, computing in the dtype of the machine.
    fn build(config: &PretrainConfig, model: &ModelConfig, setting: Setting<'_>) -> Result<Self>;

    /// Returns the names of the parameters in the model folders from which a run may start.
    fn folder_names(&self) -> FolderNames;

    /// Converts the parameters after they were read from these folders, if the task stores them differently.
    fn filled(&self) -> Result<()> {
        Ok(())
    }

    /// Returns the model folders of a checkpoint.
    fn folders(&self, tokenizer: &Tokenizer) -> Vec<ModelFolder>;

    /// Names of the scores that [`Pretrained::scores`] returns.
    const SCORES: &'static [&'static str];

    /// Turns the summed losses of an evaluation into scores, `loss` first.
    fn scores(terms: &[Term], losses: &[Loss]) -> Scores;

    /// Returns the longest text, in tokens, whose masks the model can fill in.
    fn longest(&self) -> usize;

    /// Opens the model of a folder that was trained for this task.
    fn open(path: &Path, device: &Device) -> Result<Box<dyn Trained>>;
}

/// A configuration with the data that it names, prepared.
pub struct Pretraining<'a, T> {
    config: &'a PretrainConfig,
    prepared: Prepared,
    model: ModelConfig,
    origin: Option<Origin>,
    task: PhantomData<T>,
}

impl<'a, T: Pretrained> Pretraining<'a, T> {
    /// Prepares a run. Returns an error if model and tokenizer do not match.
    pub fn new(config: &'a PretrainConfig, prepared: Prepared, origin: Option<Origin>) -> Result<Self> {
        let model = config.model().context("validation lets only one model family pass")?;
        let model = fitted_model(model, &prepared.tokenizer)?;
        require_rope(config, &model)?;
        require_causal_attention(config, &model)?;
        Ok(Self { config, prepared, model, origin, task: PhantomData })
    }
}

/// Returns the model of a configuration before its tokenizer is trained: a vocabulary size of 0 is replaced
/// by that of the existing tokenizer, or the one that is to be trained.
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

/// Returns the largest fraction of the tokens that is masked during a run.
pub fn most_masked(mlm: &MlmConfig) -> f64 {
    mlm.mlm_probability.max(mlm.mlm_probability_end.unwrap_or(0.0))
}

/// Adapts the model to a tokenizer: a vocabulary size of 0 becomes the tokenizer's, and a padding id that is
/// the family's default, written out or not, becomes the tokenizer's padding id.
fn fitted_model(mut model: ModelConfig, tokenizer: &Tokenizer) -> Result<ModelConfig> {
    let size = model.encoder.vocab_size;
    let entries = tokenizer.vocab_size();
    if size != 0 && size < entries {
        return Err(Problem::usage(format!("is {size}, the tokenizer has {entries} entries"))
            .at(model_key(&model, "vocab_size"))
            .hint("leave the key out to take the tokenizer's number")
            .into());
    }
    let given = model.encoder.pad_token_id;
    let pad = tokenizer.special().pad;
    if given != pad && model.family.key("pad_token_id").is_none() {
        let message = format!(
            "its padding token has the id {pad}, and models of {} have padding at {given}",
            model.family.title
        );
        return Err(Problem::usage(message)
            .at("tokenizer.path")
            .hint("leave the key out to train a tokenizer for the family, or take another family")
            .into());
    }
    if given != pad && given != model.family.defaults.pad_token_id {
        return Err(Problem::usage(format!("is {given}, the tokenizer's padding token has the id {pad}"))
            .at(model_key(&model, "pad_token_id"))
            .hint("leave the key out to take the tokenizer's id")
            .into());
    }
    model.encoder.vocab_size = size.max(entries);
    model.encoder.pad_token_id = pad;
    Ok(model)
}

fn model_key(model: &ModelConfig, key: &str) -> String {
    format!("model.{}.{key}", model.family.name)
}

/// Returns an error if a phase sets the RoPE base of a model that has no key for it. For a model from a
/// folder this is known only now.
fn require_rope(config: &PretrainConfig, model: &ModelConfig) -> Result<(), Problem> {
    let phases = &config.training.phases;
    let given = phases.iter().position(|phase| phase.global_rope_theta.is_some());
    let Some(index) = given.filter(|_| model.family.key("global_rope_theta").is_none()) else {
        return Ok(());
    };
    Err(Problem::usage(format!("is given, but {} has no `global_rope_theta`", model.family.title))
        .at(format!("training.phases.{index}.global_rope_theta"))
        .hint("remove it: it is for `modernbert`"))
}

/// Returns an error if a phase is causal and attention of the model, which may come from a folder, has no
/// causal form.
fn require_causal_attention(config: &PretrainConfig, model: &ModelConfig) -> Result<(), Problem> {
    if config.training.causal_steps() == 0 || model.family.has_causal_attention() {
        return Ok(());
    }
    Err(Problem::usage(format!("is `causal`, but attention of {} has no causal form", model.family.title))
        .at("training.phases.0.objective")
        .hint("take a family with absolute or rotary positions"))
}

/// Note about the padding id of `fitted`, if its configuration has another one.
fn padding_note(config: &PretrainConfig, fitted: &ModelConfig) -> Option<String> {
    let given = config.model()?.encoder.pad_token_id;
    let taken = fitted.encoder.pad_token_id;
    let key = format!("model.{}.pad_token_id", fitted.family.name);
    let text =
        format!("note: `{key}` is {given} by default; {taken}, the tokenizer's padding token, is taken");
    (given != taken).then_some(text)
}

impl<T: Pretrained> Kind for Pretraining<'_, T> {
    type Task = T;
    type Data = Corpus;

    fn shapes(&self) -> Result<Shapes> {
        shapes::<T>(self.config, &self.model)
    }

    fn inputs(&self) -> Result<Inputs> {
        let manifest = &self.prepared.manifest;
        let mut inputs = self.origin.as_ref().map(Origin::inputs).transpose()?.unwrap_or_default();
        inputs.insert("data.sources".to_string(), manifest.content_sha256());
        inputs.insert("tokenizer".to_string(), manifest.tokenizer.clone());
        Ok(inputs)
    }

    fn build(self, setting: Setting<'_>) -> Result<Parts<T, Corpus>> {
        let Self { config, prepared, model, origin, .. } = self;
        let Setting { training, machine, seed, progress, is_beginning, .. } = setting;
        if let Some(note) = padding_note(config, &model) {
            progress.note(&note);
        }
        let Prepared { tokenizer, train, validation, manifest, .. } = prepared;
        let task = T::build(config, &model, setting)?;
        if let Some(origin) = origin {
            let names = task.folder_names();
            origin.fill(task.parameters(), &names, &model, &tokenizer, progress)?;
            task.filled()?;
        }
        if is_beginning && config.model.initial_embeddings == InitialEmbeddings::Cooccurrence {
            embeddings::begin_with_text(task.parameters(), &model, &train, setting)?;
        }
        // An unusable sample text should be reported now, not after hours of training.
        sample(config, &task, &tokenizer)?;
        let folders = task.folders(&tokenizer);
        let plan = BatchPlan::new(training, config.data.max_seq_length);
        let frame = frame(config, &tokenizer)?;
        // Evaluation packs rows in segments (or pairs, if the task is about pairs), so that runs with other
        // packings can be compared.
        let pairs = T::NAME.sentence_pairs();
        let eval_frame = frame.with_packing(pairs.map_or(Packing::Segments, Packing::Pairs));
        let mixes = Mixes::new(config, Some(&manifest));
        let (order, later_orders) = mixes.orders(config.run.seed);
        let order = windowed(config, &train).unwrap_or(order);
        // If the number of steps is given, the rows of an epoch need not be counted.
        let rows_of_epoch = if training.max_steps >= 0 { 0 } else { rows_per_epoch(&train, &order, frame)? };
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
                later_orders,
                causal_steps: training.causal_steps(),
                workers: config.data.loader_workers,
                rank: machine.world.rank,
                world_size: machine.world.size,
                ..LoaderOptions::new(seed, plan)
            },
            loader: None,
            planner: None,
            mixes,
            validation,
            scores: T::scores,
            score_names: T::SCORES,
            world: machine.world,
        };
        Ok(Parts {
            task,
            data,
            total_steps: total_steps(training, rows_of_epoch),
            folders,
            best: ("loss", Better::Lower),
        })
    }
}

/// Returns the sizes of a run of `config` with `model`, whose vocabulary is known.
pub fn shapes<T: Pretrained>(config: &PretrainConfig, model: &ModelConfig) -> Result<Shapes> {
    let phases = config.training.phases.iter().map(|phase| phase.max_seq_length);
    Ok(Shapes {
        outline: T::outline(config, model)?,
        model: model.clone(),
        length: phases.fold(config.data.max_seq_length, usize::max),
        targets: TargetShare::OfTokens(most_masked(&config.mlm)),
    })
}

/// Returns the order of documents after all phases: each source in proportion to its weight.
pub fn order(config: &PretrainConfig, train: &ShardSet) -> Order {
    let weights = config.data.sources.iter().map(|source| source.weight).collect();
    windowed(config, train).unwrap_or(Order::Weighted { seed: config.run.seed, weights })
}

/// Returns the order of documents that shuffles within a few shards at a time, if that is configured.
fn windowed(config: &PretrainConfig, train: &ShardSet) -> Option<Order> {
    let size = config.data.shuffle_window_shards?;
    Some(Order::Windowed { seed: config.run.seed, size, shards: train.ranges().into() })
}

/// Returns the packing of training rows.
fn rows(config: &PretrainConfig) -> Packing {
    let pairs = config.task().sentence_pairs();
    pairs.map_or_else(|| Packing::new(&config.data.packing), Packing::Pairs)
}

/// Returns the frame of training rows, at the length of the last phase.
pub fn frame(config: &PretrainConfig, tokenizer: &Tokenizer) -> Result<Frame> {
    let frame = Frame::new(tokenizer, config.data.max_seq_length)?.with_packing(rows(config));
    Ok(if config.data.shuffle == Some(Shuffle::Documents) { frame } else { frame.with_chunks() })
}

/// Reports how well the configured packing fills the rows of an epoch of `train`, at the length of the last
/// phase.
pub fn packing(config: &PretrainConfig, tokenizer: &Tokenizer, train: &ShardSet) -> Result<PackingReport> {
    packing_report(train, &order(config, train), frame(config, tokenizer)?)
}

/// Returns the loss of the best model that knows only the frequency of each token in the validation set.
fn unigram_loss(validation: &ShardSet) -> Result<f64> {
    let mut counts = vec![0u64; validation.vocab_size()];
    for index in 0..validation.num_documents() {
        for id in validation.document(index)? {
            counts[id as usize] += 1;
        }
    }
    Ok(unigram_entropy(&counts))
}

/// Returns the candidates for each mask of the sample text; none if there is no text.
pub fn sample<T: Pretrained>(
    config: &PretrainConfig,
    task: &T,
    tokenizer: &Tokenizer,
) -> Result<Vec<Vec<Candidate>>> {
    match &config.run.sample_text {
        Some(text) => fill_mask(task, task.longest(), tokenizer, text, "run.sample_text"),
        None => Ok(Vec::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::families::{EncoderConfig, Family};
    use config::TokenizerConfig;
    use data::tokenizer::{Trainer, TrainerOptions};

    fn tokenizer(family: Family) -> Tokenizer {
        let config = TokenizerConfig { vocab_size: 300, ..TokenizerConfig::default() };
        let mut trainer = Trainer::new(TrainerOptions::new(&config, family, 64)).unwrap();
        trainer.add(&["the robin sang in the locked garden, and the key lay in the earth"]).unwrap();
        trainer.finish(|_| {}).unwrap().tokenizer
    }

    fn config(model: &str, more: &str) -> PretrainConfig {
        let data = r#"{"sources": [{"files": ["a.txt"]}]}"#;
        serde_json::from_str(&format!(r#"{{"data": {data}, "model": {model}{more}}}"#)).unwrap()
    }

    #[test]
    fn a_padding_id_that_is_not_the_tokenizers_is_refused() {
        let encoder = EncoderConfig { pad_token_id: 3, ..EncoderConfig::of(Family::ROBERTA) };
        let model = ModelConfig { family: Family::ROBERTA, encoder };
        let error = fitted_model(model, &tokenizer(Family::ROBERTA)).unwrap_err().to_string();
        assert!(
            error.starts_with("model.roberta.pad_token_id: is 3, the tokenizer's padding token has the id 1"),
            "{error}"
        );
    }

    #[test]
    fn a_family_with_padding_in_one_place_takes_no_tokenizer_with_padding_elsewhere() {
        assert_eq!(fitted_mpnet(Family::ROBERTA).unwrap().encoder.pad_token_id, 1);
        let error = fitted_mpnet(Family::BERT).unwrap_err().to_string();
        assert_eq!(
            error,
            "tokenizer.path: its padding token has the id 0, and models of MPNet have padding at 1\n  \
             hint: leave the key out to train a tokenizer for the family, or take another family"
        );
    }

    /// A model of MPNet for the tokenizer of another family.
    fn fitted_mpnet(family: Family) -> Result<ModelConfig> {
        let model = ModelConfig { family: Family::MPNET, encoder: EncoderConfig::of(Family::MPNET) };
        fitted_model(model, &tokenizer(family))
    }

    #[test]
    fn the_padding_id_of_the_tokenizer_replaces_that_of_the_family_with_a_note() {
        let config = config(r#"{"roberta": {"pad_token_id": 1}}"#, "");
        let own = fitted_model(config.model().unwrap(), &tokenizer(Family::ROBERTA)).unwrap();
        let other = fitted_model(config.model().unwrap(), &tokenizer(Family::BERT)).unwrap();
        assert_eq!((own.encoder.pad_token_id, other.encoder.pad_token_id), (1, 0));
        assert_eq!(padding_note(&config, &own), None);
        let note = padding_note(&config, &other).unwrap();
        assert!(note.contains("`model.roberta.pad_token_id` is 1") && note.contains("; 0, the"), "{note}");
    }

    #[test]
    fn a_vocabulary_size_of_zero_is_planned_as_that_of_the_existing_tokenizer() {
        let folder = tempfile::tempdir().unwrap();
        let tokenizer = tokenizer(Family::BERT);
        for (name, bytes) in tokenizer.files() {
            std::fs::write(folder.path().join(name), bytes).unwrap();
        }
        let path = folder.path().display();
        let existing =
            config(r#"{"bert": {"vocab_size": 0}}"#, &format!(r#", "tokenizer": {{"path": "{path}"}}"#));
        assert_eq!(planned_model(&existing).unwrap().encoder.vocab_size, tokenizer.vocab_size());
        let to_be_made = config(r#"{"bert": {"vocab_size": 0}}"#, r#", "tokenizer": {"vocab_size": 500}"#);
        let planned = planned_model(&to_be_made).unwrap().encoder.vocab_size;
        assert_eq!(planned, to_be_made.tokenizer.padded_vocab_size());
    }

    #[test]
    fn the_largest_masked_fraction_is_that_of_the_start_or_the_end() {
        for (start, end, expected) in [(0.15, None, 0.15_f64), (0.15, Some(0.3), 0.3), (0.3, Some(0.15), 0.3)]
        {
            let mlm = MlmConfig { mlm_probability: start, mlm_probability_end: end, ..MlmConfig::default() };
            assert_eq!(most_masked(&mlm).to_bits(), expected.to_bits());
        }
    }
}
