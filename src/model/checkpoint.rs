//! Checkpoints: folders of named tensors and JSON with a manifest of hashes, published as a whole or not at
//! all.
//!
//! This module does not know what the parts mean: owners give a [`Snapshot`] and read a [`Checkpoint`]. No
//! file names the latest checkpoint; it is the newest folder whose manifest verifies.

mod background;
mod budget;
mod difference;
mod open;
mod part;
mod retention;
mod store;
mod tensor_file;
#[cfg(test)]
mod tests;
mod unverified;

pub use background::BackgroundSave;
pub use difference::{Difference, Same, compare_tensors};
pub use open::Checkpoint;
pub use part::{Part, Snapshot};
pub use retention::{Retention, retention};
pub use store::CheckpointStore;
pub use tensor_file::{TensorFile, TensorInfo, write_tensors};
pub use unverified::Unverified;
