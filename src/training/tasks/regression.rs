//! Regression: one number or several for each text or pair of texts.

mod scores;

use std::path::Path;

use anyhow::Result;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::tasks::examples::Sources;
use crate::tasks::finetuning_task::{Column, Examples, FinetuningTask, Floor, Judged};
use crate::tasks::floors::tf_idf;
use crate::tasks::labelled::{Columns, Example, InputText, files_of, number_column};
use crate::tasks::regression::scores::{score_names, scores};
use crate::tasks::run::Scores;
use crate::tasks::sequence::{LabelSet, Texts, text_bytes, whole_texts};
use crate::tasks::trained::{Evaluation, Scored, four_digits};
use base::families::HeadKind;
use base::scores::{Outcomes, mean};
use config::ClassifyData;

/// Name in reports of the baseline that does not read the text.
const MEAN: &str = "mean of the training numbers";

/// Name that transformers gives the number of a model with a single output.
const ONLY_NAME: &str = "LABEL_0";

/// Bytes of a number in a row of predictions, with its name; it appears twice.
const NUMBER_BYTES: u64 = 80;

/// The numbers of texts, by name.
#[derive(Debug, Clone)]
pub struct Numbers(LabelSet);

/// The columns of a run: those of the numbers that a configuration names, else one column.
fn columns(data: &ClassifyData) -> Columns<'_> {
    Columns { numbers: Some(&data.labels), labelled: false, ..Columns::from_config(data) }
}

impl Numbers {
    /// JSON value of the numbers: a single one as a number, several as an object by their names.
    fn named(&self, numbers: &[f32]) -> Value {
        match numbers {
            [one] => json!(one),
            many => self.0.by_label(many).into(),
        }
    }

    /// A row of predictions.
    fn row(&self, row: &Example, numbers: &[f32]) -> Map<String, Value> {
        let mut object = Map::from_iter([("text".to_string(), json!(row.text))]);
        object.extend(row.text_pair.as_ref().map(|pair| ("text_pair".to_string(), json!(pair))));
        object.insert("prediction".to_string(), self.named(numbers));
        object
    }
}

impl FinetuningTask for Numbers {
    type Input = Texts;
    type Gold = Vec<f32>;

    const HEAD: HeadKind = HeadKind::Regression;
    const MODEL: &'static str = "regression model";
    const COLUMNS: &'static [Column] = &[
        Column::plain("eval_pearson", "Pearson"),
        Column::plain("eval_spearmanr", "Spearman"),
        Column::plain("eval_mse", "squared err."),
        Column::plain("eval_mae", "absolute err."),
    ];
    const BEST: &'static str = "loss";
    const FLAGS: &'static [&'static str] = &["--text-pair-column", "--label-column", "--on-bad-record"];

    fn sources(data: &ClassifyData) -> Result<(Sources<Example>, Vec<String>)> {
        Sources::of_examples(data, &columns(data))
    }

    fn learn(data: &ClassifyData, _: &[Example]) -> Result<Self> {
        if !data.labels.is_empty() {
            return LabelSet::given_some(&data.labels).map(Self);
        }
        let first = files_of(&data.train_file)?.swap_remove(0);
        let column = number_column(&first, &columns(data))?;
        LabelSet::given_some(&[column.unwrap_or_else(|| ONLY_NAME.to_string())]).map(Self)
    }

    fn of_model(_: &Path, names: Vec<String>) -> Result<Self> {
        Ok(Self(LabelSet::of_model(&names)))
    }

    fn evaluated(&self, evaluation: &Evaluation<'_>) -> Result<(Vec<Example>, Vec<String>)> {
        let mut columns = Columns { numbers: Some(self.names()), ..evaluation.columns };
        if let [only] = self.names() {
            columns.numbers = Some(&[]);
            // Without a named column, the one of training is read if the file has it.
            let trained = Columns { label: Some(only), ..columns };
            if columns.label.is_none() && matches!(number_column(evaluation.data, &trained), Ok(Some(_))) {
                columns = trained;
            }
        }
        evaluation.examples(&columns)
    }

    fn names(&self) -> &[String] {
        self.0.names()
    }

    /// Earlier versions named a number that has no name in the configuration as transformers does.
    fn resumed_names(&self, data: &ClassifyData) -> Vec<String> {
        if data.labels.is_empty() { vec![ONLY_NAME.to_string()] } else { self.names().to_vec() }
    }

    fn gold(&self, _: &Path, rows: &[Example]) -> Result<Vec<Vec<f32>>> {
        Ok(rows.iter().map(|row| row.numbers.clone()).collect())
    }

    /// There are no classes whose proportions could be kept.
    fn strata(&self, gold: &[Vec<f32>]) -> Vec<u32> {
        vec![0; gold.len()]
    }

    /// Adds the bits of the numbers.
    fn push_labels(&self, gold: &Vec<f32>, _word: usize, labels: &mut Vec<u32>) {
        labels.extend(gold.iter().map(|number| number.to_bits()));
    }

    fn content(row: &Example) -> impl Serialize {
        (&row.text, &row.text_pair, &row.numbers)
    }

    fn summary(&self, examples: &Examples<Self>) -> Vec<String> {
        let numbers = self.names().len();
        let numbers = if numbers == 1 { "a number".to_string() } else { format!("{numbers} numbers") };
        vec![format!("{}, {numbers} each", examples.sizes())]
    }

    fn described(&self, _: &[Vec<f32>]) -> String {
        format!("numbers {}", self.names().join(", "))
    }

    fn score_names(&self) -> Vec<String> {
        score_names(self.names())
    }

    /// The loss is the mean squared error, averaged over the names.
    fn scores(&self, judged: &Judged<'_, Self>) -> Scores {
        scores(self.names(), judged.gold, judged.answers)
    }

    fn outcomes(&self, judged: &Judged<'_, Self>) -> Outcomes {
        Outcomes::Numbers { gold: judged.gold.to_vec(), predicted: judged.answers.to_vec() }
    }

    fn details(&self, _: &Judged<'_, Self>) -> String {
        format!("numbers: {}", self.names().join(", "))
    }

    /// The mean of the training numbers is a baseline for errors only: its correlation is undefined.
    fn floors(&self, examples: &Examples<Self>) -> Vec<Floor> {
        let Examples { train, eval, .. } = examples;
        let mut means = Vec::with_capacity(self.names().len());
        for number in 0..self.names().len() {
            let column: Vec<f64> = train.gold.iter().map(|row| f64::from(row[number])).collect();
            means.push(mean(&column) as f32);
        }
        let train_texts = whole_texts(&train.rows);
        let by_words = tf_idf::numbers(&train_texts, &train.gold, &whole_texts(&eval.rows));
        let mut floors = Vec::new();
        for (name, predicted) in [(MEAN, vec![means; eval.gold.len()]), (tf_idf::OF_NUMBERS, by_words)] {
            floors.push(Floor { name, outcomes: Outcomes::Numbers { gold: eval.gold.clone(), predicted } });
        }
        floors
    }

    fn line(&self, _file: &Path, row: &Example, numbers: &Vec<f32>) -> Result<String> {
        let mut object = self.row(row, numbers);
        object.insert("gold".to_string(), self.named(&row.numbers));
        Ok(Value::from(object).to_string() + "\n")
    }

    fn lines_bytes(&self, rows: &[Example]) -> u64 {
        let names: u64 = self.names().iter().map(|name| 2 * name.len() as u64 + NUMBER_BYTES).sum();
        text_bytes(rows) + rows.len() as u64 * (names + 100)
    }

    fn report(&self, judged: &Judged<'_, Self>, scored: &mut Scored) {
        for (name, value) in self.scores(judged) {
            scored.add_measured(&name, value, &name.replace('_', " "), four_digits);
        }
    }

    fn explain(&self, _: &Judged<'_, Self>, _: &mut Scored) {}

    fn answer(&self, _: &InputText, row: Example, numbers: &Vec<f32>) -> Result<Value> {
        Ok(self.row(&row, numbers).into())
    }
}
