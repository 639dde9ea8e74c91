//! Lion on the GPU: one launch over all buffers.

use candle_core::Result;

use crate::cuda::{Gpu, Kernel};
use crate::update::cuda::Update;
use crate::update::{Buffers, Groups, Hyper};

const UPDATE: Kernel = Kernel { op: "lion", name: "lion_update" };

pub(super) fn update(gpu: &Gpu, buffers: Buffers<'_, 1>, groups: Groups<'_>, hyper: &Hyper) -> Result<()> {
    let Some(update) = Update::new(gpu, &buffers, groups, hyper, hyper.lr as f32)? else { return Ok(()) };
    // SAFETY: this kernel takes `UpdateArgs`, processes one chunk per block, and does not use `second`,
    // `squares` or `step_sizes`.
    unsafe { update.launch(gpu, UPDATE, Some(update.dtype)) }
}
