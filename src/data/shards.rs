//! Tokenised text on disk: safetensors shards, their manifest, and their writer and reader.
//!
//! The module `prepare` turns text into shards. Nothing here knows rows or masks.

mod distant;
mod format;
mod held;
mod manifest;
mod reader;
mod verify;
mod writer;

pub use format::token_bytes_for;
pub use manifest::{MANIFEST_JSON, Manifest, ShardEntry, SplitEntry};
pub use reader::{Place, ShardSet, SourceRange};
pub use verify::{Verdict, verify_manifest, verify_shard};
pub use writer::ShardWriter;

#[cfg(test)]
mod tests;
