//! `mlmtrain init --train FILE`: a commented configuration of `finetune` for labelled files.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use clap::ValueEnum;
use serde_json::Value;

use crate::commands::terminal;
use crate::config::FinetuneTask;
use crate::config::TagScheme;
use crate::error::Problem;
use crate::fs;
use crate::interop::PretrainedFolder;
use crate::interop::read_folder;
use crate::quantity::format_count;
use crate::tasks::labelled::Columns;
use crate::tasks::labelled::Example;
use crate::tasks::labelled::Tagging;
use crate::tasks::labelled::files_of;
use crate::tasks::labelled::guess::GuessedColumns;
use crate::tasks::labelled::guess::guess_columns;
use crate::tasks::labelled::read_examples;
use crate::tasks::labelled::read_tagged;
use crate::tokenizer::Tokenizer;

/// Most labels whose counts are listed.
const LISTED: usize = 20;

/// Models that are narrower than this want a higher learning rate and larger batches.
const WIDE: usize = 512;

/// Fewer updates than this are too few to learn a task, so that there are more epochs.
const LEAST_UPDATES: f64 = 600.0;

/// Labels of which the rarest has less than this share of the most frequent one are far from balanced.
const BALANCED_SHARE: f64 = 0.1;

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
    /// What is learnt
    #[arg(long, value_enum, default_value = "classify", requires = "train")]
    pub task: FinetuneTask,
    /// Column of the text; found out when not given
    #[arg(long, value_name = "NAME", requires = "train")]
    pub text_column: Option<String>,
    /// Column of the label or number; found out when not given
    #[arg(long, value_name = "NAME", requires = "train")]
    pub label_column: Option<String>,
}

/// Statistics of the examples.
struct Facts {
    examples: usize,
    columns: Option<GuessedColumns>,
    scheme: Option<TagScheme>,
    /// Count of each label or type of entity, the most frequent first; empty for regression.
    labels: Vec<(String, usize)>,
    /// Tokens of each example with special tokens, at most four, ascending.
    lengths: Vec<usize>,
    notes: Vec<String>,
}

/// Reads the labelled files and the model, and writes the configuration to `output`; `-` is standard output.
pub(super) fn run(args: &LabelledArgs, train: &Path, output: &Path, output_dir: &str) -> Result<()> {
    let Some(model) = &args.model else { unreachable!("the parser wants a model") };
    let folder = read_folder(model)?;
    let tokenizer = Tokenizer::load(&folder.path)?;
    let facts = facts(args, train, &tokenizer)?;
    let yaml = yaml(args, (train, model), &folder, &facts, output_dir);
    if output == Path::new("-") {
        return yaml.lines().map(terminal::printable).try_for_each(|line| terminal::stdout_line(&line));
    }
    fs::write_bytes(output, yaml.as_bytes())?;
    let mut lines = vec![format!("wrote `{}`: {}", output.display(), summary(&facts))];
    lines.extend(facts.columns.iter().map(|columns| {
        format!("columns: text `{}`{}, label `{}`", columns.text, second(columns), columns.label)
    }));
    lines.extend(facts.notes.iter().cloned());
    lines.push(format!("next: mlmtrain finetune --config {}", output.display()));
    lines.iter().map(|line| terminal::printable(line)).try_for_each(|line| terminal::stdout_line(&line))
}

/// As configurations write it.
fn written(value: &impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_string()).unwrap_or_default()
}

fn second(columns: &GuessedColumns) -> String {
    columns.text_pair.as_ref().map(|name| format!(" and `{name}`")).unwrap_or_default()
}

fn summary(facts: &Facts) -> String {
    let labels = match facts.labels.len() {
        0 => String::new(),
        count => format!(", {count} labels"),
    };
    format!("{} examples{labels}", format_count(facts.examples as u64))
}

fn facts(args: &LabelledArgs, train: &Path, tokenizer: &Tokenizer) -> Result<Facts> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut count = |label: &str| *counts.entry(label.to_string()).or_default() += 1;
    let mut texts = Vec::new();
    let mut notes = Vec::new();
    let mut columns = None;
    let mut scheme = None;
    if args.task == FinetuneTask::TokenClassify {
        for path in files_of(train)? {
            let file = read_tagged(&path, &Tagging::default())?;
            notes.extend(file.notes(&path));
            scheme = Some(file.scheme);
            let beginnings = file.sentences.iter().flat_map(|sentence| &sentence.tags);
            beginnings.filter_map(|tag| tag.strip_prefix("B-")).for_each(&mut count);
            texts.extend(file.sentences.iter().map(|sentence| sentence.words.join(" ")));
        }
    } else {
        let files = files_of(train)?;
        let (text, label) = (args.text_column.as_deref(), args.label_column.as_deref());
        let has_numbers = args.task == FinetuneTask::Regression;
        let Some(first) = files.first() else { return Err(Problem::usage("names no file").into()) };
        let found = guess_columns(first, text, label, has_numbers)?;
        for path in &files {
            for example in read_examples(path, &reading(&found, has_numbers))? {
                example.label.iter().chain(&example.labels).for_each(|label| count(label));
                texts.push(Example::whole_text(&example));
            }
        }
        columns = Some(found);
    }
    let mut labels: Vec<(String, usize)> = counts.into_iter().collect();
    labels.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    let has_pairs = columns.as_ref().is_some_and(|columns| columns.text_pair.is_some());
    let special = if has_pairs { 4 } else { 2 };
    let mut lengths: Vec<usize> =
        tokenizer.encode_corpus(&texts)?.iter().map(|ids| ids.len() + special).collect();
    lengths.sort_unstable();
    Ok(Facts { examples: texts.len(), columns, scheme, labels, lengths, notes })
}

/// The columns of `found` as examples are read by them.
fn reading(found: &GuessedColumns, has_numbers: bool) -> Columns<'_> {
    let of = Columns {
        text: Some(&found.text),
        text_pair: found.text_pair.as_deref(),
        label: Some(&found.label),
        ..Columns::default()
    };
    match (has_numbers, found.has_lists) {
        (true, _) => Columns { numbers: Some(&[]), ..of },
        (false, true) => Columns { several: Some(&[]), ..of },
        (false, false) => Columns { labelled: true, ..of },
    }
}

fn yaml(
    args: &LabelledArgs,
    (train, model): (&Path, &Path),
    folder: &PretrainedFolder,
    facts: &Facts,
    output_dir: &str,
) -> String {
    let mut yaml = String::new();
    let mut line = |text: &str| {
        // Writing into a String cannot fail.
        let _ = writeln!(yaml, "{text}");
    };
    let quoted = |text: &str| Value::from(text).to_string();
    let path = |path: &Path| quoted(&path.display().to_string());
    line(&format!("# Made by `mlmtrain init` for {}.", summary(facts)));
    line("# Everything here may be changed; `mlmtrain config show` prints what is left out.");
    line(&format!("\ntask: {}", written(&args.task)));
    if facts.columns.as_ref().is_some_and(|columns| columns.has_lists) {
        line("problem_type: multi_label_classification");
    }
    line(&format!("\nrun:\n  output_dir: {}", quoted(output_dir)));
    line(&format!("\nmodel: {}", path(model)));
    line(&format!("\ndata:\n  train_file: {}", path(train)));
    match &args.eval {
        Some(eval) => line(&format!("  eval_file: {}", path(eval))),
        None => line(
            "  # Rows with the same text are on one side, and each label keeps its share.\n  eval_fraction: 0.1",
        ),
    }
    if let Some(columns) = &facts.columns {
        line(&format!("  # Of {}.", columns.found.join(", ")));
        line(&format!("  text_column: {}", quoted(&columns.text)));
        if let Some(second) = &columns.text_pair {
            line(&format!("  text_pair_column: {}", quoted(second)));
        }
        line(&format!("  label_column: {}", quoted(&columns.label)));
    }
    if let Some(scheme) = facts.scheme {
        line(&format!("  tag_scheme: {}", written(&scheme)));
    }
    let at = |share: f64| facts.lengths[((facts.lengths.len() - 1) as f64 * share) as usize];
    let [median, most, longest] = [0.5, 0.99, 1.0].map(at);
    let able = folder.config.max_sequence_length();
    let length = most.next_multiple_of(8).clamp(16, 512).min(able);
    line(&format!(
        "  # Tokens of a text: {median} in the middle, {most} in 99 of 100, {longest} at most; the model takes {able}."
    ));
    line(&format!("  max_seq_length: {length}"));
    if !facts.labels.is_empty() {
        let listed = facts.labels.iter().take(LISTED);
        let listed: Vec<String> = listed
            .map(|(label, count)| format!("{} {}", quoted(label), format_count(*count as u64)))
            .collect();
        let rest = facts.labels.len().saturating_sub(LISTED);
        let rest = if rest == 0 { String::new() } else { format!(", and {rest} more") };
        line(&format!("\n# Labels: {}{rest}.", listed.join(", ")));
    }
    line(
        "\n# One seed says little of a score: the report gives mean and standard deviation.\nseeds: [1, 2, 3]",
    );
    let is_wide = folder.config.encoder.hidden_size >= WIDE;
    let (rows, rate) = if is_wide { (16, "3.0e-5") } else { (32, "3.0e-4") };
    let updates = facts.examples as f64 / f64::from(rows);
    let epochs = (LEAST_UPDATES / updates).ceil().clamp(3.0, 20.0);
    line("\ntraining:");
    line(&format!("  per_device_train_batch_size: {rows}"));
    line(&format!("  num_train_epochs: {epochs}"));
    line("  # The smaller the model, the higher.");
    line(&format!("  learning_rate: {rate}"));
    line("  warmup_steps: 0.1\n  weight_decay: 0.01");
    let is_skewed = facts
        .labels
        .last()
        .zip(facts.labels.first())
        .is_some_and(|((_, rarest), (_, most))| (*rarest as f64) < BALANCED_SHARE * *most as f64);
    if is_skewed
        && args.task == FinetuneTask::Classify
        && !facts.columns.as_ref().is_some_and(|c| c.has_lists)
    {
        line(
            "  # Some labels are rare: macro F1 counts each alike, accuracy does not. `class_weights: balanced` raises",
        );
        line("  # their share of the loss.");
        line("  metric_for_best_model: f1");
        line("  load_best_model_at_end: true");
    }
    let steps = ((updates * epochs) as u64 / 6).max(1);
    line(&format!("  logging_steps: {}", (steps / 5).max(1)));
    line(&format!("  eval_steps: {steps}"));
    line(&format!("  save_steps: {steps}"));
    yaml
}
