//! StableAdamW on the GPU: two passes over all buffers, and between them a kernel that computes the factor of
//! the learning rate of each tensor.

use candle_core::{DType, Result};

use crate::cuda::{Gpu, Kernel};
use crate::update::cpu::Adam;
use crate::update::cuda::{Update, grid};
use crate::update::{Buffers, Groups, Hyper};

const ADVANCE: Kernel = Kernel { op: "stable_adamw", name: "stable_adamw_advance" };
const CLIPS: Kernel = Kernel { op: "stable_adamw", name: "stable_adamw_clips" };
const APPLY: Kernel = Kernel { op: "stable_adamw", name: "stable_adamw_apply" };

pub(super) fn update(gpu: &Gpu, buffers: Buffers<'_>, groups: Groups<'_>, hyper: &Hyper) -> Result<()> {
    let factor = (hyper.lr / Adam::new(hyper).correction1) as f32;
    let Some(mut update) = Update::new(gpu, &buffers, groups, hyper, factor)? else { return Ok(()) };
    let squares = gpu.uninitialised(update.table.chunks, DType::F64)?;
    let clips = gpu.uninitialised(update.table.segments, DType::F32)?;
    update.args.squares = gpu.output(&squares, DType::F64)?;
    update.args.step_sizes = gpu.output(&clips, DType::F32)?;
    // SAFETY: `squares` has a sum for each chunk, `step_sizes` one value for each segment; both are written
    // before they are read.
    unsafe {
        update.launch(gpu, ADVANCE, None)?;
        gpu.launch(CLIPS, None, grid(update.table.segments), &update.args)?;
        update.launch(gpu, APPLY, Some(update.dtype))
    }
}
