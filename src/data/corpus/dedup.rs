//! Finds documents that repeat earlier ones: equal ones by a hash, nearly equal ones by MinHash. The first in
//! order is kept.
//!
//! Each document is reduced to a small sketch, in parallel; when all sketches are written, [`resolve`] sorts
//! them on disk, in bounded memory, and determines which documents repeat others. The result depends on the
//! documents and their order alone.
//!
//! Near duplicates are documents whose sets of word shingles have a Jaccard similarity of about the threshold
//! or more (Broder 1997; Lee et al., "Deduplicating training data makes language models better", ACL 2022):
//! candidates agree in a band of minima (locality-sensitive hashing), and all minima of a candidate estimate
//! its similarity. The documents are visited in order, and one is left out if it resembles one that was kept;
//! so of a chain of small changes, the far end is kept.
//!
//! No code here reads or removes documents: `corpus/curated.rs` leaves out the duplicates found here.

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

pub use duplicates::{Bitmap, Duplicates, EXACT_DUPLICATE, NEAR_DUPLICATE};
pub use resolve::resolve;
pub use sketch::{Sketch, Sketcher};
pub use sketch_file::SketchWriter;
