//! Tokenised text on the disk: safetensors shards, the manifest that vouches for them, writing and reading.
//!
//! [`ensure_prepared`] goes from raw text to shards and does only what is missing. Nothing here knows rows or masks.

mod format;
mod manifest;
mod prepare;
mod reader;
mod settings;
mod writer;

pub use manifest::MANIFEST_JSON;
pub use manifest::Manifest;
pub use manifest::ShardEntry;
pub use manifest::SplitEntry;
pub use prepare::Prepared;
pub use prepare::Progress;
pub use prepare::Stage;
pub use prepare::ensure_prepared;
pub use reader::Place;
pub use reader::ShardSet;
pub use reader::SourceRange;
pub use writer::ShardWriter;

#[cfg(test)]
mod tests;
