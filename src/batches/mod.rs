//! From shards to batches: order -> plan -> pack -> mask -> collate -> prefetch.
//!
//! Long documents are divided into chunks that fill a row (`chunks.rs`) and have a separate order. Shorter
//! documents and the tokens after the last chunk of a document follow the order of documents (`order.rs`).
//! `planner/units.rs` takes from both in proportion, and `planner.rs` makes rows from the result.
//!
//! This module is independent of models. The same seed and cursor give the same rows, masks and keys for any
//! number of ranks, workers and micro-batches.

mod ahead;
mod batch;
mod best_fit;
mod chunks;
mod classes;
mod collate;
mod cursor;
mod documents;
mod efficiency;
mod evaluation;
mod frame;
mod loader;
mod mask;
mod order;
mod pack;
mod pairs;
mod planner;
mod spans;
mod staging;
mod steps;
mod workers;

pub use ahead::Ahead;
pub use batch::Batch;
pub use cursor::Cursor;
pub use efficiency::PackingReport;
pub use efficiency::packing_report;
pub use efficiency::rows_per_epoch;
pub use evaluation::EvaluationBatches;
pub use frame::Frame;
pub use frame::Packing;
pub use frame::Row;
pub use loader::Loader;
pub use loader::LoaderOptions;
pub use loader::StepBatches;
pub use mask::MaskBuffers;
pub use mask::Masking;
pub use order::Order;
pub use order::Sequence;
pub use pack::Packer;
pub use staging::HostMemory;
pub use staging::Planner;
pub use staging::Staging;
pub use steps::BatchPlan;
pub use steps::StepShape;
pub use steps::share;

#[cfg(test)]
mod tests;
