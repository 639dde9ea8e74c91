//! Checkpoints: folders of named tensors and JSON with a manifest of hashes, published as a whole or not at
//! all.
//!
//! This module does not know what the parts mean: owners give a [`Snapshot`] and read a [`Checkpoint`]. No
//! file names the latest checkpoint; it is the newest folder whose manifest verifies.

mod background;
mod budget;
mod difference;
mod manifest;
mod open;
mod part;
mod retention;
mod sealed;
mod store;
mod tensor_file;
#[cfg(test)]
mod tests;
mod unverified;

pub use background::BackgroundSave;
pub use difference::Difference;
pub use difference::Same;
pub use difference::compare_tensors;
pub use open::Checkpoint;
pub use part::Part;
pub use part::Snapshot;
pub use retention::Retention;
pub use retention::retention;
pub use sealed::make_way;
pub use sealed::verify_sealed;
pub use sealed::write_sealed;
pub use store::CheckpointStore;
pub use tensor_file::TensorFile;
pub use tensor_file::TensorInfo;
pub use tensor_file::write_tensors;
pub use unverified::Unverified;
