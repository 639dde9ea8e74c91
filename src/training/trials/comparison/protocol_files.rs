//! The files of a comparison by a protocol: its page, its tables in Markdown, the numbers as JSON and in the
//! schema Every Eval Ever.

use std::path::Path;

use anyhow::Result;
use serde_json::json;

use crate::trials::comparison::every_eval_ever;
use crate::trials::comparison::files::write_report;
use crate::trials::comparison::protocol::{ProtocolResult, text};
use crate::trials::comparison::report::{Strip, plot, table_by_task, whole};
use crate::trials::comparison::result::RowKind;
use base::fs;
use base::pages::report::{Block, Report, Section};
use base::pages::table::Table;
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
    let records = every_eval_ever::lines(results, started);
    fs::write_bytes(&output.join(EVERY_EVAL_EVER), records.as_bytes())?;
    let json = json!({"protocol": "euroeval", "note": NOTE, "tasks": results});
    write_report(&report(results), &json, output, &[EVERY_EVAL_EVER])
}

fn notes(results: &[ProtocolResult]) -> Vec<&'static str> {
    let has_entities = results.iter().any(|result| result.metrics.contains(&Metric::OverallF1));
    [NOTE].into_iter().chain(has_entities.then_some(ENTITIES_NOTE)).collect()
}

fn report(results: &[ProtocolResult]) -> Report {
    let mut sections = Vec::new();
    if results.len() > 1 {
        sections.push(Section::new("All tasks", vec![Block::Table(overview(results))]));
    }
    for result in results {
        let strips = result.rows.iter().filter_map(|row| {
            let estimate = row.test.get(result.first_metric())?;
            let scores =
                if estimate.scores.is_empty() { vec![estimate.mean] } else { estimate.scores.clone() };
            Some(Strip { name: &row.name, kind: row.kind, scores, mean: Some(estimate.mean) })
        });
        let plot = result.metrics.first().map(|&metric| plot(result.title(), metric, strips.collect()));
        let remarks = result.remarks().into_iter().map(|remark| Block::note(format!("{remark}.")));
        let blocks = plot.into_iter().chain([Block::Table(result.table())]).chain(remarks);
        sections.push(Section::new(result.title(), blocks.collect()));
    }
    let kinds: Vec<RowKind> = results.iter().flat_map(|result| &result.rows).map(|row| row.kind).collect();
    let notes = notes(results).into_iter().map(|note| format!("{note}."));
    whole("Comparison by EuroEval's protocol", notes, &kinds, sections)
}

/// The table of the first score of each task on test examples, with a row for each model.
fn overview(results: &[ProtocolResult]) -> Table {
    let names = results.iter().flat_map(|result| &result.rows).map(|row| row.name.as_str());
    let titles = results.iter().map(|result| {
        let metric = result.metrics.first().map_or("", |metric| metric.title());
        format!("{} ({metric})", result.name)
    });
    table_by_task(names, titles, |name| {
        let cells = results.iter().map(|result| {
            let row = result.rows.iter().find(|row| row.name == name);
            text(row.and_then(|row| row.test.get(result.first_metric())))
        });
        cells.collect()
    })
}
