//! Packing, masking and loading of real shards in a temporary folder: helpers of the tests.

use std::path::Path;
use std::sync::Arc;

use super::*;
use crate::corpus::Side;
use crate::shards::{Manifest, ShardSet, ShardWriter, SplitEntry};
use crate::tokenizer::{Tokenizer, Trainer, TrainerOptions};
use base::families::Family;
use config::{MlmConfig, SentencePairs, TokenizerConfig};

mod loading;
mod masking;
mod mixes;
mod packing;
mod pairs;
mod ranks;
mod rows;

const VOCAB: usize = 1000;

/// Shards whose documents have the given lengths; every token has the next number, modulo the vocabulary.
fn shards(folder: &Path, lengths: &[usize]) -> Arc<ShardSet> {
    let mut writer = ShardWriter::new(folder, Side::Train, "f", VOCAB, 50);
    let mut next = 0;
    for length in lengths {
        let ids: Vec<u32> = (next..next + length).map(token).collect();
        next += length;
        writer.push(0, &ids, 1).unwrap();
    }
    let train = writer.finish().unwrap();
    let validation = SplitEntry::default();
    let version = Manifest::VERSION;
    let sources = vec!["text".to_string()];
    let names = (String::new(), "f".to_string());
    Manifest {
        version,
        settings_sha256: names.0,
        tokenizer: names.1,
        vocab_size: VOCAB,
        sources,
        documents_read: 0,
        without_tokens: 0,
        train,
        validation,
    }
    .write(folder)
    .unwrap();
    Arc::new(ShardSet::open(folder, Side::Train).unwrap())
}

/// Truncates the first shard in the folder, even while it is open.
fn spoil(folder: &Path) {
    std::fs::write(folder.join("train-00000.safetensors"), b"gone").unwrap();
}

fn token(number: usize) -> u32 {
    (5 + number % (VOCAB - 5)) as u32
}

fn tokenizer() -> Tokenizer {
    let config = TokenizerConfig { vocab_size: 261, ..TokenizerConfig::default() };
    Trainer::new(TrainerOptions::new(&config, Family::ROBERTA, 512))
        .unwrap()
        .finish(|_| {})
        .unwrap()
        .tokenizer
}

fn frame(max_seq_length: usize) -> Frame {
    Frame::new(&tokenizer(), max_seq_length).unwrap()
}

fn masking() -> Masking {
    Masking::new(&MlmConfig::default(), &tokenizer()).unwrap()
}

fn loader(set: &Arc<ShardSet>, rows: usize, accumulation_steps: usize, cursor: Cursor) -> Loader {
    Loader::start(Arc::clone(set), frame(16), masking(), options(7, rows, accumulation_steps), cursor)
        .unwrap()
}

/// Options for steps with rows of 16 tokens.
fn options(seed: u64, rows_per_micro_batch: usize, micro_batches: usize) -> LoaderOptions {
    LoaderOptions::new(
        seed,
        BatchPlan::constant(StepShape { max_seq_length: 16, rows_per_micro_batch, micro_batches }),
    )
}

/// All ways of packing.
const PACKINGS: [Packing; 8] = [
    Packing::Segments,
    Packing::FullSentences { separator: true },
    Packing::FullSentences { separator: false },
    Packing::Documents,
    Packing::BestFit { window_documents: 5 },
    Packing::BestFit { window_documents: 1024 },
    Packing::Pairs(SentencePairs::SentenceOrder),
    Packing::Pairs(SentencePairs::NextSentence),
];

/// All ways of packing into rows of `max_seq_length` places, with whole documents shuffled, with chunks that
/// fill a row, and with chunks of half a row if rows contain several.
fn frames(max_seq_length: usize) -> Vec<Frame> {
    let frames = PACKINGS.into_iter().flat_map(|packing| {
        let is_alone = matches!(packing, Packing::Documents | Packing::Pairs(_));
        let half = if is_alone { max_seq_length } else { max_seq_length / 2 + 1 };
        [None, Some(max_seq_length), Some(half)].map(|chunk_row| Frame {
            packing,
            chunk_row,
            ..frame(max_seq_length)
        })
    });
    frames.collect()
}
