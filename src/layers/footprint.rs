//! What a layer takes of memory in a training step, for each row that goes through it.
//!
//! Each layer counts its own tensors beside the code that makes them; `models/memory` adds them up.

use std::ops::Add;

/// Memory for one row (a token, or a row that is chosen of them).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Values in the type that is computed in.
    pub values: u64,
    /// Bytes of statistics, which are f32 whatever is computed in.
    pub statistics_bytes: u64,
}

impl Footprint {
    /// Bytes of `rows` rows, with so many bytes a value.
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

/// Memory for the rows of a pass.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Footprints {
    /// For each token.
    pub of_tokens: Footprint,
    /// For each row that is chosen for the end of the last layer.
    pub of_chosen: Footprint,
}

impl Footprints {
    /// Bytes of so many tokens and chosen rows, with so many bytes a value.
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
