//! Turns files into documents for training: read -> clean -> filter -> deduplicate -> split.
//!
//! The corpus is streamed: memory holds portions of documents, never a whole file. No module here depends on
//! the tokenizer.

mod clean;
mod contamination;
mod curated;
pub mod dedup;

mod document;
mod filter;
mod judge;
mod kept;
mod pass;
mod read;
pub mod report;
mod split;
mod store;
mod texts;

pub use curated::{Curated, Step, deduplication_bytes_per_document};
pub use document::{BAD_RECORD, Document, Item, Judged, Location, Rejected, Rejection};
pub use judge::{Judge, reasons};
pub use kept::KeptDocuments;
pub use read::{Corpus, Documents, SourceFile};
pub use report::{Report, Tally};
pub use split::{Scan, Side, Split};
pub use store::{StoredDocument, content_hashes, remove_documents};
