//! A classifier ready for use: model, tokenizer and labels together, texts in, probabilities out.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Result;
use candle_core::D;
use candle_core::DType;
use candle_core::Device;
use candle_core::Tensor;

use crate::error::Problem;
use crate::families::HeadKind;
use crate::families::ModelConfig;
use crate::interop::Filled;
use crate::interop::PretrainedFolder;
use crate::interop::read_folder;
use crate::models::Model;
use crate::models::Objective;
use crate::tasks::Task;
use crate::tasks::classify::Classify;
use crate::tasks::classify::collate::Collator;
use crate::tasks::classify::collate::Encoded;
use crate::tasks::classify::collate::Truncation;
use crate::tasks::labelled::TextPair;
use crate::tasks::labelled::twins;
use crate::tasks::start;
use crate::tokenizer::Tokenizer;

/// Everything that turns texts into labels.
pub struct Classifier {
    /// Model and head.
    pub task: Classify,
    /// Its tokenizer.
    pub tokenizer: Tokenizer,
    /// Names of the classes in the order of their ids.
    pub labels: Vec<String>,
    /// Names that several classes have in the folder.
    shared: BTreeSet<String>,
    /// Frames and cuts examples.
    pub collator: Collator,
}

impl Classifier {
    /// Loads a trained classifier. Texts are cut where those were cut that it was trained on, as the
    /// `model_max_length` of its `tokenizer_config.json` tells, else at the longest sequence that it takes.
    pub fn load(path: &Path, device: &Device) -> Result<Self> {
        Self::load_head(path, HeadKind::SequenceClassification, device)
    }

    /// Loads a model with a head of this kind, which is that of a classifier in all but its loss.
    pub(in crate::tasks) fn load_head(path: &Path, head: HeadKind, device: &Device) -> Result<Self> {
        let folder = read_folder(path)?;
        let Some((labels, shared)) =
            folder.id2label.as_deref().filter(|_| folder.head == head).map(told_apart)
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

    /// The same model with another loss.
    #[must_use]
    pub(in crate::tasks) fn with_objective(mut self, objective: Objective) -> Self {
        self.task.model.head = self.task.model.head.with_objective(objective);
        self
    }

    /// A classifier for `labels` on the encoder of `folder`, whose dropout `config` may change, and what filling
    /// it came to. `new_head` is the kind of a head to train and the seed that it is drawn from, where the folder has
    /// none for these labels; without it that is an error.
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

    /// The same classifier computing in `dtype`.
    pub fn computing_in(self, dtype: DType) -> Result<Self> {
        Ok(Self { task: self.task.computing_in(dtype)?, ..self })
    }

    /// Token ids of texts, cut to the longest sequence; `labels` are their classes, in the same order (0
    /// where unknown).
    pub fn encode(&self, texts: &[TextPair], labels: &[u32]) -> Result<(Vec<Encoded>, Truncation)> {
        encode(&self.tokenizer, &self.collator, texts, labels)
    }

    /// Probabilities of the labels for each example.
    pub fn probabilities(&self, examples: &[Encoded]) -> Result<Vec<Vec<f32>>> {
        if examples.is_empty() { Ok(Vec::new()) } else { softmax(&self.logits(examples)?) }
    }

    /// Logits of the labels for each of some examples, f32 on the CPU, `[B, labels]`.
    pub(super) fn logits(&self, examples: &[Encoded]) -> Result<Tensor> {
        let logits = self.task.logits(&self.collator.batch(examples, 0))?;
        Ok(logits.to_device(&Device::Cpu)?.to_dtype(DType::F32)?)
    }

    /// Notes for the user about the names of the classes, a line each.
    pub(in crate::tasks) fn label_notes(&self) -> Vec<String> {
        let shared = (!self.shared.is_empty()).then(|| {
            let names: Vec<String> = self.shared.iter().map(|name| format!("`{name}`")).collect();
            format!(
                "note: several classes are called {}: each is told with its id behind it",
                names.join(", ")
            )
        });
        let twins = twins::told("labels", self.labels.iter().map(String::as_str));
        shared.into_iter().chain(twins.map(|twins| format!("note: {twins}"))).collect()
    }
}

/// Labels that no two classes share: of a name that several have, each has the id behind it. So every class has a
/// place in what is written by labels. And the names that were shared.
fn told_apart(labels: &[String]) -> (Vec<String>, BTreeSet<String>) {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for label in labels {
        *counts.entry(label).or_default() += 1;
    }
    let name = |(id, label): (usize, &String)| match counts[label.as_str()] {
        1 => label.clone(),
        _ => format!("{label} ({id})"),
    };
    let shared = labels.iter().filter(|label| counts[label.as_str()] > 1).cloned().collect();
    (labels.iter().enumerate().map(name).collect(), shared)
}

/// Probabilities of logits, a row each.
pub(super) fn softmax(logits: &Tensor) -> Result<Vec<Vec<f32>>> {
    Ok(candle_nn::ops::softmax(logits, D::Minus1)?.to_vec2::<f32>()?)
}

/// The outputs of a model for some examples, a row each.
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

/// Token ids of texts, cut to the longest sequence of `collator`.
pub(in crate::tasks) fn encode(
    tokenizer: &Tokenizer,
    collator: &Collator,
    texts: &[TextPair],
    labels: &[u32],
) -> Result<(Vec<Encoded>, Truncation)> {
    let firsts: Vec<&str> = texts.iter().map(|(first, _)| first.as_str()).collect();
    let seconds: Vec<&str> = texts.iter().map(|(_, second)| second.as_deref().unwrap_or_default()).collect();
    // A text is content: `<mask>` spelled out in it is text, as it was in pretraining, unless it is told otherwise.
    let (firsts, seconds) = (tokenizer.encode_examples(&firsts)?, tokenizer.encode_examples(&seconds)?);
    let mut encoded = Vec::with_capacity(texts.len());
    for (index, (first, second)) in firsts.into_iter().zip(seconds).enumerate() {
        let second = texts[index].1.as_ref().map(|_| second);
        let label = labels.get(index).copied().unwrap_or(0);
        encoded.push(Encoded { first, second, label, sample_id: index as u64 });
    }
    let lost = collator.truncate(&mut encoded);
    Ok((encoded, lost))
}

/// The tokenizer of a folder and what frames its texts for sequences of this length.
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

/// The special tokens around the texts of a model, as its tokenizer puts them.
pub(in crate::tasks) fn collator(
    config: &ModelConfig,
    tokenizer: &Tokenizer,
    max_seq_length: usize,
    pairs: bool,
) -> Result<Collator> {
    Collator::new(tokenizer, config.encoder.type_vocab_size, max_seq_length, pairs)
}
