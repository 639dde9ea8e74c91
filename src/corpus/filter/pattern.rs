//! Patterns for whole lines: `*` stands for anything, case does not matter. Time is linear in line times
//! pattern.

/// `read more*` as its literal parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pattern {
    /// What stands between the stars, in lower case; the first begins the line, the last ends it.
    parts: Vec<String>,
}

impl Pattern {
    /// A pattern as a user writes it.
    pub(super) fn new(text: &str) -> Self {
        Self { parts: text.trim().to_lowercase().split('*').map(str::to_string).collect() }
    }

    /// Whether all of `line`, which is in lower case, matches.
    pub(super) fn matches(&self, line: &str) -> bool {
        let [first, between @ .., last] = self.parts.as_slice() else {
            return self.parts.first().is_some_and(|only| only == line);
        };
        let Some(rest) = line.strip_prefix(first.as_str()) else { return false };
        let Some(mut rest) = rest.strip_suffix(last.as_str()) else { return false };
        // The leftmost place of each part leaves the most for those behind it.
        for part in between {
            let Some(at) = rest.find(part.as_str()) else { return false };
            rest = &rest[at + part.len()..];
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_anything() {
        for (pattern, line, expected) in [
            ("Lue lisää", "lue lisää", true),
            ("lue lisää", "lue lisää aiheesta", false),
            ("lue lisää*", "lue lisää aiheesta", true),
            ("*rights*reserved*", "© 2020 all rights are reserved.", true),
            ("*rights*reserved", "all rights reserved.", false),
            ("a*a", "a", false),
            ("a*a", "aa", true),
            ("a*b*b", "ab", false),
            ("*", "", true),
        ] {
            assert_eq!(Pattern::new(pattern).matches(line), expected, "{pattern} on {line}");
        }
    }
}
