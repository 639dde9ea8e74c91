//! A classifier as `evaluate` and `predict` use it.

use anyhow::Result;
use serde_json::{Value, json};

use crate::fs::StagedFile;
use crate::ops::cross_entropy;
use crate::scores::{Confusion, Outcomes};
use crate::tasks::classify::classifier::softmax;
use crate::tasks::classify::report::best_class;
use crate::tasks::classify::{Classifier, LabelSet, PredictionRow, confusion_table};
use crate::tasks::finite::require_finite;
use crate::tasks::labelled::{Columns, Example, InputFile, InputText, TextPair, read_examples};
use crate::tasks::trained::{Answers, Evaluation, Scored, Trained, percent};
use crate::tasks::{Loss, PendingLoss};

impl Trained for Classifier {
    fn evaluate(&self, evaluation: &Evaluation<'_>) -> Result<Scored> {
        let columns = Columns { labelled: true, known_labels: &self.labels, ..evaluation.columns };
        let examples = read_examples(evaluation.data, &columns)?;
        let labels = LabelSet::given(&self.labels)?;
        let examples = labels.named(examples, evaluation.labels);
        let ids = labels.ids(evaluation.data, &examples)?;
        let texts: Vec<TextPair> = examples.iter().map(|e| (e.text.clone(), e.text_pair.clone())).collect();
        let mut file = evaluation.predictions.map(StagedFile::create).transpose()?;
        let mut rows = examples.into_iter();
        let (encoded, lost) = self.encode(&texts, &ids)?;
        let mut predicted = Vec::with_capacity(ids.len());
        let mut loss = Loss::default();
        for (number, batch) in encoded.chunks(evaluation.batch_size).enumerate() {
            if number == 0 {
                evaluation.dump_logits(&self.task, &self.collator.batch(batch, 0))?;
            }
            // The loss is computed from logits: it is finite even if a probability is 0 in f32.
            let logits = self.logits(batch)?;
            let gold: Vec<u32> = batch.iter().map(|example| example.label).collect();
            loss += PendingLoss::of(cross_entropy::forward(&logits, &gold)?, gold.len()).read()?;
            let probabilities = softmax(&logits)?;
            require_finite(&probabilities, |row| evaluation.example(number * evaluation.batch_size + row))?;
            for probabilities in probabilities {
                if let (Some(file), Some(row)) = (&mut file, rows.next()) {
                    let Example { text, text_pair, label, .. } = row;
                    let row = PredictionRow::new(text, text_pair, label, &self.labels, &probabilities);
                    file.write(row.line()?.as_bytes())?;
                }
                predicted.push(best_class(&probabilities) as u32);
            }
        }
        if let Some(file) = file {
            file.publish(b"")?;
        }
        let confusion = Confusion::of(self.labels.len(), &ids, &predicted);
        let loss = loss.mean();
        let accuracy = confusion.accuracy();
        let f1 = confusion.macro_f1();
        let mut scores = Scored::default();
        scores.warn_if_uniform(&Outcomes::labels(self.labels.len(), &ids, &predicted));
        scores.add("examples", ids.len(), "examples", ids.len());
        scores.add_measured("loss", loss, "loss", four_digits);
        scores.add_measured("accuracy", accuracy, "accuracy", percent);
        scores.add_measured("f1", f1, "macro F1", percent);
        scores.add_measured("matthews_correlation", confusion.matthews(), "Matthews", four_digits);
        if lost.examples > 0 {
            let text = format!("{} examples, {} tokens lost", lost.examples, lost.tokens);
            scores.add("examples_cut", lost.examples, "cut", text);
        }
        let by_class = self.labels.iter().zip(confusion.per_class());
        let by_class = by_class.map(|(label, score)| {
            let values = json!({
                "precision": score.precision,
                "recall": score.recall,
                "f1": score.f1,
                "support": score.support,
            });
            (label.clone(), values)
        });
        scores.json.insert("eval_by_class".to_string(), Value::Object(by_class.collect()));
        scores.lines.extend(self.label_notes());
        scores.lines.extend(confusion_table(&confusion, &self.labels).lines().map(str::to_string));
        Ok(scores)
    }

    fn predict(&self, input: &InputFile<'_>, batch_size: usize, answers: &mut dyn Answers) -> Result<()> {
        self.label_notes().iter().for_each(|note| answers.note(note));
        let mut examples = 0;
        let mut cut = 0;
        let mut texts = input.texts()?.peekable();
        while texts.peek().is_some() {
            let batch: Vec<InputText> = texts.by_ref().take(batch_size).collect::<Result<_>>()?;
            let pairs: Vec<TextPair> = batch.iter().map(|text| text.texts.clone()).collect();
            let (encoded, lost) = self.encode(&pairs, &[])?;
            examples += batch.len();
            cut += lost.examples;
            let probabilities = self.probabilities(&encoded)?;
            require_finite(&probabilities, |row| batch[row].place.clone())?;
            for ((text, (first, second)), probabilities) in batch.iter().zip(pairs).zip(probabilities) {
                let row = PredictionRow::new(first, second, None, &self.labels, &probabilities);
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
        self.tokenizer.notes()
    }
}

fn four_digits(value: f64) -> String {
    format!("{value:.4}")
}
