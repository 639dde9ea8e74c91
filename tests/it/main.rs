//! The program as a whole: all integration tests in one binary, linked once.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod allocation;
mod architecture;
mod bench;
mod checkpoint;
mod cli;
mod compare;
mod configuration;
mod doctor;
mod embed;
mod emulated_gpu;
mod example;
mod examples;
mod finetune;
mod golden;
mod golden_pair;
mod gradients;
mod hostile;
mod init;
mod labels;
mod limits;
mod material;
mod minimal_pairs;
#[path = "../skipped/notes.rs"]
mod notes;
mod old_folders;
mod outputs;
mod pair_gradients;
mod plan;
mod prepare;
mod pretrain;
mod processes;
mod python;
#[path = "../readers/mod.rs"]
#[expect(dead_code, reason = "what only the torture table and the fuzzers need")]
mod readers;
mod report;
mod runs;
mod shards;
mod shared_layers;
mod stores;
mod threads;
mod tokenizers;
mod trackers;
mod tune;
mod two_models;
mod unmeasured;
mod verify_resume;
mod vm;
mod workplace;

/// The allocator of the program, so that the tests run on what the program runs on.
#[global_allocator]
static ALLOCATOR: ops::memory::LargeBlocks = ops::memory::LargeBlocks;
