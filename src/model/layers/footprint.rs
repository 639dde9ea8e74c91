//! Memory of a layer in a training step, per row that it processes.
//!
//! Each layer counts its own tensors next to the code that creates them; `models/memory` adds them up.

use std::ops::Add;

/// Memory per row (a token, or one of the chosen rows).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Values in the compute type.
    pub values: u64,
    /// Bytes of statistics, which are f32 in every compute type.
    pub statistics_bytes: u64,
}

impl Footprint {
    /// Bytes of `rows` rows, with `value_bytes` bytes per value.
    pub fn bytes(self, rows: u64, value_bytes: u64) -> u64 {
        rows * (self.values * value_bytes + self.statistics_bytes)
    }
}

impl Add for Footprint {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            values: self.values + other.values,
            statistics_bytes: self.statistics_bytes + other.statistics_bytes,
        }
    }
}

/// Memory of the rows of a pass.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Footprints {
    /// Memory per token.
    pub of_tokens: Footprint,
    /// Memory per row that is chosen for the end of the last layer.
    pub of_chosen: Footprint,
}

impl Footprints {
    /// Bytes of `tokens` tokens and `chosen` rows, with `value_bytes` bytes per value.
    pub fn bytes(self, tokens: u64, chosen: u64, value_bytes: u64) -> u64 {
        self.of_tokens.bytes(tokens, value_bytes) + self.of_chosen.bytes(chosen, value_bytes)
    }
}

impl From<Footprint> for Footprints {
    fn from(of_tokens: Footprint) -> Self {
        Self { of_tokens, of_chosen: Footprint::default() }
    }
}

impl Add for Footprints {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { of_tokens: self.of_tokens + other.of_tokens, of_chosen: self.of_chosen + other.of_chosen }
    }
}
