//! The files of a comparison by a protocol: its page, its tables in Markdown, the numbers as JSON and in the
//! schema Every Eval Ever.

use std::fmt::Write;
use std::path::Path;

use anyhow::Result;
use serde_json::json;

use crate::trials::comparison::files::FILES;
use crate::trials::comparison::protocol::{ProtocolResult, text};
use crate::trials::comparison::result::RowKind;
use crate::trials::comparison::{every_eval_ever, html};
use crate::trials::table::{Table, escaped};
use base::fs;
use base::pages::html::section;
use base::scores::Metric;

/// The note that explains the numbers of a table.
const NOTE: &str = "mean ± 1.96 standard errors over iterations, in percent; each iteration draws the examples \
    of all three files with replacement, the same ones for all models";

/// The note on the scores of entities.
const ENTITIES_NOTE: &str = "micro F1 is EuroEval's: it counts words between entities as entities of a further \
    type, too; entity F1 counts entities alone, as seqeval does with tags in upper case";

/// The file in the schema Every Eval Ever.
pub(super) const EVERY_EVAL_EVER: &str = "every_eval_ever.jsonl";

/// Writes all files of a comparison into `output`, and returns the lines for a terminal. `started` is the
/// time of its beginning, in seconds since 1970.
pub(super) fn write(results: &[ProtocolResult], output: &Path, started: u64) -> Result<Vec<String>> {
    let json = json!({"protocol": "euroeval", "note": NOTE, "tasks": results});
    fs::write_bytes(&output.join("compare.json"), format!("{json:#}\n").as_bytes())?;
    fs::write_bytes(&output.join("compare.html"), page(results).as_bytes())?;
    let records = every_eval_ever::lines(results, started);
    fs::write_bytes(&output.join(EVERY_EVAL_EVER), records.as_bytes())?;
    let notes = notes(results);
    let mut lines = Vec::new();
    let mut markdown = "# Comparison by EuroEval's protocol\n".to_string();
    for result in results {
        let table = result.table();
        lines.push(result.title());
        lines.extend(table.lines());
        lines.extend(result.remarks());
        lines.push(String::new());
        // Writing to a string cannot fail.
        let _ = write!(markdown, "\n## {}\n\n{}\n", escaped(&result.title()), table.markdown());
        for remark in result.remarks() {
            let _ = writeln!(markdown, "{}  ", escaped(&remark));
        }
    }
    lines.extend(notes.iter().map(ToString::to_string));
    let _ = write!(markdown, "\n{}\n", notes.join("  \n"));
    fs::write_bytes(&output.join("compare.md"), markdown.as_bytes())?;
    let names = FILES.into_iter().chain([EVERY_EVAL_EVER]);
    let paths: Vec<String> = names.map(|name| output.join(name).display().to_string()).collect();
    lines.push(format!("written: {}", paths.join(", ")));
    Ok(lines)
}

fn notes(results: &[ProtocolResult]) -> Vec<&'static str> {
    let has_entities = results.iter().any(|result| result.metrics.contains(&Metric::OverallF1));
    [NOTE].into_iter().chain(has_entities.then_some(ENTITIES_NOTE)).collect()
}

fn page(results: &[ProtocolResult]) -> String {
    let title = "Comparison by EuroEval's protocol";
    let mut main = html::heading(title, &notes(results));
    let kinds: Vec<RowKind> = results.iter().flat_map(|result| &result.rows).map(|row| row.kind).collect();
    main.push_str(&html::legend(&kinds));
    if results.len() > 1 {
        main.push_str(&section("All tasks", &html::table(&overview(results), &[])));
    }
    for result in results {
        let kinds: Vec<RowKind> = result.rows.iter().map(|row| row.kind).collect();
        let table = html::table(&result.table(), &kinds);
        let strips = result.rows.iter().filter_map(|row| {
            let estimate = row.test.get(result.first_metric())?;
            let scores =
                if estimate.scores.is_empty() { vec![estimate.mean] } else { estimate.scores.clone() };
            Some(html::Strip { name: &row.name, kind: row.kind, scores, mean: Some(estimate.mean) })
        });
        let plot = result.metrics.first().map(|&metric| html::plot(result.title(), metric, strips.collect()));
        let remarks: String = result.remarks().iter().map(|remark| html::note(remark)).collect();
        let content = format!("{}{table}{remarks}", plot.unwrap_or_default());
        main.push_str(&section(&result.title(), &content));
    }
    html::whole(title, &main)
}

/// The table of the first score of each task on test examples, with a row for each model.
fn overview(results: &[ProtocolResult]) -> Table {
    let mut names: Vec<&str> = Vec::new();
    for row in results.iter().flat_map(|result| &result.rows) {
        if !names.contains(&row.name.as_str()) {
            names.push(&row.name);
        }
    }
    let mut header = vec!["model".to_string()];
    for result in results {
        let metric = result.metrics.first().map_or("", |metric| metric.title());
        header.push(format!("{} ({metric})", result.name));
    }
    let mut rows = Vec::new();
    for name in names {
        let mut cells = vec![name.to_string()];
        for result in results {
            let row = result.rows.iter().find(|row| row.name == name);
            cells.push(text(row.and_then(|row| row.test.get(result.first_metric()))));
        }
        rows.push(cells);
    }
    Table { header, rows, marked: None, names: 1 }
}
