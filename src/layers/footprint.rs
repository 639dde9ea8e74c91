//! What a layer takes of memory in a training step, for each row that goes through it.
//!
//! Each layer counts its own tensors beside the code that makes them; `models/memory` adds them up.

use std::ops::Add;

/// Memory for one row (a token, or a row that a head takes).
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
