//! The numbers of a batch on their way to the GPU, each with the plan that its op wants.

use candle_core::Result;

use super::Gpu;
use super::scatter::Scatter;
use crate::ops::attention::Tiles;
use crate::ops::indices::Plan;
use crate::ops::indices::Uploaded;

/// An array of a batch, by what it is for.
#[derive(Debug, Clone, Copy)]
pub enum Numbers<'a> {
    /// Ids whose rows are added up in backward; `skip` gets nothing.
    Scattered {
        /// The ids.
        rows: &'a [u32],
        /// The padding row.
        skip: Option<u32>,
    },
    /// Bounds of segments, for attention.
    Bounds(&'a [u32]),
    /// Dropout keys.
    Keys(&'a [u64]),
    /// Labels, and ids that nothing is added up for.
    Plain(&'a [u32]),
}

/// Uploads the arrays of a batch.
pub fn upload<const N: usize>(gpu: &Gpu, arrays: [Numbers<'_>; N]) -> Result<[Uploaded; N]> {
    let mut copies = Vec::with_capacity(N);
    for array in arrays {
        copies.push(match array {
            Numbers::Scattered { rows, skip } => {
                Uploaded { numbers: gpu.upload(rows)?, plan: Some(Plan::Scatter(Scatter::upload(gpu, rows, skip)?)) }
            }
            Numbers::Bounds(bounds) => Uploaded { numbers: gpu.upload(bounds)?, plan: Some(Plan::Tiles(Tiles::upload(gpu, bounds)?)) },
            Numbers::Keys(keys) => Uploaded { numbers: gpu.upload(&keys.iter().map(|&k| k as i64).collect::<Vec<_>>())?, plan: None },
            Numbers::Plain(numbers) => Uploaded { numbers: gpu.upload(numbers)?, plan: None },
        });
    }
    Ok(copies.try_into().unwrap_or_else(|_| unreachable!("there is one copy for each array")))
}
