//! Reads a whole file of tagged sentences, checks the tags against their scheme, and converts them to IOB2.

use std::path::Path;

use anyhow::Result;

use crate::tasks::labelled::bad_rows::BadRows;
use crate::tasks::labelled::memory::ExampleMemory;
use crate::tasks::labelled::sentences::{Sentence, SentenceColumns, Sentences};
use crate::tasks::labelled::tags;
use crate::tasks::labelled::tags::{Evidence, OUTSIDE, scheme_name};
use base::error::Problem;
use base::quantity::format_count;
use config::{ClassifyData, OnBadRecord, RenamedTypes, TagScheme};

/// Settings for reading a file of tagged words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tagging<'a> {
    /// Columns of the words and the tags.
    pub columns: SentenceColumns<'a>,
    /// Scheme of the tags.
    pub scheme: TagScheme,
    /// True if a tag in a position that the scheme does not allow is an error.
    pub strict: bool,
    /// Handling of a sentence that cannot be read.
    pub on_bad_record: OnBadRecord,
}

impl<'a> Tagging<'a> {
    /// The settings of a configuration.
    pub fn from_config(data: &'a ClassifyData) -> Self {
        let columns = SentenceColumns {
            token: data.token_column,
            tag: data.tag_column,
            token_field: data.text_column.as_deref(),
            tag_field: data.label_column.as_deref(),
            tag_names: &data.labels,
            encoding: data.encoding,
            tagged: true,
        };
        Self { columns, scheme: data.tag_scheme, strict: data.strict, on_bad_record: data.on_bad_record }
    }
}

/// The sentences of a file.
#[derive(Debug, Clone)]
pub struct TaggedFile {
    /// All sentences, at least one, with tags in IOB2.
    pub sentences: Vec<Sentence>,
    /// The scheme of the tags in the file.
    pub scheme: TagScheme,
    /// True if the scheme was guessed.
    pub is_guessed: bool,
    /// Number of tags in positions that the scheme does not allow.
    pub irregular: u64,
    /// The first of these tags, with its place.
    pub first_irregular: Option<Problem>,
    /// Sentences that were left out.
    pub bad_rows: BadRows,
}

impl TaggedFile {
    /// Number of words in all sentences.
    pub fn num_words(&self) -> u64 {
        self.sentences.iter().map(|sentence| sentence.words.len() as u64).sum()
    }

    /// The sentences, with other names for some types. Tags are IOB2 already, so that two entities side by
    /// side stay two.
    pub fn renamed(self, types: &[RenamedTypes]) -> Vec<Sentence> {
        let mut sentences = self.sentences;
        for tag in sentences.iter_mut().flat_map(|sentence| &mut sentence.tags) {
            let Some((prefix, kind)) = tag.split_once('-') else { continue };
            if let Some(renamed) = types.iter().find(|types| types.from.iter().any(|from| from == kind)) {
                let is_left_out = renamed.to == OUTSIDE;
                *tag = if is_left_out { OUTSIDE.to_string() } else { format!("{prefix}-{}", renamed.to) };
            }
        }
        sentences
    }

    /// Notes for the user about the tags, one per line.
    pub fn notes(&self, path: &Path) -> Vec<String> {
        let place = path.display();
        let name = scheme_name(self.scheme);
        let guessed =
            self.is_guessed.then(|| format!("{place}: tags read as {name} (guessed; `tag_scheme` says it)"));
        let broken = self.first_irregular.as_ref().map(|first| {
            let count = format_count(self.irregular);
            format!("{place}: {count} tags break {name} and were read as conlleval does; the first: {first}")
        });
        guessed.into_iter().chain(broken).chain(self.bad_rows.note(path)).collect()
    }
}

/// Reads all sentences of a file. A bad line is an error that names it, and so is a tag that breaks the
/// scheme if `strict` is set.
pub fn read_tagged(path: &Path, tagging: &Tagging<'_>) -> Result<TaggedFile> {
    let columns = SentenceColumns { tagged: true, ..tagging.columns };
    let mut sentences = Vec::new();
    let mut evidence = Evidence::default();
    let mut memory = ExampleMemory::default();
    let mut bad_rows = BadRows::new(tagging.on_bad_record, "sentence");
    let mut reader = Sentences::open(path, &columns)?;
    while let Some(sentence) = reader.next() {
        let sentence = sentence.and_then(|sentence| match tags::check_form(&sentence.tags) {
            Ok(()) => Ok(Sentence { others: serde_json::Map::new(), ..sentence }),
            Err((place, problem)) => Err(problem.at(line_place(path, sentence.lines[place])).into()),
        });
        let Some(sentence) = bad_rows.take(sentence)? else { continue };
        memory.add(sentence.memory_bytes(), reader.position_bytes(), || line_place(path, sentence.line))?;
        evidence.add(&sentence.tags);
        sentences.push(sentence);
    }
    if sentences.is_empty() {
        return Err(bad_rows.none_left(path, "sentences").into());
    }
    let is_guessed = tagging.scheme == TagScheme::Auto;
    let scheme = if is_guessed { evidence.scheme() } else { tagging.scheme };
    let mut file =
        TaggedFile { sentences, scheme, is_guessed, irregular: 0, first_irregular: None, bad_rows };
    for sentence in &mut file.sentences {
        for (place, problem, is_foreign) in tags::irregular(&sentence.tags, scheme) {
            let problem = problem.at(line_place(path, sentence.lines[place]));
            if is_foreign || tagging.strict {
                let hint = "correct the tag, or say with `tag_scheme` what the file has";
                let lenient = format!("{hint}; without `strict` it is read as conlleval does");
                return Err(problem.hint(if is_foreign { hint.to_string() } else { lenient }).into());
            }
            file.irregular += 1;
            file.first_irregular.get_or_insert(problem);
        }
        let old: Vec<&str> = sentence.tags.iter().map(String::as_str).collect();
        sentence.tags = tags::iob2(&old);
    }
    Ok(file)
}

fn line_place(path: &Path, line: u64) -> String {
    format!("{}:{line}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renamed_types_keep_entities_apart_and_one_name_leaves_them_out() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.conll");
        let tags = ["B-PRO", "B-EVENT", "I-EVENT", "O", "B-DATE", "B-PER"];
        let lines: Vec<String> = tags.iter().map(|tag| format!("word\t{tag}\n")).collect();
        std::fs::write(&path, lines.concat()).unwrap();
        let data = ClassifyData::default();
        let file = read_tagged(&path, &Tagging::from_config(&data)).unwrap();
        let types = [
            RenamedTypes { from: ["PRO", "EVENT"].map(str::to_string).to_vec(), to: "MISC".to_string() },
            RenamedTypes { from: vec!["DATE".to_string()], to: "O".to_string() },
        ];
        let sentences = file.renamed(&types);
        assert_eq!(sentences[0].tags, ["B-MISC", "B-MISC", "I-MISC", "O", "O", "B-PER"]);
    }
}
