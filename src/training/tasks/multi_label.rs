//! Classification of texts with any number of labels each: sets of labels -> probability of each label -> the
//! labels above their thresholds.
//!
//! `thresholds.rs` has the probabilities above which labels are predicted, `table.rs` the scores of each
//! label.

mod table;
pub mod thresholds;

use std::path::Path;

use anyhow::Result;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::tasks::examples::Sources;
use crate::tasks::finetuning_task::{Column, Examples, FinetuningTask, Floor, Judged};
use crate::tasks::floors::tf_idf;
use crate::tasks::labelled::{Columns, Example, InputText};
use crate::tasks::multi_label::table::label_table;
use crate::tasks::multi_label::thresholds::Thresholds;
use crate::tasks::planned;
use crate::tasks::run::{Scores, named};
use crate::tasks::sequence::labels::listed;
use crate::tasks::sequence::{LabelSet, PROBABILITY_BYTES, Texts, text_bytes, whole_texts};
use crate::tasks::trained::{Evaluation, Scored, four_digits, percent};
use base::families::HeadKind;
use base::scores::{LabelTally, Metric, Outcomes, above, measured};
use config::ClassifyData;

/// Names of the scores of label sets in an evaluation.
const SCORES: [&str; 4] = ["f1_micro", "f1_macro", "f1_samples", "exact_match"];

/// Suffix of the name of a score at tuned thresholds.
const TUNED: &str = "_tuned";

/// The labels of texts that have any number of them, with the threshold of each.
#[derive(Debug, Clone)]
pub struct SeveralLabels {
    labels: LabelSet,
    thresholds: Thresholds,
}

/// One line of a predictions file.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct PredictionRow<'a> {
    /// The (first) text.
    text: &'a str,
    /// The second text of a pair.
    #[serde(skip_serializing_if = "Option::is_none")]
    text_pair: Option<&'a str>,
    /// The labels whose probabilities are above their thresholds, most probable first; may be empty.
    labels: Vec<&'a str>,
    /// The labels in the file, if it has some.
    #[serde(skip_serializing_if = "Option::is_none")]
    gold: Option<&'a [String]>,
    /// The probabilities of `labels`.
    scores: Vec<f32>,
    /// The probability of each label, in the order of their ids.
    probabilities: Map<String, Value>,
}

impl SeveralLabels {
    fn new(labels: LabelSet) -> Self {
        Self { thresholds: Thresholds::default_of(labels.len()), labels }
    }

    fn row<'a>(
        &'a self,
        row: &'a Example,
        gold: Option<&'a [String]>,
        probabilities: &[f32],
    ) -> PredictionRow<'a> {
        let mut found = above(probabilities, &self.thresholds.values);
        found.sort_by(|a, b| probabilities[*b as usize].total_cmp(&probabilities[*a as usize]));
        PredictionRow {
            text: &row.text,
            text_pair: row.text_pair.as_deref(),
            labels: found.iter().map(|id| self.names()[*id as usize].as_str()).collect(),
            gold,
            scores: found.iter().map(|id| probabilities[*id as usize]).collect(),
            probabilities: self.labels.by_label(probabilities),
        }
    }

    /// The same labels, each with the threshold 0.5.
    fn untuned(&self) -> Self {
        Self::new(self.labels.clone())
    }

    /// The labels of each example that are above their thresholds.
    fn predicted(&self, judged: &Judged<'_, Self>) -> Vec<Vec<u32>> {
        judged.answers.iter().map(|probabilities| above(probabilities, &self.thresholds.values)).collect()
    }

    /// Counts the labels that are above their thresholds, and those of them that are right.
    fn tally(&self, judged: &Judged<'_, Self>) -> LabelTally {
        let mut tally = LabelTally::new(self.labels.len());
        for (gold, predicted) in judged.gold.iter().zip(self.predicted(judged)) {
            tally.add(gold, &predicted);
        }
        tally
    }

    /// Says which labels have no AUROC, and so their mean has none; `None` if all have one.
    fn unmeasured(&self, judged: &Judged<'_, Self>) -> Option<String> {
        let examples = judged.gold.len();
        let mut lacking = Vec::new();
        for (id, name) in (0..).zip(self.names()) {
            let with = judged.gold.iter().filter(|labels| labels.contains(&id)).count();
            if with == 0 || with == examples {
                lacking.push(name.clone());
            }
        }
        (!lacking.is_empty() && examples > 0).then(|| {
            format!(
                "AUROC is not measured: it wants examples with and without a label, and all or none have {}",
                listed(&lacking)
            )
        })
    }

    /// The outcomes at the thresholds of these labels.
    fn own_outcomes(&self, judged: &Judged<'_, Self>) -> Outcomes {
        let gold = judged.gold.to_vec();
        let outcomes = Outcomes::label_sets(self.labels.len(), gold, self.predicted(judged));
        outcomes.with_probabilities(judged.answers.to_vec())
    }
}

/// Computes the scores named in [`SCORES`].
fn scores_of(tally: &LabelTally) -> Scores {
    named(SCORES, [tally.f1_micro(), tally.f1_macro(), tally.f1_samples(), tally.exact_match()])
}

/// The rarest label of each example (the first one of equals); examples without labels form a class of their
/// own. A part of the examples that keeps the proportions of these classes has about the same share of each
/// label as the whole set.
fn rarest(labels: usize, gold: &[Vec<u32>]) -> Vec<u32> {
    let mut counts = vec![0usize; labels];
    for id in gold.iter().flatten() {
        counts[*id as usize] += 1;
    }
    let rarest = gold.iter().map(|ids| ids.iter().copied().min_by_key(|id| counts[*id as usize]));
    rarest.map(|rarest| rarest.unwrap_or(labels as u32)).collect()
}

impl FinetuningTask for SeveralLabels {
    type Input = Texts;
    type Gold = Vec<u32>;

    const HEAD: HeadKind = HeadKind::MultiLabelClassification;
    const MODEL: &'static str = "classifier of several labels";
    const COLUMNS: &'static [Column] = &[
        Column::percent("eval_f1_micro", "micro F1 %"),
        Column::percent("eval_f1_macro", "macro F1 %"),
        Column::percent("eval_f1_samples", "samples F1 %"),
        Column::percent("eval_exact_match", "exact %"),
        Column::percent("eval_auroc", "AUROC %"),
        Column::plain("eval_loss", "loss"),
    ];
    const BEST: &'static str = "f1_micro";
    const FLAGS: &'static [&'static str] =
        &["--text-pair-column", "--label-column", "--label-separator", "--labels", "--on-bad-record"];

    fn sources(data: &ClassifyData) -> Result<(Sources<Example>, Vec<String>)> {
        let columns = Columns { several: Some(&data.labels), labelled: false, ..Columns::from_config(data) };
        Sources::of_examples(data, &columns)
    }

    fn learn(data: &ClassifyData, rows: &[Example]) -> Result<Self> {
        Ok(Self::new(if data.labels.is_empty() {
            LabelSet::discover_some(&data.train_file, rows)?
        } else {
            LabelSet::given_some(&data.labels)?
        }))
    }

    fn of_model(path: &Path, names: Vec<String>) -> Result<Self> {
        let labels = LabelSet::of_model(&names);
        Ok(Self { thresholds: Thresholds::load(path, labels.names())?, labels })
    }

    fn evaluated(&self, evaluation: &Evaluation<'_>) -> Result<(Vec<Example>, Vec<String>)> {
        let columns = Columns { several: Some(self.names()), ..evaluation.columns };
        evaluation.examples(&columns)
    }

    fn names(&self) -> &[String] {
        self.labels.names()
    }

    fn gold(&self, source: &Path, rows: &[Example]) -> Result<Vec<Vec<u32>>> {
        self.labels.sets(source, rows)
    }

    fn strata(&self, gold: &[Vec<u32>]) -> Vec<u32> {
        rarest(self.labels.len(), gold)
    }

    /// Adds a 1 for each label that the example has, and a 0 for each other one.
    fn push_labels(&self, gold: &Vec<u32>, _word: usize, labels: &mut Vec<u32>) {
        labels.extend((0..self.labels.len() as u32).map(|id| u32::from(gold.binary_search(&id).is_ok())));
    }

    fn content(row: &Example) -> impl Serialize {
        (&row.text, &row.text_pair, &row.labels)
    }

    fn summary(&self, examples: &Examples<Self>) -> Vec<String> {
        let sets = &examples.train.gold;
        let each = sets.iter().map(Vec::len).sum::<usize>() as f64 / sets.len() as f64;
        let summary = format!("{}, {} labels, {each:.2} a text", examples.sizes(), self.labels.len());
        let unseen = self.labels.unseen_note(sets.iter().flatten());
        std::iter::once(summary).chain(self.labels.twin_note()).chain(unseen).collect()
    }

    fn described(&self, gold: &[Vec<u32>]) -> String {
        planned::labels(self.names(), gold.iter().flatten().copied())
    }

    /// Tunes the thresholds.
    fn fit(&mut self, judged: &Judged<'_, Self>) {
        self.thresholds = Thresholds::tuned(self.labels.len(), judged.gold, judged.answers);
    }

    fn score_names(&self) -> Vec<String> {
        ["loss"].into_iter().chain(SCORES).chain(["auroc"]).map(str::to_string).collect()
    }

    /// The scores at the threshold 0.5, and the area under the ROC curve, which needs no threshold.
    fn scores(&self, judged: &Judged<'_, Self>) -> Scores {
        let mut scores = named(["loss"], [judged.loss]);
        scores.extend(scores_of(&self.untuned().tally(judged)));
        scores.extend(named(["auroc"], [self.own_outcomes(judged).score(Metric::Auroc)]));
        scores
    }

    /// The scores at tuned thresholds.
    fn fitted_scores(&self, judged: &Judged<'_, Self>) -> Scores {
        let scores = scores_of(&self.tally(judged)).into_iter();
        scores.map(|(name, value)| (format!("{name}{TUNED}"), value)).collect()
    }

    /// Uses the threshold 0.5: with tuned ones, a difference between models might only be a difference
    /// between the fits of their thresholds.
    fn outcomes(&self, judged: &Judged<'_, Self>) -> Outcomes {
        self.untuned().own_outcomes(judged)
    }

    /// With tuned thresholds, a model may give labels although none is probable.
    fn uniform_answers(&self, judged: &Judged<'_, Self>) -> Option<String> {
        self.own_outcomes(judged).uniform_answers()
    }

    fn details(&self, judged: &Judged<'_, Self>) -> String {
        let tally = self.tally(judged);
        let scores: Vec<String> = scores_of(&tally)
            .iter()
            .map(|(name, value)| format!("{} {}", name.replace('_', " "), measured(*value, percent)))
            .collect();
        let table = label_table(&tally, self.names(), &self.thresholds.values);
        let unmeasured = self.unmeasured(judged).map(|line| format!("\n{line}")).unwrap_or_default();
        format!(
            "at thresholds tuned on the evaluation file: {}\n{}{unmeasured}",
            scores.join(", "),
            table.trim_end()
        )
    }

    fn floors(&self, examples: &Examples<Self>) -> Vec<Floor> {
        let classes = self.labels.len();
        let Examples { train, eval, .. } = examples;
        let train_texts = whole_texts(&train.rows);
        let found = tf_idf::label_sets(&train_texts, &train.gold, classes, &whole_texts(&eval.rows));
        let outcomes = Outcomes::label_sets(classes, eval.gold.clone(), found.labels);
        vec![Floor { name: tf_idf::NAME, outcomes: outcomes.with_probabilities(found.probabilities) }]
    }

    fn model_files(&self) -> Vec<(String, Vec<u8>)> {
        vec![self.thresholds.file(&self.labels)]
    }

    fn line(&self, _file: &Path, row: &Example, probabilities: &Vec<f32>) -> Result<String> {
        Ok(serde_json::to_string(&self.row(row, Some(&row.labels), probabilities))? + "\n")
    }

    fn lines_bytes(&self, rows: &[Example]) -> u64 {
        // A label appears at most three times in a line: as predicted, as gold, and with its probability.
        let labels = self.names().iter().map(|label| 3 * label.len() as u64 + 2 * PROBABILITY_BYTES);
        text_bytes(rows) + rows.len() as u64 * (labels.sum::<u64>() + 150)
    }

    fn report(&self, judged: &Judged<'_, Self>, scored: &mut Scored) {
        scored.add_measured("loss", judged.loss, "loss", four_digits);
        let mut scores = self.scores(judged).split_off(1);
        if self.thresholds.are_tuned {
            scores.extend(self.fitted_scores(judged));
        }
        for (name, value) in scores {
            scored.add_measured(&name, value, &name.replace('_', " "), percent);
        }
    }

    fn explain(&self, judged: &Judged<'_, Self>, scored: &mut Scored) {
        let tally = self.tally(judged);
        let mut by_label = Map::new();
        for ((label, score), threshold) in
            self.names().iter().zip(tally.per_label()).zip(&self.thresholds.values)
        {
            let values = json!({
                "threshold": threshold,
                "precision": score.precision,
                "recall": score.recall,
                "f1": score.f1,
                "support": score.support,
            });
            by_label.insert(label.clone(), values);
        }
        scored.json.insert("eval_by_label".to_string(), by_label.into());
        scored.lines.extend(self.labels.notes());
        scored.lines.push(self.thresholds.description());
        scored.lines.extend(self.unmeasured(judged));
        let table = label_table(&tally, self.names(), &self.thresholds.values);
        scored.lines.extend(table.lines().map(str::to_string));
    }

    fn notes(&self) -> Vec<String> {
        let thresholds = format!("note: {}", self.thresholds.description());
        self.labels.notes().into_iter().chain([thresholds]).collect()
    }

    fn answer(&self, _: &InputText, row: Example, probabilities: &Vec<f32>) -> Result<Value> {
        Ok(serde_json::to_value(self.row(&row, None, probabilities))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels() -> SeveralLabels {
        SeveralLabels::new(LabelSet::of_model(&["sea", "garden", "crime"].map(str::to_string)))
    }

    #[test]
    fn strata_are_the_rarest_labels_of_examples() {
        let ids = [vec![0, 1], vec![0], vec![], vec![0, 2], vec![1, 2], vec![0, 1]];
        assert_eq!(rarest(3, &ids), [1, 0, 3, 2, 2, 1]);
    }

    #[test]
    fn a_row_of_predictions_has_the_labels_above_their_thresholds_by_probability() {
        let example =
            Example { text: "a ship".into(), labels: vec!["sea".into()], line: 1, ..Example::default() };
        let thresholds = Thresholds { values: vec![0.25, 0.5, 0.5], are_tuned: true };
        let labels = SeveralLabels { thresholds, ..labels() };
        let line = labels.line(Path::new("p.jsonl"), &example, &vec![0.375, 0.5, 0.75]).unwrap();
        insta::assert_snapshot!(line.trim_end(), @r#"{"text":"a ship","labels":["crime","sea"],"gold":["sea"],"scores":[0.75,0.375],"probabilities":{"sea":0.375,"garden":0.5,"crime":0.75}}"#);
        assert!(labels.lines_bytes(&[example]) > line.len() as u64);
    }

    #[test]
    fn the_table_has_a_row_for_each_label() {
        let gold = [vec![0], vec![0, 1], vec![]];
        let answers = [vec![0.4, 0.1, 0.2], vec![0.3, 0.9, 0.6], vec![0.1, 0.2, 0.3]];
        let judged = Judged { rows: &[], gold: &gold, answers: &answers, loss: 0.5 };
        let mut tuned = labels();
        tuned.fit(&judged);
        insta::assert_snapshot!(label_table(&tuned.tally(&judged), tuned.names(), &tuned.thresholds.values), @r"
        label   threshold  precision %  recall %    F1 %  examples
        sea         0.200       100.00    100.00  100.00         2
        garden      0.500       100.00    100.00  100.00         1
        crime       0.500         0.00      0.00    0.00         0
        ");
        assert_eq!(tuned.untuned().predicted(&judged), [vec![], vec![1, 2], vec![]]);
        let names: Vec<String> = tuned.scores(&judged).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, tuned.score_names());
        let unmeasured = tuned.unmeasured(&judged).expect("no example is about a crime");
        assert!(unmeasured.ends_with("all or none have `crime`"), "{unmeasured}");
    }
}
