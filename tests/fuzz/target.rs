//! The source of every target: which of those in the list of readers it is, its name says.

#![no_main]

use libfuzzer_sys::{fuzz_mutator, fuzz_target};

fuzz_target!(init: mlmtrain_fuzz::plant(env!("CARGO_BIN_NAME")), |data: &[u8]| mlmtrain_fuzz::read(data));

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    mlmtrain_fuzz::mutate(data, size, max_size, seed)
});
