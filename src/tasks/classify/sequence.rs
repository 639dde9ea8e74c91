//! Code shared by all runs with a head over whole texts: classes, several labels per text, and numbers.

use anyhow::Result;

use crate::config::FinetuneConfig;
use crate::families::HeadKind;
use crate::interop::{HubConfig, PretrainedFolder};
use crate::machine::Machine;
use crate::models::{Blueprint, Model, Objective};
use crate::tasks::classify::classifier::{encode, framing};
use crate::tasks::classify::{Classifier, Classify, Collator, Encoded};
use crate::tasks::labelled::{Example, TextPair, TrainedColumns};
use crate::tasks::planned::{Lengths, Planned};
use crate::tasks::run::{ModelFolder, Setting, Shapes, TargetShare};
use crate::tasks::{Task, planned, start};
use crate::telemetry::Progress;
use crate::tokenizer::Tokenizer;

/// A model that is ready to be trained, with its tokenizer, collator and folders.
pub(in crate::tasks) struct Ready {
    /// Model and head.
    pub(in crate::tasks) task: Classify,
    /// Tokenizer with the maximum length of training.
    pub(in crate::tasks) tokenizer: Tokenizer,
    /// Adds special tokens and truncates examples.
    pub(in crate::tasks) collator: Collator,
    /// The model folders of a checkpoint.
    pub(in crate::tasks) folders: Vec<ModelFolder>,
}

/// Sizes of the steps of a run whose head has this number of `outputs`.
pub(in crate::tasks) fn shapes(
    config: &FinetuneConfig,
    folder: &PretrainedFolder,
    outputs: usize,
) -> Result<Shapes> {
    let model = start::model_of(config, &folder.config)?;
    let mut outline = Blueprint::classifier(&model, outputs);
    start::follow(&config.training, &mut outline.encoder)?;
    Ok(Shapes {
        outline: Box::new(outline),
        model,
        length: config.data.sequence_length(),
        targets: TargetShare::OneARow,
    })
}

/// Builds the model of `folder` with a head of this kind, which has one output for each of `names`, and
/// prints notes about what was read.
pub(in crate::tasks) fn ready(
    config: &FinetuneConfig,
    folder: &PretrainedFolder,
    head: HeadKind,
    names: &[String],
    setting: Setting<'_>,
) -> Result<Ready> {
    let Setting { training, machine, seed, progress, .. } = setting;
    let pairs = config.data.text_pair_column.is_some();
    let length = config.data.sequence_length();
    let model = start::model_of(config, &folder.config)?;
    let new_head = Some((head, seed));
    let (classifier, filled) =
        Classifier::from_folder(folder, &model, names.to_vec(), length, pairs, new_head, &machine.device)?;
    start::tell(config, folder, &filled, progress);
    let Classifier { mut task, tokenizer, collator, .. } =
        classifier.with_objective(Objective::of(head)).computing_in(machine.policy.compute)?;
    start::follow(training, &mut task.model.encoder)?;
    let mut hub = HubConfig::new(model, head, Some(names.to_vec()));
    hub.extra.clone_from(&folder.extra);
    // Stores the length in the folder, so that texts are truncated at the same length when the model is used.
    let tokenizer = start::for_texts(config, tokenizer, progress).with_model_max_length(length);
    let mut folder = ModelFolder::whole(&hub, &tokenizer, task.model.parameters.layout());
    folder.files.push(TrainedColumns::new(&config.data).file());
    let folders = vec![folder];
    Ok(Ready { task, tokenizer, collator, folders })
}

/// Summary of the data of a run with these training and evaluation examples; `labels` is the line about
/// labels.
pub(in crate::tasks) fn planned(
    config: &FinetuneConfig,
    folder: &PretrainedFolder,
    examples: [&[Example]; 2],
    labels: String,
) -> Result<Planned> {
    let pairs = config.data.text_pair_column.is_some();
    let length = config.data.sequence_length();
    let (tokenizer, collator) = framing(folder, length, pairs)?;
    let tokenizer = start::splitting(config, tokenizer);
    let [train, eval] = examples;
    let both = [lengths(&tokenizer, &collator, train)?, lengths(&tokenizer, &collator, eval)?];
    let cut = planned::too_long(both, &format!("texts, at {length} tokens"));
    let lines = vec![("labels", labels), ("longest text", planned::longest(both)), ("cut", cut)];
    Ok(Planned { rows: train.len(), lines })
}

fn lengths(tokenizer: &Tokenizer, collator: &Collator, examples: &[Example]) -> Result<Lengths> {
    let (_, lost) = encode(tokenizer, collator, &texts(examples), &[])?;
    Ok(Lengths { examples: examples.len(), longest: lost.longest, too_long: lost.examples })
}

/// The text of each example, for a pair both texts as one.
pub(in crate::tasks) fn whole_texts(examples: &[Example]) -> Vec<String> {
    examples.iter().map(Example::whole_text).collect()
}

fn texts(examples: &[Example]) -> Vec<TextPair> {
    examples.iter().map(|e| (e.text.clone(), e.text_pair.clone())).collect()
}

/// Builds the model of a folder without reading the values of its parameters.
pub(in crate::tasks) fn unfilled(folder: &PretrainedFolder, machine: &Machine) -> Result<Box<dyn Task>> {
    let outputs = folder.id2label.as_ref().map_or(0, Vec::len);
    let mut model = Model::classifier(&folder.config, outputs, 0, &machine.device)?;
    model.head = model.head.with_objective(Objective::of(folder.head));
    Ok(Box::new(Classify { model }.computing_in(machine.policy.compute)?))
}

/// Tokenizes examples with their labels (0 where there are none), and prints a note about truncation.
pub(in crate::tasks) fn encoded(
    what: &str,
    examples: &[Example],
    labels: &[u32],
    tokenizer: &Tokenizer,
    collator: &Collator,
    progress: &Progress,
) -> Result<Vec<Encoded>> {
    let (encoded, lost) = encode(tokenizer, collator, &texts(examples), labels)?;
    if lost.examples > 0 {
        let cut = lost.examples;
        let all = examples.len();
        let tokens = lost.tokens;
        let length = collator.max_seq_length();
        progress.note_once(&format!(
            "{cut} of {all} {what} examples were cut at {length} tokens, {tokens} tokens lost"
        ));
    }
    Ok(encoded)
}
