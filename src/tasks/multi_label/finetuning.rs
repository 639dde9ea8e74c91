//! A run with any number of labels per text: labelled examples, a pretrained encoder and a new head.

use std::path::Path;

use anyhow::Result;
use candle_core::Device;

use crate::config::FinetuneConfig;
use crate::families::HeadKind;
use crate::interop::PretrainedFolder;
use crate::machine::Machine;
use crate::quantity::format_count;
use crate::scores::{Better, Outcomes, measured};
use crate::tasks::classify::sequence::Ready;
use crate::tasks::classify::{Classify, LabelSet, sequence};
use crate::tasks::examples::{Divided, Sources};
use crate::tasks::finetuned::{Finetuned, Floor};
use crate::tasks::floors::tf_idf;
use crate::tasks::labelled::{Columns, Example, twins};
use crate::tasks::multi_label::data::TrainingData;
use crate::tasks::multi_label::labeller::Labeller;
use crate::tasks::multi_label::report;
use crate::tasks::planned::Planned;
use crate::tasks::run::{Inputs, Kind, Parts, Setting, Shapes, total_steps};
use crate::tasks::trained::{Trained, percent};
use crate::tasks::{Task, planned, start};

/// The examples of a run, read and checked before anything is trained.
pub struct LabelledExamples {
    /// Names of the labels in the order of their ids.
    pub labels: Vec<String>,
    /// Training examples, after the subset was selected.
    pub train: Vec<Example>,
    /// The ascending ids of the labels of each training example.
    pub(super) train_ids: Vec<Vec<u32>>,
    /// Evaluation examples.
    pub eval: Vec<Example>,
    pub(super) eval_ids: Vec<Vec<u32>>,
    /// Notes on files with skipped rows.
    notes: Vec<String>,
    /// The warning about evaluation texts that are training texts as well.
    warning: Option<String>,
}

impl Finetuned for LabelledExamples {
    const HEAD: HeadKind = HeadKind::MultiLabelClassification;
    const COLUMNS: &'static [(&'static str, &'static str, f64)] = &[
        ("eval_f1_micro", "micro F1 %", 100.0),
        ("eval_f1_macro", "macro F1 %", 100.0),
        ("eval_f1_samples", "samples F1 %", 100.0),
        ("eval_exact_match", "exact %", 100.0),
        ("eval_loss", "loss", 1.0),
    ];

    type Kind<'a> = Finetuning<'a>;

    fn read(config: &FinetuneConfig) -> Result<Self> {
        let data = &config.data;
        let columns = Columns {
            several: Some(&data.labels),
            label_names: &data.labels,
            labelled: false,
            ..Columns::from_config(data)
        };
        let (sources, notes) = Sources::of_examples(data, &columns)?;
        let labels = if data.labels.is_empty() {
            LabelSet::discover_some(&data.train_file, &sources.train.all)?
        } else {
            LabelSet::given_some(&data.labels)?
        };
        let Divided { train, eval, warning } = sources.divided(
            config,
            |path, rows| labels.sets(path, rows),
            |set| strata(labels.len(), &set.ids),
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
        let labels = self.labels.len();
        let each = self.train_ids.iter().map(Vec::len).sum::<usize>() as f64 / self.train.len() as f64;
        let summary =
            format!("{train} training and {eval} evaluation examples, {labels} labels, {each:.2} a text");
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
        let labels = planned::labels(&self.labels, self.train_ids.iter().flatten().copied());
        sequence::planned(config, folder, [&self.train, &self.eval], labels)
    }

    fn kind<'a>(&'a self, config: &'a FinetuneConfig, folder: &'a PretrainedFolder) -> Finetuning<'a> {
        Finetuning { config, folder, examples: self }
    }

    fn details(&self, data: &TrainingData<'_>) -> String {
        let found = report::tally(&self.eval_ids, &data.probabilities, &data.thresholds);
        let scores: Vec<String> = report::scores(&found)
            .iter()
            .map(|(name, value)| format!("{} {}", name.replace('_', " "), measured(*value, percent)))
            .collect();
        let table = report::label_table(&found, &self.labels, &data.thresholds);
        format!("at thresholds tuned on the evaluation file: {}\n{}", scores.join(", "), table.trim_end())
    }

    fn best(&self) -> (&'static str, Better) {
        ("f1_micro", Better::Higher)
    }

    /// Uses the threshold 0.5, not thresholds tuned on these very examples: otherwise a difference between
    /// models might only be a difference between the fits of their thresholds.
    fn outcomes(&self, data: &TrainingData<'_>) -> Outcomes {
        let predicted = report::untuned(&data.probabilities, self.labels.len());
        Outcomes::LabelSets { classes: self.labels.len(), gold: self.eval_ids.clone(), predicted }
    }

    fn floors(&self) -> Vec<Floor> {
        let classes = self.labels.len();
        let train = sequence::whole_texts(&self.train);
        let eval = sequence::whole_texts(&self.eval);
        let predicted = tf_idf::label_sets(&train, &self.train_ids, classes, &eval);
        let outcomes = Outcomes::LabelSets { classes, gold: self.eval_ids.clone(), predicted };
        vec![Floor { name: tf_idf::NAME, outcomes }]
    }

    fn unfilled(folder: &PretrainedFolder, machine: &Machine) -> Result<Box<dyn Task>> {
        sequence::unfilled(folder, machine)
    }

    fn open(path: &Path, device: &Device) -> Result<Box<dyn Trained>> {
        Ok(Box::new(Labeller::load(path, device)?))
    }
}

/// The rarest label of each example (the first one of equals); examples without labels form a class of their
/// own. A part of the examples that keeps the proportions of these classes has about the same share of each
/// label as the whole set.
fn strata(labels: usize, ids: &[Vec<u32>]) -> Vec<u32> {
    let mut counts = vec![0usize; labels];
    for id in ids.iter().flatten() {
        counts[*id as usize] += 1;
    }
    let rarest = ids.iter().map(|ids| ids.iter().copied().min_by_key(|id| counts[*id as usize]));
    rarest.map(|rarest| rarest.unwrap_or(labels as u32)).collect()
}

/// A configuration, with the model folder and the examples that it names.
#[derive(Clone, Copy)]
pub struct Finetuning<'a> {
    /// The configuration.
    pub config: &'a FinetuneConfig,
    /// The folder of the model to start from.
    pub folder: &'a PretrainedFolder,
    /// The examples.
    pub examples: &'a LabelledExamples,
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
        let Ready { task, tokenizer, collator, folders } =
            sequence::ready(config, folder, LabelledExamples::HEAD, &examples.labels, setting)?;
        let data = TrainingData::encode(examples, &tokenizer, collator, setting)?;
        let total_steps = total_steps(setting.training, data.rows_per_epoch());
        Ok(Parts { task, data, total_steps, folders, best: examples.best() })
    }
}

fn sha256_of(examples: &[Example]) -> Result<String> {
    start::sha256_of(examples.iter().map(|example| (&example.text, &example.text_pair, &example.labels)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strata_are_the_rarest_labels_of_examples() {
        let ids = [vec![0, 1], vec![0], vec![], vec![0, 2], vec![1, 2], vec![0, 1]];
        assert_eq!(strata(3, &ids), [1, 0, 3, 2, 2, 1]);
    }
}
