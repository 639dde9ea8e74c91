//! The table of the scores of each label.

use crate::tasks::table::{aligned, percent_number};
use base::pages::columns::shortened;
use base::scores::{ClassScore, LabelTally};

/// Most characters of a label in the table of scores.
const LABEL_CHARS: usize = 40;

/// Formats a table of threshold, precision, recall, F1 and support of each label. Ends in a newline.
pub(super) fn label_table(tally: &LabelTally, labels: &[String], thresholds: &[f64]) -> String {
    let header = ["label", "threshold", "precision %", "recall %", "F1 %", "examples"].map(str::to_string);
    let mut rows = vec![header.to_vec()];
    for ((label, score), threshold) in labels.iter().zip(tally.per_label()).zip(thresholds) {
        let ClassScore { precision, recall, f1, support } = score;
        let shares = [precision, recall, f1].map(percent_number);
        let first = [shortened(label, LABEL_CHARS), format!("{threshold:.3}")];
        rows.push([&first[..], &shares, &[support.to_string()]].concat());
    }
    aligned(&rows).expect("the label is shortened and the numbers are narrow")
}
