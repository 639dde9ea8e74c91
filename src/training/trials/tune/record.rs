//! The record of a tuning: a file `tune.json` in its folder, with the rungs, the scores so far and the
//! winner. It contains no measured times, so that an interrupted tuning leaves the same bytes as another.

use std::path::Path;

use anyhow::Result;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::trials::grid_folder::Grid;
use crate::trials::summary::short_names;
use base::error::{Problem, Problems};
use base::fs;
use base::pages::table::Table;
use base::scores::{Better, NOT_MEASURED};

/// Name of the record in the folder of a tuning.
pub(super) const TUNE_JSON: &str = Grid::Tuning.results();

/// Largest record that is read, in bytes.
const CAP_BYTES: u64 = 64 << 20;

/// A tuning, finished or not.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TuneRecord<C> {
    /// The score that candidates are ranked by, by the name of transformers' Trainer.
    pub(super) metric: String,
    pub(super) better: Better,
    /// The time that the rungs were chosen for.
    pub(super) budget_seconds: f64,
    /// Steps that the configuration plans.
    pub(super) planned_steps: u64,
    pub(super) rungs: Vec<RungRecord>,
    pub(super) candidates: Vec<Entry>,
    /// Folder of the winner; absent until all rungs are done.
    pub(super) best: Option<String>,
    /// The configuration without the values of candidates.
    pub(super) config: C,
}

/// A rung and its steps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RungRecord {
    /// The number of candidates.
    pub(super) candidates: usize,
    /// The last step of the rung.
    pub(super) steps: u64,
    /// The last step of the last rung divided by this.
    pub(super) part: u64,
}

/// A candidate and its scores.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Entry {
    /// Folder of the run, in the folder of the tuning.
    pub(super) folder: String,
    /// The values of the varied keys, by their dotted paths.
    pub(super) setting: Map<String, Value>,
    /// The score at each rung that was reached.
    pub(super) scores: Vec<Measured>,
    /// The number of the rung after which the candidate dropped out, from 1; absent for the winner.
    pub(super) out_at: Option<usize>,
}

/// The score of a candidate at a rung.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Measured {
    /// Steps done.
    pub(super) step: u64,
    /// The score; null if it was not measured or training diverged.
    pub(super) score: Option<f64>,
    pub(super) diverged: bool,
}

impl Measured {
    /// The score as text.
    pub(super) fn text(&self) -> String {
        match self.score {
            _ if self.diverged => "diverged".to_string(),
            Some(score) => format!("{score:.4}"),
            None => NOT_MEASURED.to_string(),
        }
    }
}

impl<C: Serialize + DeserializeOwned> TuneRecord<C> {
    /// Reads the record in the folder of a tuning, if there is one.
    pub(super) fn read(folder: &Path) -> Result<Option<Self>> {
        let path = folder.join(TUNE_JSON);
        if !fs::exists(&path) {
            return Ok(None);
        }
        let record = serde_json::from_slice(&fs::read_capped(&path, CAP_BYTES)?).map_err(|e| {
            Problem::new(format!("is no record of a tuning of this kind: {e}"))
                .at(path.display())
                .hint("choose another `run.output_dir`, or remove the file to tune again")
        })?;
        Ok(Some(record))
    }

    /// Writes the record into the folder of the tuning.
    pub(super) fn write(&self, folder: &Path) -> Result<()> {
        let mut json = serde_json::to_value(self)?;
        json["config"] = config::saved(&self.config);
        fs::write_bytes(&folder.join(TUNE_JSON), format!("{json:#}\n").as_bytes())
    }

    /// Refuses the record of a tuning with another configuration or other candidates.
    pub(super) fn agree(&self, folder: &Path, current: &Self) -> Result<()> {
        let place = folder.join(TUNE_JSON).display().to_string();
        let hint = "repeat the tuning as it began, or choose another `run.output_dir`";
        let changes = config::diff(&self.config, &current.config).into_iter();
        let mut problems: Vec<Problem> = changes
            .filter(|change| !change.keeps_numbers())
            .map(|change| {
                Problem::usage(format!("`{}` was {} and is {} now", change.path, change.old, change.new))
            })
            .collect();
        let [began, now] = [self, current].map(|record| {
            record.candidates.iter().map(|candidate| candidate.folder.as_str()).collect::<Vec<_>>().join("; ")
        });
        if began != now {
            problems.push(Problem::usage(format!("the candidates were {began} and are {now} now")));
        }
        if self.metric != current.metric {
            let message = format!("the score was `{}` and is `{}` now", self.metric, current.metric);
            problems.push(Problem::usage(message));
        }
        let problems: Vec<Problem> =
            problems.into_iter().map(|problem| problem.at(&place).hint(hint)).collect();
        if problems.is_empty() { Ok(()) } else { Err(Problems(problems).into()) }
    }
}

impl<C> TuneRecord<C> {
    /// The candidates that are trained in a rung, from 0, in their order: the best of the rung before. Those
    /// without a score are never among them.
    pub(super) fn entrants(&self, rung: usize) -> Vec<usize> {
        let all: Vec<usize> = (0..self.candidates.len()).collect();
        (1..=rung).fold(all, |before, rung| {
            let mut ranked: Vec<(usize, f64)> = before
                .into_iter()
                .filter_map(|at| Some((at, self.candidates[at].scores.get(rung - 1)?.score?)))
                .collect();
            // A stable sort: of equal scores, the first candidate is better.
            ranked.sort_by(|(_, one), (_, other)| match self.better {
                Better::Lower => one.total_cmp(other),
                Better::Higher => other.total_cmp(one),
            });
            let wanted = self.rungs.get(rung).map_or(1, |rung| rung.candidates);
            let mut kept: Vec<usize> = ranked.into_iter().take(wanted).map(|(at, _)| at).collect();
            kept.sort_unstable();
            kept
        })
    }

    /// The best candidate of the last rung, if it has a score.
    pub(super) fn winner(&self) -> Option<usize> {
        self.entrants(self.rungs.len()).first().copied()
    }

    /// Says how many other candidates share the winner's score; `None` if no one does.
    pub(super) fn tie(&self) -> Option<String> {
        let last = self.rungs.len().checked_sub(1)?;
        let score = self.score(self.winner()?, last)?;
        let entrants = self.entrants(last).into_iter();
        let scores = entrants.filter_map(|at| self.score(at, last));
        let equal = scores.filter(|other| other.to_bits() == score.to_bits()).count();
        match equal {
            0 | 1 => None,
            2 => Some("a tie with 1 other".to_string()),
            count => Some(format!("a tie with {} others", count - 1)),
        }
    }

    /// The score of a candidate at a rung that it has reached.
    fn score(&self, candidate: usize, rung: usize) -> Option<f64> {
        self.candidates[candidate].scores.get(rung)?.score
    }

    /// The steps that are left to train after the scores so far.
    pub(super) fn steps_left(&self) -> u64 {
        let mut before = 0;
        let mut left = 0;
        for (at, rung) in self.rungs.iter().enumerate() {
            let done = self.candidates.iter().filter(|candidate| candidate.scores.len() > at).count();
            left += rung.candidates.saturating_sub(done) as u64 * (rung.steps - before);
            before = rung.steps;
        }
        left
    }

    /// A row for each candidate, with its score at each rung.
    pub(super) fn table(&self) -> Table {
        let keys: Vec<String> =
            self.candidates.first().map(|first| first.setting.keys().cloned().collect()).unwrap_or_default();
        let mut header: Vec<String> = short_names(&keys).into_iter().map(str::to_string).collect();
        let names = header.len();
        for (at, rung) in self.rungs.iter().enumerate() {
            let mut reached = self.candidates.iter().filter_map(|candidate| candidate.scores.get(at));
            let is_same = reached.all(|score| score.step == rung.steps);
            header.push(if is_same {
                format!("step {}", rung.steps)
            } else {
                format!("1/{} of steps", rung.part)
            });
        }
        header.push("out at rung".to_string());
        let rows = self.candidates.iter().map(|candidate| {
            let values = candidate.setting.values().map(|value| match value {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            });
            let scores = (0..self.rungs.len())
                .map(|rung| candidate.scores.get(rung).map(Measured::text).unwrap_or_default());
            let out_at = candidate.out_at.map(|rung| rung.to_string()).unwrap_or_default();
            values.chain(scores).chain([out_at]).collect()
        });
        Table { names, ..Table::new(header, rows.collect()).with_best(self.winner()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(better: Better, scores: &[&[Option<f64>]]) -> TuneRecord<Value> {
        let rungs = [(scores.len(), 10, 3), (2, 30, 1)];
        TuneRecord {
            metric: "eval_loss".to_string(),
            better,
            budget_seconds: 60.0,
            planned_steps: 30,
            rungs: rungs.map(|(candidates, steps, part)| RungRecord { candidates, steps, part }).to_vec(),
            candidates: (0..scores.len())
                .map(|at| Entry {
                    folder: format!("learning_rate={at}"),
                    setting: Map::from_iter([("training.learning_rate".to_string(), Value::from(at))]),
                    scores: scores[at]
                        .iter()
                        .map(|&score| Measured { step: 10, score, diverged: score.is_none() })
                        .collect(),
                    out_at: None,
                })
                .collect(),
            best: None,
            config: Value::Null,
        }
    }

    #[test]
    fn the_best_continue_and_those_without_a_score_never_do() {
        let scores: [&[Option<f64>]; 5] =
            [&[Some(3.0), Some(2.5)], &[None], &[Some(2.0), Some(2.5)], &[Some(3.0)], &[Some(4.0)]];
        let lower = record(Better::Lower, &scores);
        assert_eq!((lower.entrants(0), lower.entrants(1)), (vec![0, 1, 2, 3, 4], vec![0, 2]));
        assert_eq!(lower.winner(), Some(0), "of equal ones the first");
        assert_eq!(lower.tie().unwrap(), "a tie with 1 other");
        assert_eq!(lower.steps_left(), 0);
        let higher = record(Better::Higher, &scores);
        assert_eq!(higher.entrants(1), [0, 4]);
        assert_eq!(higher.tie(), None, "only the candidates of the last rung count");
        assert_eq!(record(Better::Lower, &[&[None], &[Some(1.0)], &[None]]).entrants(1), [1]);
        let lost = record(Better::Lower, &[&[None], &[None], &[None]]);
        assert_eq!((lost.entrants(1), lost.winner(), lost.tie()), (vec![], None, None));
        let mut all = record(Better::Lower, &[&[Some(1.0)], &[Some(1.0)], &[Some(2.0)], &[Some(1.0)]]);
        all.rungs.truncate(1);
        assert_eq!(all.tie().unwrap(), "a tie with 2 others");
        assert_eq!(record(Better::Lower, &[&[Some(1.0)], &[], &[]]).steps_left(), 2 * 10 + 2 * 20);
    }

    #[test]
    fn the_table_shows_each_score_and_the_winner() {
        let mut tuned = record(Better::Lower, &[&[Some(3.0), Some(2.5)], &[None], &[Some(2.0), Some(2.75)]]);
        tuned.candidates[0].scores[1].step = 30;
        tuned.candidates[2].scores[1].step = 30;
        (tuned.candidates[1].out_at, tuned.candidates[2].out_at) = (Some(1), Some(2));
        insta::assert_snapshot!(tuned.table().lines().join("\n"), @r"
          learning_rate   step 10  step 30  out at rung
        * 0                3.0000   2.5000
          1              diverged                     1
          2                2.0000   2.7500            2
        ");
    }

    #[test]
    fn a_record_comes_back_from_its_file_and_other_candidates_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let tuned = record(Better::Higher, &[&[Some(0.1)], &[Some(1.0 / 3.0)]]);
        assert_eq!(TuneRecord::<Value>::read(folder.path()).unwrap(), None);
        tuned.write(folder.path()).unwrap();
        assert_eq!(TuneRecord::read(folder.path()).unwrap().as_ref(), Some(&tuned));
        tuned.agree(folder.path(), &tuned).unwrap();
        let mut other = tuned.clone();
        other.candidates[0].folder = "learning_rate=7".to_string();
        other.config = serde_json::json!({"training": {"weight_decay": 0.1}});
        let message = tuned.agree(folder.path(), &other).unwrap_err().to_string();
        assert!(message.contains("the candidates were learning_rate=0; "), "{message}");
    }
}
