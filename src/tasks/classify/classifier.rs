//! A classifier ready for use: model, tokenizer and label names together turn texts into probabilities.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::Result;
use candle_core::{D, DType, Device, Tensor};

use crate::error::Problem;
use crate::families::{HeadKind, ModelConfig};
use crate::interop::{Filled, PretrainedFolder, read_folder};
use crate::models::{Model, Objective};
use crate::tasks::classify::Classify;
use crate::tasks::classify::collate::{Collator, Encoded, Truncation};
use crate::tasks::labelled::{TextPair, twins};
use crate::tasks::{Task, start};
use crate::tokenizer::Tokenizer;

/// A model with everything that turns texts into probabilities of labels.
pub struct Classifier {
    /// Model and head.
    pub task: Classify,
    /// Tokenizer of the model.
    pub tokenizer: Tokenizer,
    /// Names of the classes in the order of their ids.
    pub labels: Vec<String>,
    /// Label names that the folder gives to more than one class.
    shared: BTreeSet<String>,
    /// Adds special tokens and truncates examples.
    pub collator: Collator,
}

impl Classifier {
    /// Loads a trained classifier. Texts are truncated at the `model_max_length` of its
    /// `tokenizer_config.json`, the length used in training; without one, at the longest sequence that the
    /// model takes.
    pub fn load(path: &Path, device: &Device) -> Result<Self> {
        Self::load_head(path, HeadKind::SequenceClassification, device)
    }

    /// Loads a model with a head of this kind, which differs from that of a classifier only in its loss.
    pub(in crate::tasks) fn load_head(path: &Path, head: HeadKind, device: &Device) -> Result<Self> {
        let folder = read_folder(path)?;
        let Some((labels, shared)) =
            folder.id2label.as_deref().filter(|_| folder.head == head).map(distinct_labels)
        else {
            let what = match head {
                HeadKind::Regression => "regression model",
                HeadKind::MultiLabelClassification => "classifier of several labels",
                _ => "sequence classifier",
            };
            return Err(Problem::new(format!("holds no {what}"))
                .at(path.display())
                .hint("make one with `mlmtrain finetune`")
                .into());
        };
        let longest = folder.config.max_sequence_length();
        let (mut classifier, _) =
            Self::from_folder(&folder, &folder.config, labels, longest, true, None, device)?;
        classifier.shared = shared;
        if let Some(length) = classifier.tokenizer.model_max_length() {
            classifier.collator = classifier.collator.cut_at(length);
        }
        Ok(classifier.with_objective(Objective::of(head)))
    }

    /// Replaces the loss of the model.
    #[must_use]
    pub(in crate::tasks) fn with_objective(mut self, objective: Objective) -> Self {
        self.task.model.head = self.task.model.head.with_objective(objective);
        self
    }

    /// Builds a classifier for `labels` on the encoder of `folder`, with the architecture `config`, which may
    /// differ from the folder's in its dropout. Also returns what was read from the folder. If the folder has
    /// no head for these labels, `new_head` (its kind, and the seed of its initial values) says how to
    /// initialise one; without `new_head` that is an error.
    pub fn from_folder(
        folder: &PretrainedFolder,
        config: &ModelConfig,
        labels: Vec<String>,
        max_seq_length: usize,
        pairs: bool,
        new_head: Option<(HeadKind, u64)>,
        device: &Device,
    ) -> Result<(Self, Filled)> {
        let (tokenizer, collator) = framing(folder, max_seq_length, pairs)?;
        let model = Model::classifier(config, labels.len(), new_head.map_or(0, |(_, seed)| seed), device)?;
        let filled = match new_head {
            Some((head, _)) => folder.fill_labelled(&model.parameters, head, &labels)?,
            None => folder.fill(&model.parameters, false)?,
        };
        let shared = BTreeSet::new();
        Ok((Self { task: Classify { model }, tokenizer, labels, shared, collator }, filled))
    }

    /// Converts the model to compute in `dtype`.
    pub fn computing_in(self, dtype: DType) -> Result<Self> {
        Ok(Self { task: self.task.computing_in(dtype)?, ..self })
    }

    /// Tokenizes texts and truncates them to the longest sequence. `labels` are their classes in the same
    /// order, 0 where unknown.
    pub fn encode(&self, texts: &[TextPair], labels: &[u32]) -> Result<(Vec<Encoded>, Truncation)> {
        encode(&self.tokenizer, &self.collator, texts, labels)
    }

    /// Returns the probabilities of the labels for each example.
    pub fn probabilities(&self, examples: &[Encoded]) -> Result<Vec<Vec<f32>>> {
        if examples.is_empty() { Ok(Vec::new()) } else { softmax(&self.logits(examples)?) }
    }

    /// Returns the logits of the labels for each example, f32 on the CPU, `[B, labels]`.
    pub(super) fn logits(&self, examples: &[Encoded]) -> Result<Tensor> {
        let logits = self.task.logits(&self.collator.batch(examples, 0))?;
        Ok(logits.to_device(&Device::Cpu)?.to_dtype(DType::F32)?)
    }

    /// Returns notes for the user about the names of the classes, one per line.
    pub(in crate::tasks) fn label_notes(&self) -> Vec<String> {
        let shared = (!self.shared.is_empty()).then(|| {
            let names: Vec<String> = self.shared.iter().map(|name| format!("`{name}`")).collect();
            format!(
                "note: several classes are called {}: each is told with its id behind it",
                names.join(", ")
            )
        });
        let twins = twins::twin_note("labels", self.labels.iter().map(String::as_str));
        shared.into_iter().chain(twins.map(|twins| format!("note: {twins}"))).collect()
    }
}

/// Makes label names unique: a name that several classes have is followed by the id of the class, so that
/// every class has its own key in the output. Also returns the names that were shared.
fn distinct_labels(labels: &[String]) -> (Vec<String>, BTreeSet<String>) {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for label in labels {
        *counts.entry(label).or_default() += 1;
    }
    let mut distinct = Vec::with_capacity(labels.len());
    for (id, label) in labels.iter().enumerate() {
        let is_shared = counts[label.as_str()] > 1;
        distinct.push(if is_shared { format!("{label} ({id})") } else { label.clone() });
    }
    let shared = labels.iter().filter(|label| counts[label.as_str()] > 1).cloned().collect();
    (distinct, shared)
}

/// Returns the probabilities for each row of logits.
pub(super) fn softmax(logits: &Tensor) -> Result<Vec<Vec<f32>>> {
    Ok(candle_nn::ops::softmax(logits, D::Minus1)?.to_vec2::<f32>()?)
}

/// Returns the outputs of a model for each example.
pub(in crate::tasks) fn outputs(
    task: &dyn Task,
    collator: &Collator,
    examples: &[Encoded],
) -> Result<Vec<Vec<f32>>> {
    if examples.is_empty() {
        return Ok(Vec::new());
    }
    let outputs = task.logits(&collator.batch(examples, 0))?;
    Ok(outputs.to_device(&Device::Cpu)?.to_dtype(DType::F32)?.to_vec2()?)
}

/// Tokenizes texts and truncates them to the longest sequence of `collator`. `labels` are their classes in
/// the same order, 0 where missing.
pub(in crate::tasks) fn encode(
    tokenizer: &Tokenizer,
    collator: &Collator,
    texts: &[TextPair],
    labels: &[u32],
) -> Result<(Vec<Encoded>, Truncation)> {
    let firsts: Vec<&str> = texts.iter().map(|(first, _)| first.as_str()).collect();
    let seconds: Vec<&str> = texts.iter().map(|(_, second)| second.as_deref().unwrap_or_default()).collect();
    // By default, `<mask>` spelled out in a text is ordinary text, as in pretraining; the tokenizer may be
    // set otherwise.
    let firsts = tokenizer.encode_examples(&firsts)?;
    let seconds = tokenizer.encode_examples(&seconds)?;
    let mut encoded = Vec::with_capacity(texts.len());
    for (index, (first, second)) in firsts.into_iter().zip(seconds).enumerate() {
        let second = texts[index].1.as_ref().map(|_| second);
        let label = labels.get(index).copied().unwrap_or(0);
        encoded.push(Encoded { first, second, label, sample_id: index as u64 });
    }
    let lost = collator.truncate(&mut encoded);
    Ok((encoded, lost))
}

/// The tokenizer of a folder, and a collator for sequences of this length.
pub(in crate::tasks) fn framing(
    folder: &PretrainedFolder,
    max_seq_length: usize,
    pairs: bool,
) -> Result<(Tokenizer, Collator)> {
    let tokenizer = start::tokenizer_of(folder)?;
    let longest = folder.config.max_sequence_length();
    if max_seq_length > longest {
        return Err(Problem::usage(format!("is {max_seq_length}, the model takes {longest} tokens"))
            .at("data.max_seq_length")
            .hint(format!("set it to {longest} or less"))
            .into());
    }
    let collator = collator(&folder.config, &tokenizer, max_seq_length, pairs)?;
    Ok((tokenizer, collator))
}

/// The collator of a model: adds the special tokens of its tokenizer.
pub(in crate::tasks) fn collator(
    config: &ModelConfig,
    tokenizer: &Tokenizer,
    max_seq_length: usize,
    pairs: bool,
) -> Result<Collator> {
    Collator::new(tokenizer, config.encoder.type_vocab_size, max_seq_length, pairs)
}
