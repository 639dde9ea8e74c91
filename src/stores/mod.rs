//! Objects behind URLs: in the stores of Amazon, Google and Azure and whatever speaks as they do, and behind
//! https.
//!
//! [`Cache`] brings them onto this disk before anything reads them, so that all other modules know paths and
//! nothing else; a [`Mirror`] copies a run folder into a bucket. It knows no configuration; credentials are
//! those of each cloud's own variables.

mod address;
mod cache;
mod download;
mod failure;
mod mirror;
mod remote;
mod runtime;

pub use address::is_url;
pub use cache::Cache;
pub use cache::Event;
pub use mirror::Mirror;
pub use mirror::is_kept;
pub use remote::Objects;
pub use remote::Remote;
pub use remote::sealed_folder;
