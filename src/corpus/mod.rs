//! From files to documents worth learning from: read -> clean -> filter -> deduplicate -> split.
//!
//! It streams: memory holds portions of documents, never a file. It knows no tokens.

mod document;
mod read;
mod split;

pub use document::Document;
pub use document::Item;
pub use document::Judged;
pub use document::Location;
pub use document::Rejected;
pub use document::Rejection;
pub use read::Corpus;
pub use read::Documents;
pub use read::SourceFile;
pub use split::Scan;
pub use split::Side;
pub use split::Split;
