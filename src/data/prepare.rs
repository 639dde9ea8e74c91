//! From raw text to shards: read and curate, train the tokenizer, tokenize; only the stages that are missing
//! run.
//!
//! The prepared folder holds `settings.json` (everything that the other files depend on), `documents/` (kept
//! text, removed at the end), `tokenizer/`, `shards/`, the report and, if it is wanted, `text/`. Work made
//! with other settings is never overwritten. The bytes written do not depend on the number of processes and
//! threads, nor on interruptions.

mod encode;
mod files;
mod job;
mod meter;
mod portions;
mod report;
mod rounds;
mod settings;
mod space;
mod text;
mod tokenize;
mod vocabulary;

pub use job::{Prepared, ensure_prepared, require_same_settings};
pub use meter::{Progress, Stage};
pub use report::read_report;
pub use space::Space;

#[cfg(test)]
mod tests;
