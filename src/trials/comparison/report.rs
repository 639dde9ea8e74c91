//! The tables of a comparison: for a terminal, as Markdown, as JSON, and as a page.

use std::fmt::Write;
use std::path::Path;

use anyhow::Result;
use serde_json::json;

use crate::fs;
use crate::quantity::format_grouped;
use crate::scores::Metric;
use crate::scores::SeedsNeeded;
use crate::scores::measured;
use crate::trials::comparison::html;
use crate::trials::comparison::result::Pair;
use crate::trials::comparison::result::Scored;
use crate::trials::comparison::result::TaskResult;
use crate::trials::table::Table;
use crate::trials::table::escaped;

/// What a reader has to know of the intervals.
pub(super) const NOTE: &str = "mean ± standard deviation over seeds; intervals of 95 % by a bootstrap over \
    evaluation examples and seeds (1,000 replicates)";

/// What a reader has to know of the last column.
pub(super) const SEEDS_NOTE: &str =
    "seeds needed: of each model, for a difference as large as this one to be clear four times in five";

/// The files of a comparison.
pub(super) const FILES: [&str; 3] = ["compare.html", "compare.md", "compare.json"];

/// Writes all forms into `output`, and gives the lines for a terminal.
pub(super) fn write(results: &[TaskResult], output: &Path) -> Result<Vec<String>> {
    let json = json!({"note": NOTE, "tasks": results});
    fs::write_bytes(&output.join("compare.json"), format!("{json:#}\n").as_bytes())?;
    fs::write_bytes(&output.join("compare.html"), html::page(results).as_bytes())?;
    let (mut lines, mut markdown) = (Vec::new(), "# Comparison\n".to_string());
    for result in results {
        let (scores, pairs) = (scores(result), pairs(&result.pairs, result.metric.factor()));
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

/// `topics: accuracy of 24 examples, 3 seeds`.
pub(super) fn title(result: &TaskResult) -> String {
    let (metric, examples) = (result.metric.title(), format_grouped(result.examples as u64));
    let seeds = result.seeds.len();
    let seeds = if seeds == 1 { "1 seed".to_string() } else { format!("{seeds} seeds") };
    let what = if result.metric == Metric::OverallF1 { "sentences" } else { "examples" };
    format!("{}: {metric} of {examples} {what}, {seeds}", result.name)
}

/// A row for each model and each floor, the best marked.
pub(super) fn scores(result: &TaskResult) -> Table {
    let factor = result.metric.factor();
    let row = |row: &Scored| {
        let lost = if row.diverged > 0 { format!(" ({} diverged)", row.diverged) } else { String::new() };
        let all: Vec<String> = row.scores.iter().map(|score| number(*score, factor)).collect();
        let mean = row.mean_text(factor);
        vec![row.name.clone(), mean, format!("{}{lost}", all.join(" "))]
    };
    Table {
        header: ["model", result.metric.title(), "each seed"].map(str::to_string).to_vec(),
        rows: result.rows.iter().map(row).collect(),
        marked: result.best(),
        names: 1,
    }
}

/// A row for each pair.
pub(super) fn pairs(pairs: &[Pair], factor: f64) -> Table {
    let row = |pair: &Pair| {
        let of = &pair.difference;
        let signed = |value: f64| {
            let text = number(value, factor);
            if value > 0.0 { format!("+{text}") } else { text }
        };
        let clear = if of.is_clear() { "yes" } else { "no" };
        vec![
            pair.left.clone(),
            pair.right.clone(),
            signed(of.difference),
            measured(of.low, |low| format!("{} to {}", signed(low), signed(of.high))),
            clear.to_string(),
            measured(of.p_value, |p_value| format!("{p_value:.3}")),
            seeds(of.seeds_needed),
        ]
    };
    let titles = ["model", "against", "difference", "interval", "clear", "p", "seeds needed"];
    Table {
        header: titles.map(str::to_string).to_vec(),
        rows: pairs.iter().map(row).collect(),
        marked: None,
        names: 2,
    }
}

pub(super) fn number(value: f64, factor: f64) -> String {
    measured(
        value,
        |value| if factor > 1.0 { format!("{:.2}", value * factor) } else { format!("{value:.4}") },
    )
}

fn seeds(needed: SeedsNeeded) -> String {
    match needed {
        SeedsNeeded::Seeds(count) => format_grouped(count),
        SeedsNeeded::MoreExamples => "more examples".to_string(),
        SeedsNeeded::Unknown => "-".to_string(),
    }
}
