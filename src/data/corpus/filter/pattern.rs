//! Patterns for whole lines: `*` matches any text, and case is ignored. The time is linear in the length of
//! the line times the length of the pattern.

/// A pattern such as `read more*`, split into its literal parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pattern {
    /// Texts between the stars, in lower case; the first must begin the line, the last must end it.
    parts: Vec<String>,
}

impl Pattern {
    /// Parses a pattern as a user writes it.
    pub(super) fn new(text: &str) -> Self {
        Self { parts: text.trim().to_lowercase().split('*').map(str::to_string).collect() }
    }

    /// True if the pattern matches all of `line`, which is in lower case.
    pub(super) fn matches(&self, line: &str) -> bool {
        let [first, between @ .., last] = self.parts.as_slice() else {
            return self.parts.first().is_some_and(|only| only == line);
        };
        let Some(rest) = line.strip_prefix(first.as_str()) else { return false };
        let Some(mut rest) = rest.strip_suffix(last.as_str()) else { return false };
        // The leftmost match of each part leaves the most text for the parts after it.
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
    fn stars_match_any_text() {
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
