//! Every task: by its name in a configuration, and by the head of a model folder.

use std::path::Path;

use anyhow::Result;
use candle_core::Device;
use clap::ValueEnum;

use crate::config::FinetuneConfig;
use crate::config::Goal;
use crate::config::PretrainConfig;
use crate::config::PretrainTask;
use crate::error::Problem;
use crate::families::HeadKind;
use crate::families::ModelConfig;
use crate::interop::DISCRIMINATOR;
use crate::interop::PretrainedFolder;
use crate::interop::holds_pair;
use crate::interop::read_folder;
use crate::machine::Machine;
use crate::tasks::Task;
use crate::tasks::classify;
use crate::tasks::finetuned::Finetuned;
use crate::tasks::masked_lm::MaskedLm;
use crate::tasks::multi_label;
use crate::tasks::pretraining;
use crate::tasks::pretraining::Pretrained;
use crate::tasks::regression;
use crate::tasks::replaced_token_detection::PairFolder;
use crate::tasks::replaced_token_detection::ReplacedTokenDetection;
use crate::tasks::run::ModelFolder;
use crate::tasks::run::Setting;
use crate::tasks::run::Shapes;
use crate::tasks::sentence_pairs::NextSentence;
use crate::tasks::sentence_pairs::SentenceOrder;
use crate::tasks::sentence_pairs::SentencePairs;
use crate::tasks::token_classify;
use crate::tasks::trained::Trained;
use crate::tokenizer::Tokenizer;

/// What is done with a task of pretraining that is known by its name.
pub trait PretrainedVisitor {
    /// What comes of it.
    type Output;

    /// Does it.
    fn visit<T: Pretrained>(self) -> Self::Output;
}

/// Shows a task of pretraining to `visitor`.
pub fn pretrained<V: PretrainedVisitor>(task: PretrainTask, visitor: V) -> V::Output {
    match task {
        PretrainTask::MaskedLm => visitor.visit::<MaskedLm>(),
        PretrainTask::ReplacedTokenDetection => visitor.visit::<ReplacedTokenDetection>(),
        PretrainTask::NextSentencePrediction => visitor.visit::<SentencePairs<NextSentence>>(),
        PretrainTask::SentenceOrderPrediction => visitor.visit::<SentencePairs<SentenceOrder>>(),
    }
}

/// What is done with a task of fine-tuning that is known by its goal.
pub trait FinetunedVisitor {
    /// What comes of it.
    type Output;

    /// Does it.
    fn visit<T: Finetuned>(self) -> Self::Output;
}

/// Shows the task of fine-tuning that has this goal to `visitor`.
pub fn finetuned<V: FinetunedVisitor>(goal: Goal, visitor: V) -> V::Output {
    match goal {
        Goal::Label => visitor.visit::<classify::Examples>(),
        Goal::LabelSet => visitor.visit::<multi_label::LabelledExamples>(),
        Goal::Numbers => visitor.visit::<regression::NumberExamples>(),
        Goal::Tags => visitor.visit::<token_classify::TaggedExamples>(),
    }
}

/// The sizes of a run of `config` with `model`, whose vocabulary is known.
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

/// A task whose values are still to be read, and the model folders that hold them.
pub type Unfilled = (Box<dyn Task>, Vec<ModelFolder>);

/// The task of a run of `config` that wrote the model folder, or the two, at `path`.
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
    let (model, tokenizer) = (read_folder(&path)?.config, Tokenizer::load(&path)?);
    pretrained(config.task(), Build(config, model, tokenizer, setting))
}

/// The task of a run of `config` that wrote the model folder at `path`.
pub fn of_finetuning(path: &Path, config: &FinetuneConfig, machine: &Machine) -> Result<Unfilled> {
    struct Build<'a>(PretrainedFolder, &'a Machine);
    impl FinetunedVisitor for Build<'_> {
        type Output = Result<Box<dyn Task>>;

        fn visit<T: Finetuned>(self) -> Self::Output {
            T::unfilled(&self.0, self.1)
        }
    }
    let task = finetuned(config.goal(), Build(read_folder(path)?, machine))?;
    let names = task.parameters().layout().own_names();
    Ok((task, vec![ModelFolder { place: "", files: Vec::new(), names, added: Vec::new() }]))
}

/// The model of a folder in the Hugging Face layout, or the two of an ELECTRA run.
pub fn open(path: &Path, device: &Device) -> Result<Box<dyn Trained>> {
    struct Open<'a>(HeadKind, &'a Path, &'a Device);
    impl Open<'_> {
        fn of(&self, head: HeadKind, open: Opener) -> Option<Result<Box<dyn Trained>>> {
            (head == self.0).then(|| open(self.1, self.2))
        }
    }
    impl PretrainedVisitor for &Open<'_> {
        type Output = Option<Result<Box<dyn Trained>>>;

        fn visit<T: Pretrained>(self) -> Self::Output {
            self.of(T::HEAD, T::open)
        }
    }
    impl FinetunedVisitor for &Open<'_> {
        type Output = Option<Result<Box<dyn Trained>>>;

        fn visit<T: Finetuned>(self) -> Self::Output {
            self.of(T::HEAD, T::open)
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

/// What opens the model of a folder.
type Opener = fn(&Path, &Device) -> Result<Box<dyn Trained>>;
