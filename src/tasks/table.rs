//! Tables of text for reports.

/// Columns of a terminal that a table may take.
pub(super) const WIDEST: usize = 100;

/// Rows of cells, the first to the left and all others to the right; `None` where that is too wide.
pub(super) fn aligned(rows: Vec<Vec<String>>) -> Option<String> {
    let columns = rows.first().map_or(0, Vec::len);
    let widths: Vec<usize> =
        (0..columns).map(|column| rows.iter().map(|row| width(&row[column])).max().unwrap_or(0)).collect();
    if widths.iter().sum::<usize>() + 2 * columns.saturating_sub(1) > WIDEST {
        return None;
    }
    let line = |row: Vec<String>| {
        let cells =
            row.iter().zip(&widths).skip(1).map(|(cell, columns)| format!("  {}", right(cell, *columns)));
        format!("{}{}\n", left(&row[0], widths[0]), cells.collect::<String>())
    };
    Some(rows.into_iter().map(line).collect())
}

// Padding counts characters: labels may hold letters of several bytes.
fn width(text: &str) -> usize {
    text.chars().count()
}

/// The beginning of a text, at most so many characters.
pub(super) fn shortened(text: &str, characters: usize) -> String {
    if width(text) <= characters {
        return text.to_string();
    }
    text.chars().take(characters - 1).chain(['…']).collect()
}

fn left(text: &str, columns: usize) -> String {
    format!("{text}{}", " ".repeat(columns.saturating_sub(width(text))))
}

fn right(text: &str, columns: usize) -> String {
    format!("{}{text}", " ".repeat(columns.saturating_sub(width(text))))
}
