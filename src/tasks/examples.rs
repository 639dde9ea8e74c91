//! What a fine-tuning run trains on and what it is evaluated on: two files or one that is split, and of the
//! training examples the part that is asked for.
//!
//! It knows no label: a task says what its rows are labelled with, and in which proportions to take them.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;

use crate::config::ClassifyData;
use crate::config::FinetuneConfig;
use crate::error::Problem;
use crate::rng::hash_name;
use crate::tasks::labelled::BadRows;
use crate::tasks::labelled::Columns;
use crate::tasks::labelled::Example;
use crate::tasks::labelled::files::Rows;
use crate::tasks::labelled::read_examples_skipping;
use crate::tasks::subset;

/// Rows and their labels.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Set<T, I> {
    pub(super) rows: Vec<T>,
    pub(super) ids: Vec<I>,
}

impl<T: Clone, I: Clone> Set<T, I> {
    fn part(&self, chosen: &[usize]) -> Self {
        Self {
            rows: chosen.iter().map(|&index| self.rows[index].clone()).collect(),
            ids: chosen.iter().map(|&index| self.ids[index].clone()).collect(),
        }
    }
}

/// The rows that a configuration names.
pub(super) struct Sources<T> {
    /// Rows to train on, and where there is no other file also those to evaluate on.
    pub(super) train: Rows<T>,
    eval: Option<Rows<T>>,
}

impl<T: Clone> Sources<T> {
    /// Reads them; errors name the file.
    pub(super) fn read(data: &ClassifyData, mut read: impl FnMut(&Path) -> Result<Vec<T>>) -> Result<Self> {
        let train = Rows::read(&data.train_file, &mut read)?;
        let eval =
            data.eval_fraction.is_none().then(|| Rows::read(&data.eval_file, &mut read)).transpose()?;
        Ok(Self { train, eval })
    }

    /// The examples of training and those of evaluation. `ids` are the labels of rows of a file; `strata`
    /// are the classes whose proportions parts keep; `text` is what makes two rows the same. The part of
    /// the training examples is drawn with the seed of the run, the same for every training seed.
    pub(super) fn divided<I: Clone>(
        self,
        config: &FinetuneConfig,
        ids: impl Fn(&Path, &[T]) -> Result<Vec<I>>,
        strata: impl Fn(&Set<T, I>) -> Vec<u32>,
        text: impl Fn(&T) -> String,
    ) -> Result<(Set<T, I>, Set<T, I>)> {
        let set = |rows: Rows<T>| anyhow::Ok(Set { ids: rows.each(&ids)?, rows: rows.all });
        let all = set(self.train)?;
        let (train, eval) = match (self.eval, config.data.eval_fraction) {
            (Some(eval), _) => (all, set(eval)?),
            (None, fraction) => {
                let texts: Vec<String> = all.rows.iter().map(&text).collect();
                let sides = held_out(&texts, &strata(&all), fraction.unwrap_or_default())?;
                let of = |side: bool| -> Vec<usize> {
                    (0..sides.len()).filter(|&row| sides[row] == side).collect()
                };
                (all.part(&of(false)), all.part(&of(true)))
            }
        };
        Ok(match subset::chosen(&strata(&train), &config.data, config.run.seed)? {
            Some(chosen) => (train.part(&chosen), eval),
            None => (train, eval),
        })
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

/// Which rows are kept for evaluation: of each stratum this share, chosen by the hashes of the texts alone.
/// So the order of the rows does not matter, and rows with the same text are on one side, that of the
/// lowest of their strata. A stratum keeps a text to train on.
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

    fn held(rows: &[(String, u32)], fraction: f64) -> Option<BTreeSet<String>> {
        let texts: Vec<String> = rows.iter().map(|(text, _)| text.clone()).collect();
        let strata: Vec<u32> = rows.iter().map(|(_, stratum)| *stratum).collect();
        let sides = held_out(&texts, &strata, fraction).ok()?;
        let of = |wanted| {
            texts.iter().zip(&sides).filter(move |(_, side)| **side == wanted).map(|(t, _)| t.clone())
        };
        let (train, eval): (BTreeSet<String>, BTreeSet<String>) = (of(false).collect(), of(true).collect());
        assert!(train.is_disjoint(&eval), "a text on both sides");
        Some(eval)
    }

    #[test]
    fn each_label_gives_its_share() {
        let rows: Vec<(String, u32)> =
            (0..1000).map(|i| (format!("text {i}"), u32::from(i % 10 == 0))).collect();
        let eval = held(&rows, 0.2).unwrap();
        let rare = rows.iter().filter(|(text, stratum)| *stratum == 1 && eval.contains(text)).count();
        assert_eq!((eval.len(), rare), (200, 20));
        assert!(held(&rows[..1], 0.5).is_none(), "one text cannot be on both sides");
        let rows = [("a".to_string(), 0), ("b".to_string(), 1)];
        assert!(held(&rows, 0.5).is_none(), "each label keeps a text to train on");
    }

    #[test]
    fn the_side_of_a_text_is_the_same_in_every_version() {
        let rows: Vec<(String, u32)> = (0..10).map(|i| (format!("text {i}"), 0)).collect();
        let eval: Vec<String> = held(&rows, 0.3).unwrap().into_iter().collect();
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
            let (eval, other) = (held(&rows, fraction), held(&turned, fraction));
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
            let eval = held(&rows, fraction).unwrap();
            for stratum in 0..4 {
                let of: Vec<&(String, u32)> = rows.iter().filter(|(_, s)| *s == stratum).collect();
                let taken = of.iter().filter(|(text, _)| eval.contains(text)).count();
                let exact = of.len() as f64 * fraction;
                prop_assert!((taken as f64 - exact).abs() <= 2.0, "{taken} of {} at {fraction}", of.len());
            }
        }
    }
}
