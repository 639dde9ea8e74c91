//! Objects behind URLs: in the stores of Amazon, Google and Azure, in compatible stores, and behind https.
//!
//! [`Cache`] downloads objects to this disk before anything reads them, so that all other modules only know
//! paths. Shards are downloaded while they are read ([`bring`]). A [`Mirror`] copies a run folder into a
//! bucket. This module knows no configuration; credentials come from each cloud's own variables.

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
pub use cache::{Cache, Event};
pub use claim::Claim;
pub use mirror::{Mirror, Uploaded, is_kept};
pub use open::{bring, cache, is_distant, release};
pub use remote::{Objects, Remote, checkpoint_of, name_in_seed, sealed_folder};
