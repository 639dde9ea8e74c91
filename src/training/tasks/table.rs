//! Tables of text for reports.

use base::pages::columns;
use base::pages::columns::width;

/// Widest table, in columns of the terminal.
pub(super) const WIDEST: usize = 100;

/// A share in percent, with two digits and without a sign.
pub(super) fn percent_number(share: f64) -> String {
    format!("{:.2}", 100.0 * share)
}

/// Aligns rows of cells, the first column to the left and all others to the right; `None` if that is too
/// wide.
pub(super) fn aligned(rows: &[Vec<String>]) -> Option<String> {
    let lines = columns::aligned(rows, 1);
    let fits = lines.iter().all(|line| width(line) <= WIDEST);
    fits.then(|| lines.into_iter().map(|line| line + "\n").collect())
}
