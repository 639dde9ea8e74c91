//! From raw text to batches, in the order of the data: read and clean, tokenize, write shards, make rows.
//!
//! Uses no tensors, no devices and no model, so no feature of the program changes this crate.

pub mod batches;
pub mod corpus;
pub mod prepare;
pub mod records;
pub mod shards;
pub mod tokenizer;
