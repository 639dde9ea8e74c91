//! `mlmtrain init --train FILE`: reads labelled files and writes a configuration of `finetune` for them.

use std::collections::BTreeMap;
use std::iter;
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::{Args, ValueEnum};

use crate::commands::terminal;
use crate::config::FinetuneTask;
use crate::error::Problem;
use crate::fs;
use crate::fs::TextEncoding;
use crate::interop::read_folder;
use crate::recipe::{LabelColumns, LabelledFacts, TextColumns};
use crate::records::{RowFormat, list};
use crate::tasks::labelled::{
    Columns, Example, KnownColumns, SentenceColumns, Tagging, files_of, guess_columns, is_usual_name,
    read_examples, read_tagged,
};
use crate::tokenizer::Tokenizer;

/// Number of special tokens of a text, and of a pair with two separators between its texts.
const SPECIAL_TOKENS: [usize; 2] = [2, 4];

/// Arguments of `init` for labelled files.
#[derive(Debug, Args)]
#[command(next_help_heading = "Labelled files, in the place of a text")]
pub struct LabelledArgs {
    /// Labelled file to train on: write a configuration of `finetune`
    #[arg(long, value_name = "FILE", conflicts_with_all = ["text", "budget"], requires = "model")]
    pub train: Option<PathBuf>,
    /// File to evaluate on; without it a tenth of the training file is held out
    #[arg(long, value_name = "FILE", requires = "train")]
    pub eval: Option<PathBuf>,
    /// Model folder to fine-tune
    #[arg(long, value_name = "DIR", requires = "train")]
    pub model: Option<PathBuf>,
    /// Kind of labels; when not given, `token-classify` for a file of tagged words, else `classify`
    #[arg(long, value_enum, requires = "train")]
    pub task: Option<FinetuneTask>,
    /// Column of the text; found when not given
    #[arg(long, value_name = "NAME", requires = "train")]
    pub text_column: Option<String>,
    /// Column of the second text of a pair; found when not given
    #[arg(long, value_name = "NAME", requires = "train")]
    pub text_pair_column: Option<String>,
    /// Column of the label or number; found when not given
    #[arg(long, value_name = "NAME", requires = "train")]
    pub label_column: Option<String>,
}

/// The texts, label counts and columns of all files.
#[derive(Default)]
struct Found {
    texts: Vec<String>,
    counts: BTreeMap<String, usize>,
    columns: Option<TextColumns>,
    tag_scheme: Option<String>,
    notes: Vec<String>,
}

impl Found {
    fn count(&mut self, label: &str) {
        *self.counts.entry(label.to_string()).or_default() += 1;
    }
}

/// Reads the labelled files and the model, and writes the configuration to `output`; `-` is standard output.
pub(super) fn run(
    args: &LabelledArgs,
    encoding: Option<TextEncoding>,
    train: &Path,
    output: &Path,
    output_dir: String,
) -> Result<()> {
    let Some(model) = &args.model else { unreachable!("the parser wants a model") };
    let folder = read_folder(model)?;
    let tokenizer = Tokenizer::load(&folder.path)?;
    let task = match args.task {
        Some(task) => task,
        None if has_tagged_words(train, encoding)? => FinetuneTask::TokenClassify,
        None => FinetuneTask::Classify,
    };
    let found = match task {
        FinetuneTask::TokenClassify => tagged(train, encoding)?,
        _ => texts(args, encoding, train, task == FinetuneTask::Regression)?,
    };
    let Found { texts, counts, columns, tag_scheme, notes } = found;
    let has_pairs = columns.as_ref().is_some_and(|columns| columns.text_pair.is_some());
    let special_tokens = SPECIAL_TOKENS[usize::from(has_pairs)];
    let encoded = tokenizer.encode_corpus(&texts)?;
    let mut lengths: Vec<usize> = encoded.iter().map(|ids| ids.len() + special_tokens).collect();
    lengths.sort_unstable();
    let mut labels: Vec<(String, usize)> = counts.into_iter().collect();
    labels.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    let facts = LabelledFacts {
        task: task.name(),
        train: train.display().to_string(),
        eval: args.eval.as_ref().map(|eval| eval.display().to_string()),
        output_dir,
        examples: texts.len(),
        encoding,
        columns,
        tag_scheme,
        labels,
        lengths,
        model: model.display().to_string(),
        hidden_size: folder.config.encoder.hidden_size,
        longest_sequence: folder.config.max_sequence_length(),
    };
    let yaml = facts.to_yaml();
    if output == Path::new("-") {
        for note in &notes {
            terminal::note(&terminal::printable(note));
        }
        return print(yaml.lines());
    }
    fs::write_bytes(output, yaml.as_bytes())?;
    let mut lines = vec![format!("wrote `{}`: {}", output.display(), facts.summary())];
    if let Some(TextColumns { text, text_pair, labels, .. }) = &facts.columns {
        let pair = text_pair.as_ref().map(|name| format!(" and `{name}`")).unwrap_or_default();
        let word = if labels.names().len() == 1 { "label" } else { "labels" };
        let labels = list(labels.names().iter().map(String::as_str));
        lines.push(format!("columns: text `{text}`{pair}, {word} {labels}"));
    }
    lines.extend(notes);
    lines.extend(facts.rarest().map(|rarest| {
        format!(
            "note: {rarest}; `training.class_weights: balanced` raises the share of rare labels in the loss"
        )
    }));
    lines.push(format!("next: mlmtrain finetune --config {}", output.display()));
    print(lines.iter().map(String::as_str))
}

/// Prints lines. Names from files in them are escaped.
fn print<'a>(mut lines: impl Iterator<Item = &'a str>) -> Result<()> {
    lines.try_for_each(|line| terminal::stdout_line(&terminal::printable(line)))
}

/// The name of a value in a configuration.
fn name_of(value: &impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_string()).unwrap_or_default()
}

/// Returns true for a file of words, and for one of another format in which words have the tags of entities.
fn has_tagged_words(train: &Path, encoding: Option<TextEncoding>) -> Result<bool> {
    let Some(first) = files_of(train)?.into_iter().next() else { return Ok(false) };
    if RowFormat::of(&first) == Some(RowFormat::Conll) {
        return Ok(true);
    }
    // A file of labelled texts cannot be read as one of tagged words.
    let sentences = read_tagged(&first, &tagging(encoding)).map(|file| file.sentences).unwrap_or_default();
    let mut tags = sentences.iter().flat_map(|sentence| &sentence.tags);
    Ok(tags.any(|tag| tag.starts_with("B-")))
}

/// The usual columns of tagged words.
fn tagging(encoding: Option<TextEncoding>) -> Tagging<'static> {
    Tagging { columns: SentenceColumns { encoding, ..SentenceColumns::default() }, ..Tagging::default() }
}

/// A note on the files of a folder or a pattern, all of which are trained on.
fn files_note(files: &[PathBuf]) -> Option<String> {
    let names: Vec<String> = files.iter().map(|file| format!("`{}`", file.display())).collect();
    (names.len() > 1).then(|| {
        format!("note: all of {} are trained on; name a file to evaluate on by `--eval`", names.join(", "))
    })
}

/// Reads files of tagged words.
fn tagged(train: &Path, encoding: Option<TextEncoding>) -> Result<Found> {
    let mut found = Found::default();
    let files = files_of(train)?;
    found.notes.extend(files_note(&files));
    for path in files {
        let file = read_tagged(&path, &tagging(encoding))?;
        found.notes.extend(file.notes(&path));
        found.tag_scheme = Some(name_of(&file.scheme));
        for sentence in &file.sentences {
            let begins = sentence.tags.iter().filter_map(|tag| tag.strip_prefix("B-"));
            begins.for_each(|kind| found.count(kind));
            found.texts.push(sentence.words.join(" "));
        }
    }
    Ok(found)
}

/// Reads files of labelled texts.
fn texts(
    args: &LabelledArgs,
    encoding: Option<TextEncoding>,
    train: &Path,
    has_numbers: bool,
) -> Result<Found> {
    let files = files_of(train)?;
    let Some(first) = files.first() else { return Err(Problem::usage("names no file").into()) };
    let known = KnownColumns {
        text: args.text_column.as_deref(),
        text_pair: args.text_pair_column.as_deref(),
        label: args.label_column.as_deref(),
        encoding,
        ..KnownColumns::default()
    };
    let mut columns = guess_columns(first, known, has_numbers)?;
    let mut found = Found::default();
    found.notes.extend(files_note(&files));
    if let LabelColumns::Each(names) = &columns.labels {
        found.notes.push(marks_note(names));
        // A label that no text has is counted, too.
        found.counts.extend(names.iter().map(|name| (name.clone(), 0)));
    }
    for path in &files {
        for example in read_examples(path, &columns_to_read(&columns, encoding, has_numbers))? {
            example.label.iter().chain(&example.labels).for_each(|label| found.count(label));
            found.texts.push(Example::whole_text(&example));
        }
    }
    if let LabelColumns::One(name) = &columns.labels
        && !has_numbers
        && found.counts.len() < 2
        && !columns.has_lists
    {
        let message = format!("all labels in `{name}` are equal: there is nothing to learn");
        return Err(Problem::new(message).at(train.display()).into());
    }
    if let Some(eval) = &args.eval {
        columns.names_differ = differ_in_evaluation(eval, &columns, known, has_numbers)?;
    }
    found.notes.extend(empty_note(&found.counts));
    found.notes.extend(list_note(&found.counts, &columns));
    let are_values = !has_numbers && matches!(columns.labels, LabelColumns::One(_));
    if are_values && found.counts.len() > MOST_NUMBERS && found.counts.keys().all(|label| is_number(label)) {
        found.notes.push(format!(
            "note: the {} labels are numbers; `--task regression` predicts numbers",
            found.counts.len()
        ));
    }
    if are_values {
        found.notes.extend(number_note(&found.counts));
    }
    found.columns = Some(columns);
    Ok(found)
}

/// A note that each of these columns is taken for a label.
fn marks_note(names: &[String]) -> String {
    format!(
        "note: {} columns hold only 0 and 1: each is taken for a label, and a text may have any number of \
         them; `--label-column NAME` takes one column",
        names.len()
    )
}

/// A note if no text has some of the labels, which are columns of 0.
fn empty_note(counts: &BTreeMap<String, usize>) -> Option<String> {
    let empty: Vec<&str> =
        counts.iter().filter(|(_, count)| **count == 0).map(|(name, _)| name.as_str()).collect();
    (!empty.is_empty()).then(|| {
        format!(
            "note: no text has the label {}: the model cannot learn to give it, and AUROC is not measured \
             where an evaluation file has no such text",
            list(empty.into_iter())
        )
    })
}

/// A note if the labels are the numbers from 0 on, of which the model's answers do not say what they mean.
fn number_note(counts: &BTreeMap<String, usize>) -> Option<String> {
    let last = counts.len().checked_sub(1)?;
    let are_ids = last < MOST_NUMBERS && (0..=last).all(|id| counts.contains_key(&id.to_string()));
    are_ids.then(|| {
        format!(
            "note: the labels are the numbers 0 to {last}; `data.labels: [NAME OF 0, ...]` (`finetune --labels`) gives \
             them names, with which the model answers"
        )
    })
}

/// Most labels that may be numbers without a note that they could be values of a regression.
const MOST_NUMBERS: usize = 10;

fn is_number(text: &str) -> bool {
    text.parse::<f64>().is_ok()
}

/// Returns true if the evaluation file names a column otherwise than the training file, and fine-tuning finds
/// the columns of both by their usual names.
///
/// # Errors
/// Returns an error if a column differs that has no usual name, since one key holds for both files.
fn differ_in_evaluation(
    eval: &Path,
    columns: &TextColumns,
    known: KnownColumns<'_>,
    has_numbers: bool,
) -> Result<bool> {
    let Some(file) = files_of(eval)?.into_iter().next() else { return Ok(false) };
    let known = match &columns.labels {
        LabelColumns::One(_) => known,
        LabelColumns::Each(names) => KnownColumns { labels: names, ..known },
    };
    let there = guess_columns(&file, known, has_numbers)?;
    let own = iter::once(&columns.text).chain(columns.labels.names());
    let others = iter::once(&there.text).chain(there.labels.names());
    let differing: Vec<(&String, &String)> = own.zip(others).filter(|names| names.0 != names.1).collect();
    for (train, other) in &differing {
        if ![train, other].iter().all(|name| is_usual_name(name, has_numbers)) {
            return Err(Problem::new(format!("has no column `{train}`, which the training file has"))
                .at(file.display())
                .hint(format!("rename its column `{other}` to `{train}`"))
                .into());
        }
    }
    Ok(!differing.is_empty())
}

/// A note if labels look like several labels in one text.
fn list_note(counts: &BTreeMap<String, usize>, columns: &TextColumns) -> Option<String> {
    if columns.has_label_sets() {
        return None;
    }
    [",", ";", "|"].into_iter().find_map(|separator| {
        let listed = counts.keys().filter(|label| label.contains(separator));
        let (example, are_known) = listed.fold((None, true), |(example, are_known), label| {
            let is_known = label.split(separator).all(|part| counts.contains_key(part.trim()));
            (example.or(Some(label)), are_known && is_known)
        });
        example.filter(|_| are_known).map(|label| {
            format!(
                "note: `{label}` seems to be several labels; for texts with any number of labels set \
                 `problem_type: multi_label_classification` and `data.label_separator: '{separator}'`"
            )
        })
    })
}

fn columns_to_read(columns: &TextColumns, encoding: Option<TextEncoding>, has_numbers: bool) -> Columns<'_> {
    let texts = Columns {
        text: Some(&columns.text),
        text_pair: columns.text_pair.as_deref(),
        encoding,
        ..Columns::default()
    };
    let texts = match &columns.labels {
        LabelColumns::One(name) => Columns { label: Some(name), ..texts },
        LabelColumns::Each(names) => return Columns { several: Some(names), ..texts },
    };
    match (has_numbers, columns.has_lists) {
        (true, _) => Columns { numbers: Some(&[]), ..texts },
        (false, true) => Columns { several: Some(&[]), ..texts },
        (false, false) => Columns { labelled: true, ..texts },
    }
}
