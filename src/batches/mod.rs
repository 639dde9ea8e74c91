//! From shards to batches: order -> pack -> mask -> collate -> prefetch.
//!
//! Knows no model. Same seed and cursor give the same batches and masks for any number of threads and micro-batches.

mod batch;

pub use batch::Batch;
