//! List of all tasks, by their name in a configuration and by the head of a model folder.

use std::path::Path;

use anyhow::Result;
use candle_core::Device;
use clap::ValueEnum;

use crate::machine::Machine;
use crate::tasks::classify::Classes;
use crate::tasks::finetuning::Opened;
use crate::tasks::finetuning_task::FinetuningTask;
use crate::tasks::masked_lm::MaskedLm;
use crate::tasks::multi_label::SeveralLabels;
use crate::tasks::pretraining::Pretrained;
use crate::tasks::regression::Numbers;
use crate::tasks::replaced_token_detection::{PairFolder, ReplacedTokenDetection};
use crate::tasks::run::{ModelFolder, Setting, Shapes};
use crate::tasks::sentence_pairs::{NextSentence, SentenceOrder, SentencePairs};
use crate::tasks::token_classify::TagSet;
use crate::tasks::trained::Trained;
use crate::tasks::{Task, finetuning, pretraining};
use base::error::Problem;
use base::families::{HeadKind, ModelConfig};
use config::{FinetuneConfig, Goal, PretrainConfig, PretrainTask};
use data::tokenizer::Tokenizer;
use model::interop::{DISCRIMINATOR, PretrainedFolder, holds_pair, read_folder};

/// Code that is generic over a pretraining task which is only known by name at run time.
pub trait PretrainedVisitor {
    /// Result of [`Self::visit`].
    type Output;

    /// Runs the code for the task `T`.
    fn visit<T: Pretrained>(self) -> Self::Output;
}

/// Calls `visitor` with the type of this pretraining task.
pub fn pretrained<V: PretrainedVisitor>(task: PretrainTask, visitor: V) -> V::Output {
    match task {
        PretrainTask::MaskedLm => visitor.visit::<MaskedLm>(),
        PretrainTask::ReplacedTokenDetection => visitor.visit::<ReplacedTokenDetection>(),
        PretrainTask::NextSentencePrediction => visitor.visit::<SentencePairs<NextSentence>>(),
        PretrainTask::SentenceOrderPrediction => visitor.visit::<SentencePairs<SentenceOrder>>(),
    }
}

/// Code that is generic over a fine-tuning task which is only known by its goal at run time.
pub trait FinetunedVisitor {
    /// Result of [`Self::visit`].
    type Output;

    /// Runs the code for the task `T`.
    fn visit<T: FinetuningTask>(self) -> Self::Output;
}

/// Calls `visitor` with the type of the fine-tuning task for this goal.
pub fn finetuned<V: FinetunedVisitor>(goal: Goal, visitor: V) -> V::Output {
    match goal {
        Goal::Label => visitor.visit::<Classes>(),
        Goal::LabelSet => visitor.visit::<SeveralLabels>(),
        Goal::Numbers => visitor.visit::<Numbers>(),
        Goal::Tags => visitor.visit::<TagSet>(),
    }
}

/// Returns the sizes of a run of `config` with `model`, whose vocabulary is known.
pub fn shapes(config: &PretrainConfig, model: &ModelConfig) -> Result<Shapes> {
    struct OfShapes<'a>(&'a PretrainConfig, &'a ModelConfig);
    impl PretrainedVisitor for OfShapes<'_> {
        type Output = Result<Shapes>;

        fn visit<T: Pretrained>(self) -> Result<Shapes> {
            pretraining::shapes::<T>(self.0, self.1)
        }
    }
    pretrained(config.task(), OfShapes(config, model))
}

/// A task whose parameters are not read yet, and the model folders that contain them.
pub type Unfilled = (Box<dyn Task>, Vec<ModelFolder>);

/// Builds the task of the pretraining run with `config` that wrote the model folder (or pair of folders) at
/// `path`.
pub fn of_pretraining(path: &Path, config: &PretrainConfig, setting: Setting<'_>) -> Result<Unfilled> {
    struct Build<'a>(&'a PretrainConfig, ModelConfig, Tokenizer, Setting<'a>);
    impl PretrainedVisitor for Build<'_> {
        type Output = Result<Unfilled>;

        fn visit<T: Pretrained>(self) -> Result<Unfilled> {
            let task = T::build(self.0, &self.1, self.3)?;
            let folders = task.folders(&self.2);
            Ok((Box::new(task), folders))
        }
    }
    let path = if holds_pair(path) { path.join(DISCRIMINATOR) } else { path.to_path_buf() };
    let model = read_folder(&path)?.config;
    let tokenizer = Tokenizer::load(&path)?;
    pretrained(config.task(), Build(config, model, tokenizer, setting))
}

/// Builds the task of the fine-tuning run with `config` that wrote the model folder at `path`.
pub fn of_finetuning(path: &Path, config: &FinetuneConfig, machine: &Machine) -> Result<Unfilled> {
    struct Build<'a>(PretrainedFolder, &'a Machine);
    impl FinetunedVisitor for Build<'_> {
        type Output = Result<Box<dyn Task>>;

        fn visit<T: FinetuningTask>(self) -> Self::Output {
            finetuning::unfilled::<T>(&self.0, self.1)
        }
    }
    let task = finetuned(config.goal(), Build(read_folder(path)?, machine))?;
    let names = task.parameters().layout().own_names();
    Ok((task, vec![ModelFolder { place: "", files: Vec::new(), names, added: Vec::new() }]))
}

/// Opens the model of a folder in the Hugging Face layout, or the pair of models of an ELECTRA run.
pub fn open(path: &Path, device: &Device) -> Result<Box<dyn Trained>> {
    struct Open<'a>(HeadKind, &'a Path, &'a Device);
    impl Open<'_> {
        fn open_if(&self, head: HeadKind, open: Opener) -> Option<Result<Box<dyn Trained>>> {
            (head == self.0).then(|| open(self.1, self.2))
        }
    }
    impl PretrainedVisitor for &Open<'_> {
        type Output = Option<Result<Box<dyn Trained>>>;

        fn visit<T: Pretrained>(self) -> Self::Output {
            self.open_if(T::HEAD, T::open)
        }
    }
    impl FinetunedVisitor for &Open<'_> {
        type Output = Option<Result<Box<dyn Trained>>>;

        fn visit<T: FinetuningTask>(self) -> Self::Output {
            self.open_if(T::HEAD, |path, device| Ok(Box::new(Opened::<T>::load(path, device)?)))
        }
    }
    if holds_pair(path) {
        return Ok(Box::new(PairFolder::new(path, device)));
    }
    let open = Open(read_folder(path)?.head, path, device);
    let mut of_pretraining =
        PretrainTask::value_variants().iter().filter_map(|&task| pretrained(task, &open));
    let mut of_finetuning = Goal::ALL.into_iter().filter_map(|goal| finetuned(goal, &open));
    of_pretraining.next().or_else(|| of_finetuning.next()).unwrap_or_else(|| {
        Err(Problem::new("holds an encoder without a head, which predicts nothing and cannot be scored")
            .at(path.display())
            .hint("fine-tune it first with `mlmtrain finetune`")
            .into())
    })
}

/// Function that opens the model of a folder.
type Opener = fn(&Path, &Device) -> Result<Box<dyn Trained>>;
