//! Models that have learnt nothing: they give every example the same answer.

use crate::scores::EntityCounts;
use crate::scores::Outcomes;

/// Predicted numbers whose range is below this share of the range in the data are one number.
const NARROW: f64 = 0.01;

impl Outcomes {
    /// Describes answers that are the same for all examples although those of the data differ; none for any others.
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
            Self::Entities { sentences } => {
                let all: EntityCounts = sentences.iter().copied().sum();
                (all.support > 0 && all.predicted == 0)
                    .then(|| format!("none of {} entities is found, nor any other", all.support))
            }
            Self::Numbers { gold, predicted } => {
                let numbers = gold.first().map_or(0, Vec::len);
                let is_one = |at| range(predicted, at) < NARROW * range(gold, at);
                (predicted.len() == gold.len() && numbers > 0 && (0..numbers).all(is_one))
                    .then(|| format!("all {} examples get about the same number", gold.len()))
            }
        }
    }
}

fn differ(ids: &[u32]) -> bool {
    ids.iter().any(|id| *id != ids[0])
}

fn range(rows: &[Vec<f32>], number: usize) -> f64 {
    let values = || rows.iter().map(|row| f64::from(row[number]));
    values().fold(f64::NEG_INFINITY, f64::max) - values().fold(f64::INFINITY, f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_that_are_all_the_same_are_described_where_the_data_differ() {
        let told = |outcomes: Outcomes| outcomes.uniform_answers().unwrap_or_default();
        let labels = |gold: &[u32], predicted: &[u32]| told(Outcomes::labels(3, gold, predicted));
        assert_eq!(labels(&[0, 1, 2], &[1, 1, 1]), "all 3 examples get the same label");
        assert_eq!(labels(&[0, 1, 2], &[1, 1, 2]), "");
        assert_eq!(labels(&[1, 1], &[1, 1]), "", "the data has one label");
        assert_eq!(labels(&[0, 1], &[]), "", "nothing was predicted");

        let sets = |gold: Vec<Vec<u32>>, predicted: Vec<Vec<u32>>| {
            told(Outcomes::LabelSets { classes: 3, gold, predicted })
        };
        assert_eq!(sets(vec![vec![0], vec![]], vec![vec![], vec![]]), "none of 2 examples gets a label");
        assert_eq!(sets(vec![vec![0], vec![]], vec![vec![], vec![1]]), "");
        assert_eq!(sets(vec![vec![], vec![]], vec![vec![], vec![]]), "");

        let entities = |counts: &[[u64; 3]]| {
            told(Outcomes::Entities { sentences: counts.iter().copied().map(EntityCounts::from).collect() })
        };
        assert_eq!(entities(&[[2, 0, 0], [1, 0, 0]]), "none of 3 entities is found, nor any other");
        assert_eq!(entities(&[[2, 1, 0], [1, 0, 0]]), "");
        assert_eq!(entities(&[[0, 0, 0]]), "");

        let rows = |values: &[f32]| values.iter().map(|value| vec![*value]).collect::<Vec<_>>();
        let numbers = |gold: &[f32], predicted: &[f32]| {
            told(Outcomes::Numbers { gold: rows(gold), predicted: rows(predicted) })
        };
        assert_eq!(numbers(&[0.0, 5.0], &[2.5, 2.501]), "all 2 examples get about the same number");
        assert_eq!(numbers(&[0.0, 5.0], &[2.5, 2.6]), "");
        assert_eq!(numbers(&[3.0, 3.0], &[2.5, 2.5]), "");
    }
}
