//! Report on the corpus: counts of what was read, kept and left out, as JSON, as a page, and as a table for
//! the terminal.
//!
//! The code here counts decisions that are made elsewhere. The callers write the files.

mod amount;
mod explanations;
mod html;
mod lengths;
mod samples;
mod sections;
mod table;
mod tally;

use anyhow::Result;

pub use amount::Amount;
pub use lengths::Lengths;
pub use samples::{Sample, Samples};
pub use sections::{Fertility, Report, ShardsSummary, SplitSummary};
pub use tally::{SourceTally, Tally};

/// File name of the machine-readable report in a prepared folder.
pub const REPORT_JSON: &str = "report.json";

/// File name of the HTML report in a prepared folder.
pub const REPORT_HTML: &str = "report.html";

impl Report {
    /// Returns the content of `report.json`.
    pub fn to_json(&self) -> Result<String> {
        Ok(format!("{}\n", serde_json::to_string_pretty(self)?))
    }

    /// Returns the content of `report.html`: one page that needs neither network nor scripts.
    pub fn to_html(&self) -> String {
        html::page(self)
    }

    /// Returns the report for a terminal, as lines of at most 100 columns.
    pub fn to_table(&self) -> Vec<String> {
        table::lines(self)
    }
}

#[cfg(test)]
mod tests;
