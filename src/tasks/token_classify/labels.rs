//! The labels of a token classifier: tags, and their ids.
//!
//! An id is a place in the list of tags, which the model folder keeps as `id2label`.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Result;

use crate::error::Problem;
use crate::tasks::labelled::Sentence;
use crate::tasks::labelled::tags::OUTSIDE;
use crate::tasks::labelled::tags::is_tag;

/// Most types that an error lists.
const LISTED: usize = 12;

/// The prefixes that may mark a word of an entity, the best first, by whether the word is its first and its
/// last: what a model lacks of BIOES it says in IOB2, and what it lacks of that with `I-` alone.
fn prefixes(is_first: bool, is_last: bool) -> &'static [&'static str] {
    match (is_first, is_last) {
        (true, true) => &["S", "B", "I"],
        (true, false) => &["B", "I"],
        (false, true) => &["E", "I"],
        (false, false) => &["I"],
    }
}

/// Tags in the order of their ids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TagSet {
    names: Vec<String>,
    /// The names as tags.
    tags: Vec<String>,
    ids: BTreeMap<String, u32>,
}

impl TagSet {
    /// `O`, then `B-` and `I-` of each type that occurs in `sentences`, the types sorted by code point.
    pub fn discover(source: &Path, sentences: &[Sentence]) -> Result<Self> {
        let tags = sentences.iter().flat_map(|sentence| &sentence.tags);
        let kinds: BTreeSet<&str> = tags.filter_map(|tag| Some(tag.split_once('-')?.1)).collect();
        if kinds.is_empty() {
            return Err(Problem::new("there is no entity to learn from, all tags are `O`")
                .at(source.display())
                .hint("`data.tag_column` says where the tags are")
                .into());
        }
        let of = |kind: &&str| [format!("B-{kind}"), format!("I-{kind}")];
        Ok(Self::of_model([OUTSIDE.to_string()].into_iter().chain(kinds.iter().flat_map(of)).collect()))
    }

    /// The tags of a configuration: with `O`, and a tag for each word of an entity of each type.
    pub fn given(names: &[String]) -> Result<Self> {
        let refuse = |message: String| Problem::usage(message).at("data.labels");
        let hint = "name `O`, and `B-` and `I-` of each type";
        let set = Self::of_model(names.to_vec());
        if let Some(other) = names.iter().find(|name| !is_tag(name)) {
            return Err(refuse(format!("`{other}` is no tag")).hint(hint).into());
        }
        if set.ids.len() < names.len() {
            return Err(refuse("a tag is given twice".to_string()).into());
        }
        if !set.ids.contains_key(OUTSIDE) || names.len() < 2 {
            return Err(refuse("there is no `O`, or nothing else".to_string()).hint(hint).into());
        }
        for kind in names.iter().filter_map(|tag| Some(tag.split_once('-')?.1)) {
            let places = [(true, true), (true, false), (false, true), (false, false)];
            if places.iter().any(|&(first, last)| set.id_in(kind, first, last).is_none()) {
                let message = format!("the tags of `{kind}` do not reach for all words of an entity");
                return Err(refuse(message).hint(hint).into());
            }
        }
        Ok(set)
    }

    /// The labels of a model, whatever they are. One that is no tag, such as `PER` alone, is read as `I-PER`.
    pub fn of_model(names: Vec<String>) -> Self {
        let as_tag = |name: &String| if is_tag(name) { name.clone() } else { format!("I-{name}") };
        let tags: Vec<String> = names.iter().map(as_tag).collect();
        let ids = tags.iter().cloned().zip(0..).collect();
        Self { names, tags, ids }
    }

    /// The tags in the order of their ids.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The tag of a label.
    pub fn tag(&self, id: u32) -> &str {
        &self.tags[id as usize]
    }

    /// Whether the tags are those of IOB2.
    pub fn is_iob2(&self) -> bool {
        let starts = |start: &str| self.tags.iter().any(|tag| tag.starts_with(start));
        starts("B-") && !starts("E-") && !starts("S-")
    }

    /// How many types of entities there are.
    pub fn num_types(&self) -> usize {
        self.kinds().len()
    }

    /// The types of entities, in the order of their names.
    pub fn kinds(&self) -> BTreeSet<&str> {
        self.tags.iter().filter_map(|tag| Some(tag.split_once('-')?.1)).collect()
    }

    fn id_in(&self, kind: &str, is_first: bool, is_last: bool) -> Option<u32> {
        prefixes(is_first, is_last)
            .iter()
            .find_map(|prefix| self.ids.get(&format!("{prefix}-{kind}")).copied())
    }

    /// The label of each word of a sentence of `source` whose tags are IOB2; a type outside the set is an
    /// error that names the line and the known types.
    pub fn ids(&self, source: &Path, sentence: &Sentence) -> Result<Vec<u32>> {
        let tags = &sentence.tags;
        let goes_on = |place: usize, kind: &str| {
            tags.get(place).is_some_and(|tag| tag.strip_prefix("I-").is_some_and(|inside| inside == kind))
        };
        let id = |(place, tag): (usize, &String)| {
            let found = match tag.split_once('-') {
                None => self.ids.get(OUTSIDE).copied(),
                Some((prefix, kind)) => self.id_in(kind, prefix == "B", !goes_on(place + 1, kind)),
            };
            found.ok_or_else(|| {
                self.unknown(tag).at(format!("{}:{}", source.display(), sentence.lines[place]))
            })
        };
        Ok(tags.iter().enumerate().map(id).collect::<Result<_, Problem>>()?)
    }

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
    fn labels_are_both_tags_of_each_type_behind_the_outside() {
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
        let tags = ["B-PER", "B-PER", "I-PER", "I-PER", "O"];
        let named = |names: &[&str]| -> Vec<String> {
            let set = TagSet::of_model(owned(names));
            let ids = set.ids(Path::new("a"), &sentence(&tags)).unwrap();
            ids.iter().map(|&id| set.names()[id as usize].clone()).collect()
        };
        let bioes = ["O", "B-PER", "I-PER", "E-PER", "S-PER"];
        assert_eq!(named(&bioes), ["S-PER", "B-PER", "I-PER", "E-PER", "O"]);
        assert_eq!(named(&["I-PER", "O"]), ["I-PER", "I-PER", "I-PER", "I-PER", "O"]);
        assert_eq!(named(&["O", "PER"]), ["PER", "PER", "PER", "PER", "O"]);
        let is_iob2 = |names: &[&str]| TagSet::of_model(owned(names)).is_iob2();
        assert_eq!(
            [is_iob2(&bioes), is_iob2(&["O", "I-PER"]), is_iob2(&["O", "B-PER", "I-PER"])],
            [false, false, true]
        );
        let words = TagSet::of_model(owned(&["NOUN", "VERB"]));
        let error = words.ids(Path::new("a"), &sentence(&["O"])).unwrap_err().to_string();
        assert!(error.contains("the model has no label for `O`"), "{error}");
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
