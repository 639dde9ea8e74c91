//! The confusion matrix of a classifier as a table, and the scores of each label.

use crate::tasks::table::{WIDEST, aligned, percent_number};
use base::pages::columns::shortened;
use base::scores::Confusion;

/// Most characters of a label in the table of scores.
const LABEL_CHARS: usize = 50;
/// Most characters of a label in a matrix with numbered columns.
const NUMBERED_CHARS: usize = 16;

/// Heading of the matrix: rows are gold labels, columns predicted ones.
const CORNER: &str = "gold \\ predicted";

/// Number of confusions that are listed if the matrix would be too wide.
const LISTED_CONFUSIONS: usize = 20;

/// Formats the confusion matrix as text, followed by precision, recall, F1 and support of each label.
///
/// `labels` are the names of the classes: a row for each gold label, a column for each predicted one. If the
/// names make the table too wide, columns are headed by the numbers of their labels; if that is still too
/// wide, only the most frequent confusions are listed. Ends in a newline.
pub fn confusion_table(confusion: &Confusion, labels: &[String]) -> String {
    let matrix = named_columns(confusion, labels)
        .or_else(|| numbered_columns(confusion, labels))
        .unwrap_or_else(|| frequent_confusions(confusion, labels));
    format!("{matrix}\n{}", scores_by_label(confusion, labels))
}

fn named_columns(confusion: &Confusion, labels: &[String]) -> Option<String> {
    may_fit(labels)?;
    let rows = labels.iter().enumerate().map(|(gold, label)| numbers(label.clone(), confusion, gold));
    let header = std::iter::once(CORNER.to_string()).chain(labels.iter().cloned()).collect();
    aligned(&std::iter::once(header).chain(rows).collect::<Vec<_>>())
}

/// The number in front of a row's label is the heading of its column.
fn numbered_columns(confusion: &Confusion, labels: &[String]) -> Option<String> {
    may_fit(labels)?;
    let header = std::iter::once(CORNER.to_string()).chain((1..=labels.len()).map(|n| n.to_string()));
    let rows = labels.iter().enumerate().map(|(index, label)| {
        numbers(format!("{:>2} {}", index + 1, shortened(label, NUMBERED_CHARS)), confusion, index)
    });
    aligned(&std::iter::once(header.collect()).chain(rows).collect::<Vec<_>>())
}

/// Returns `None` if even a digit for each column is too wide, so that no table of thousands of labels is
/// built.
fn may_fit(labels: &[String]) -> Option<()> {
    (labels.len() * 3 <= WIDEST).then_some(())
}

/// The row of label `gold`: `first`, then its counts.
fn numbers(first: String, confusion: &Confusion, gold: usize) -> Vec<String> {
    let counts = (0..confusion.classes()).map(|predicted| confusion.count(gold, predicted).to_string());
    std::iter::once(first).chain(counts).collect()
}

fn scores_by_label(confusion: &Confusion, labels: &[String]) -> String {
    let mut rows =
        vec![["label", "precision %", "recall %", "F1 %", "examples"].map(str::to_string).to_vec()];
    for (label, score) in labels.iter().zip(confusion.per_class()) {
        rows.push(vec![
            shortened(label, LABEL_CHARS),
            percent_number(score.precision),
            percent_number(score.recall),
            percent_number(score.f1),
            score.support.to_string(),
        ]);
    }
    aligned(&rows).expect("the label is shortened and the numbers are narrow")
}

fn frequent_confusions(confusion: &Confusion, labels: &[String]) -> String {
    let mut wrong: Vec<(u64, usize, usize)> =
        confusion.mistakes().map(|(gold, predicted, count)| (count, gold, predicted)).collect();
    wrong.sort_by_key(|(count, gold, predicted)| (std::cmp::Reverse(*count), *gold, *predicted));
    let shown = wrong.len().min(LISTED_CONFUSIONS);
    let title = format!("{shown} most frequent of {} confusions, as count  gold -> predicted\n", wrong.len());
    let mut lines = vec![title];
    for (count, gold, predicted) in &wrong[..shown] {
        lines.push(format!("{count:>6}  {} -> {}\n", labels[*gold], labels[*predicted]));
    }
    lines.concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_string()).collect()
    }

    /// Confusion matrix from (gold class, predicted class, count).
    fn confusion(classes: usize, counts: &[(u32, u32, u32)]) -> Confusion {
        let mut confusion = Confusion::new(classes);
        for &(gold, predicted, count) in counts {
            (0..count).for_each(|_| confusion.add(gold, predicted));
        }
        confusion
    }

    #[test]
    fn a_small_matrix_is_shown_whole() {
        let counts = confusion(2, &[(0, 0, 120), (0, 1, 3), (1, 0, 7), (1, 1, 88)]);
        let table = confusion_table(&counts, &labels(&["ympäristöministeri", "pos"]));
        insta::assert_snapshot!(table, @r"
        gold \ predicted    ympäristöministeri  pos
        ympäristöministeri                 120    3
        pos                                  7   88

        label               precision %  recall %   F1 %  examples
        ympäristöministeri        94.49     97.56  96.00       123
        pos                       96.70     92.63  94.62        95
        ");
    }

    #[test]
    fn fifteen_long_labels_fit_the_terminal_by_their_numbers() {
        let names: Vec<String> = (0..15).map(|id| format!("ympäristöministeriö, osasto {id}")).collect();
        let table = confusion_table(&confusion(15, &[(0, 0, 812), (0, 14, 7), (14, 14, 1204)]), &names);
        assert!(table.lines().all(|line| line.chars().count() <= WIDEST), "{table}");
        insta::assert_snapshot!(table.lines().step_by(15).collect::<Vec<_>>().join("\n"), @r"
        gold \ predicted       1  2  3  4  5  6  7  8  9  10  11  12  13  14    15
        15 ympäristöminist…    0  0  0  0  0  0  0  0  0   0   0   0   0   0  1204
        ympäristöministeriö, osasto 12         0.00      0.00   0.00         0
        ");
    }

    #[test]
    fn of_many_labels_only_the_confusions_are_listed() {
        // A table of this many columns is not even built.
        let many: Vec<String> = (0..100_000).map(|id| format!("c{id}")).collect();
        let table = confusion_table(&confusion(many.len(), &[(99_999, 0, 1)]), &many);
        assert!(table.starts_with("1 most frequent of 1 confusions"), "{}", &table[..80]);
        let names: Vec<String> = (0..77).map(|id| format!("c{id}")).collect();
        let table = confusion_table(&confusion(77, &[(4, 4, 50), (4, 5, 2), (7, 1, 9)]), &names);
        insta::assert_snapshot!(table.lines().take(10).collect::<Vec<_>>().join("\n"), @"
        2 most frequent of 2 confusions, as count  gold -> predicted
             9  c7 -> c1
             2  c4 -> c5

        label  precision %  recall %   F1 %  examples
        c0            0.00      0.00   0.00         0
        c1            0.00      0.00   0.00         0
        c2            0.00      0.00   0.00         0
        c3            0.00      0.00   0.00         0
        c4          100.00     96.15  98.04        52
        ");
    }
}
