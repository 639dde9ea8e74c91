//! Lists of names and counted nouns in sentences.

/// Joins names by commas, the last two by `conjunction`: `a`, `a and b`, `a, b and c`.
pub fn joined<S: AsRef<str>>(names: &[S], conjunction: &str) -> String {
    let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    match names.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} {conjunction} {last}", rest.join(", ")),
        _ => names.concat(),
    }
}

/// A number of things: `1 file`, `3 files`.
pub fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_two_names_are_joined_by_the_conjunction() {
        let names = ["a", "b", "c"];
        assert_eq!(
            [0, 1, 2, 3].map(|count| joined(&names[..count], "and")),
            ["", "a", "a and b", "a, b and c"]
        );
    }

    #[test]
    fn one_of_a_kind_is_singular() {
        assert_eq!([0, 1, 2].map(|count| counted(count, "file")), ["0 files", "1 file", "2 files"]);
    }
}
