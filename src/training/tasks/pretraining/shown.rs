//! The first rows of a run, for users who want to look at them.

use anyhow::Result;

use crate::tasks::pretraining::mixes::Mixes;
use crate::tasks::pretraining::{frame, windowed};
use config::PretrainConfig;
use data::batches::{Frame, Order, Packing};
use data::shards::{Manifest, ShardSet};
use data::tokenizer::Tokenizer;

/// Returns the order of documents and the frame of the first rows of training, as `config` defines them.
pub fn first_rows(
    config: &PretrainConfig,
    tokenizer: &Tokenizer,
    train: &ShardSet,
    manifest: &Manifest,
) -> Result<(Order, Frame)> {
    let phase = config.training.phase_at(0).map(|phase| phase.max_seq_length);
    let max_seq_length = phase.unwrap_or(config.data.max_seq_length);
    let (mixed, _) = Mixes::new(config, Some(manifest)).orders(config.run.seed);
    let order = windowed(config, train).unwrap_or(mixed);
    Ok((order, Frame { max_seq_length, ..frame(config, tokenizer)? }))
}

/// Returns the order and the frame of evaluation: segments, or pairs if the task is about pairs, independent
/// of the packing of training.
pub fn evaluation_rows(config: &PretrainConfig, tokenizer: &Tokenizer) -> Result<(Order, Frame)> {
    let pairs = config.task().sentence_pairs();
    let frame = Frame::new(tokenizer, config.data.max_seq_length)?;
    Ok((Order::Fixed, frame.with_packing(pairs.map_or(Packing::Segments, Packing::Pairs))))
}
