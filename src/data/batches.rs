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
pub use efficiency::{PackingReport, packing_report, rows_per_epoch};
pub use evaluation::EvaluationBatches;
pub use frame::{Frame, Packing, Row};
pub use loader::{Loader, LoaderOptions, StepBatches};
pub use mask::{MaskBuffers, Masking};
pub use order::{Order, Sequence};
pub use pack::Packer;
pub use staging::{HostMemory, Planner, Staging};
pub use steps::{BatchPlan, StepShape, share};

#[cfg(test)]
mod tests;
