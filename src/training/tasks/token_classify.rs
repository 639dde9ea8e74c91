//! Token classification: a tag for each word of a sentence, such as those of entities.
//!
//! `labels.rs` has the tags and their ids, `report.rs` rows of predictions and scores by type.

pub mod labels;
mod report;

use std::borrow::Cow;
use std::path::Path;

use anyhow::Result;
use serde::Serialize;
use serde_json::{Value, json};

use crate::tasks::examples::Sources;
use crate::tasks::finetuning_task::{Column, Examples, FinetuningTask, Floor, Judged};
use crate::tasks::floors::dictionary;
use crate::tasks::labelled::input::Asked;
use crate::tasks::labelled::tags::{OUTSIDE, iob2};
use crate::tasks::labelled::{Sentence, Tagging, read_tagged, twins};
use crate::tasks::run::Scores;
use crate::tasks::sentences::words::words_of;
use crate::tasks::sentences::{Predicted, Words};
use crate::tasks::trained::{Evaluation, Scored, four_digits, percent};
use base::families::HeadKind;
use base::quantity::format_count;
use base::scores::{EntityTally, Outcomes, euroeval_counts, measured};
use config::ClassifyData;

pub use labels::TagSet;

/// The gold tags of a sentence, which are IOB2, and the tags predicted for it. Predictions of a model with
/// another scheme are converted to IOB2. Words that the model never saw are left out, as in transformers'
/// run_ner.py.
fn tags_of<'a>(
    labels: &'a TagSet,
    sentence: &'a Sentence,
    predicted: &[Predicted],
) -> (Vec<&'a str>, Vec<Cow<'a, str>>) {
    let seen = sentence.tags.iter().zip(predicted).filter(|(_, word)| word.is_seen());
    let (gold, tags): (Vec<&str>, Vec<&str>) =
        seen.map(|(tag, word)| (tag.as_str(), labels.tag(word.label))).unzip();
    let tags = if labels.is_iob2() {
        tags.into_iter().map(Cow::Borrowed).collect()
    } else {
        iob2(&tags).into_iter().map(Cow::Owned).collect()
    };
    (gold, tags)
}

/// Counts the entities of sentences, in the data and predicted.
fn tally(labels: &TagSet, sentences: &[Sentence], predicted: &[Vec<Predicted>]) -> EntityTally {
    let mut tally = EntityTally::default();
    for (sentence, predicted) in sentences.iter().zip(predicted) {
        let (gold, tags) = tags_of(labels, sentence, predicted);
        tally.add(&gold, &tags.iter().map(AsRef::as_ref).collect::<Vec<&str>>());
    }
    tally
}

/// The outcomes of sentences with these tags, in the data and predicted.
fn outcomes_of(gold: &[Vec<&str>], predicted: &[Vec<&str>]) -> Outcomes {
    let mut sentences = Vec::with_capacity(gold.len());
    for (gold, predicted) in gold.iter().zip(predicted) {
        let mut tally = EntityTally::default();
        tally.add(gold, predicted);
        sentences.push(tally.overall());
    }
    Outcomes::Entities { sentences, euroeval: euroeval_counts(gold, predicted) }
}

/// Text such as "12 sentences (208 words)".
fn size_text(sentences: &[Sentence]) -> String {
    let words: usize = sentences.iter().map(|sentence| sentence.words.len()).sum();
    format!("{} sentences ({} words)", format_count(sentences.len() as u64), format_count(words as u64))
}

impl FinetuningTask for TagSet {
    type Input = Words;
    /// The label of each word.
    type Gold = Vec<u32>;

    const HEAD: HeadKind = HeadKind::TokenClassification;
    const MODEL: &'static str = "token classifier";
    const COLUMNS: &'static [Column] = &[
        Column::percent("eval_overall_f1", "F1 %"),
        Column::percent("eval_overall_precision", "precision %"),
        Column::percent("eval_overall_recall", "recall %"),
        Column::percent("eval_overall_accuracy", "accuracy %"),
        Column::plain("eval_loss", "loss"),
    ];
    const BEST: &'static str = "overall_f1";
    const FLAGS: &'static [&'static str] = &[
        "--label-column",
        "--labels",
        "--token-column",
        "--tag-column",
        "--tag-scheme",
        "--strict",
        "--on-bad-record",
    ];
    /// As JSONL, and as columns.
    const PREDICTIONS: &'static [&'static str] = &["predictions.jsonl", "predictions.conll"];

    fn sources(data: &ClassifyData) -> Result<(Sources<Sentence>, Vec<String>)> {
        let tagging = Tagging::from_config(data);
        let mut notes = Vec::new();
        let sources = Sources::read(data, |path| {
            let file = read_tagged(path, &tagging)?;
            notes.extend(file.notes(path));
            Ok(file.renamed(&data.rename_types))
        })?;
        Ok((sources, notes))
    }

    fn learn(data: &ClassifyData, rows: &[Sentence]) -> Result<Self> {
        if data.labels.is_empty() {
            Self::discover(&data.train_file, rows)
        } else {
            Self::given(&data.labels)
        }
    }

    fn of_model(_: &Path, names: Vec<String>) -> Result<Self> {
        Ok(Self::from_names(names))
    }

    fn evaluated(&self, evaluation: &Evaluation<'_>) -> Result<(Vec<Sentence>, Vec<String>)> {
        let Evaluation { data, tagging, columns, on_bad_record, .. } = *evaluation;
        let mut fields = tagging.columns;
        fields.token_field = columns.text;
        fields.tag_field = columns.label;
        fields.tag_names = evaluation.labels;
        let file = read_tagged(data, &Tagging { columns: fields, on_bad_record, ..tagging })?;
        let notes = file.notes(data);
        Ok((file.sentences, notes))
    }

    fn names(&self) -> &[String] {
        self.names()
    }

    fn gold(&self, source: &Path, rows: &[Sentence]) -> Result<Vec<Vec<u32>>> {
        rows.iter().map(|sentence| self.ids(source, sentence)).collect()
    }

    /// Sentences with entities, and those without.
    fn strata(&self, gold: &[Vec<u32>]) -> Vec<u32> {
        gold.iter().map(|words| u32::from(words.iter().any(|&id| self.tag(id) != OUTSIDE))).collect()
    }

    fn push_labels(&self, gold: &Vec<u32>, word: usize, labels: &mut Vec<u32>) {
        labels.push(gold[word]);
    }

    fn content(row: &Sentence) -> impl Serialize {
        (&row.words, &row.tags)
    }

    fn summary(&self, examples: &Examples<Self>) -> Vec<String> {
        let [train, eval] = [&examples.train, &examples.eval].map(|set| size_text(&set.rows));
        let types = self.num_types();
        let test = examples.test.as_ref().map(|test| format!(", {} to test on", size_text(&test.rows)));
        let test = test.unwrap_or_default();
        let summary = format!("{train} to train on, {eval} to evaluate on{test}, {types} types of entities");
        twins::twin_note("types", self.kinds()).into_iter().chain([summary]).collect()
    }

    fn described(&self, _: &[Vec<u32>]) -> String {
        let kinds: Vec<String> = self.kinds().into_iter().map(|kind| format!("`{kind}`")).collect();
        kinds.join(", ")
    }

    fn score_names(&self) -> Vec<String> {
        report::score_names(self)
    }

    fn scores(&self, judged: &Judged<'_, Self>) -> Scores {
        report::scores(judged.loss, &tally(self, judged.rows, judged.answers))
    }

    fn outcomes(&self, judged: &Judged<'_, Self>) -> Outcomes {
        let tags: Vec<(Vec<&str>, Vec<Cow<'_, str>>)> = judged
            .rows
            .iter()
            .zip(judged.answers)
            .map(|(sentence, answer)| tags_of(self, sentence, answer))
            .collect();
        let gold: Vec<Vec<&str>> = tags.iter().map(|(gold, _)| gold.clone()).collect();
        let predicted: Vec<Vec<&str>> =
            tags.iter().map(|(_, tags)| tags.iter().map(AsRef::as_ref).collect()).collect();
        outcomes_of(&gold, &predicted)
    }

    fn details(&self, judged: &Judged<'_, Self>) -> String {
        let tally = tally(self, judged.rows, judged.answers);
        format!("entities:\n{}", report::score_table(&tally).trim_end())
    }

    fn floors(&self, examples: &Examples<Self>) -> Vec<Floor> {
        let predicted = dictionary::tags(&examples.train.rows, &examples.eval.rows);
        let gold = examples.eval.rows.iter().map(|row| row.tags.iter().map(String::as_str).collect());
        let gold: Vec<Vec<&str>> = gold.collect();
        vec![Floor { name: dictionary::NAME, outcomes: outcomes_of(&gold, &predicted) }]
    }

    fn line(&self, file: &Path, row: &Sentence, answer: &Vec<Predicted>) -> Result<String> {
        let is_columns = file.extension().is_some_and(|extension| extension == "conll");
        let line = if is_columns { report::columns } else { report::line };
        Ok(line(&row.words, &row.tags, self, answer))
    }

    fn lines_bytes(&self, rows: &[Sentence]) -> u64 {
        report::rows_bytes(rows.iter().map(|row| row.words.as_slice()), self)
    }

    fn report(&self, judged: &Judged<'_, Self>, scored: &mut Scored) {
        let tally = tally(self, judged.rows, judged.answers);
        for (name, value) in report::scores(judged.loss, &tally) {
            let number = if name.ends_with("_number") { json!(value as u64) } else { json!(value) };
            scored.json.insert(format!("eval_{name}"), number);
        }
        scored.lines.push(format!("{:20} {}", "loss", measured(judged.loss, four_digits)));
        scored.lines.push(format!("{:20} {}", "words right", measured(tally.accuracy(), percent)));
    }

    fn explain(&self, judged: &Judged<'_, Self>, scored: &mut Scored) {
        let tally = tally(self, judged.rows, judged.answers);
        scored.lines.extend(report::score_table(&tally).lines().map(str::to_string));
    }

    /// The entities of a text, or a tag for each word of a sentence.
    fn answer(&self, question: &Asked, row: Sentence, answer: &Vec<Predicted>) -> Result<Value> {
        Ok(match question {
            Asked::Words(..) => report::word_row(&row.words, self, answer).into(),
            Asked::Text(input) => {
                let text = input.texts.0.as_str();
                let entities = report::entity_rows(text, &words_of(text), self, answer);
                json!({"text": text, "entities": entities})
            }
        })
    }
}
