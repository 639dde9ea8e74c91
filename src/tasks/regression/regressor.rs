//! A regression model ready for use: predicts the numbers of texts.

use std::path::Path;

use anyhow::Result;
use candle_core::Device;
use serde_json::{Map, Value, json};

use crate::families::HeadKind;
use crate::fs::StagedFile;
use crate::scores::Outcomes;
use crate::tasks::classify::classifier::outputs;
use crate::tasks::classify::{Classifier, Encoded};
use crate::tasks::finite::require_finite;
use crate::tasks::labelled::{Columns, Example, InputFile, InputText, TextPair, read_examples};
use crate::tasks::regression::scores::scores;
use crate::tasks::trained::{Answers, Evaluation, Scored, Trained};

/// A model that differs from a classifier in its loss and output; the names of its numbers are the "labels".
pub struct Regressor(pub Classifier);

impl Regressor {
    /// Loads a trained model.
    pub fn load(path: &Path, device: &Device) -> Result<Self> {
        Ok(Self(Classifier::load_head(path, HeadKind::Regression, device)?))
    }

    /// Predicts the numbers of each example.
    fn numbers(&self, examples: &[Encoded], batch_size: usize) -> Result<Vec<Vec<f32>>> {
        let mut numbers = Vec::with_capacity(examples.len());
        for batch in examples.chunks(batch_size) {
            numbers.extend(outputs(&self.0.task, &self.0.collator, batch)?);
        }
        Ok(numbers)
    }
}

/// Formats a line of a predictions file.
pub(super) fn line(example: &Example, names: &[String], predicted: &[f32]) -> String {
    let mut row = row(&example.text, example.text_pair.as_deref(), names, predicted);
    row.insert("gold".to_string(), named(names, &example.numbers));
    Value::from(row).to_string() + "\n"
}

fn row(text: &str, text_pair: Option<&str>, names: &[String], numbers: &[f32]) -> Map<String, Value> {
    let mut row = Map::from_iter([("text".to_string(), json!(text))]);
    row.extend(text_pair.map(|pair| ("text_pair".to_string(), json!(pair))));
    row.insert("prediction".to_string(), named(names, numbers));
    row
}

/// JSON value of the numbers: a single one as a number, several as an object by their names.
fn named(names: &[String], numbers: &[f32]) -> Value {
    match numbers {
        [one] => json!(one),
        many => {
            names.iter().cloned().zip(many.iter().map(|number| json!(number))).collect::<Map<_, _>>().into()
        }
    }
}

impl Trained for Regressor {
    fn evaluate(&self, evaluation: &Evaluation<'_>) -> Result<Scored> {
        let names = &self.0.labels;
        let columns: &[String] = if names.len() > 1 { names } else { &[] };
        let columns = Columns { numbers: Some(columns), ..evaluation.columns };
        let examples = read_examples(evaluation.data, &columns)?;
        let texts: Vec<TextPair> = examples.iter().map(|e| (e.text.clone(), e.text_pair.clone())).collect();
        let (encoded, lost) = self.0.encode(&texts, &[])?;
        let first = &encoded[..encoded.len().min(evaluation.batch_size)];
        evaluation.dump_logits(&self.0.task, &self.0.collator.batch(first, 0))?;
        let predicted = self.numbers(&encoded, evaluation.batch_size)?;
        require_finite(&predicted, |row| evaluation.example(row))?;
        if let Some(path) = evaluation.predictions {
            let mut file = StagedFile::create(path)?;
            for (example, predicted) in examples.iter().zip(&predicted) {
                file.write(line(example, names, predicted).as_bytes())?;
            }
            file.publish(b"")?;
        }
        let gold: Vec<Vec<f32>> = examples.into_iter().map(|example| example.numbers).collect();
        let mut scored = Scored::default();
        scored.add("examples", gold.len(), "examples", gold.len());
        for (name, value) in scores(names, &gold, &predicted) {
            scored.add_measured(&name, value, &name.replace('_', " "), |value| format!("{value:.4}"));
        }
        scored.warn_if_uniform(&Outcomes::Numbers { gold, predicted });
        if lost.examples > 0 {
            let text = format!("{} examples, {} tokens lost", lost.examples, lost.tokens);
            scored.add("examples_cut", lost.examples, "cut", text);
        }
        Ok(scored)
    }

    fn predict(&self, input: &InputFile<'_>, batch_size: usize, answers: &mut dyn Answers) -> Result<()> {
        let mut examples = 0;
        let mut cut = 0;
        let mut texts = input.texts()?.peekable();
        while texts.peek().is_some() {
            let batch: Vec<InputText> = texts.by_ref().take(batch_size).collect::<Result<_>>()?;
            let pairs: Vec<TextPair> = batch.iter().map(|text| text.texts.clone()).collect();
            let (encoded, lost) = self.0.encode(&pairs, &[])?;
            examples += batch.len();
            cut += lost.examples;
            let predicted = self.numbers(&encoded, batch_size)?;
            require_finite(&predicted, |row| batch[row].place.clone())?;
            for (text, numbers) in batch.iter().zip(predicted) {
                let (first, second) = &text.texts;
                answers.answer(row(first, second.as_deref(), &self.0.labels, &numbers).into(), text)?;
            }
        }
        if cut > 0 {
            answers.note(&format!(
                "note: {cut} of {examples} texts were longer than the model takes and were cut"
            ));
        }
        Ok(())
    }

    fn notes(&self) -> &[String] {
        self.0.tokenizer.notes()
    }
}
