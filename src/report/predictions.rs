//! The predictions of a run for its evaluation examples, read line by line from `predictions.jsonl`: counts,
//! and the wrong predictions with the highest confidence.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;
use serde_json::{Map, Value};

use crate::error::Problem;
use crate::fs;
use crate::report::rows;
use crate::report::rows::{Target, Wrong};
use crate::scores::{ClassScore, Confusion, EntityCounts, EntityTally, LabelTally};

/// File of the predictions for the evaluation examples, the same for all tasks.
const PREDICTIONS: &str = "predictions.jsonl";

/// Longest line in bytes; longer ones are left out.
const LINE_CAP_BYTES: u64 = 16 << 20;

/// Most wrong predictions that are listed.
const MOST_WRONG: usize = 12;

/// The predictions by the kind of task, in counts.
#[derive(Debug)]
pub(super) enum Counts {
    /// Classification with one label for each example.
    Labels { names: Vec<String>, confusion: Confusion },
    /// Several labels for an example, or entities: the name of each label or type with its scores.
    Scored(Vec<(String, ClassScore)>),
    /// Regression: each target with its numbers.
    Numbers(Vec<Target>),
}

/// The predictions of a run.
#[derive(Debug)]
pub(super) struct Predictions {
    pub(super) counts: Counts,
    /// Number of examples.
    pub(super) examples: u64,
    /// Number of examples with a mistake; `None` for numbers, which are never exactly right.
    pub(super) mistaken: Option<u64>,
    /// The worst mistakes, the worst one first.
    pub(super) wrong: Vec<Wrong>,
    /// Number of lines that are not predictions.
    pub(super) damaged: u64,
}

/// Reads the predictions in the folder of a run; `None` if there are none.
pub(super) fn read(folder: &Path) -> Result<Option<Predictions>> {
    let path = folder.join(PREDICTIONS);
    if !fs::exists(&path) {
        return Ok(None);
    }
    let mut reader = None;
    let mut damaged = 0;
    fs::each_line(&path, LINE_CAP_BYTES, &mut |line| {
        let row: Option<Map<String, Value>> = serde_json::from_slice(line).ok();
        let taken = row.and_then(|row| {
            let reader = match &mut reader {
                Some(reader) => reader,
                None => reader.insert(Reader::new(&row)?),
            };
            reader.take(&row)
        });
        damaged += u64::from(taken.is_none());
        Ok(())
    })?;
    match reader {
        Some(reader) => Ok(Some(reader.finish(damaged))),
        None if damaged == 0 => Ok(None),
        None => Err(Problem::new("holds no predictions").at(path.display()).into()),
    }
}

/// The counts so far, while predictions are read.
struct Reader {
    kind: Kind,
    examples: u64,
    mistaken: u64,
    wrong: Vec<Wrong>,
}

enum Kind {
    Labels {
        names: Vec<String>,
        ids: BTreeMap<String, u32>,
        counts: BTreeMap<(u32, u32), u64>,
    },
    Sets {
        names: Vec<String>,
        tally: LabelTally,
    },
    Tags(EntityTally),
    Numbers {
        targets: Vec<Target>,
        /// One of this many pairs is kept.
        every: u64,
    },
}

impl Reader {
    /// Returns a reader for rows of the same kind as `row`; `None` if `row` is not a prediction.
    fn new(row: &Map<String, Value>) -> Option<Self> {
        let labels = row.get("probabilities").and_then(Value::as_object);
        let names: Vec<String> = labels.map(|labels| labels.keys().cloned().collect()).unwrap_or_default();
        let kind = if row.contains_key("tags") {
            Kind::Tags(EntityTally::default())
        } else if row.contains_key("labels") {
            Kind::Sets { tally: LabelTally::new(names.len()), names }
        } else if row.contains_key("label") {
            let ids = names.iter().cloned().zip(0..).collect();
            Kind::Labels { names, ids, counts: BTreeMap::new() }
        } else if row.contains_key("prediction") {
            Kind::Numbers { targets: Vec::new(), every: 1 }
        } else {
            return None;
        };
        Some(Self { kind, examples: 0, mistaken: 0, wrong: Vec::new() })
    }

    /// Counts a row; `None` if the row is not of this reader's kind.
    fn take(&mut self, row: &Map<String, Value>) -> Option<()> {
        let wrong = match &mut self.kind {
            Kind::Labels { names, ids, counts } => rows::labels(row, names, ids, counts)?,
            Kind::Sets { names, tally } => rows::sets(row, names, tally)?,
            Kind::Tags(tally) => rows::tags(row, tally)?,
            Kind::Numbers { targets, every } => rows::numbers(row, self.examples, targets, every)?,
        };
        self.examples += 1;
        self.mistaken += u64::from(!wrong.is_empty());
        for wrong in wrong {
            // Kept in descending order of the score; of equal ones, the earlier row comes first.
            let place = self.wrong.partition_point(|other| other.score >= wrong.score);
            self.wrong.insert(place, wrong);
            self.wrong.truncate(MOST_WRONG);
        }
        Some(())
    }

    fn finish(self, damaged: u64) -> Predictions {
        let (counts, has_mistakes) = match self.kind {
            Kind::Labels { names, counts, .. } => {
                let mut confusion = Confusion::new(names.len());
                for ((gold, predicted), count) in counts {
                    (0..count).for_each(|_| confusion.add(gold, predicted));
                }
                (Counts::Labels { names, confusion }, true)
            }
            Kind::Sets { names, tally } => {
                (Counts::Scored(names.into_iter().zip(tally.per_label()).collect()), true)
            }
            Kind::Tags(tally) => {
                let scores = tally.by_type().map(|(kind, counts)| (kind.to_string(), class_score(counts)));
                (Counts::Scored(scores.collect()), true)
            }
            Kind::Numbers { targets, .. } => (Counts::Numbers(targets), false),
        };
        let mistaken = has_mistakes.then_some(self.mistaken);
        Predictions { counts, examples: self.examples, mistaken, wrong: self.wrong, damaged }
    }
}

fn class_score(counts: EntityCounts) -> ClassScore {
    ClassScore {
        precision: counts.precision(),
        recall: counts.recall(),
        f1: counts.f1(),
        support: counts.support,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn predictions(lines: &str) -> Predictions {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(PREDICTIONS), lines).unwrap();
        read(folder.path()).unwrap().unwrap()
    }

    #[test]
    fn labels_list_the_most_confident_mistakes_first() {
        let rows = [row("sea", "land", 0.6), row("sea", "sea", 0.99), row("land", "sea", 0.9)];
        let found = predictions(&format!("{}\n[1]\n", rows.concat()));
        let Counts::Labels { names, confusion } = &found.counts else { panic!("{found:?}") };
        assert_eq!(
            (names.as_slice(), confusion.count(0, 1), confusion.count(1, 0)),
            (["sea", "land"].map(str::to_string).as_slice(), 1, 1)
        );
        assert_eq!((found.examples, found.mistaken, found.damaged), (3, Some(2), 2));
        let listed: Vec<(&str, &str)> =
            found.wrong.iter().map(|w| (w.text[0].as_str(), w.predicted.as_str())).collect();
        assert_eq!(listed, [("land 0.9", "sea"), ("sea 0.6", "land")]);
        let many: String = (0..50).map(|at| row("sea", "land", 0.5 + f64::from(at) / 100.0)).collect();
        let found = predictions(&many);
        assert_eq!((found.wrong.len(), found.wrong[0].score), (MOST_WRONG, 0.99));
    }

    #[test]
    fn wrong_entities_are_marked_in_their_text() {
        let found = predictions(
            "{\"tokens\":[\"In\",\"New\",\"York\",\"Ann\"],\"tags\":[\"O\",\"B-LOC\",\"O\",\"B-PER\"],\"gold\":[\"O\",\"B-LOC\",\"I-LOC\",\"B-PER\"],\"scores\":[0.9,0.8,0.7,0.99]}\n",
        );
        let Counts::Scored(scores) = &found.counts else { panic!("{found:?}") };
        assert_eq!(
            scores.iter().map(|(kind, score)| (kind.as_str(), score.f1)).collect::<Vec<_>>(),
            [("LOC", 0.0), ("PER", 1.0)]
        );
        let listed: Vec<_> =
            found.wrong.iter().map(|w| (w.text.join("|"), w.gold.as_str(), w.predicted.as_str())).collect();
        let texts = [("In |New York| Ann".to_string(), "B-LOC I-LOC", "B-LOC O")];
        assert_eq!(listed, texts);
        assert_eq!((found.examples, found.mistaken), (1, Some(1)));
    }

    #[test]
    fn sets_and_numbers_list_the_largest_errors() {
        let found = predictions(
            "{\"text\":\"a\",\"labels\":[\"x\"],\"gold\":[\"y\"],\"scores\":[0.9],\"probabilities\":{\"x\":0.9,\"y\":0.05}}\n",
        );
        assert_eq!(
            (found.wrong[0].gold.as_str(), found.wrong[0].predicted.as_str(), found.wrong[0].score),
            ("y", "x", 0.95)
        );
        let found = predictions(
            "{\"text\":\"a\",\"prediction\":{\"p\":1.5,\"q\":2.0},\"gold\":{\"p\":1.0,\"q\":2.0}}\n\
             {\"text\":\"b\",\"prediction\":{\"p\":1.0,\"q\":9.0},\"gold\":{\"p\":4.0,\"q\":9.0}}\n",
        );
        let Counts::Numbers(targets) = &found.counts else { panic!("{found:?}") };
        let numbers: Vec<_> = targets.iter().map(|one| (one.name.as_str(), one.pairs.as_slice())).collect();
        assert_eq!(numbers, [("p", &[(1.0, 1.5), (4.0, 1.0)][..]), ("q", &[(2.0, 2.0), (9.0, 9.0)])]);
        let worst = &found.wrong[0];
        assert_eq!((worst.gold.as_str(), worst.predicted.as_str(), worst.score), ("p 4", "p 1", 3.0));
        assert_eq!(found.mistaken, None);
        let alone = predictions("{\"text\":\"a\",\"prediction\":-0.511,\"gold\":2.0}\n");
        assert_eq!((alone.wrong[0].gold.as_str(), alone.wrong[0].predicted.as_str()), ("2", "-0.511"));
    }

    #[test]
    fn a_file_without_predictions_is_an_error_and_a_missing_one_is_none() {
        let folder = tempfile::tempdir().unwrap();
        assert!(read(folder.path()).unwrap().is_none());
        std::fs::write(folder.path().join(PREDICTIONS), "{\"a\":1}\n").unwrap();
        assert!(
            read(folder.path()).unwrap_err().to_string().contains("predictions.jsonl: holds no predictions")
        );
    }

    fn row(gold: &str, label: &str, score: f64) -> String {
        format!(
            "{{\"text\":\"{gold} {score}\",\"label\":\"{label}\",\"gold\":\"{gold}\",\"score\":{score},\
             \"probabilities\":{{\"sea\":0.5,\"land\":0.5}}}}\n"
        )
    }
}
