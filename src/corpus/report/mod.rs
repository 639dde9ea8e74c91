//! What became of the corpus: counted while it is read, told as JSON, as a page and as a table for the
//! terminal.
//!
//! It counts what others decided and decides nothing itself. Writing the files is the caller's business.

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
pub use samples::Sample;
pub use samples::Samples;
pub use sections::Fertility;
pub use sections::Report;
pub use sections::ShardsSummary;
pub use sections::SplitSummary;
pub use tally::SourceTally;
pub use tally::Tally;

/// Name of the report for programs inside a prepared folder.
pub const REPORT_JSON: &str = "report.json";

/// Name of the report for people inside a prepared folder.
pub const REPORT_HTML: &str = "report.html";

#[cfg(test)]
mod tests;
