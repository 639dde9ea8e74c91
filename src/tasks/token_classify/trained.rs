//! A token classifier as `evaluate` and `predict` use it.

use anyhow::Result;
use serde_json::{Value, json};

use crate::scores::{Outcomes, measured};
use crate::tasks::finite::require_finite;
use crate::tasks::labelled::input::Asked;
use crate::tasks::labelled::{InputFile, Tagging, read_tagged};
use crate::tasks::token_classify::data::{tally, words, write_predictions};
use crate::tasks::token_classify::words::words as words_of;
use crate::tasks::token_classify::{Tagger, report};
use crate::tasks::trained::{Answers, Evaluation, Scored, Trained, percent};

impl Trained for Tagger {
    fn evaluate(&self, evaluation: &Evaluation<'_>) -> Result<Scored> {
        let Evaluation { data, tagging, columns, .. } = *evaluation;
        let mut fields = tagging.columns;
        fields.token_field = columns.text;
        fields.tag_field = columns.label;
        fields.tag_names = evaluation.labels;
        let file = read_tagged(data, &Tagging { columns: fields, ..tagging })?;
        let sentences = &file.sentences;
        let gold: Vec<Vec<u32>> =
            sentences.iter().map(|sentence| self.labels.ids(data, sentence)).collect::<Result<_>>()?;
        let (encoded, predictions) = self.tag(&words(sentences), &gold, evaluation.batch_size)?;
        require_finite(&predictions.scores(), |row| evaluation.example(row))?;
        let first = &encoded.windows[..encoded.windows.len().min(evaluation.batch_size)];
        evaluation.dump_logits(&self.task, &self.collator.batch(first, 0))?;
        if let Some(path) = evaluation.predictions {
            let predicted = sentences.iter().zip(predictions.by_sentence.iter().map(Vec::as_slice));
            write_predictions(path, &self.labels, predicted, &|| false)?;
        }
        let tally = tally(&self.labels, sentences, &predictions.by_sentence);
        let mut scored = Scored::default();
        scored.warn_if_uniform(&Outcomes::Entities { sentences: vec![tally.overall()] });
        scored.add("examples", sentences.len(), "sentences", sentences.len());
        scored.add("words", file.num_words(), "words", file.num_words());
        for (name, value) in report::scores(predictions.loss.mean(), &tally) {
            let number = if name.ends_with("_number") { json!(value as u64) } else { json!(value) };
            scored.json.insert(format!("eval_{name}"), number);
        }
        let loss = predictions.loss.mean();
        scored.lines.push(format!("{:20} {}", "loss", measured(loss, |loss| format!("{loss:.4}"))));
        scored.lines.push(format!("{:20} {}", "words right", measured(tally.accuracy(), percent)));
        if encoded.long_sentences > 0 {
            let long = encoded.long_sentences;
            scored.add("long_examples", long, "in windows", format!("{long} sentences"));
        }
        if encoded.cut_words > 0 {
            scored.add("words_cut", encoded.cut_words, "words cut", encoded.cut_words);
        }
        if encoded.unseen_words > 0 {
            scored.add("words_unseen", encoded.unseen_words, "words unseen", encoded.unseen_words);
        }
        scored.lines.extend(file.notes(data));
        scored.lines.extend(report::score_table(&tally).lines().map(str::to_string));
        Ok(scored)
    }

    /// Splits a text into words and answers with its entities; answers a sentence of words with a tag for
    /// each word.
    fn predict(&self, input: &InputFile<'_>, batch_size: usize, answers: &mut dyn Answers) -> Result<()> {
        let mut asked = input.asked()?.peekable();
        let mut cut = 0;
        while asked.peek().is_some() {
            let batch: Vec<Asked> = asked.by_ref().take(batch_size).collect::<Result<_>>()?;
            let words: Vec<Vec<String>> = batch.iter().map(words_asked).collect();
            let words: Vec<&[String]> = words.iter().map(Vec::as_slice).collect();
            let (encoded, predictions) = self.tag(&words, &[], batch_size)?;
            require_finite(&predictions.scores(), |row| batch[row].row().place.clone())?;
            cut += encoded.cut_words;
            for ((asked, words), predicted) in batch.iter().zip(words).zip(predictions.by_sentence) {
                let found = match asked {
                    Asked::Words(..) => Value::from(report::word_row(words, &self.labels, &predicted)),
                    Asked::Text(row) => {
                        let text = row.texts.0.as_str();
                        let entities = report::entity_rows(text, &words_of(text), &self.labels, &predicted);
                        json!({"text": text, "entities": entities})
                    }
                };
                answers.answer(found, asked.row())?;
            }
        }
        if cut > 0 {
            answers.note(&format!("note: {cut} words were longer than the model takes and were cut"));
        }
        Ok(())
    }

    fn notes(&self) -> &[String] {
        self.tokenizer.notes()
    }
}

/// The words of a text or sentence to be answered.
fn words_asked(asked: &Asked) -> Vec<String> {
    match asked {
        Asked::Words(words, _) => words.clone(),
        Asked::Text(row) => {
            let text = &row.texts.0;
            words_of(text).into_iter().map(|span| text[span.bytes].to_string()).collect()
        }
    }
}
