//! Recognises models that have learnt nothing: they give the same answer to every example.

use crate::scores::{EntityCounts, Outcomes};

/// Predicted numbers count as equal if their range is below this share of the range in the data.
const NARROW: f64 = 0.01;

impl Outcomes {
    /// Describes predictions that are the same for all examples although the data differ; `None` for all
    /// others.
    pub fn uniform_answers(&self) -> Option<String> {
        match self {
            Self::Labels { gold, predicted, .. } => {
                let all = predicted.len();
                (all == gold.len() && !differ(predicted) && differ(gold))
                    .then(|| format!("all {all} examples get the same label"))
            }
            Self::LabelSets { gold, predicted, .. } => {
                let is_silent = predicted.len() == gold.len() && predicted.iter().all(Vec::is_empty);
                (is_silent && gold.iter().any(|labels| !labels.is_empty()))
                    .then(|| format!("none of {} examples gets a label", gold.len()))
            }
            Self::Entities { sentences, .. } => {
                let all: EntityCounts = sentences.iter().copied().sum();
                (all.support > 0 && all.predicted == 0)
                    .then(|| format!("none of {} entities is found, nor any other", all.support))
            }
            Self::Numbers { gold, predicted } => {
                let numbers = gold.first().map_or(0, Vec::len);
                let is_uniform = predicted.len() == gold.len()
                    && numbers > 0
                    && (0..numbers).all(|at| range(predicted, at) < NARROW * range(gold, at));
                is_uniform.then(|| format!("all {} examples get about the same number", gold.len()))
            }
        }
    }
}

fn differ(ids: &[u32]) -> bool {
    ids.iter().any(|id| *id != ids[0])
}

fn range(rows: &[Vec<f32>], number: usize) -> f64 {
    let values = rows.iter().map(|row| f64::from(row[number]));
    let highest = values.clone().fold(f64::NEG_INFINITY, f64::max);
    highest - values.fold(f64::INFINITY, f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_that_are_all_the_same_are_described_where_the_data_differ() {
        assert_eq!(labels(&[0, 1, 2], &[1, 1, 1]), "all 3 examples get the same label");
        assert_eq!(labels(&[0, 1, 2], &[1, 1, 2]), "");
        assert_eq!(labels(&[1, 1], &[1, 1]), "", "the data has one label");
        assert_eq!(labels(&[0, 1], &[]), "", "nothing was predicted");

        assert_eq!(sets(vec![vec![0], vec![]], vec![vec![], vec![]]), "none of 2 examples gets a label");
        assert_eq!(sets(vec![vec![0], vec![]], vec![vec![], vec![1]]), "");
        assert_eq!(sets(vec![vec![], vec![]], vec![vec![], vec![]]), "");

        assert_eq!(entities(&[[2, 0, 0], [1, 0, 0]]), "none of 3 entities is found, nor any other");
        assert_eq!(entities(&[[2, 1, 0], [1, 0, 0]]), "");
        assert_eq!(entities(&[[0, 0, 0]]), "");

        assert_eq!(numbers(&[0.0, 5.0], &[2.5, 2.501]), "all 2 examples get about the same number");
        assert_eq!(numbers(&[0.0, 5.0], &[2.5, 2.6]), "");
        assert_eq!(numbers(&[3.0, 3.0], &[2.5, 2.5]), "");
    }

    fn labels(gold: &[u32], predicted: &[u32]) -> String {
        described(&Outcomes::labels(3, gold, predicted))
    }

    fn sets(gold: Vec<Vec<u32>>, predicted: Vec<Vec<u32>>) -> String {
        described(&Outcomes::label_sets(3, gold, predicted))
    }

    fn entities(counts: &[[u64; 3]]) -> String {
        let sentences = counts.iter().copied().map(EntityCounts::from).collect();
        described(&Outcomes::Entities { sentences, euroeval: Vec::new() })
    }

    fn numbers(gold: &[f32], predicted: &[f32]) -> String {
        let [gold, predicted] = [gold, predicted].map(|values| values.iter().map(|v| vec![*v]).collect());
        described(&Outcomes::Numbers { gold, predicted })
    }

    fn described(outcomes: &Outcomes) -> String {
        outcomes.uniform_answers().unwrap_or_default()
    }
}
