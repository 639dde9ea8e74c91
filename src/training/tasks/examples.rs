//! The training and evaluation examples of a fine-tuning run: from two files or from one that is split, with
//! the requested part of the training examples.
//!
//! Independent of the kind of labels: a task supplies the labels of its rows, and the classes whose
//! proportions are kept.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::Result;

use crate::tasks::labelled::files::Rows;
use crate::tasks::labelled::{BadRows, Columns, Example, read_examples_skipping};
use crate::tasks::subset;
use base::error::Problem;
use base::rng::{Purpose, Stream, hash_name};
use config::{ClassifyData, FinetuneConfig};

/// Rows with their gold labels, in the same order.
#[derive(Debug, Clone, PartialEq)]
pub struct Set<T, G> {
    /// The rows.
    pub rows: Vec<T>,
    /// The gold label of each row: an id, several ids, numbers, or the ids of words.
    pub gold: Vec<G>,
}

impl<T: Clone, G: Clone> Set<T, G> {
    /// As many rows as there are, drawn with replacement. Sets with other numbers draw independently.
    pub(super) fn drawn(&self, seed: u64, set: u64) -> Self {
        let stream = Stream::new(seed, Purpose::Bootstrap, set);
        let len = self.rows.len() as u64;
        let chosen: Vec<usize> = (0..len).map(|at| stream.below(at, len) as usize).collect();
        self.part(&chosen)
    }

    fn part(&self, chosen: &[usize]) -> Self {
        Self {
            rows: chosen.iter().map(|&index| self.rows[index].clone()).collect(),
            gold: chosen.iter().map(|&index| self.gold[index].clone()).collect(),
        }
    }
}

/// The training and evaluation examples of a configuration.
pub(super) struct Divided<T, G> {
    pub(super) train: Set<T, G>,
    pub(super) eval: Set<T, G>,
    pub(super) test: Option<Set<T, G>>,
    /// A warning about evaluation texts that are training texts as well.
    pub(super) warning: Option<String>,
}

/// The rows of the files that a configuration names.
pub struct Sources<T> {
    /// Rows to train on; without a separate evaluation file also the rows to evaluate on.
    pub(super) train: Rows<T>,
    eval: Option<Rows<T>>,
    test: Option<Rows<T>>,
}

impl<T: Clone> Sources<T> {
    /// Reads the rows; errors name the file.
    pub(super) fn read(data: &ClassifyData, mut read: impl FnMut(&Path) -> Result<Vec<T>>) -> Result<Self> {
        let train = Rows::read(&data.train_file, &mut read)?;
        let eval =
            data.eval_fraction.is_none().then(|| Rows::read(&data.eval_file, &mut read)).transpose()?;
        let test = data.test_file.as_ref().map(|path| Rows::read(path, &mut read)).transpose()?;
        Ok(Self { train, eval, test })
    }

    /// Returns the training and the evaluation examples. `gold` gives the labels of the rows of a file,
    /// `strata` the classes whose proportions each part keeps, and `text` a key that is equal for rows that
    /// count as the same. Parts of the examples are drawn with the seed of the run, so they are the same for
    /// every training seed.
    pub(super) fn divided<G: Clone>(
        self,
        config: &FinetuneConfig,
        gold: impl Fn(&Path, &[T]) -> Result<Vec<G>>,
        strata: impl Fn(&[G]) -> Vec<u32>,
        text: impl Fn(&T) -> String,
    ) -> Result<Divided<T, G>> {
        let all = labelled(self.train, &gold)?;
        let test = self.test.map(|rows| labelled(rows, &gold)).transpose()?;
        let mut warning = None;
        let (train, eval) = match (self.eval, config.data.eval_fraction) {
            (Some(eval), _) => {
                let eval = labelled(eval, &gold)?;
                warning = shared_texts(&all.rows, &eval.rows, &text);
                (all, eval)
            }
            (None, fraction) => {
                let texts: Vec<String> = all.rows.iter().map(&text).collect();
                let sides = held_out(&texts, &strata(&all.gold), fraction.unwrap_or_default())?;
                let (eval, train): (Vec<usize>, Vec<usize>) = (0..sides.len()).partition(|&row| sides[row]);
                (all.part(&train), all.part(&eval))
            }
        };
        let data = &config.data;
        let seed = config.run.seed;
        let train = match subset::chosen(&strata(&train.gold), data, seed)? {
            Some(chosen) => train.part(&chosen),
            None => train,
        };
        let eval = at_most(eval, data.max_eval_samples, seed, &strata);
        let test = test.map(|set| at_most(set, data.max_test_samples, seed, &strata));
        Ok(Divided { train, eval, test, warning })
    }
}

impl Sources<Example> {
    /// Reads texts with their labels, and returns a note for each file with skipped rows.
    pub(super) fn of_examples(data: &ClassifyData, columns: &Columns<'_>) -> Result<(Self, Vec<String>)> {
        let mut notes = Vec::new();
        let sources = Self::read(data, |path| {
            let mut bad_rows = BadRows::new(data.on_bad_record, "row");
            let examples = read_examples_skipping(path, columns, &mut bad_rows)?;
            notes.extend(bad_rows.note(path));
            Ok(examples)
        })?;
        Ok((sources, notes))
    }
}

/// At most `size` rows of a set, in the proportions of the classes.
fn at_most<T: Clone, G: Clone>(
    set: Set<T, G>,
    size: Option<usize>,
    seed: u64,
    strata: impl Fn(&[G]) -> Vec<u32>,
) -> Set<T, G> {
    match size.filter(|&size| size < set.rows.len()) {
        Some(size) => set.part(&subset::stratified(&strata(&set.gold), size, seed)),
        None => set,
    }
}

/// Rows with the labels that `gold` gives them.
fn labelled<T, G>(rows: Rows<T>, gold: &impl Fn(&Path, &[T]) -> Result<Vec<G>>) -> Result<Set<T, G>> {
    Ok(Set { gold: rows.each(gold)?, rows: rows.all })
}

/// Returns a warning if evaluation texts are training texts as well.
fn shared_texts<T>(train: &[T], eval: &[T], text: impl Fn(&T) -> String) -> Option<String> {
    let known: BTreeSet<u64> = train.iter().map(|row| hash_name(&text(row))).collect();
    let shared = eval.iter().filter(|row| known.contains(&hash_name(&text(row)))).count();
    (shared > 0).then(|| {
        format!(
            "{shared} of {} evaluation texts are also in `data.train_file`: the scores do not show how the model does \
             on other texts (take a `data.eval_file` without them, or `data.eval_fraction` of the training file)",
            eval.len()
        )
    })
}

/// True for each row that is kept for evaluation: this fraction of each stratum, chosen by the hashes of the
/// texts alone. So the order of the rows does not matter. Rows with the same text are on the same side and
/// count for the lowest of their strata. Each stratum keeps at least one text for training.
fn held_out(texts: &[String], strata: &[u32], fraction: f64) -> Result<Vec<bool>> {
    let mut units: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for (row, text) in texts.iter().enumerate() {
        units.entry(hash_name(text)).or_default().push(row);
    }
    let classes = strata.iter().max().map_or(0, |last| *last as usize + 1);
    let mut by_stratum: Vec<Vec<Vec<usize>>> = vec![Vec::new(); classes];
    for rows in units.into_values() {
        let lowest = rows.iter().map(|&row| strata[row]).min().unwrap_or_default();
        by_stratum[lowest as usize].push(rows);
    }
    let counts: Vec<usize> = by_stratum.iter().map(|units| units.iter().map(Vec::len).sum()).collect();
    let size = (texts.len() as f64 * fraction).round() as usize;
    let mut sides = vec![false; texts.len()];
    for (units, wanted) in by_stratum.iter().zip(subset::shares(&counts, size.clamp(1, texts.len().max(1)))) {
        let mut taken = 0;
        for rows in units.iter().take(units.len().saturating_sub(1)) {
            if taken >= wanted {
                break;
            }
            for &row in rows {
                sides[row] = true;
            }
            taken += rows.len();
        }
    }
    if sides.contains(&true) {
        return Ok(sides);
    }
    let message = format!("leaves none of the {} examples to evaluate on", texts.len());
    Err(Problem::usage(message).at("data.eval_fraction").hint("name a file with `data.eval_file`").into())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn evaluation_texts(rows: &[(String, u32)], fraction: f64) -> Option<BTreeSet<String>> {
        let texts: Vec<String> = rows.iter().map(|(text, _)| text.clone()).collect();
        let strata: Vec<u32> = rows.iter().map(|(_, stratum)| *stratum).collect();
        let sides = held_out(&texts, &strata, fraction).ok()?;
        let mut train = BTreeSet::new();
        let mut eval = BTreeSet::new();
        for (text, is_held_out) in texts.into_iter().zip(sides) {
            if is_held_out {
                eval.insert(text)
            } else {
                train.insert(text)
            };
        }
        assert!(train.is_disjoint(&eval), "a text on both sides");
        Some(eval)
    }

    #[test]
    fn a_bootstrap_has_the_size_of_its_set_and_depends_on_seed_and_set_alone() {
        let set = Set { rows: (0..1000).collect::<Vec<u32>>(), gold: (1000..2000).collect::<Vec<u32>>() };
        let drawn = set.drawn(4242, 0);
        assert_eq!((drawn.rows.len(), &drawn), (1000, &set.drawn(4242, 0)));
        assert!(drawn.rows.iter().zip(&drawn.gold).all(|(row, gold)| row + 1000 == *gold));
        // Of 1,000 rows about 632 are drawn at least once (1 - 1/e).
        let distinct = drawn.rows.iter().collect::<BTreeSet<&u32>>().len();
        assert!((590..680).contains(&distinct), "{distinct}");
        for other in [set.drawn(4243, 0), set.drawn(4242, 1)] {
            assert_ne!(drawn, other);
        }
        let empty = Set { rows: Vec::<u32>::new(), gold: Vec::<u32>::new() };
        assert_eq!(empty.drawn(1, 2), empty);
    }

    #[test]
    fn each_label_gives_its_share() {
        let rows: Vec<(String, u32)> =
            (0..1000).map(|i| (format!("text {i}"), u32::from(i % 10 == 0))).collect();
        let eval = evaluation_texts(&rows, 0.2).unwrap();
        let rare = rows.iter().filter(|(text, stratum)| *stratum == 1 && eval.contains(text)).count();
        assert_eq!((eval.len(), rare), (200, 20));
        assert!(evaluation_texts(&rows[..1], 0.5).is_none(), "one text cannot be on both sides");
        let rows = [("a".to_string(), 0), ("b".to_string(), 1)];
        assert!(evaluation_texts(&rows, 0.5).is_none(), "each label keeps a text to train on");
    }

    #[test]
    fn the_side_of_a_text_is_the_same_in_every_version() {
        let rows: Vec<(String, u32)> = (0..10).map(|i| (format!("text {i}"), 0)).collect();
        let eval: Vec<String> = evaluation_texts(&rows, 0.3).unwrap().into_iter().collect();
        insta::assert_debug_snapshot!(eval, @r#"
        [
            "text 2",
            "text 8",
            "text 9",
        ]
        "#);
    }

    proptest! {
        #[test]
        fn order_does_not_matter_and_equal_texts_stay_together(
            rows in proptest::collection::vec(("[a-f]{1,3}", 0u32..4), 2..200),
            fraction in 0.01f64..0.99,
            turn in 0usize..200,
        ) {
            let mut turned = rows.clone();
            turned.rotate_left(turn % rows.len());
            turned.reverse();
            let eval = evaluation_texts(&rows, fraction);
            let other = evaluation_texts(&turned, fraction);
            prop_assert_eq!(&eval, &other);
            let texts: BTreeSet<&String> = rows.iter().map(|(text, _)| text).collect();
            if let Some(eval) = eval {
                prop_assert!(!eval.is_empty() && eval.len() < texts.len());
            }
        }

        #[test]
        fn distinct_texts_keep_the_proportions(
            strata in proptest::collection::vec(0u32..4, 40..300),
            fraction in 0.1f64..0.9,
        ) {
            let rows = strata.iter().enumerate().map(|(row, stratum)| (format!("t{row}"), *stratum));
            let rows: Vec<(String, u32)> = rows.collect();
            let eval = evaluation_texts(&rows, fraction).unwrap();
            for stratum in 0..4 {
                let members: Vec<&(String, u32)> = rows.iter().filter(|(_, s)| *s == stratum).collect();
                let taken = members.iter().filter(|(text, _)| eval.contains(text)).count();
                let exact = members.len() as f64 * fraction;
                let all = members.len();
                prop_assert!((taken as f64 - exact).abs() <= 2.0, "{taken} of {all} at {fraction}");
            }
        }
    }
}
