//! Objects behind URLs: in the stores of Amazon, Google and Azure and whatever speaks as they do, and behind
//! https.
//!
//! [`Cache`] brings them onto this disk before anything reads them, so that all other modules know paths and
//! nothing else; shards come while they are read ([`bring`]). A [`Mirror`] copies a run folder into a bucket.
//! It knows no configuration; credentials are those of each cloud's own variables.

mod address;
mod cache;
mod claim;
mod connector;
mod download;
mod environment;
mod failure;
mod listing;
mod mirror;
mod open;
mod remote;
mod runtime;
mod unsure;

pub use address::is_url;
pub use cache::Cache;
pub use cache::Event;
pub use claim::Claim;
pub use mirror::Mirror;
pub use mirror::Uploaded;
pub use mirror::is_kept;
pub use open::bring;
pub use open::cache;
pub use open::is_distant;
pub use open::release;
pub use remote::Objects;
pub use remote::Remote;
pub use remote::checkpoint_of;
pub use remote::name_in_seed;
pub use remote::sealed_folder;
