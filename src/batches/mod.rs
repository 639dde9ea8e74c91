//! From shards to batches: order -> pack -> mask -> collate -> prefetch.
//!
//! Knows no model. Same seed and cursor give the same batches and masks for any number of threads and micro-batches.

mod batch;
mod collate;
mod evaluation;
mod loader;
mod mask;
mod order;
mod pack;

pub use batch::Batch;
pub use evaluation::EvaluationBatches;
pub use loader::Loader;
pub use loader::LoaderOptions;
pub use loader::StepBatches;
pub use mask::Masking;
pub use order::Order;
pub use pack::Cursor;
pub use pack::Frame;
pub use pack::Packer;
pub use pack::Row;
pub use pack::rows_per_epoch;

#[cfg(test)]
mod tests;
