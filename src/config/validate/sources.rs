//! Checks of the sources of the corpus: names, files, fields, weights.
//!
//! Reads no files: patterns are matched when the corpus is opened.

use crate::validate::Findings;
use crate::{DataConfig, Format, SourceConfig, TrainingPhase};

pub(super) fn sources(data: &DataConfig, phases: &[TrainingPhase], findings: &mut Findings) {
    if data.sources.is_empty() {
        let hint = "write `sources:` and below it `- files: [corpus/*.txt]`";
        findings.add(
            &["data.sources", "data"],
            "`data.sources` is empty, there is nothing to train on".to_string(),
            hint,
        );
    }
    for (index, source) in data.sources.iter().enumerate() {
        let path = format!("data.sources.{index}");
        name(&path, source, &data.sources[..index], findings);
        files(&path, source, findings);
        fields(&path, source, findings);
        separator(&path, source, findings);
        let is_drawn_in_a_phase = phases.iter().any(|phase| phase.weights(&data.sources)[index] > 0.0);
        weight(&path, source.weight, is_drawn_in_a_phase, findings);
    }
    if !phases.is_empty()
        && !data.sources.is_empty()
        && data.sources.iter().all(|source| source.weight == 0.0)
    {
        let message = "`data.sources` all have the weight 0: nothing is left for the steps behind the phases";
        findings.add(&["data.sources"], message.to_string(), "give one of them a weight above 0");
    }
    standard_input(&data.sources, findings);
}

fn name(path: &str, source: &SourceConfig, before: &[SourceConfig], findings: &mut Findings) {
    let Some(name) = &source.name else { return };
    let path = format!("{path}.name");
    findings.text(&path, name.trim().is_empty(), "news");
    if let Some(first) = before.iter().position(|other| other.name.as_ref() == Some(name)) {
        let message = format!("`{path}` and `data.sources.{first}.name` are both `{name}`");
        findings.add(
            &[&path, &format!("data.sources.{first}.name")],
            message,
            "statistics tell sources apart by their names",
        );
    }
}

fn files(path: &str, source: &SourceConfig, findings: &mut Findings) {
    let path = format!("{path}.files");
    if source.files.is_empty() {
        let parent = path.trim_end_matches(".files");
        findings.add(&[&path, parent], format!("`{path}` is empty"), "write it like `[corpus/*.txt.zst]`");
    }
    for (at, pattern) in source.files.iter().enumerate() {
        let path = format!("{path}.{at}");
        if let Err(e) = glob::Pattern::new(pattern) {
            let message = format!("`{pattern}` is not a file pattern: {}", e.msg);
            findings.add(
                &[&path],
                message,
                "`*`, `?`, `**` and `[abc]` have a meaning; write `[[]` for a bracket itself",
            );
        }
        if pattern == "-" && source.format == Format::Parquet {
            let message =
                format!("`{path}` is standard input, which cannot be Parquet: its index stands at the end");
            findings.add(&[&path], message, "write it to a file, and name the file");
        }
    }
}

fn fields(path: &str, source: &SourceConfig, findings: &mut Findings) {
    let Some(title) = &source.title_field else { return };
    let key = format!("{path}.title_field");
    if *title == source.field && !title.is_empty() {
        let message = format!("`{key}` and `{path}.field` both name `{title}`");
        findings.add(
            &[&key, &format!("{path}.field")],
            message,
            "leave `title_field` out if there is no title",
        );
    }
    if source.format == Format::Text {
        let message = format!("`{key}` is given, but plain text has no fields");
        findings.add(&[&key, &format!("{path}.format")], message, "leave it out, or set `format`");
    }
}

fn separator(path: &str, source: &SourceConfig, findings: &mut Findings) {
    let Some(separator) = &source.separator else { return };
    let key = format!("{path}.separator");
    if !matches!(separator.as_bytes(), [byte] if byte.is_ascii() && !b"\"\r\n".contains(byte)) {
        let message = format!(
            "`{key}` is `{}`, it must be one ASCII character, no quote and no line end",
            separator.escape_debug()
        );
        findings.add(&[&key], message, "`;` is usual where the comma is the decimal point");
    }
    if !matches!(source.format, Format::Auto | Format::Csv) {
        let message = format!("`{key}` is given, but the format is not `csv`");
        findings.add(&[&key, &format!("{path}.format")], message, "leave it out, or set `format: csv`");
    }
}

/// Refuses the weight 0, unless a phase gives the source another weight.
fn weight(path: &str, weight: f64, is_drawn_in_a_phase: bool, findings: &mut Findings) {
    if weight == 0.0 && !is_drawn_in_a_phase {
        let path = format!("{path}.weight");
        let hint = "leave a source out rather than giving it 0; `1` takes each document once an epoch";
        findings.add(&[&path], format!("`{path}` is 0, and no phase takes the source"), hint);
    }
}

fn standard_input(sources: &[SourceConfig], findings: &mut Findings) {
    let named = sources.iter().enumerate().flat_map(|(index, source)| {
        source
            .files
            .iter()
            .enumerate()
            .filter(|(_, name)| *name == "-")
            .map(move |(at, _)| format!("data.sources.{index}.files.{at}"))
    });
    if let [first, second, ..] = named.collect::<Vec<_>>().as_slice() {
        let message =
            format!("`{first}` and `{second}` both name standard input, which can be read only once");
        findings.add(&[second, first], message, "name it once, or write it to a file");
    }
}
