//! LAMB on the GPU: two passes over all buffers, and between them a kernel that computes the step size of
//! each tensor.

use candle_core::{DType, Result};

use crate::cuda::{Gpu, Kernel};
use crate::update::cpu::Adam;
use crate::update::cuda::{Update, grid};
use crate::update::{Buffers, Groups, Hyper};

const ADVANCE: Kernel = Kernel { op: "lamb", name: "lamb_advance" };
const STEP_SIZES: Kernel = Kernel { op: "lamb", name: "lamb_step_sizes" };
const APPLY: Kernel = Kernel { op: "lamb", name: "lamb_apply" };

pub(super) fn update(gpu: &Gpu, buffers: Buffers<'_>, groups: Groups<'_>, hyper: &Hyper) -> Result<()> {
    let factor = (1.0 / Adam::new(hyper).correction1) as f32;
    let Some(mut update) = Update::new(gpu, &buffers, groups, hyper, factor)? else { return Ok(()) };
    let squares = gpu.uninitialised((update.table.chunks, 2), DType::F64)?;
    let step_sizes = gpu.uninitialised(update.table.segments, DType::F32)?;
    update.args.squares = gpu.output(&squares, DType::F64)?;
    update.args.step_sizes = gpu.output(&step_sizes, DType::F32)?;
    // SAFETY: `squares` has two sums for each chunk, `step_sizes` one value for each segment; both are
    // written before they are read.
    unsafe {
        update.launch(gpu, ADVANCE, None)?;
        gpu.launch(STEP_SIZES, None, grid(update.table.segments), &update.args)?;
        update.launch(gpu, APPLY, Some(update.dtype))
    }
}
