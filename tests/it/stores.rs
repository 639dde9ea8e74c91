//! Objects in the place of paths: the cache against a server that fails in every way, and whole runs against
//! a real server of S3's protocol.

mod bucket;
mod cache;
mod claim;
mod google;
mod secrets;
mod server;
mod shards;
mod upload;
