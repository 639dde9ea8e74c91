//! The tables of a comparison.

use crate::trials::comparison::result::{Pair, RowKind, TaskResult};
use base::pages::table::{Row, Table};
use base::pages::text::Text;
use base::quantity::format_grouped;
use base::scores::{Difference, Metric, SeedsNeeded, measured};
use base::words::counted;

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
    let seeds = counted(result.seeds.len(), "seed");
    let what = if Metric::OF_ENTITIES.contains(&result.metric) { "sentences" } else { "examples" };
    format!("{}: {metric} of {examples} {what}, {seeds}", result.name)
}

/// The name of a row after the dot of its kind.
pub(super) fn name(name: &str, kind: RowKind) -> Text {
    Text::name(name).after_dot(class_of(kind))
}

/// The CSS class of a kind of row.
pub(super) fn class_of(kind: RowKind) -> &'static str {
    match kind {
        RowKind::Model => "model",
        RowKind::Twin => "twin",
        RowKind::Floor => "floor",
        RowKind::Published => "published",
    }
}

/// Returns the table of scores: a row for each model and each floor, the best one marked unless several are
/// best.
pub(super) fn scores(result: &TaskResult) -> Table {
    let factor = result.metric.factor();
    let rows = result.rows.iter().map(|row| {
        let lost = if row.diverged > 0 { format!(" ({} diverged)", row.diverged) } else { String::new() };
        let all: Vec<String> = row.scores.iter().map(|score| number(*score, factor)).collect();
        let cells = [row.mean_text(factor), format!("{}{lost}", all.join(" · "))].map(Text::from);
        [name(&row.name, row.kind)].into_iter().chain(cells).collect()
    });
    let header = ["model", result.metric.title(), "each seed"];
    Table::new(header, rows.collect()).with_best(result.best())
}

/// Returns the table of differences, a row for each pair. A page has the first model of each as a heading
/// above all pairs that it is in.
pub(super) fn pairs(pairs: &[Pair], factor: f64) -> Table {
    let rows = pairs.iter().map(|pair| {
        let found = &pair.difference;
        let interval =
            measured(found.low, |low| format!("{} to {}", signed(low, factor), signed(found.high, factor)));
        let clear = if found.is_clear() { "yes" } else { "no" };
        let p = measured(found.p_value, |p_value| format!("{p_value:.3}"));
        let names = [&pair.left, &pair.right].map(|name| Text::name(name));
        let figures = [signed(found.difference, factor), interval, clear.to_string(), p, seeds(found)];
        names.into_iter().chain(figures.map(Text::from)).collect::<Row>()
    });
    let header = ["model", "against", "difference", "interval", "clear", "p", "seeds needed"];
    Table { names: 2, class: "pairs", is_grouped: true, ..Table::new(header, rows.collect()) }
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

fn seeds(difference: &Difference) -> String {
    match difference.seeds_needed {
        SeedsNeeded::Seeds(count) => format_grouped(count),
        // The estimate may ask for more examples where these ones have shown the difference already.
        SeedsNeeded::MoreExamples if difference.is_clear() => "-".to_string(),
        SeedsNeeded::MoreExamples => "more examples".to_string(),
        SeedsNeeded::Unknown => "-".to_string(),
    }
}
