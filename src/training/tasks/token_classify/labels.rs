//! The labels of a token classifier: tags with their ids.
//!
//! An id is an index into the list of tags, which the model folder stores as `id2label`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::Result;

use crate::tasks::labelled::Sentence;
use crate::tasks::labelled::tags::{OUTSIDE, is_tag};
use base::error::Problem;

/// Number of types that an error lists at most.
const LISTED: usize = 12;

/// The prefixes with which a word of an entity may be tagged, the best first, depending on whether it is the
/// entity's first and its last word. A model without the tags of BIOES uses those of IOB2, and a model
/// without `B-` uses `I-` alone.
fn prefixes(is_first: bool, is_last: bool) -> &'static [&'static str] {
    match (is_first, is_last) {
        (true, true) => &["S", "B", "I"],
        (true, false) => &["B", "I"],
        (false, true) => &["E", "I"],
        (false, false) => &["I"],
    }
}

/// The labels in the order of their ids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TagSet {
    names: Vec<String>,
    /// The labels as tags.
    tags: Vec<String>,
    ids: BTreeMap<String, u32>,
}

impl TagSet {
    /// Returns `O`, then `B-` and `I-` of each type that occurs in `sentences`, with the types sorted by code
    /// point.
    pub fn discover(source: &Path, sentences: &[Sentence]) -> Result<Self> {
        let tags = sentences.iter().flat_map(|sentence| &sentence.tags);
        let kinds: BTreeSet<&str> = tags.filter_map(|tag| Some(tag.split_once('-')?.1)).collect();
        if kinds.is_empty() {
            return Err(Problem::new("there is no entity to learn from, all tags are `O`")
                .at(source.display())
                .hint("`data.tag_column` says where the tags are")
                .into());
        }
        let mut names = vec![OUTSIDE.to_string()];
        for kind in kinds {
            names.extend([format!("B-{kind}"), format!("I-{kind}")]);
        }
        Ok(Self::from_names(names))
    }

    /// Returns the tags of a configuration, which must have `O`, and a tag for each word of an entity of each
    /// type.
    pub fn given(names: &[String]) -> Result<Self> {
        let hint = "name `O`, and `B-` and `I-` of each type";
        let set = Self::from_names(names.to_vec());
        if let Some(other) = names.iter().find(|name| !is_tag(name)) {
            return Err(wrong_labels(format!("`{other}` is no tag")).hint(hint).into());
        }
        if set.ids.len() < names.len() {
            return Err(wrong_labels("a tag is given twice".to_string()).into());
        }
        if !set.ids.contains_key(OUTSIDE) || names.len() < 2 {
            return Err(wrong_labels("there is no `O`, or nothing else".to_string()).hint(hint).into());
        }
        for kind in names.iter().filter_map(|tag| Some(tag.split_once('-')?.1)) {
            let places = [(true, true), (true, false), (false, true), (false, false)];
            if places.iter().any(|&(first, last)| set.id_in(kind, first, last).is_none()) {
                let message = format!("the tags of `{kind}` do not reach for all words of an entity");
                return Err(wrong_labels(message).hint(hint).into());
            }
        }
        Ok(set)
    }

    /// Returns the labels of a model, which may be anything. A label that is not a tag, such as `PER` alone,
    /// is read as `I-PER`.
    pub fn from_names(names: Vec<String>) -> Self {
        let mut tags = Vec::with_capacity(names.len());
        for name in &names {
            tags.push(if is_tag(name) { name.clone() } else { format!("I-{name}") });
        }
        let ids = tags.iter().cloned().zip(0..).collect();
        Self { names, tags, ids }
    }

    /// The labels in the order of their ids.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The tag of a label.
    pub fn tag(&self, id: u32) -> &str {
        &self.tags[id as usize]
    }

    /// True if the tags are those of IOB2.
    pub fn is_iob2(&self) -> bool {
        self.has_prefix("B-") && !self.has_prefix("E-") && !self.has_prefix("S-")
    }

    fn has_prefix(&self, prefix: &str) -> bool {
        self.tags.iter().any(|tag| tag.starts_with(prefix))
    }

    /// Number of types of entities.
    pub fn num_types(&self) -> usize {
        self.kinds().len()
    }

    /// The types of entities, sorted by name.
    pub fn kinds(&self) -> BTreeSet<&str> {
        self.tags.iter().filter_map(|tag| Some(tag.split_once('-')?.1)).collect()
    }

    /// The id of the best tag for a word of an entity of type `kind`.
    fn id_in(&self, kind: &str, is_first: bool, is_last: bool) -> Option<u32> {
        prefixes(is_first, is_last)
            .iter()
            .find_map(|prefix| self.ids.get(&format!("{prefix}-{kind}")).copied())
    }

    /// Returns the label of each word of a sentence of `source` whose tags are IOB2. A type outside the set
    /// is an error that names the line and lists the known types.
    pub fn ids(&self, source: &Path, sentence: &Sentence) -> Result<Vec<u32>> {
        let tags = &sentence.tags;
        let mut ids = Vec::with_capacity(tags.len());
        for (index, tag) in tags.iter().enumerate() {
            let found = match tag.split_once('-') {
                None => self.ids.get(OUTSIDE).copied(),
                Some((prefix, kind)) => {
                    let next = tags.get(index + 1).and_then(|tag| tag.strip_prefix("I-"));
                    self.id_in(kind, prefix == "B", next != Some(kind))
                }
            };
            let Some(id) = found else {
                let place = format!("{}:{}", source.display(), sentence.lines[index]);
                return Err(self.unknown(tag).at(place).into());
            };
            ids.push(id);
        }
        Ok(ids)
    }

    /// The problem of a tag for which there is no label.
    fn unknown(&self, tag: &str) -> Problem {
        let kinds = self.kinds();
        let Some((_, kind)) = tag.split_once('-') else {
            return Problem::new(format!("the model has no label for `{tag}`: it finds no entities"));
        };
        let first: Vec<String> = kinds.iter().take(LISTED).map(|kind| format!("`{kind}`")).collect();
        let rest = match kinds.len().saturating_sub(LISTED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        Problem::new(format!("unknown type `{kind}`; known are {}{rest}", first.join(", ")))
            .hint("name all tags under `data.labels`, or correct the line")
    }
}

fn wrong_labels(message: String) -> Problem {
    Problem::usage(message).at("data.labels")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sentence(tags: &[&str]) -> Sentence {
        let lines = (3..).take(tags.len()).collect();
        Sentence { tags: owned(tags), lines, ..Sentence::default() }
    }

    fn owned(tags: &[&str]) -> Vec<String> {
        tags.iter().map(|tag| (*tag).to_string()).collect()
    }

    #[test]
    fn labels_are_the_outside_tag_then_both_tags_of_each_type() {
        let sentences = [sentence(&["B-PER", "O"]), sentence(&["B-LOC", "I-LOC"])];
        let set = TagSet::discover(Path::new("a.conll"), &sentences).unwrap();
        assert_eq!(set.names(), ["O", "B-LOC", "I-LOC", "B-PER", "I-PER"]);
        assert_eq!(set.ids(Path::new("a.conll"), &sentence(&["B-PER", "I-PER", "O"])).unwrap(), [3, 4, 0]);
        let error = set.ids(Path::new("dev.conll"), &sentence(&["O", "B-ORG"])).unwrap_err().to_string();
        assert!(error.starts_with("dev.conll:4: unknown type `ORG`; known are `LOC`, `PER`\n"), "{error}");
        let error = TagSet::discover(Path::new("a.conll"), &[sentence(&["O"])]).unwrap_err().to_string();
        assert!(error.contains("a.conll: there is no entity to learn from"), "{error}");
    }

    #[test]
    fn a_model_of_another_scheme_gets_its_own_tags() {
        let bioes = ["O", "B-PER", "I-PER", "E-PER", "S-PER"];
        assert_eq!(relabelled(&bioes), ["S-PER", "B-PER", "I-PER", "E-PER", "O"]);
        assert_eq!(relabelled(&["I-PER", "O"]), ["I-PER", "I-PER", "I-PER", "I-PER", "O"]);
        assert_eq!(relabelled(&["O", "PER"]), ["PER", "PER", "PER", "PER", "O"]);
        for (names, is_iob2) in
            [(&bioes[..], false), (&["O", "I-PER"], false), (&["O", "B-PER", "I-PER"], true)]
        {
            assert_eq!(TagSet::from_names(owned(names)).is_iob2(), is_iob2, "{names:?}");
        }
        let words = TagSet::from_names(owned(&["NOUN", "VERB"]));
        let error = words.ids(Path::new("a"), &sentence(&["O"])).unwrap_err().to_string();
        assert!(error.contains("the model has no label for `O`"), "{error}");
    }

    /// The labels of a model with these `names` for a sentence with three entities.
    fn relabelled(names: &[&str]) -> Vec<String> {
        let set = TagSet::from_names(owned(names));
        let tags = ["B-PER", "B-PER", "I-PER", "I-PER", "O"];
        let ids = set.ids(Path::new("a"), &sentence(&tags)).unwrap();
        ids.iter().map(|&id| set.names()[id as usize].clone()).collect()
    }

    #[test]
    fn tags_that_leave_words_without_a_label_are_refused() {
        assert_eq!(TagSet::given(&owned(&["O", "B-PER", "I-PER"])).unwrap().num_types(), 1);
        for (names, words) in [
            (&["O", "B-PER"][..], "the tags of `PER` do not reach"),
            (&["B-PER", "I-PER"], "there is no `O`"),
            (&["O"], "there is no `O`, or nothing else"),
            (&["O", "PER"], "`PER` is no tag"),
            (&["O", "I-PER", "I-PER"], "a tag is given twice"),
        ] {
            let error = TagSet::given(&owned(names)).unwrap_err().to_string();
            assert!(error.starts_with("data.labels: ") && error.contains(words), "{error}");
        }
    }
}
