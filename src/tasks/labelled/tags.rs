//! Tags of words and their schemes: what a file keeps to, what breaks it, and IOB2 of it.
//!
//! Entities are read off tags as `conlleval` and seqeval do, whatever the scheme; the scheme decides only
//! which tags are held to be wrong.

use crate::config::TagScheme;
use crate::error::Problem;
use crate::scores::entities;

/// The tag outside of all entities.
pub const OUTSIDE: &str = "O";

/// Whether a text is `O`, or `B-`, `I-`, `E-` or `S-` and the type of an entity.
pub fn is_tag(text: &str) -> bool {
    text == OUTSIDE || parts(text).is_some()
}

/// Prefix and type of a tag inside an entity.
fn parts(tag: &str) -> Option<(char, &str)> {
    let (prefix, kind) = tag.split_once('-')?;
    let prefix = ["B", "I", "E", "S"].contains(&prefix).then(|| prefix.chars().next())??;
    (!kind.is_empty()).then_some((prefix, kind))
}

/// Refuses texts that are no tags; gives the index of the word with the problem.
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

/// What the tags of a file look like.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Evidence {
    /// `E-` and `S-`.
    ends: u64,
    /// `B-` that only IOB2 has: nothing of its type stands before it.
    begins: u64,
    /// `I-` that only IOB1 has: nothing of its type stands before it.
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

    /// The scheme that the tags speak for; IOB2 where nothing tells.
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

/// What breaks `scheme` in the tags of a sentence, with the index of each word: tags of another scheme, which
/// are always wrong (`true`), and tags in a wrong place.
pub(super) fn irregular(tags: &[String], scheme: TagScheme) -> Vec<(usize, Problem, bool)> {
    let name = scheme_name(scheme);
    let mut found = Vec::new();
    let mut before: Option<(char, &str)> = None;
    for (place, tag) in tags.iter().enumerate() {
        let now = parts(tag);
        // Whether an entity of this type is under way.
        let is_open =
            |kind: &str| before.is_some_and(|(prefix, open)| open == kind && !matches!(prefix, 'E' | 'S'));
        let mut add = |message: String, is_foreign| found.push((place, Problem::new(message), is_foreign));
        match (scheme, now) {
            (TagScheme::Iob1 | TagScheme::Iob2, Some(('E' | 'S', _))) => {
                add(format!("`{tag}` is a tag of BIOES, and the file is {name}"), true);
            }
            (TagScheme::Iob2 | TagScheme::Bioes, Some(('I' | 'E', kind))) if !is_open(kind) => {
                add(format!("`{tag}` has no `B-{kind}` before it, as {name} wants"), false);
            }
            (TagScheme::Iob1, Some(('B', kind))) if !is_open(kind) => {
                add(format!("`{tag}` parts no two entities: {name} wants `I-{kind}`"), false);
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

/// Tags of IOB2 with the same entities.
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
    use crate::scores::Entity;

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
    fn what_a_scheme_does_not_allow_is_told_at_its_word() {
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
        let tag = prop_oneof![Just("O".to_string()), "[BIES]-(PER|LOC|a-b)"];
        prop::collection::vec(tag, 0..12)
    }

    proptest! {
        #[test]
        fn iob2_has_the_same_entities_and_breaks_no_rule(tags in any_tags()) {
            let before: Vec<&str> = tags.iter().map(String::as_str).collect();
            let converted = iob2(&before);
            let after: Vec<&str> = converted.iter().map(String::as_str).collect();
            let spans = |tags: &[&str]| -> Vec<(String, usize, usize)> {
                let span = |e: &Entity<'_>| (e.kind.to_string(), e.first, e.last);
                entities(tags).iter().map(span).collect()
            };
            prop_assert_eq!(spans(&before), spans(&after));
            prop_assert!(irregular(&converted, TagScheme::Iob2).is_empty());
        }
    }
}
