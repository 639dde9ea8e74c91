//! A classifier with several labels per text, ready for use: predicts the labels whose probability is above
//! their threshold.

use std::path::Path;

use anyhow::Result;
use candle_core::Device;
use serde_json::{Value, json};

use crate::families::HeadKind;
use crate::fs::StagedFile;
use crate::ops::sigmoid_cross_entropy::sigmoid;
use crate::scores::{Outcomes, above};
use crate::tasks::Loss;
use crate::tasks::classify::classifier::outputs;
use crate::tasks::classify::{Classifier, LabelSet};
use crate::tasks::finite::require_finite;
use crate::tasks::labelled::{Columns, InputFile, InputText, TextPair, read_examples};
use crate::tasks::multi_label::data::judged;
use crate::tasks::multi_label::report::{PredictionRow, TUNED, label_table, scores, tally};
use crate::tasks::multi_label::thresholds::Thresholds;
use crate::tasks::trained::{Answers, Evaluation, Scored, Trained, percent};

/// A model that differs from a classifier only in its loss and in the use of its outputs.
pub struct Labeller {
    /// Model, tokenizer and label names.
    pub classifier: Classifier,
    /// Threshold of each label.
    pub thresholds: Thresholds,
}

impl Labeller {
    /// Loads a trained model with its thresholds.
    pub fn load(path: &Path, device: &Device) -> Result<Self> {
        let classifier = Classifier::load_head(path, HeadKind::MultiLabelClassification, device)?;
        let thresholds = Thresholds::load(path, &classifier.labels)?;
        Ok(Self { classifier, thresholds })
    }
}

impl Trained for Labeller {
    fn evaluate(&self, evaluation: &Evaluation<'_>) -> Result<Scored> {
        let Self { classifier, thresholds } = self;
        let labels = &classifier.labels;
        let columns = Columns { several: Some(labels), ..evaluation.columns };
        let examples = read_examples(evaluation.data, &columns)?;
        let set = LabelSet::given_some(labels)?;
        let examples = set.named(examples, evaluation.labels);
        let gold = set.sets(evaluation.data, &examples)?;
        let texts: Vec<TextPair> = examples.iter().map(|e| (e.text.clone(), e.text_pair.clone())).collect();
        let (encoded, lost) = classifier.encode(&texts, &[])?;
        let first = &encoded[..encoded.len().min(evaluation.batch_size)];
        evaluation.dump_logits(&classifier.task, &classifier.collator.batch(first, 0))?;
        let mut probabilities = Vec::with_capacity(gold.len());
        let mut loss = Loss::default();
        for (encoded, ids) in encoded.chunks(evaluation.batch_size).zip(gold.chunks(evaluation.batch_size)) {
            let logits = outputs(&classifier.task, &classifier.collator, encoded)?;
            require_finite(&logits, |row| evaluation.example(probabilities.len() + row))?;
            let (rows, batch_loss) = judged(logits, ids)?;
            probabilities.extend(rows);
            loss += batch_loss;
        }
        if let Some(path) = evaluation.predictions {
            let mut file = StagedFile::create(path)?;
            for (example, row) in examples.iter().zip(&probabilities) {
                let row = PredictionRow::of_example(example, labels, row, thresholds);
                file.write(row.line()?.as_bytes())?;
            }
            file.publish(b"")?;
        }
        let found = tally(&gold, &probabilities, thresholds);
        let untuned = tally(&gold, &probabilities, &Thresholds::default_of(labels.len()));
        let mut scored = Scored::default();
        let predicted = probabilities.iter().map(|row| above(row, &thresholds.values)).collect();
        scored.warn_if_uniform(&Outcomes::LabelSets { classes: labels.len(), gold: gold.clone(), predicted });
        scored.add("examples", gold.len(), "examples", gold.len());
        scored.add_measured("loss", loss.mean(), "loss", |loss| format!("{loss:.4}"));
        let mut tallies = vec![("", &untuned)];
        if thresholds.are_tuned {
            tallies.push((TUNED, &found));
        }
        for (suffix, tally) in tallies {
            for (name, value) in scores(tally) {
                let name = format!("{name}{suffix}");
                scored.add_measured(&name, value, &name.replace('_', " "), percent);
            }
        }
        if lost.examples > 0 {
            let text = format!("{} examples, {} tokens lost", lost.examples, lost.tokens);
            scored.add("examples_cut", lost.examples, "cut", text);
        }
        let by_label = labels.iter().zip(found.per_label()).zip(&thresholds.values);
        let by_label = by_label.map(|((label, score), threshold)| {
            let values = json!({
                "threshold": threshold,
                "precision": score.precision,
                "recall": score.recall,
                "f1": score.f1,
                "support": score.support,
            });
            (label.clone(), values)
        });
        scored.json.insert("eval_by_label".to_string(), Value::Object(by_label.collect()));
        scored.lines.extend(classifier.label_notes());
        scored.lines.push(thresholds.description());
        scored.lines.extend(label_table(&found, labels, thresholds).lines().map(str::to_string));
        Ok(scored)
    }

    fn predict(&self, input: &InputFile<'_>, batch_size: usize, answers: &mut dyn Answers) -> Result<()> {
        let Self { classifier, thresholds } = self;
        classifier.label_notes().iter().for_each(|note| answers.note(note));
        answers.note(&format!("note: {}", thresholds.description()));
        let mut examples = 0;
        let mut cut = 0;
        let mut texts = input.texts()?.peekable();
        while texts.peek().is_some() {
            let batch: Vec<InputText> = texts.by_ref().take(batch_size).collect::<Result<_>>()?;
            let pairs: Vec<TextPair> = batch.iter().map(|text| text.texts.clone()).collect();
            let (encoded, lost) = classifier.encode(&pairs, &[])?;
            examples += batch.len();
            cut += lost.examples;
            let logits = outputs(&classifier.task, &classifier.collator, &encoded)?;
            require_finite(&logits, |row| batch[row].place.clone())?;
            for ((text, (first, second)), logits) in batch.iter().zip(pairs).zip(logits) {
                let probabilities: Vec<f32> = logits.into_iter().map(sigmoid).collect();
                let row =
                    PredictionRow::new(first, second, None, &classifier.labels, &probabilities, thresholds);
                answers.answer(serde_json::to_value(&row)?, text)?;
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
        self.classifier.tokenizer.notes()
    }
}
