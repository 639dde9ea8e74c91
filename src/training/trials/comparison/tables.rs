//! The tables of a comparison, for a terminal, Markdown and the page.

use crate::trials::comparison::result::{Pair, TaskResult};
use crate::trials::table::Table;
use base::quantity::format_grouped;
use base::scores::{Metric, SeedsNeeded, measured};

/// The note that explains means and intervals to the reader of a table.
pub(super) const NOTE: &str = "mean ± standard deviation over seeds; intervals of 95 % by a bootstrap over \
    evaluation examples and seeds (1,000 replicates)";

/// The note that explains the column `seeds needed`.
pub(super) const SEEDS_NOTE: &str =
    "seeds needed: of each model, for a difference as large as this one to be clear four times in five";

/// The title of a task, such as `topics: accuracy of 24 examples, 3 seeds`.
pub(super) fn title(result: &TaskResult) -> String {
    let metric = result.metric.title();
    let examples = format_grouped(result.examples as u64);
    let seeds = result.seeds.len();
    let seeds = if seeds == 1 { "1 seed".to_string() } else { format!("{seeds} seeds") };
    let what = if Metric::OF_ENTITIES.contains(&result.metric) { "sentences" } else { "examples" };
    format!("{}: {metric} of {examples} {what}, {seeds}", result.name)
}

/// Returns the table of scores: a row for each model and each floor, the best one marked. `separator` is put
/// between the scores of the seeds.
pub(super) fn scores(result: &TaskResult, separator: &str) -> Table {
    let factor = result.metric.factor();
    Table {
        header: ["model", result.metric.title(), "each seed"].map(str::to_string).to_vec(),
        rows: result
            .rows
            .iter()
            .map(|row| {
                let lost =
                    if row.diverged > 0 { format!(" ({} diverged)", row.diverged) } else { String::new() };
                let all: Vec<String> = row.scores.iter().map(|score| number(*score, factor)).collect();
                let mean = row.mean_text(factor);
                vec![row.name.clone(), mean, format!("{}{lost}", all.join(separator))]
            })
            .collect(),
        marked: result.best(),
        names: 1,
    }
}

/// Returns the table of differences, a row for each pair.
pub(super) fn pairs(pairs: &[Pair], factor: f64) -> Table {
    let titles = ["model", "against", "difference", "interval", "clear", "p", "seeds needed"];
    Table {
        header: titles.map(str::to_string).to_vec(),
        rows: pairs
            .iter()
            .map(|pair| {
                let found = &pair.difference;
                let clear = if found.is_clear() { "yes" } else { "no" };
                vec![
                    pair.left.clone(),
                    pair.right.clone(),
                    signed(found.difference, factor),
                    measured(found.low, |low| {
                        format!("{} to {}", signed(low, factor), signed(found.high, factor))
                    }),
                    clear.to_string(),
                    measured(found.p_value, |p_value| format!("{p_value:.3}")),
                    seeds(found.seeds_needed),
                ]
            })
            .collect(),
        marked: None,
        names: 2,
    }
}

/// A number with a `+` if it is positive.
fn signed(value: f64, factor: f64) -> String {
    let text = number(value, factor);
    if value > 0.0 { format!("+{text}") } else { text }
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
