//! Scores of predicted numbers, with the names of transformers' `run_glue.py` for STS-B.

use base::scores::{mean, pearson, spearman};

/// Compares `predicted` with `gold`; each row has a number for each of `names`. Returns the errors and
/// correlations, averaged over the names, and with several names those of each. An undefined correlation,
/// such as that of constant predictions, is NaN.
pub(super) fn scores(names: &[String], gold: &[Vec<f32>], predicted: &[Vec<f32>]) -> Vec<(String, f64)> {
    let each: Vec<NumberScores> = (0..names.len())
        .map(|index| NumberScores::new(&column(gold, index), &column(predicted, index)))
        .collect();
    let all = NumberScores {
        mse: mean_over(&each, |scores| scores.mse),
        mae: mean_over(&each, |scores| scores.mae),
        pearson: mean_over(&each, |scores| scores.pearson),
        spearman: mean_over(&each, |scores| scores.spearman),
    };
    // The loss follows the rules of other losses: NaN without examples, infinite if predictions are NaN.
    let loss = if all.mse.is_nan() && !gold.is_empty() { f64::INFINITY } else { all.mse };
    let mut scores = vec![("loss".to_string(), loss)];
    scores.extend(all.named(""));
    if names.len() > 1 {
        scores.extend(names.iter().zip(&each).flat_map(|(name, each)| each.named(&format!("{name}_"))));
    }
    scores
}

fn column(rows: &[Vec<f32>], index: usize) -> Vec<f64> {
    rows.iter().map(|row| f64::from(row[index])).collect()
}

fn mean_over(scores: &[NumberScores], value: fn(&NumberScores) -> f64) -> f64 {
    mean(&scores.iter().map(value).collect::<Vec<f64>>())
}

/// Names of the scores that [`scores`] returns.
pub(super) fn score_names(names: &[String]) -> Vec<String> {
    let starts = std::iter::once(String::new());
    let starts = starts.chain(names.iter().filter(|_| names.len() > 1).map(|name| format!("{name}_")));
    let each = starts.flat_map(|start| SCORES.map(|name| format!("{start}{name}")));
    std::iter::once("loss".to_string()).chain(each).collect()
}

/// Names of the scores of one number.
const SCORES: [&str; 4] = ["mse", "mae", "pearson", "spearmanr"];

/// The scores of one number.
#[derive(Debug, Clone, Copy)]
struct NumberScores {
    mse: f64,
    mae: f64,
    pearson: f64,
    spearman: f64,
}

impl NumberScores {
    fn new(gold: &[f64], predicted: &[f64]) -> Self {
        Self {
            mse: mean_error(gold, predicted, |error| error * error),
            mae: mean_error(gold, predicted, f64::abs),
            pearson: pearson(gold, predicted),
            spearman: spearman(gold, predicted),
        }
    }

    fn named(&self, start: &str) -> Vec<(String, f64)> {
        let values = [self.mse, self.mae, self.pearson, self.spearman];
        SCORES.iter().zip(values).map(|(name, value)| (format!("{start}{name}"), value)).collect()
    }
}

/// The mean of `error` over the differences between predicted and gold numbers.
fn mean_error(gold: &[f64], predicted: &[f64], error: fn(f64) -> f64) -> f64 {
    mean(&gold.iter().zip(predicted).map(|(gold, value)| error(value - gold)).collect::<Vec<f64>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    // Golden values of scikit-learn 1.9 (mean_squared_error, mean_absolute_error) and scipy 1.17.1 (pearsonr,
    // spearmanr).
    #[test]
    fn scores_agree_with_scikit_learn_and_scipy() {
        let names = ["first".to_string(), "second".to_string()];
        let gold: Vec<Vec<f32>> =
            [[0.5, 1.0], [2.5, -1.0], [4.0, 0.25], [4.0, 3.0], [1.0, 2.0]].map(Vec::from).into();
        let predicted: Vec<Vec<f32>> =
            [[0.75, 2.0], [2.0, -1.5], [4.5, 0.0], [3.0, 2.5], [1.25, 0.5]].map(Vec::from).into();
        let found: Vec<String> = scores(&names, &gold, &predicted)
            .iter()
            .map(|(name, value)| format!("{name} {value:.12}"))
            .collect();
        let names_found: Vec<&str> = found.iter().filter_map(|line| line.split(' ').next()).collect();
        assert_eq!(score_names(&names), names_found);
        insta::assert_snapshot!(found.join("\n"), @r"
        loss 0.543750000000
        mse 0.543750000000
        mae 0.625000000000
        pearson 0.881460362361
        spearmanr 0.937339717240
        first_mse 0.325000000000
        first_mae 0.500000000000
        first_pearson 0.923530428898
        first_spearmanr 0.974679434481
        second_mse 0.762500000000
        second_mae 0.750000000000
        second_pearson 0.839390295824
        second_spearmanr 0.900000000000
        ");
    }

    #[test]
    fn an_undefined_correlation_is_not_measured() {
        let names = ["LABEL_0".to_string()];
        let found = scores(&names, &[vec![1.0], vec![2.0]], &[vec![1.5], vec![1.5]]);
        let undefined: Vec<&str> =
            found.iter().filter(|(_, value)| value.is_nan()).map(|(name, _)| name.as_str()).collect();
        assert_eq!(undefined, ["pearson", "spearmanr"]);
        assert!((found[0].1 - 0.25).abs() < 1e-12);
    }
}
