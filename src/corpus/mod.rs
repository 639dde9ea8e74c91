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

pub use curated::Curated;
pub use curated::Step;
pub use curated::deduplication_bytes_per_document;
pub use document::Document;
pub use document::Item;
pub use document::Judged;
pub use document::Location;
pub use document::Rejected;
pub use document::Rejection;
pub use judge::Judge;
pub use judge::reasons;
pub use kept::KeptDocuments;
pub use read::Corpus;
pub use read::Dialect;
pub use read::Documents;
pub use read::Element;
pub use read::End;
pub use read::Fields;
pub use read::JsonElements;
pub use read::Kept;
pub use read::Line;
pub use read::Lines;
pub use read::ParquetObjects;
pub use read::SourceFile;
pub use read::conversion;
pub use read::header_of;
pub use read::without_nan;
pub use report::Report;
pub use report::Tally;
pub use split::Scan;
pub use split::Side;
pub use split::Split;
pub use store::StoredDocument;
pub use store::content_hashes;
pub use store::remove_documents;
