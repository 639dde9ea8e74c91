//! What a target of `cargo fuzz` does: the first byte of an input chooses a reader of the list, the others
//! are the file that it is given.
//!
//! It works in a folder of its own in memory, so that one process of a target runs at a time, and puts the
//! undamaged files into its corpus.

#![expect(clippy::unwrap_used, reason = "without its material a target cannot go on")]

#[path = "../it/material.rs"]
mod material;
#[path = "../readers/mod.rs"]
#[expect(dead_code, reason = "what came of a reading is looked at by the other users of the list")]
mod readers;

use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use clap::Parser;
use libfuzzer_sys::fuzzer_mutate;
use mlmtrain::{commands, error};
use mlmtrain::commands::cli::Cli;
use mlmtrain::rng::{Purpose, Stream};
use readers::{Input, Runs};

/// The readers of this target; those of compressed files come twice, since damage inside passes checksums.
static READERS: OnceLock<Vec<(Input, bool)>> = OnceLock::new();

fn readers_of(target: &str) -> Vec<(Input, bool)> {
    let memory = Path::new("/dev/shm");
    let scratch = if memory.is_dir() { memory.to_path_buf() } else { std::env::temp_dir() };
    // libFuzzer ends the process without a word, so that the next one of this target removes what is left.
    let scratch = scratch.join(format!("mlmtrain-fuzz-{target}"));
    if scratch.exists() {
        fs::remove_dir_all(&scratch).unwrap();
    }
    let runs = Runs::make(&scratch.join("runs"), &mut |arguments, code| {
        let cli = Cli::try_parse_from([&["mlmtrain"], arguments].concat())?;
        let ended = commands::run(&cli).map_or_else(|e| error::class_of(&e).exit_code(), |()| 0);
        anyhow::ensure!(ended == code, "{arguments:?} ends with {ended}");
        Ok(())
    });
    let all = readers::all(&scratch.join("inputs"), &runs.unwrap()).unwrap();
    let mut known: Vec<&str> = all.iter().map(|input| input.target).collect();
    known.dedup();
    let chosen: Vec<Input> = all.into_iter().filter(|input| input.target == target).collect();
    assert!(!chosen.is_empty(), "{target} is none of {known:?}");
    let twice = |input: Input| {
        let inside = input.inside.is_some().then(|| (input.clone(), true));
        inside.into_iter().chain([(input, false)])
    };
    let readers: Vec<_> = chosen.into_iter().flat_map(twice).collect();
    assert!(readers.len() <= 256, "a byte chooses among them");
    readers
}

/// Makes the readers, and puts the undamaged files, and those that were once read wrongly, where the first
/// run finds them.
pub fn plant(target: &str) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    fs::create_dir_all(&corpus).unwrap();
    for (number, (input, is_inside)) in READERS.get_or_init(|| readers_of(target)).iter().enumerate() {
        let whole = match &input.inside {
            Some((plain, _)) if *is_inside => plain,
            _ => &input.bytes,
        };
        for (index, bytes) in [whole].into_iter().chain(&input.kept).enumerate() {
            let file = corpus.join(format!("seed-{number:03}-{index}"));
            fs::write(file, [&[number as u8], bytes.as_slice()].concat()).unwrap();
        }
    }
}

/// Reads an input. What comes of it is no matter here: a panic, a hang and too much memory end the process.
pub fn read(data: &[u8]) {
    let (Some((&first, rest)), Some(readers)) = (data.split_first(), READERS.get()) else { return };
    let (input, is_inside) = &readers[first as usize % readers.len()];
    let _ = match &input.inside {
        Some((_, compress)) if *is_inside => input.read(&compress(rest)),
        _ => input.read(rest),
    };
}

/// Half of the damage is libFuzzer's, the other half that of the torture table, behind the byte that chooses.
pub fn mutate(data: &mut [u8], size: usize, max_size: usize, seed: u32) -> usize {
    if seed.is_multiple_of(2) || size < 2 {
        return fuzzer_mutate(data, size, max_size);
    }
    let damaged = readers::mutate(&data[1..size], Stream::new(0, Purpose::Test, u64::from(seed)));
    let size = max_size.min(1 + damaged.len());
    data[1..size].copy_from_slice(&damaged[..size - 1]);
    size
}
