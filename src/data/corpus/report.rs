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

pub use amount::Amount;
pub use lengths::Lengths;
pub use samples::{Sample, Samples};
pub use sections::{Fertility, Report, ShardsSummary, SplitSummary};
pub use tally::{SourceTally, Tally};

/// File name of the machine-readable report in a prepared folder.
pub const REPORT_JSON: &str = "report.json";

/// File name of the HTML report in a prepared folder.
pub const REPORT_HTML: &str = "report.html";

#[cfg(test)]
mod tests;
