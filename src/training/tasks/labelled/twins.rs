//! Names that look the same but are different: the same characters in two Unicode forms, such as `é` as one
//! character and as `e` followed by a combining accent.

use std::collections::BTreeMap;

use unicode_normalization::UnicodeNormalization;

/// True if two names differ only in their Unicode form.
pub fn are_twins(one: &str, other: &str) -> bool {
    one != other && one.nfc().eq(other.nfc())
}

/// A note about the first two names that differ only in their Unicode form, if there are any; `what` is their
/// kind.
pub fn twin_note<'a>(what: &str, names: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let mut seen: BTreeMap<String, &str> = BTreeMap::new();
    for name in names {
        let other = seen.entry(name.nfc().collect()).or_insert(name);
        if are_twins(name, other) {
            return Some(format!(
                "the {what} `{other}` and `{name}` look the same and are two: they differ in their Unicode form alone \
                 (NFC, NFD)"
            ));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_two_forms_are_reported() {
        let line = twin_note("labels", ["caf\u{e9}", "b", "cafe\u{301}"]).expect("two forms");
        assert!(line.contains("the labels `café` and `cafe\u{301}` look the same"), "{line}");
        assert_eq!(twin_note("labels", ["caf\u{e9}", "cafe", "caf\u{e9}"]), None);
        assert!(are_twins("\u{1e9b}\u{323}", "\u{17f}\u{323}\u{307}") && !are_twins("ﬁ", "fi"));
    }
}
