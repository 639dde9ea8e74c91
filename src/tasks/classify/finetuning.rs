//! A fine-tuning run for classification: labelled examples, a pretrained encoder and a new head.

use std::path::Path;

use anyhow::Result;
use candle_core::Device;

use crate::config::{ClassWeights, FinetuneConfig, TrainingConfig};
use crate::error::Problem;
use crate::families::HeadKind;
use crate::interop::PretrainedFolder;
use crate::machine::Machine;
use crate::models::Objective;
use crate::ops::soft_cross_entropy::SoftTargets;
use crate::quantity::format_count;
use crate::scores::{Better, Outcomes};
use crate::tasks::classify::data::TrainingData;
use crate::tasks::classify::labels::balanced_weights;
use crate::tasks::classify::sequence::Ready;
use crate::tasks::classify::{Classifier, Classify, LabelSet, confusion_table, sequence};
use crate::tasks::examples::{Divided, Sources};
use crate::tasks::finetuned::{Finetuned, Floor};
use crate::tasks::floors::tf_idf;
use crate::tasks::labelled::{Columns, Example, twins};
use crate::tasks::planned::Planned;
use crate::tasks::run::{Inputs, Kind, Parts, Setting, Shapes, total_steps};
use crate::tasks::trained::Trained;
use crate::tasks::{Task, planned, start};

/// The examples of a run, read and checked before training starts.
pub struct Examples {
    /// Names of the labels in the order of their ids.
    pub labels: Vec<String>,
    /// Training examples, after the subset was selected.
    pub train: Vec<Example>,
    pub(super) train_ids: Vec<u32>,
    /// Evaluation examples.
    pub eval: Vec<Example>,
    pub(super) eval_ids: Vec<u32>,
    /// Notes on files with skipped rows.
    notes: Vec<String>,
    /// The warning about evaluation texts that are training texts as well.
    warning: Option<String>,
}

impl Finetuned for Examples {
    const HEAD: HeadKind = HeadKind::SequenceClassification;
    const COLUMNS: &'static [(&'static str, &'static str, f64)] = &[
        ("eval_accuracy", "accuracy %", 100.0),
        ("eval_f1", "macro F1 %", 100.0),
        ("eval_matthews_correlation", "Matthews", 1.0),
        ("eval_loss", "loss", 1.0),
    ];

    type Kind<'a> = Finetuning<'a>;

    fn read(config: &FinetuneConfig) -> Result<Self> {
        let data = &config.data;
        let (sources, notes) = Sources::of_examples(data, &Columns::from_config(data))?;
        let labels = if data.labels.is_empty() {
            LabelSet::discover(&data.train_file, &sources.train.all)?
        } else {
            LabelSet::given(&data.labels)?
        };
        let Divided { train, eval, warning } = sources.divided(
            config,
            |path, rows| labels.ids(path, rows),
            |set| set.ids.clone(),
            Example::whole_text,
        )?;
        let labels = labels.names().to_vec();
        Ok(Self {
            labels,
            train: train.rows,
            train_ids: train.ids,
            eval: eval.rows,
            eval_ids: eval.ids,
            notes,
            warning,
        })
    }

    fn summary(&self) -> String {
        let train = format_count(self.train.len() as u64);
        let eval = format_count(self.eval.len() as u64);
        let summary =
            format!("{train} training and {eval} evaluation examples, {} labels", self.labels.len());
        let twins = twins::twin_note("labels", self.labels.iter().map(String::as_str));
        self.notes.iter().cloned().chain([summary]).chain(twins).collect::<Vec<_>>().join("\n")
    }

    fn warning(&self) -> Option<&str> {
        self.warning.as_deref()
    }

    fn num_train(&self) -> usize {
        self.train.len()
    }

    fn planned(&self, config: &FinetuneConfig, folder: &PretrainedFolder) -> Result<Planned> {
        let labels = planned::labels(&self.labels, self.train_ids.iter().copied());
        sequence::planned(config, folder, [&self.train, &self.eval], labels)
    }

    fn kind<'a>(&'a self, config: &'a FinetuneConfig, folder: &'a PretrainedFolder) -> Finetuning<'a> {
        Finetuning { config, folder, examples: self }
    }

    fn details(&self, data: &TrainingData<'_>) -> String {
        let table = confusion_table(&data.confusion, &self.labels);
        format!("confusion:\n{}", table.trim_end())
    }

    fn best(&self) -> (&'static str, Better) {
        ("accuracy", Better::Higher)
    }

    fn outcomes(&self, data: &TrainingData<'_>) -> Outcomes {
        Outcomes::labels(self.labels.len(), &self.eval_ids, &data.predicted())
    }

    fn floors(&self) -> Vec<Floor> {
        let classes = self.labels.len();
        let train = sequence::whole_texts(&self.train);
        let eval = sequence::whole_texts(&self.eval);
        let predicted = tf_idf::classify(&train, &self.train_ids, classes, &eval);
        vec![Floor { name: tf_idf::NAME, outcomes: Outcomes::labels(classes, &self.eval_ids, &predicted) }]
    }

    fn unfilled(folder: &PretrainedFolder, machine: &Machine) -> Result<Box<dyn Task>> {
        sequence::unfilled(folder, machine)
    }

    fn open(path: &Path, device: &Device) -> Result<Box<dyn Trained>> {
        Ok(Box::new(Classifier::load(path, device)?))
    }
}

impl Examples {
    /// Label smoothing and class weights of the training loss; `None` for plain cross-entropy.
    fn soft_targets(&self, training: &TrainingConfig) -> Result<Option<SoftTargets>> {
        let classes = self.labels.len();
        let smoothing = training.label_smoothing_factor as f32;
        let weights = match &training.class_weights {
            None if smoothing > 0.0 => vec![1.0; classes],
            None => return Ok(None),
            Some(ClassWeights::Balanced) => balanced_weights(classes, &self.train_ids).map_err(|empty| {
                let label = &self.labels[empty];
                Problem::usage(format!("no training example has the label `{label}`: it has no weight"))
                    .at("training.class_weights")
                    .hint("take the label out of `data.labels`, or add examples of it")
            })?,
            Some(ClassWeights::ByLabel(by_label)) => LabelSet::given(&self.labels)?.weights(by_label)?,
        };
        Ok(Some(SoftTargets { smoothing, weights }))
    }
}

/// A configuration, with the model folder and the examples that it names.
#[derive(Clone, Copy)]
pub struct Finetuning<'a> {
    /// The configuration.
    pub config: &'a FinetuneConfig,
    /// The folder of the model to start from.
    pub folder: &'a PretrainedFolder,
    /// The examples.
    pub examples: &'a Examples,
}

impl<'a> Kind for Finetuning<'a> {
    type Task = Classify;
    type Data = TrainingData<'a>;

    fn shapes(&self) -> Result<Shapes> {
        sequence::shapes(self.config, self.folder, self.examples.labels.len())
    }

    fn inputs(&self) -> Result<Inputs> {
        let Self { folder, examples, .. } = self;
        let hashes = [sha256_of(&examples.train)?, sha256_of(&examples.eval)?];
        start::inputs(folder, hashes, &examples.labels)
    }

    fn build(self, setting: Setting<'_>) -> Result<Parts<Classify, TrainingData<'a>>> {
        let Self { config, folder, examples } = self;
        let Ready { mut task, tokenizer, collator, folders } =
            sequence::ready(config, folder, Examples::HEAD, &examples.labels, setting)?;
        if let Some(soft) = examples.soft_targets(setting.training)? {
            task.model.head = task.model.head.with_objective(Objective::SoftClass(soft));
        }
        let data = TrainingData::encode(examples, &tokenizer, collator, setting)?;
        let total_steps = total_steps(setting.training, data.rows_per_epoch());
        Ok(Parts { task, data, total_steps, folders, best: examples.best() })
    }
}

fn sha256_of(examples: &[Example]) -> Result<String> {
    start::sha256_of(examples.iter().map(|example| (&example.text, &example.text_pair, &example.label)))
}
