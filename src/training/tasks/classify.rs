//! Classification of texts: one class of several for each text or pair of texts.

mod table;

use std::path::Path;

use anyhow::Result;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::tasks::examples::Sources;
use crate::tasks::finetuning_task::{Column, Examples, FinetuningTask, Floor, Judged};
use crate::tasks::floors::tf_idf;
use crate::tasks::labelled::{Columns, Example, InputText};
use crate::tasks::planned;
use crate::tasks::run::{Scores, named};
use crate::tasks::sequence::labels::balanced_weights;
use crate::tasks::sequence::{LabelSet, PROBABILITY_BYTES, Texts, text_bytes, whole_texts};
use crate::tasks::trained::{Evaluation, Scored, four_digits, percent};
use base::error::Problem;
use base::families::HeadKind;
use base::scores::{Confusion, Metric, Outcomes};
use config::{ClassWeights, ClassifyData, TrainingConfig};
use model::models::Objective;
use ops::soft_cross_entropy::SoftTargets;

pub use table::confusion_table;

/// The classes of texts.
#[derive(Debug, Clone)]
pub struct Classes(LabelSet);

/// Names of the scores of an evaluation, as the Trainer of transformers gives them.
const SCORES: [&str; 5] = ["loss", "accuracy", "f1", "matthews_correlation", "auroc"];

/// One line of a predictions file.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct PredictionRow<'a> {
    /// The (first) text.
    text: &'a str,
    /// The second text of a pair.
    #[serde(skip_serializing_if = "Option::is_none")]
    text_pair: Option<&'a str>,
    /// The label with the highest probability, the first one of equals.
    label: &'a str,
    /// The label in the file, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    gold: Option<&'a str>,
    /// The probability of `label`.
    score: f64,
    /// The probability of each label, in the order of their ids.
    probabilities: Map<String, Value>,
}

/// Returns the index of the largest number, the first one of equals; 0 if there are no numbers.
fn best_class(values: &[f32]) -> usize {
    (0..values.len()).fold(0, |best, index| if values[index] > values[best] { index } else { best })
}

impl Classes {
    fn row<'a>(&'a self, row: &'a Example, probabilities: &[f32]) -> PredictionRow<'a> {
        let best = best_class(probabilities);
        PredictionRow {
            text: &row.text,
            text_pair: row.text_pair.as_deref(),
            label: &self.0.names()[best],
            gold: row.label.as_deref(),
            score: f64::from(probabilities[best]),
            probabilities: self.0.by_label(probabilities),
        }
    }

    fn confusion(&self, judged: &Judged<'_, Self>) -> Confusion {
        // Before the first evaluation there are no predictions.
        Confusion::of(self.0.len(), &judged.gold[..judged.answers.len()], &predicted(judged))
    }
}

/// The predicted class of each example.
fn predicted(judged: &Judged<'_, Classes>) -> Vec<u32> {
    judged.answers.iter().map(|probabilities| best_class(probabilities) as u32).collect()
}

impl FinetuningTask for Classes {
    type Input = Texts;
    type Gold = u32;

    const HEAD: HeadKind = HeadKind::SequenceClassification;
    const MODEL: &'static str = "sequence classifier";
    const COLUMNS: &'static [Column] = &[
        Column::percent("eval_accuracy", "accuracy %"),
        Column::percent("eval_f1", "macro F1 %"),
        Column::plain("eval_matthews_correlation", "Matthews"),
        Column::percent("eval_auroc", "AUROC %"),
        Column::plain("eval_loss", "loss"),
    ];
    const BEST: &'static str = "accuracy";
    const FLAGS: &'static [&'static str] =
        &["--text-pair-column", "--label-column", "--labels", "--on-bad-record"];

    fn sources(data: &ClassifyData) -> Result<(Sources<Example>, Vec<String>)> {
        Sources::of_examples(data, &Columns::from_config(data))
    }

    fn learn(data: &ClassifyData, rows: &[Example]) -> Result<Self> {
        Ok(Self(if data.labels.is_empty() {
            LabelSet::discover(&data.train_file, rows)?
        } else {
            LabelSet::given(&data.labels)?
        }))
    }

    fn of_model(_: &Path, names: Vec<String>) -> Result<Self> {
        Ok(Self(LabelSet::of_model(&names)))
    }

    fn evaluated(&self, evaluation: &Evaluation<'_>) -> Result<(Vec<Example>, Vec<String>)> {
        let columns = Columns { labelled: true, known_labels: self.names(), ..evaluation.columns };
        evaluation.examples(&columns)
    }

    fn names(&self) -> &[String] {
        self.0.names()
    }

    fn gold(&self, source: &Path, rows: &[Example]) -> Result<Vec<u32>> {
        self.0.ids(source, rows)
    }

    fn strata(&self, gold: &[u32]) -> Vec<u32> {
        gold.to_vec()
    }

    fn push_labels(&self, gold: &u32, _word: usize, labels: &mut Vec<u32>) {
        labels.push(*gold);
    }

    fn probabilities(answer: &Vec<f32>) -> &[f32] {
        answer
    }

    fn content(row: &Example) -> impl Serialize {
        (&row.text, &row.text_pair, &row.label)
    }

    /// With label smoothing or class weights the targets of training are soft.
    fn objective(&self, training: &TrainingConfig, gold: &[u32]) -> Result<Objective> {
        let classes = self.0.len();
        let smoothing = training.label_smoothing_factor as f32;
        let weights = match &training.class_weights {
            None if smoothing > 0.0 => vec![1.0; classes],
            None => return Ok(Objective::OneClass),
            Some(ClassWeights::Balanced) => balanced_weights(classes, gold).map_err(|empty| {
                let label = &self.names()[empty];
                Problem::usage(format!("no training example has the label `{label}`: it has no weight"))
                    .at("training.class_weights")
                    .hint("take the label out of `data.labels`, or add examples of it")
            })?,
            Some(ClassWeights::ByLabel(by_label)) => self.0.weights(by_label)?,
        };
        Ok(Objective::SoftClass(SoftTargets { smoothing, weights }))
    }

    fn summary(&self, examples: &Examples<Self>) -> Vec<String> {
        let summary = format!("{}, {} labels", examples.sizes(), self.0.len());
        let unseen = self.0.unseen_note(&examples.train.gold);
        std::iter::once(summary).chain(self.0.twin_note()).chain(unseen).collect()
    }

    fn described(&self, gold: &[u32]) -> String {
        planned::labels(self.names(), gold.iter().copied())
    }

    fn score_names(&self) -> Vec<String> {
        SCORES.map(str::to_string).to_vec()
    }

    fn scores(&self, judged: &Judged<'_, Self>) -> Scores {
        let confusion = self.confusion(judged);
        let auroc = self.outcomes(judged).score(Metric::Auroc);
        named(SCORES, [judged.loss, confusion.accuracy(), confusion.macro_f1(), confusion.matthews(), auroc])
    }

    fn outcomes(&self, judged: &Judged<'_, Self>) -> Outcomes {
        let outcomes = Outcomes::labels(self.0.len(), judged.gold, &predicted(judged));
        outcomes.with_probabilities(judged.answers.to_vec())
    }

    fn details(&self, judged: &Judged<'_, Self>) -> String {
        format!("confusion:\n{}", confusion_table(&self.confusion(judged), self.names()).trim_end())
    }

    fn floors(&self, examples: &Examples<Self>) -> Vec<Floor> {
        let classes = self.0.len();
        let Examples { train, eval, .. } = examples;
        let train_texts = whole_texts(&train.rows);
        let found = tf_idf::classify(&train_texts, &train.gold, classes, &whole_texts(&eval.rows));
        let outcomes = Outcomes::labels(classes, &eval.gold, &found.labels);
        vec![Floor { name: tf_idf::NAME, outcomes: outcomes.with_probabilities(found.probabilities) }]
    }

    fn line(&self, _file: &Path, row: &Example, probabilities: &Vec<f32>) -> Result<String> {
        Ok(serde_json::to_string(&self.row(row, probabilities))? + "\n")
    }

    fn lines_bytes(&self, rows: &[Example]) -> u64 {
        let longest = self.names().iter().map(String::len).max().unwrap_or(0) as u64;
        let labels: u64 = self.names().iter().map(|label| label.len() as u64 + PROBABILITY_BYTES).sum();
        // 150 bytes for the names of the keys, and twice a label: the predicted one and the one in the file.
        // Few characters need a JSON escape.
        text_bytes(rows) + rows.len() as u64 * (labels + 2 * longest + 150)
    }

    fn report(&self, judged: &Judged<'_, Self>, scored: &mut Scored) {
        let confusion = self.confusion(judged);
        scored.add_measured("loss", judged.loss, "loss", four_digits);
        scored.add_measured("accuracy", confusion.accuracy(), "accuracy", percent);
        scored.add_measured("f1", confusion.macro_f1(), "macro F1", percent);
        scored.add_measured("matthews_correlation", confusion.matthews(), "Matthews", four_digits);
        scored.add_measured("auroc", self.outcomes(judged).score(Metric::Auroc), "AUROC", percent);
    }

    fn explain(&self, judged: &Judged<'_, Self>, scored: &mut Scored) {
        let confusion = self.confusion(judged);
        let mut by_class = Map::new();
        for (label, score) in self.names().iter().zip(confusion.per_class()) {
            let values = json!({
                "precision": score.precision,
                "recall": score.recall,
                "f1": score.f1,
                "support": score.support,
            });
            by_class.insert(label.clone(), values);
        }
        scored.json.insert("eval_by_class".to_string(), by_class.into());
        scored.lines.extend(self.0.notes());
        scored.lines.extend(confusion_table(&confusion, self.names()).lines().map(str::to_string));
    }

    fn notes(&self) -> Vec<String> {
        self.0.notes()
    }

    fn answer(&self, _: &InputText, row: Example, probabilities: &Vec<f32>) -> Result<Value> {
        Ok(serde_json::to_value(self.row(&row, probabilities))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_of_predictions_is_one_line_of_json_in_label_order() {
        let classes = Classes(LabelSet::of_model(&["pos", "neg"].map(str::to_string)));
        let label = Some("neg".to_string());
        let example = Example { text: "a \"b\"\nc".into(), label, line: 1, ..Example::default() };
        let text = classes.line(Path::new("p.jsonl"), &example, &vec![0.75, 0.25]).expect("has a JSON form");
        let estimate = classes.lines_bytes(&[example]);
        assert!((text.len() as u64..3 * text.len() as u64).contains(&estimate), "{estimate}");
        assert!(text.ends_with('\n'));
        insta::assert_snapshot!(text.trim_end(), @r#"{"text":"a \"b\"\nc","label":"pos","gold":"neg","score":0.75,"probabilities":{"pos":0.75,"neg":0.25}}"#);
    }

    #[test]
    fn the_first_of_equal_classes_is_the_prediction() {
        assert_eq!(best_class(&[0.2, 0.4, 0.4]), 1);
        assert_eq!(best_class(&[0.5]), 0);
    }
}
