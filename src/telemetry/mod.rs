//! Records go to sinks: progress bar, metrics.jsonl, TensorBoard. The trainer never reads a number back from here.

mod record;

pub use record::Record;
