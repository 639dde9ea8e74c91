//! The files of a comparison: its page, its tables in Markdown, and the numbers as JSON.

use std::fmt::Write;
use std::path::Path;

use anyhow::Result;
use serde_json::json;

use crate::trials::comparison::html;
use crate::trials::comparison::result::TaskResult;
use crate::trials::comparison::tables::{NOTE, SEEDS_NOTE, pairs, scores, title};
use crate::trials::table::escaped;
use base::fs;

/// The files that a comparison writes.
pub(super) const FILES: [&str; 3] = ["compare.html", "compare.md", "compare.json"];

/// Writes the page, the Markdown and the JSON into `output`, and returns the lines for a terminal.
pub(super) fn write(results: &[TaskResult], output: &Path) -> Result<Vec<String>> {
    let json = json!({"note": NOTE, "tasks": results});
    fs::write_bytes(&output.join("compare.json"), format!("{json:#}\n").as_bytes())?;
    fs::write_bytes(&output.join("compare.html"), html::page(results).as_bytes())?;
    let mut lines = Vec::new();
    let mut markdown = "# Comparison\n".to_string();
    for result in results {
        let scores = scores(result, " ");
        let pairs = pairs(&result.pairs, result.metric.factor());
        lines.push(title(result));
        lines.extend(scores.lines());
        lines.push(String::new());
        lines.extend(pairs.lines());
        lines.push(String::new());
        // Writing to a string cannot fail.
        let _ = write!(
            markdown,
            "\n## {}\n\n{}\n{}",
            escaped(&title(result)),
            scores.markdown(),
            pairs.markdown()
        );
    }
    lines.extend([NOTE.to_string(), SEEDS_NOTE.to_string()]);
    let _ = write!(markdown, "\n{NOTE}  \n{SEEDS_NOTE}\n");
    fs::write_bytes(&output.join("compare.md"), markdown.as_bytes())?;
    lines.push(format!("written: {}", FILES.map(|name| output.join(name).display().to_string()).join(", ")));
    Ok(lines)
}
