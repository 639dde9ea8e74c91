//! A pretraining run: from shards to the model of a task.
//!
//! What a task brings along is [`Pretrained`]; `corpus.rs` holds the batches and scores of a run.

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

use anyhow::Context;
use anyhow::Result;
use candle_core::Device;

use crate::batches::BatchPlan;
use crate::batches::Frame;
use crate::batches::LoaderOptions;
use crate::batches::Masking;
use crate::batches::Order;
use crate::batches::Packing;
use crate::batches::PackingReport;
use crate::batches::packing_report;
use crate::batches::rows_per_epoch;
use crate::config::InitialEmbeddings;
use crate::config::MlmConfig;
use crate::config::PretrainConfig;
use crate::config::PretrainTask;
use crate::config::Shuffle;
use crate::config::TrainingPhase;
use crate::error::Problem;
use crate::families::HeadKind;
use crate::families::ModelConfig;
use crate::families::PositionKind;
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
use crate::tasks::pretraining::mixes::Mixes;
use crate::tasks::pretraining::origin::OfFolders;
use crate::tasks::pretraining::origin::Origin;
use crate::tasks::run::Inputs;
use crate::tasks::run::Kind;
use crate::tasks::run::ModelFolder;
use crate::tasks::run::Parts;
use crate::tasks::run::Scores;
use crate::tasks::run::Setting;
use crate::tasks::run::Shapes;
use crate::tasks::run::TargetShare;
use crate::tasks::run::total_steps;
use crate::tasks::trained::Trained;
use crate::tokenizer::Tokenizer;

/// A task that a model is pretrained for.
pub trait Pretrained: Task + Sized + Send + 'static {
    /// Its name.
    const NAME: PretrainTask;

    /// The head of the model that it leaves.
    const HEAD: HeadKind;

    /// What would be trained.
    fn outline(config: &PretrainConfig, model: &ModelConfig) -> Result<Box<dyn Outline>>;

    /// The task with initial values, computing as the machine does.
    fn build(config: &PretrainConfig, model: &ModelConfig, setting: Setting<'_>) -> Result<Self>;

    /// The parameters that come out of the folders that a run may begin with.
    fn of_folders(&self) -> OfFolders;

    /// Makes what the parameters stand for of what they were in these folders.
    fn filled(&self) -> Result<()> {
        Ok(())
    }

    /// The model folders of a checkpoint.
    fn folders(&self, tokenizer: &Tokenizer) -> Vec<ModelFolder>;

    /// The names of [`Pretrained::scores`].
    const SCORES: &'static [&'static str];

    /// What the summed losses of an evaluation come to, `loss` first.
    fn scores(terms: &[Term], losses: &[Loss]) -> Scores;

    /// The longest text, in tokens, whose masks it fills in.
    fn longest(&self) -> usize;

    /// The model of a folder that was trained for it.
    fn open(path: &Path, device: &Device) -> Result<Box<dyn Trained>>;
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
        angles(config, &model)?;
        Ok(Self { config, prepared, model, origin, task: PhantomData })
    }
}

/// The model of a configuration as far as it can be told before there is a tokenizer: a vocabulary of 0 is
/// that of the tokenizer at hand, or of the one that is to be trained.
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

/// The model for a tokenizer: a vocabulary of 0 is the tokenizer's, and so is the family's own padding id,
/// which may be written out or not.
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
            .at(key("pad_token_id"))
            .hint("leave the key out to take the tokenizer's id")
            .into());
    }
    model.encoder.vocab_size = size.max(entries);
    model.encoder.pad_token_id = pad;
    Ok(model)
}

/// Refuses angles in a phase for a model that has none; of a folder that is known only now.
fn angles(config: &PretrainConfig, model: &ModelConfig) -> Result<(), Problem> {
    let is_given = |phase: &TrainingPhase| phase.global_rope_theta.is_some();
    let given = config.training.phases.iter().position(is_given);
    let Some(index) = given.filter(|_| model.family.positions != PositionKind::Rotary) else {
        return Ok(());
    };
    Err(Problem::usage(format!("is given, but positions of {} are no angles", model.family.title))
        .at(format!("training.phases.{index}.global_rope_theta"))
        .hint("remove it: it is for `modernbert`"))
}

/// Says which padding token `fitted` has, where its configuration says another one.
fn padding_note(config: &PretrainConfig, fitted: &ModelConfig) -> Option<String> {
    let (given, taken) = (config.model()?.encoder.pad_token_id, fitted.encoder.pad_token_id);
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
        let Setting { training, machine, seed, progress, is_beginning } = setting;
        if let Some(note) = padding_note(config, &model) {
            progress.note(&note);
        }
        let Prepared { tokenizer, train, validation, manifest, .. } = prepared;
        let task = T::build(config, &model, setting)?;
        if let Some(origin) = origin {
            let names = task.of_folders();
            origin.fill(task.parameters(), &names, &model, &tokenizer, progress)?;
            task.filled()?;
        }
        if is_beginning && config.model.initial_embeddings == InitialEmbeddings::Cooccurrence {
            embeddings::begin_with_text(task.parameters(), &model, &train, seed, progress)?;
        }
        // A text that cannot be filled in is better told now than after hours of training.
        sample(config, &task, &tokenizer)?;
        let folders = task.folders(&tokenizer);
        let plan = BatchPlan::new(training, config.data.max_seq_length);
        let frame = frame(config, &tokenizer)?;
        // Evaluation is packed in segments unless it is about pairs, so that runs with other packings can be
        // compared.
        let pairs = T::NAME.sentence_pairs();
        let eval_frame = frame.with_packing(pairs.map_or(Packing::Segments, Packing::Pairs));
        let mixes = Mixes::new(config, Some(&manifest));
        let (order, later_orders) = mixes.orders(config.run.seed);
        let order = windowed(config, &train).unwrap_or(order);
        // Where the steps are given, no epoch has to be played through.
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

/// The order of training behind all phases: each source as often as its weight says.
pub fn order(config: &PretrainConfig, train: &ShardSet) -> Order {
    let weights = config.data.sources.iter().map(|source| source.weight).collect();
    windowed(config, train).unwrap_or(Order::Weighted { seed: config.run.seed, weights })
}

/// The order of training where documents are shuffled within some shards at a time.
fn windowed(config: &PretrainConfig, train: &ShardSet) -> Option<Order> {
    let size = config.data.shuffle_window_shards?;
    Some(Order::Windowed { seed: config.run.seed, size, shards: train.ranges().into() })
}

/// How rows are filled.
fn rows(config: &PretrainConfig) -> Packing {
    let pairs = config.task().sentence_pairs();
    pairs.map_or_else(|| Packing::new(&config.data.packing), Packing::Pairs)
}

/// The rows of training, at the length of the last phase.
pub fn frame(config: &PretrainConfig, tokenizer: &Tokenizer) -> Result<Frame> {
    let frame = Frame::new(tokenizer, config.data.max_seq_length)?.with_packing(rows(config));
    Ok(if config.data.shuffle == Some(Shuffle::Documents) { frame } else { frame.with_chunks() })
}

/// How well packing as configured fills the rows of an epoch of `train`, at the length of the last phase.
pub fn packing(config: &PretrainConfig, tokenizer: &Tokenizer, train: &ShardSet) -> Result<PackingReport> {
    packing_report(train, &order(config, train), frame(config, tokenizer)?)
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
        Some(text) => fill_mask(task, task.longest(), tokenizer, text, "run.sample_text"),
        None => Ok(Vec::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::TokenizerConfig;
    use crate::families::EncoderConfig;
    use crate::families::Family;
    use crate::tokenizer::Trainer;
    use crate::tokenizer::TrainerOptions;

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
        let fitted = |family| {
            let model = ModelConfig { family: Family::MPNET, encoder: EncoderConfig::of(Family::MPNET) };
            fitted_model(model, &tokenizer(family))
        };
        assert_eq!(fitted(Family::ROBERTA).unwrap().encoder.pad_token_id, 1);
        let error = fitted(Family::BERT).unwrap_err().to_string();
        assert_eq!(
            error,
            "tokenizer.path: its padding token has the id 0, and models of MPNet have padding at 1\n  \
             hint: leave the key out to train a tokenizer for the family, or take another family"
        );
    }

    #[test]
    fn the_padding_id_of_the_tokenizer_takes_the_place_of_the_familys_and_is_told() {
        let config = config(r#"{"roberta": {"pad_token_id": 1}}"#, "");
        let fitted = |family| fitted_model(config.model().unwrap(), &tokenizer(family)).unwrap();
        let (own, other) = (fitted(Family::ROBERTA), fitted(Family::BERT));
        assert_eq!((own.encoder.pad_token_id, other.encoder.pad_token_id), (1, 0));
        assert_eq!(padding_note(&config, &own), None);
        let note = padding_note(&config, &other).unwrap();
        assert!(note.contains("`model.roberta.pad_token_id` is 1") && note.contains("; 0, the"), "{note}");
    }

    #[test]
    fn a_vocabulary_of_zero_is_planned_as_that_of_the_tokenizer_at_hand() {
        let folder = tempfile::tempdir().unwrap();
        let tokenizer = tokenizer(Family::BERT);
        for (name, bytes) in tokenizer.files() {
            std::fs::write(folder.path().join(name), bytes).unwrap();
        }
        let path = folder.path().display();
        let at_hand =
            config(r#"{"bert": {"vocab_size": 0}}"#, &format!(r#", "tokenizer": {{"path": "{path}"}}"#));
        assert_eq!(planned_model(&at_hand).unwrap().encoder.vocab_size, tokenizer.vocab_size());
        let to_be_made = config(r#"{"bert": {"vocab_size": 0}}"#, r#", "tokenizer": {"vocab_size": 500}"#);
        let planned = planned_model(&to_be_made).unwrap().encoder.vocab_size;
        assert_eq!(planned, to_be_made.tokenizer.padded_vocab_size());
    }

    #[test]
    fn the_most_that_is_masked_is_that_of_the_beginning_or_of_the_end() {
        let most = |start, end| {
            most_masked(&MlmConfig {
                mlm_probability: start,
                mlm_probability_end: end,
                ..MlmConfig::default()
            })
        };
        let found = [most(0.15, None), most(0.15, Some(0.3)), most(0.3, Some(0.15))];
        assert_eq!(found.map(f64::to_bits), [0.15, 0.3, 0.3].map(f64::to_bits));
    }
}
