//! Aligns text in columns for a terminal, and shortens it.

/// Aligns cells in columns with two spaces between them, and returns a line for each row. The first `names`
/// columns are aligned to the left, all others to the right. Every row has the length of the first. A line
/// break in a cell is shown as `⏎`.
pub fn aligned<R: AsRef<[C]>, C: AsRef<str>>(rows: &[R], names: usize) -> Vec<String> {
    let rows: Vec<Vec<String>> =
        rows.iter().map(|row| row.as_ref().iter().map(|cell| one_line(cell.as_ref())).collect()).collect();
    let columns = rows.first().map_or(0, Vec::len);
    let widths: Vec<usize> =
        (0..columns).map(|column| rows.iter().map(|row| width(&row[column])).max().unwrap_or(0)).collect();
    rows.iter().map(|row| line(row, &widths, names)).collect()
}

fn one_line(cell: &str) -> String {
    cell.replace(['\n', '\r', '\u{b}', '\u{c}', '\u{85}', '\u{2028}', '\u{2029}'], "⏎")
}

/// Joins the cells of a row, each padded to its width.
fn line(row: &[String], widths: &[usize], names: usize) -> String {
    let cells = row.iter().zip(widths).enumerate().map(|(column, (text, widest))| {
        let gap = " ".repeat(widest - width(text));
        if column < names { format!("{text}{gap}") } else { format!("{gap}{text}") }
    });
    cells.collect::<Vec<String>>().join("  ")
}

/// Width of a text in columns of a terminal: its number of characters, since labels may have letters of
/// several bytes.
pub fn width(text: &str) -> usize {
    text.chars().count()
}

/// Divides a text between words into lines of at most `room` characters, or of the longest word if that is
/// longer.
pub fn folded(text: &str, room: usize) -> Vec<String> {
    let room = text.split(' ').map(width).max().unwrap_or(0).max(room);
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.len() - 1;
        if lines[last].is_empty() {
            lines[last] = word.to_string();
        } else if width(&lines[last]) + 1 + width(word) <= room {
            lines[last] = format!("{} {word}", lines[last]);
        } else {
            lines.push(word.to_string());
        }
    }
    lines
}

/// The start of a text, at most `characters` characters with the `…` that marks a cut.
pub fn shortened(text: &str, characters: usize) -> String {
    if width(text) <= characters {
        return text.to_string();
    }
    text.chars().take(characters - 1).chain(['…']).collect()
}

/// The start and the end of a text with `…` between them, at most `characters` characters in all.
pub fn without_middle(text: &str, characters: usize) -> String {
    let all = width(text);
    if all <= characters {
        return text.to_string();
    }
    let before = characters.saturating_sub(1) / 2;
    let after = characters.saturating_sub(before + 1);
    text.chars().take(before).chain(['…']).chain(text.chars().skip(all - after)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [vec!["päivä", "x", "7"], vec!["a", "long", "12"]];
        assert_eq!(aligned(&rows, 2), ["päivä  x      7", "a      long  12"]);
        assert!(aligned::<Vec<String>, String>(&[], 1).is_empty());
        assert_eq!(aligned(&[["a\nb  1.00", "2"]], 1), ["a⏎b  1.00  2"]);
    }

    #[test]
    fn a_text_is_folded_between_words() {
        assert_eq!(folded("test: micro F1 without MISC", 12), ["test: micro", "F1 without", "MISC"]);
        assert_eq!(folded("validation: entity F1", 3), ["validation:", "entity F1"]);
        assert_eq!(folded("loss", 12), ["loss"]);
        assert_eq!(folded("", 5), [""]);
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        assert_eq!(shortened("päivää", 6), "päivää");
        assert_eq!(shortened("päivää!", 6), "päivä…");
        assert_eq!(without_middle("päivää", 6), "päivää");
        assert_eq!(without_middle("päivää!ö", 6), "pä…ä!ö");
        assert_eq!(without_middle("ab", 1), "…");
    }
}
