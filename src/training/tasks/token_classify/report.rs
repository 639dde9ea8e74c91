//! Output of a token classifier: rows of predictions as JSONL and as CoNLL columns, and scores by type.
//!
//! The scores themselves are computed in `scores`.

use std::fmt::Write;

use serde_json::{Map, Value, json};

use crate::tasks::labelled::tags::OUTSIDE;
use crate::tasks::sentences::Predicted;
use crate::tasks::sentences::words::{Span, joined};
use crate::tasks::table::{aligned, percent_number};
use crate::tasks::token_classify::TagSet;
use base::pages::columns::shortened;
use base::scores::{EntityTally, entities, measured};

/// Most characters of a type in the table of scores.
const TYPE_CHARS: usize = 50;

/// Most bytes of a word in both files of predictions, in addition to the word itself and its tags.
const WORD_BYTES: u64 = 90;

/// Returns the names of the predicted tags of a sentence; a word that the model never saw is in no entity.
pub(super) fn tags<'a>(labels: &'a TagSet, predicted: &[Predicted]) -> Vec<&'a str> {
    let names = labels.names();
    predicted.iter().map(|word| names.get(word.label as usize).map_or(OUTSIDE, String::as_str)).collect()
}

/// Returns the entities of a text, each with its words, type, score and place. `spans` are the ranges of the
/// words. The score is the mean probability of the tags of the entity's words.
pub(super) fn entity_rows(
    text: &str,
    spans: &[Span],
    labels: &TagSet,
    predicted: &[Predicted],
) -> Vec<Value> {
    let mut tags = Vec::with_capacity(predicted.len());
    for word in predicted {
        tags.push(if word.is_seen() { labels.tag(word.label) } else { OUTSIDE });
    }
    let mut rows = Vec::new();
    for entity in entities(&tags) {
        let first = &spans[entity.first];
        let last = &spans[entity.last];
        let words = &predicted[entity.first..=entity.last];
        let score = words.iter().map(|word| f64::from(word.score)).sum::<f64>() / words.len() as f64;
        rows.push(json!({
            "text": text[first.bytes.start..last.bytes.end],
            "type": entity.kind,
            "score": score,
            "start": first.characters.start,
            "end": last.characters.end,
        }));
    }
    rows
}

/// Returns the words of a sentence, their tags, and the probability of each tag (null for a word that the
/// model never saw).
pub(super) fn word_row(words: &[String], labels: &TagSet, predicted: &[Predicted]) -> Map<String, Value> {
    let scores: Vec<f32> = predicted.iter().map(|word| word.score).collect();
    let row = json!({"tokens": words, "tags": tags(labels, predicted), "scores": scores});
    let Value::Object(row) = row else { unreachable!("an object is written as one") };
    row
}

/// Formats a line of a predictions file: the words with predicted and gold tags, and the entities with their
/// places in the text that the words form with blanks between them.
pub(super) fn line(words: &[String], gold: &[String], labels: &TagSet, predicted: &[Predicted]) -> String {
    let mut row = word_row(words, labels, predicted);
    let (text, spans) = joined(words);
    row.insert("gold".to_string(), json!(gold));
    row.insert("entities".to_string(), entity_rows(&text, &spans, labels, predicted).into());
    row.insert("text".to_string(), text.into());
    Value::from(row).to_string() + "\n"
}

/// Formats the sentence as columns: word, gold tag, predicted tag; with an empty line at the end.
pub(super) fn columns(words: &[String], gold: &[String], labels: &TagSet, predicted: &[Predicted]) -> String {
    let mut text = String::new();
    for ((word, gold), tag) in words.iter().zip(gold).zip(tags(labels, predicted)) {
        // In JSONL a word may contain characters that would end a column or a line here.
        let word = word.replace(['\t', '\n', '\r'], " ");
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{word}\t{gold}\t{tag}");
    }
    text.push('\n');
    text
}

/// Estimates the bytes of both files of predictions.
pub(super) fn rows_bytes<'a>(sentences: impl Iterator<Item = &'a [String]>, labels: &TagSet) -> u64 {
    let longest = labels.names().iter().map(String::len).max().unwrap_or(0) as u64;
    let mut bytes = 0;
    for words in sentences {
        bytes += words.iter().map(|word| 4 * word.len() as u64 + 5 * longest + WORD_BYTES).sum::<u64>() + 100;
    }
    bytes
}

/// Returns the scores of a run, with the names of transformers' `run_ner.py` with
/// `return_entity_level_metrics`.
pub(super) fn scores(loss: f64, tally: &EntityTally) -> Vec<(String, f64)> {
    let overall = tally.overall();
    let mut scores = vec![
        ("loss".to_string(), loss),
        ("overall_precision".to_string(), overall.precision()),
        ("overall_recall".to_string(), overall.recall()),
        ("overall_f1".to_string(), overall.f1()),
        ("overall_accuracy".to_string(), tally.accuracy()),
    ];
    // A type may be called `overall`; it must not overwrite the scores of all types.
    for (kind, counts) in tally.by_type().filter(|(kind, _)| *kind != "overall") {
        let values = [
            ("precision", counts.precision()),
            ("recall", counts.recall()),
            ("f1", counts.f1()),
            ("number", counts.support as f64),
        ];
        scores.extend(values.map(|(name, value)| (format!("{kind}_{name}"), value)));
    }
    scores
}

/// Returns the names of the quality scores among [`scores`], including those of types that may not occur.
pub(super) fn score_names(labels: &TagSet) -> Vec<String> {
    let overall = ["loss", "overall_precision", "overall_recall", "overall_f1", "overall_accuracy"];
    let mut names = overall.map(str::to_string).to_vec();
    for kind in labels.kinds().into_iter().filter(|kind| *kind != "overall") {
        names.extend(["precision", "recall", "f1"].map(|name| format!("{kind}_{name}")));
    }
    names
}

/// Formats a table of precision, recall, F1 and support of each type, then of all types. Ends in a newline.
pub(super) fn score_table(tally: &EntityTally) -> String {
    let mut rows = vec![["type", "precision %", "recall %", "F1 %", "entities"].map(str::to_string).to_vec()];
    for (kind, counts) in tally.by_type().chain(std::iter::once(("all", tally.overall()))) {
        rows.push(vec![
            shortened(kind, TYPE_CHARS),
            measured(counts.precision(), percent_number),
            measured(counts.recall(), percent_number),
            measured(counts.f1(), percent_number),
            counts.support.to_string(),
        ]);
    }
    aligned(&rows).expect("the type is shortened and the numbers are narrow")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sentence() -> (Vec<String>, Vec<String>, TagSet, Vec<Predicted>) {
        let labels = TagSet::from_names(owned(&["O", "B-PER", "I-PER"]));
        let predicted =
            [(1, 0.5), (2, 0.75), (0, 1.0)].map(|(label, score)| Predicted { label, score }).to_vec();
        (owned(&["Åsa", "B.\t", "sings"]), owned(&["B-PER", "O", "O"]), labels, predicted)
    }

    fn owned(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_string()).collect()
    }

    #[test]
    fn predictions_are_lines_of_json_and_columns() {
        let (words, gold, labels, predicted) = sentence();
        let line = line(&words, &gold, &labels, &predicted);
        let columns = columns(&words, &gold, &labels, &predicted);
        insta::assert_snapshot!(line.trim_end(), @r#"{"tokens":["Åsa","B.\t","sings"],"tags":["B-PER","I-PER","O"],"scores":[0.5,0.75,1.0],"gold":["B-PER","O","O"],"entities":[{"text":"Åsa B.\t","type":"PER","score":0.625,"start":0,"end":7}],"text":"Åsa B.\t sings"}"#);
        assert_eq!(columns, "Åsa\tB-PER\tB-PER\nB. \tO\tI-PER\nsings\tO\tO\n\n");
        let bytes = line.len() + columns.len();
        let estimate = rows_bytes([&words[..]].into_iter(), &labels);
        assert!((bytes as u64..3 * bytes as u64).contains(&estimate), "{estimate} for {bytes}");
    }

    #[test]
    fn scores_have_the_names_of_run_ner() {
        let mut tally = EntityTally::default();
        tally.add(&["B-PER", "O", "B-LOC"], &["B-PER", "O", "B-PER"]);
        let names: Vec<String> =
            scores(0.5, &tally).into_iter().map(|(name, value)| format!("{name} {value:.2}")).collect();
        insta::assert_snapshot!(names.join("\n"), @r"
        loss 0.50
        overall_precision 0.50
        overall_recall 0.50
        overall_f1 0.50
        overall_accuracy 0.67
        LOC_precision 0.00
        LOC_recall 0.00
        LOC_f1 0.00
        LOC_number 1.00
        PER_precision 0.50
        PER_recall 1.00
        PER_f1 0.67
        PER_number 1.00
        ");
        insta::assert_snapshot!(score_table(&tally), @r"
        type  precision %  recall %   F1 %  entities
        LOC          0.00      0.00   0.00         1
        PER         50.00    100.00  66.67         1
        all         50.00     50.00  50.00         2
        ");
    }
}
