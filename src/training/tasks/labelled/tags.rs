//! Tags of words and their schemes: guesses the scheme of a file, finds tags that break it, and converts to
//! IOB2.
//!
//! Entities are derived from tags as in `conlleval` and seqeval, independent of the scheme; the scheme only
//! decides which tags are reported as wrong.

use base::error::Problem;
use base::scores::entities;
use config::TagScheme;

/// The tag outside of all entities.
pub const OUTSIDE: &str = "O";

/// True if a text is `O`, or `B-`, `I-`, `E-` or `S-` followed by the type of an entity.
pub fn is_tag(text: &str) -> bool {
    text == OUTSIDE || parts(text).is_some()
}

/// Splits a tag inside an entity into its prefix and type.
fn parts(tag: &str) -> Option<(char, &str)> {
    let (prefix, kind) = tag.split_once('-')?;
    let prefix = ["B", "I", "E", "S"].contains(&prefix).then(|| prefix.chars().next())??;
    (!kind.is_empty()).then_some((prefix, kind))
}

/// Returns an error if a text is not a tag, with the index of the word.
pub(super) fn check_form(tags: &[String]) -> Result<(), (usize, Problem)> {
    match tags.iter().position(|tag| !is_tag(tag)) {
        None => Ok(()),
        Some(place) => {
            let tag = &tags[place];
            let message = format!("`{tag}` is neither `O` nor `B-`, `I-`, `E-` or `S-` before a type");
            let is_bilou = ["L-", "U-"].iter().any(|start| tag.starts_with(start));
            let hint = if is_bilou {
                "BILOU's `L-` is `E-` here, and its `U-` is `S-`"
            } else {
                "`tag_column` says where the tags are: 1 is the first column, -1 the last"
            };
            Err((place, Problem::new(message).hint(hint)))
        }
    }
}

/// Counts of tags in a file from which its scheme is guessed.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Evidence {
    /// Number of `E-` and `S-` tags.
    ends: u64,
    /// Number of `B-` tags that IOB1 does not have: no tag of the same type is right before them.
    begins: u64,
    /// Number of `I-` tags that IOB2 does not have: no tag of the same type is right before them.
    insides: u64,
}

impl Evidence {
    pub(super) fn add(&mut self, tags: &[String]) {
        let mut before = None;
        for tag in tags {
            let now = parts(tag);
            let is_first = now.is_some_and(|(_, kind)| before != Some(kind));
            match now {
                Some(('E' | 'S', _)) => self.ends += 1,
                Some(('B', _)) => self.begins += u64::from(is_first),
                Some(('I', _)) => self.insides += u64::from(is_first),
                _ => {}
            }
            before = now.map(|(_, kind)| kind);
        }
    }

    /// Returns the scheme that the counts suggest; IOB2 if they are inconclusive.
    pub(super) fn scheme(self) -> TagScheme {
        match self {
            Self { ends: 1.., .. } => TagScheme::Bioes,
            Self { begins: 0, insides: 1.., .. } => TagScheme::Iob1,
            _ => TagScheme::Iob2,
        }
    }
}

/// Name of a scheme as people write it.
pub fn scheme_name(scheme: TagScheme) -> &'static str {
    match scheme {
        TagScheme::Auto => "a scheme to guess",
        TagScheme::Iob1 => "IOB1",
        TagScheme::Iob2 => "IOB2",
        TagScheme::Bioes => "BIOES",
    }
}

/// Finds the tags of a sentence that break `scheme`, as (index of the word, problem, is foreign). Foreign
/// tags, those of another scheme, are always wrong; the others are in a wrong position.
pub(super) fn irregular(tags: &[String], scheme: TagScheme) -> Vec<(usize, Problem, bool)> {
    let name = scheme_name(scheme);
    let mut found = Vec::new();
    let mut before: Option<(char, &str)> = None;
    for (place, tag) in tags.iter().enumerate() {
        let now = parts(tag);
        match (scheme, now) {
            (TagScheme::Iob1 | TagScheme::Iob2, Some(('E' | 'S', _))) => {
                let message = format!("`{tag}` is a tag of BIOES, and the file is {name}");
                found.push((place, Problem::new(message), true));
            }
            (TagScheme::Iob2 | TagScheme::Bioes, Some(('I' | 'E', kind))) if !is_open(before, kind) => {
                let message = format!("`{tag}` has no `B-{kind}` before it, as {name} wants");
                found.push((place, Problem::new(message), false));
            }
            (TagScheme::Iob1, Some(('B', kind))) if !is_open(before, kind) => {
                let message = format!("`{tag}` parts no two entities: {name} wants `I-{kind}`");
                found.push((place, Problem::new(message), false));
            }
            _ => {}
        }
        if scheme == TagScheme::Bioes
            && let Some((prefix @ ('B' | 'I'), kind)) = before
            && !now.is_some_and(|(next, same)| same == kind && matches!(next, 'I' | 'E'))
        {
            let message = format!("`{prefix}-{kind}` has no `E-{kind}` behind it, as {name} wants");
            found.push((place - 1, Problem::new(message), false));
        }
        before = now;
    }
    if scheme == TagScheme::Bioes
        && let Some((prefix @ ('B' | 'I'), kind)) = before
    {
        let message = format!("`{prefix}-{kind}` has no `E-{kind}` behind it, as {name} wants");
        found.push((tags.len() - 1, Problem::new(message), false));
    }
    found
}

/// True if the tag before a word leaves an entity of type `kind` open.
fn is_open(before: Option<(char, &str)>, kind: &str) -> bool {
    before.is_some_and(|(prefix, open)| open == kind && !matches!(prefix, 'E' | 'S'))
}

/// Converts tags to IOB2 tags with the same entities.
pub fn iob2(tags: &[&str]) -> Vec<String> {
    let mut new = vec![OUTSIDE.to_string(); tags.len()];
    for entity in entities(tags) {
        new[entity.first] = format!("B-{}", entity.kind);
        new[entity.first + 1..=entity.last].fill(format!("I-{}", entity.kind));
    }
    new
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn owned(tags: &[&str]) -> Vec<String> {
        tags.iter().map(|tag| (*tag).to_string()).collect()
    }

    fn guessed(tags: &[&str]) -> TagScheme {
        let mut evidence = Evidence::default();
        evidence.add(&owned(tags));
        evidence.scheme()
    }

    fn messages(tags: &[&str], scheme: TagScheme) -> Vec<String> {
        irregular(&owned(tags), scheme)
            .into_iter()
            .map(|(place, problem, _)| format!("{place}: {problem}"))
            .collect()
    }

    #[test]
    fn the_scheme_is_guessed_from_what_only_it_has() {
        assert_eq!(guessed(&["O", "I-PER", "I-PER", "B-PER"]), TagScheme::Iob1);
        assert_eq!(guessed(&["B-PER", "I-PER", "B-PER"]), TagScheme::Iob2);
        assert_eq!(guessed(&["B-PER", "E-PER"]), TagScheme::Bioes);
        assert_eq!(guessed(&["B-PER", "O", "I-PER"]), TagScheme::Iob2);
        assert_eq!(guessed(&["O"]), TagScheme::Iob2);
    }

    #[test]
    fn tags_that_break_a_scheme_are_reported_with_their_word() {
        assert_eq!(messages(&["B-PER", "I-PER", "O", "B-LOC"], TagScheme::Iob2), [""; 0]);
        assert_eq!(
            messages(&["O", "I-PER", "I-LOC", "S-LOC"], TagScheme::Iob2),
            [
                "1: `I-PER` has no `B-PER` before it, as IOB2 wants",
                "2: `I-LOC` has no `B-LOC` before it, as IOB2 wants",
                "3: `S-LOC` is a tag of BIOES, and the file is IOB2",
            ]
        );
        assert_eq!(messages(&["I-PER", "B-PER", "I-PER"], TagScheme::Iob1), [""; 0]);
        assert_eq!(
            messages(&["I-PER", "B-LOC"], TagScheme::Iob1),
            ["1: `B-LOC` parts no two entities: IOB1 wants `I-LOC`"]
        );
        assert_eq!(messages(&["B-PER", "I-PER", "E-PER", "S-PER"], TagScheme::Bioes), [""; 0]);
        assert_eq!(
            messages(&["B-PER", "O", "E-PER", "B-LOC"], TagScheme::Bioes),
            [
                "0: `B-PER` has no `E-PER` behind it, as BIOES wants",
                "2: `E-PER` has no `B-PER` before it, as BIOES wants",
                "3: `B-LOC` has no `E-LOC` behind it, as BIOES wants",
            ]
        );
    }

    fn any_tags() -> impl Strategy<Value = Vec<String>> {
        // Any sequence of valid tags, also those that break their scheme.
        let tag = prop_oneof![Just("O".to_string()), "[BIES]-(PER|LOC|a-b)"];
        prop::collection::vec(tag, 0..12)
    }

    fn spans(tags: &[&str]) -> Vec<(String, usize, usize)> {
        entities(tags).iter().map(|entity| (entity.kind.to_string(), entity.first, entity.last)).collect()
    }

    proptest! {
        #[test]
        fn iob2_has_the_same_entities_and_breaks_no_rule(tags in any_tags()) {
            let before: Vec<&str> = tags.iter().map(String::as_str).collect();
            let converted = iob2(&before);
            let after: Vec<&str> = converted.iter().map(String::as_str).collect();
            prop_assert_eq!(spans(&before), spans(&after));
            prop_assert!(irregular(&converted, TagScheme::Iob2).is_empty());
        }
    }
}
