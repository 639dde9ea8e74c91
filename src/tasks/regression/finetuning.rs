//! A regression run: texts with numbers, a pretrained encoder and a new head.

use std::path::Path;

use anyhow::Result;
use candle_core::Device;

use crate::config::FinetuneConfig;
use crate::families::HeadKind;
use crate::interop::PretrainedFolder;
use crate::machine::Machine;
use crate::quantity::format_count;
use crate::scores::{Better, Outcomes, mean};
use crate::tasks::classify::sequence::Ready;
use crate::tasks::classify::{Classify, sequence};
use crate::tasks::examples::{Divided, Sources};
use crate::tasks::finetuned::{Finetuned, Floor};
use crate::tasks::floors::tf_idf;
use crate::tasks::labelled::{Columns, Example};
use crate::tasks::planned::Planned;
use crate::tasks::regression::data::TrainingData;
use crate::tasks::regression::regressor::Regressor;
use crate::tasks::run::{Inputs, Kind, Parts, Setting, Shapes, total_steps};
use crate::tasks::trained::Trained;
use crate::tasks::{Task, start};

/// Name in reports of the baseline that does not read the text.
const MEAN: &str = "mean of the training numbers";

/// Name that transformers gives the number of a model with a single output.
const ONLY_NAME: &str = "LABEL_0";

/// The examples of a run, read and checked before anything is trained.
pub struct NumberExamples {
    /// Names of the numbers, in order.
    pub names: Vec<String>,
    /// Training examples, after the subset was selected.
    pub train: Vec<Example>,
    /// Evaluation examples.
    pub eval: Vec<Example>,
    /// Notes on files with skipped rows.
    notes: Vec<String>,
    /// The warning about evaluation texts that are training texts as well.
    warning: Option<String>,
}

impl Finetuned for NumberExamples {
    const HEAD: HeadKind = HeadKind::Regression;
    const COLUMNS: &'static [(&'static str, &'static str, f64)] = &[
        ("eval_pearson", "Pearson", 1.0),
        ("eval_spearmanr", "Spearman", 1.0),
        ("eval_mse", "squared err.", 1.0),
        ("eval_mae", "absolute err.", 1.0),
    ];

    type Kind<'a> = Finetuning<'a>;

    fn read(config: &FinetuneConfig) -> Result<Self> {
        let data = &config.data;
        let columns = Columns { numbers: Some(&data.labels), labelled: false, ..Columns::from_config(data) };
        let (sources, notes) = Sources::of_examples(data, &columns)?;
        // There are no classes whose proportions could be kept.
        let Divided { train, eval, warning } = sources.divided(
            config,
            |_, rows| Ok(vec![(); rows.len()]),
            |set| vec![0; set.rows.len()],
            Example::whole_text,
        )?;
        let names = if data.labels.is_empty() { vec![ONLY_NAME.to_string()] } else { data.labels.clone() };
        Ok(Self { names, train: train.rows, eval: eval.rows, notes, warning })
    }

    fn summary(&self) -> String {
        let train = format_count(self.train.len() as u64);
        let eval = format_count(self.eval.len() as u64);
        let numbers = self.names.len();
        let numbers = if numbers == 1 { "a number".to_string() } else { format!("{numbers} numbers") };
        let summary = format!("{train} training and {eval} evaluation examples, {numbers} each");
        self.notes.iter().cloned().chain([summary]).collect::<Vec<_>>().join("\n")
    }

    fn warning(&self) -> Option<&str> {
        self.warning.as_deref()
    }

    fn num_train(&self) -> usize {
        self.train.len()
    }

    fn planned(&self, config: &FinetuneConfig, folder: &PretrainedFolder) -> Result<Planned> {
        let labels = format!("numbers {}", self.names.join(", "));
        sequence::planned(config, folder, [&self.train, &self.eval], labels)
    }

    fn kind<'a>(&'a self, config: &'a FinetuneConfig, folder: &'a PretrainedFolder) -> Finetuning<'a> {
        Finetuning { config, folder, examples: self }
    }

    fn details(&self, _: &TrainingData<'_>) -> String {
        format!("numbers: {}", self.names.join(", "))
    }

    fn best(&self) -> (&'static str, Better) {
        ("loss", Better::Lower)
    }

    fn outcomes(&self, data: &TrainingData<'_>) -> Outcomes {
        let gold = self.eval.iter().map(|example| example.numbers.clone()).collect();
        Outcomes::Numbers { gold, predicted: data.predicted.clone() }
    }

    /// The mean of the training numbers is a baseline for errors only: its correlation is undefined.
    fn floors(&self) -> Vec<Floor> {
        let train = numbers_of(&self.train);
        let gold = numbers_of(&self.eval);
        let mut means = Vec::with_capacity(self.names.len());
        for number in 0..self.names.len() {
            let column: Vec<f64> = train.iter().map(|row| f64::from(row[number])).collect();
            means.push(mean(&column) as f32);
        }
        let eval_texts = sequence::whole_texts(&self.eval);
        let predicted = tf_idf::numbers(&sequence::whole_texts(&self.train), &train, &eval_texts);
        let baselines = [(MEAN, vec![means; gold.len()]), (tf_idf::OF_NUMBERS, predicted)];
        let mut floors = Vec::new();
        for (name, predicted) in baselines {
            floors.push(Floor { name, outcomes: Outcomes::Numbers { gold: gold.clone(), predicted } });
        }
        floors
    }

    fn unfilled(folder: &PretrainedFolder, machine: &Machine) -> Result<Box<dyn Task>> {
        sequence::unfilled(folder, machine)
    }

    fn open(path: &Path, device: &Device) -> Result<Box<dyn Trained>> {
        Ok(Box::new(Regressor::load(path, device)?))
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
    pub examples: &'a NumberExamples,
}

impl<'a> Kind for Finetuning<'a> {
    type Task = Classify;
    type Data = TrainingData<'a>;

    fn shapes(&self) -> Result<Shapes> {
        sequence::shapes(self.config, self.folder, self.examples.names.len())
    }

    fn inputs(&self) -> Result<Inputs> {
        let Self { folder, examples, .. } = self;
        let hashes = [sha256_of(&examples.train)?, sha256_of(&examples.eval)?];
        start::inputs(folder, hashes, &examples.names)
    }

    fn build(self, setting: Setting<'_>) -> Result<Parts<Classify, TrainingData<'a>>> {
        let Self { config, folder, examples } = self;
        let Ready { task, tokenizer, collator, folders } =
            sequence::ready(config, folder, NumberExamples::HEAD, &examples.names, setting)?;
        let data = TrainingData::encode(examples, &tokenizer, collator, setting)?;
        let total_steps = total_steps(setting.training, data.rows_per_epoch());
        Ok(Parts { task, data, total_steps, folders, best: examples.best() })
    }
}

fn numbers_of(examples: &[Example]) -> Vec<Vec<f32>> {
    examples.iter().map(|example| example.numbers.clone()).collect()
}

fn sha256_of(examples: &[Example]) -> Result<String> {
    start::sha256_of(examples.iter().map(|example| (&example.text, &example.text_pair, &example.numbers)))
}
