//! The files of a comparison: its page, its tables in Markdown, and the numbers as JSON.

use std::path::{Path, PathBuf};

use anyhow::Result;
use serde_json::json;

use crate::trials::comparison::report::report;
use crate::trials::comparison::result::TaskResult;
use crate::trials::comparison::tables::NOTE;
use crate::trials::grid_folder::Grid;
use base::fs;
use base::pages::report::Report;

/// The files that a comparison writes.
pub(super) const FILES: [&str; 3] = ["compare.html", "compare.md", Grid::Comparison.results()];

/// Returns the page and the Markdown of the comparison in `folder`; `None` if no comparison has ended there.
pub fn pages_of(folder: &Path) -> Option<[PathBuf; 2]> {
    let [page, markdown, results] = FILES.map(|name| folder.join(name));
    let are_there = [&page, &markdown, &results].into_iter().all(|path| fs::exists(path));
    are_there.then_some([page, markdown])
}

/// Writes the page, the Markdown and the JSON into `output`, and returns the lines for a terminal.
pub(super) fn write(results: &[TaskResult], output: &Path) -> Result<Vec<String>> {
    write_report(&report(results), &json!({"note": NOTE, "tasks": results}), output, &[])
}

/// Writes the files of a report, whose numbers are `json`, and returns the lines for a terminal. The last one
/// names the files, and `others` that the caller wrote.
pub(super) fn write_report(
    report: &Report,
    json: &serde_json::Value,
    output: &Path,
    others: &[&str],
) -> Result<Vec<String>> {
    let contents = [report.html(), report.markdown(), format!("{json:#}\n")];
    for (name, content) in FILES.into_iter().zip(contents) {
        fs::write_bytes(&output.join(name), content.as_bytes())?;
    }
    let paths: Vec<String> =
        FILES.iter().chain(others).map(|name| output.join(name).display().to_string()).collect();
    let mut lines = report.lines();
    lines.push(format!("written: {}", paths.join(", ")));
    Ok(lines)
}
