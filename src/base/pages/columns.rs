//! Columns of text for a terminal.

/// Lines of cells under each other, two spaces between columns: the first `names` columns to the left, all
/// others to the right. Every row is as long as the first.
pub fn aligned<R: AsRef<[C]>, C: AsRef<str>>(rows: &[R], names: usize) -> Vec<String> {
    let columns = rows.first().map_or(0, |row| row.as_ref().len());
    let widths: Vec<usize> = (0..columns)
        .map(|column| rows.iter().map(|row| width(row.as_ref()[column].as_ref())).max().unwrap_or(0))
        .collect();
    let line = |row: &R| {
        let cells = row.as_ref().iter().zip(&widths).enumerate().map(|(column, (text, widest))| {
            let (text, gap) = (text.as_ref(), " ".repeat(widest - width(text.as_ref())));
            if column < names { format!("{text}{gap}") } else { format!("{gap}{text}") }
        });
        cells.collect::<Vec<String>>().join("  ")
    };
    rows.iter().map(line).collect()
}

/// Columns of a terminal that a text takes. It counts characters: labels may hold letters of several bytes.
pub fn width(text: &str) -> usize {
    text.chars().count()
}

/// The beginning of a text, at most so many characters.
pub fn shortened(text: &str, characters: usize) -> String {
    if width(text) <= characters {
        return text.to_string();
    }
    text.chars().take(characters - 1).chain(['…']).collect()
}

/// The beginning and the end of a text, `characters` wide at most.
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
