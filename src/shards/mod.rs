//! Tokenised text on the disk: safetensors shards, the manifest that vouches for them, writing and reading.
//!
//! [`ensure_prepared`] goes from raw text to shards and does only what is missing. Nothing here knows rows or
//! masks.

mod format;
mod manifest;
mod meter;
mod portions;
mod prepare;
mod reader;
mod report;
mod settings;
mod space;
mod tokenize;
mod verify;
mod vocabulary;
mod writer;

pub use manifest::MANIFEST_JSON;
pub use manifest::Manifest;
pub use manifest::ShardEntry;
pub use manifest::SplitEntry;
pub use meter::Progress;
pub use meter::Stage;
pub use prepare::Prepared;
pub use prepare::ensure_prepared;
pub use reader::Place;
pub use reader::ShardSet;
pub use reader::SourceRange;
pub use report::read_report;
pub use space::Space;
pub use verify::Verdict;
pub use verify::verify_manifest;
pub use verify::verify_shard;
pub use writer::ShardWriter;

#[cfg(test)]
mod tests;
