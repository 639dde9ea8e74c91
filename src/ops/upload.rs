//! Uploads all integer arrays of a batch to the GPU, each with the plan that its op needs, in one packet and
//! thus one copy.

use std::any::Any;

use candle_core::Result;

use crate::attention::{Tiles, TilesOnHost};
use crate::cuda::{Array, Gpu, Values};
use crate::indices::Uploaded;
use crate::scatter::{Groups, Scatter};

/// An integer array of a batch, by its use; the use decides which plan it needs.
#[derive(Debug, Clone, Copy)]
pub enum Numbers<'a> {
    /// Ids of embedding rows, whose gradients backward sums per id.
    Scattered {
        /// The ids.
        rows: &'a [u32],
        /// The id of padding, whose row gets no gradient.
        skip: Option<u32>,
    },
    /// Bounds of segments, for attention.
    Bounds(&'a [u32]),
    /// Dropout keys.
    Keys(&'a [u64]),
    /// Labels, and ids that backward does not sum over.
    Plain(&'a [u32]),
}

/// A plan while it is still on the host.
#[derive(Debug)]
enum PlanOnHost {
    None,
    Scatter(Groups),
    Tiles(TilesOnHost),
}

impl PlanOnHost {
    fn new(numbers: Numbers<'_>) -> Self {
        match numbers {
            Numbers::Scattered { rows, skip } => Self::Scatter(Groups::new(rows, skip)),
            Numbers::Bounds(bounds) => Self::Tiles(TilesOnHost::of(bounds)),
            Numbers::Keys(_) | Numbers::Plain(_) => Self::None,
        }
    }

    /// The arrays of this plan that have to be uploaded.
    fn values(&self) -> Vec<Values<'_>> {
        match self {
            Self::None => Vec::new(),
            Self::Scatter(groups) => groups.values().to_vec(),
            Self::Tiles(tiles) => vec![tiles.values()],
        }
    }

    /// Combines the plan with its uploaded arrays, which are the next in `arrays`.
    fn on_gpu(&self, arrays: &mut impl Iterator<Item = Array>) -> Option<Box<dyn Any + Send + Sync>> {
        match self {
            Self::None => None,
            Self::Scatter(groups) => Some(Box::new(Scatter::new(groups, [(); 4].map(|()| next(arrays))))),
            Self::Tiles(tiles) => Some(Box::new(Tiles::new(tiles, next(arrays)))),
        }
    }
}

/// The plans of a batch's arrays, on the host. Making them sorts ids, so a prefetch thread may do it in
/// advance.
#[derive(Debug)]
pub struct Plans<const N: usize>([PlanOnHost; N]);

impl<const N: usize> Plans<N> {
    /// Makes the plans of these arrays.
    pub fn of(arrays: [Numbers<'_>; N]) -> Self {
        Self(arrays.map(PlanOnHost::new))
    }
}

/// Uploads the arrays of a batch and their plans; the plans must have been made from the same arrays.
pub fn upload<const N: usize>(
    gpu: &Gpu,
    arrays: [Numbers<'_>; N],
    Plans(plans): &Plans<N>,
) -> Result<[Uploaded; N]> {
    let mut values = Vec::new();
    for (numbers, plan) in arrays.iter().zip(plans) {
        values.push(match *numbers {
            Numbers::Scattered { rows: numbers, .. } | Numbers::Bounds(numbers) | Numbers::Plain(numbers) => {
                Values::U32(numbers)
            }
            Numbers::Keys(keys) => Values::U64(keys),
        });
        values.extend(plan.values());
    }
    let mut sent = gpu.send(&values)?.into_iter();
    Ok(plans.each_ref().map(|plan| Uploaded { numbers: next(&mut sent), plan: plan.on_gpu(&mut sent) }))
}

fn next(arrays: &mut impl Iterator<Item = Array>) -> Array {
    arrays.next().expect("as many arrays come back as were sent")
}
