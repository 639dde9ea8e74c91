//! Finds documents that were there before: equal ones by a hash, nearly equal ones by MinHash. The first in
//! order stays.
//!
//! Each document leaves a small sketch, made in parallel; when all are there, [`resolve`] sorts them on the
//! disk, in bounded memory, and says which documents repeat others. The result depends on the documents and
//! their order alone.
//!
//! Near duplicates are those whose sets of word shingles have a Jaccard similarity of about the threshold or
//! more (Broder 1997; Lee et al., "Deduplicating training data makes language models better", ACL 2022):
//! candidates agree in a band of minima (locality-sensitive hashing), and all minima of a candidate estimate
//! its similarity. Going through the documents in order, one is left out when it is like one that was kept;
//! so a chain of small changes does not swallow its far end.
//!
//! It reads no documents and removes none: `corpus/curated.rs` leaves out what is found here.

mod candidates;
mod duplicates;
mod minhash;
mod parts;
mod resolve;
mod shingles;
mod sketch;
mod sketch_file;
mod sort;

#[cfg(test)]
mod tests;

pub use duplicates::Bitmap;
pub use duplicates::Duplicates;
pub use duplicates::EXACT_DUPLICATE;
pub use duplicates::NEAR_DUPLICATE;
pub use resolve::resolve;
pub use sketch::Sketch;
pub use sketch::Sketcher;
pub use sketch_file::SketchWriter;
