//! Tables of text for reports.

use crate::pages::columns;
use crate::pages::columns::width;

/// Columns of a terminal that a table may take.
pub(super) const WIDEST: usize = 100;

/// Rows of cells, the first to the left and all others to the right; `None` where that is too wide.
pub(super) fn aligned(rows: &[Vec<String>]) -> Option<String> {
    let lines = columns::aligned(rows, 1);
    let fits = lines.iter().all(|line| width(line) <= WIDEST);
    fits.then(|| lines.into_iter().map(|line| line + "\n").collect())
}
