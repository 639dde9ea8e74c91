//! AdamW on the GPU: one launch over all buffers.

use candle_core::Result;

use crate::cuda::{Gpu, Kernel};
use crate::update::cpu::Adam;
use crate::update::cuda::Update;
use crate::update::{Buffers, Groups, Hyper};

const UPDATE: Kernel = Kernel { op: "adamw", name: "adamw_update" };

pub(super) fn update(gpu: &Gpu, buffers: Buffers<'_>, groups: Groups<'_>, hyper: &Hyper) -> Result<()> {
    let step_size = (hyper.lr / Adam::new(hyper).correction1) as f32;
    let Some(update) = Update::new(gpu, &buffers, groups, hyper, step_size)? else { return Ok(()) };
    // SAFETY: this kernel takes `UpdateArgs`, processes one chunk per block, and does not use `squares` or
    // `step_sizes`.
    unsafe { update.launch(gpu, UPDATE, Some(update.dtype)) }
}
