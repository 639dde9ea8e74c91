//! The flat buffers on the GPU: which chunk a block works on, and the numbers of an update as kernels take them.

use candle_core::DType;
use candle_core::Result;
use candle_core::Tensor;

use crate::ops::cuda::Address;
use crate::ops::cuda::Gpu;
use crate::ops::cuda::Grid;
use crate::ops::cuda::Kernel;
use crate::ops::cuda::wide;
use crate::ops::update::Buffers;
use crate::ops::update::Group;
use crate::ops::update::Hyper;
use crate::ops::update::cpu::Adam;

/// Threads of a block.
const THREADS: u32 = 256;
/// Elements of a chunk; the same in `chunks.cuh`.
const CHUNK: usize = 16_384;

/// Twin of `UpdateArgs` in `chunks.cuh`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(in crate::ops) struct UpdateArgs {
    parameters: Address,
    gradients: Address,
    first: Address,
    second: Address,
    shadow: Address,
    segments: Address,
    norm: Address,
    pub(in crate::ops) squares: Address,
    pub(in crate::ops) step_sizes: Address,
    segment_count: i64,
    max_norm: f64,
    lr: f64,
    multiplier: f32,
    rest1: f32,
    beta2: f32,
    rest2: f32,
    inverse_root: f32,
    eps: f32,
    factor: f32,
    clear: u32,
    wide: u32,
}

/// An update ready to be launched.
pub(in crate::ops) struct Update {
    /// What all its kernels take.
    pub(in crate::ops) args: UpdateArgs,
    /// Blocks of a pass over the buffers.
    pub(in crate::ops) chunks: usize,
    /// Groups, and gaps between them where these are cleared.
    pub(in crate::ops) segments: usize,
    /// Type of the shadow; f32 where there is none.
    pub(in crate::ops) dtype: DType,
    /// Keeps the table of the segments until all is launched.
    _table: Tensor,
}

impl Update {
    /// An update with the decay of each group and the factor of the first moment (see `chunks.cuh`); `None` where there is
    /// not an element to look at.
    pub(in crate::ops) fn of(
        gpu: &Gpu,
        buffers: &Buffers<'_>,
        groups: &[Group],
        hyper: &Hyper,
        decay: impl Fn(&Group) -> f32,
        factor: f32,
    ) -> Result<Option<Self>> {
        let (table, chunks) = table(buffers.parameters.elem_count(), groups, hyper.clear_gradients, decay);
        if table.is_empty() {
            return Ok(None);
        }
        let segments = table.len() / 4;
        let table = gpu.upload(&table)?;
        let adam = Adam::new(hyper);
        let dtype = buffers.shadow.map_or(DType::F32, Tensor::dtype);
        let [parameters, gradients, first, second] =
            [buffers.parameters, buffers.gradients, buffers.first_moment, buffers.second_moment].map(|t| gpu.output(t, DType::F32));
        let args = UpdateArgs {
            parameters: parameters?,
            gradients: gradients?,
            first: first?,
            second: second?,
            shadow: buffers.shadow.map_or(Ok(Address::NULL), |shadow| gpu.output(shadow, dtype))?,
            segments: gpu.input(&table, DType::I64)?,
            norm: buffers.clip.map_or(Ok(Address::NULL), |clip| gpu.input(clip.norm, DType::F64))?,
            squares: Address::NULL,
            step_sizes: Address::NULL,
            segment_count: segments as i64,
            max_norm: buffers.clip.map_or(0.0, |clip| clip.max_norm),
            lr: hyper.lr,
            multiplier: adam.multiplier,
            rest1: adam.rest1,
            beta2: adam.beta2,
            rest2: adam.rest2,
            inverse_root: adam.inverse_root,
            eps: adam.eps,
            factor,
            clear: u32::from(hyper.clear_gradients),
            wide: 0,
        };
        // A null shadow is a multiple of everything.
        let wide = wide::flag(4, DType::F32, &[args.parameters, args.gradients, args.first, args.second, args.shadow]);
        Ok(Some(Self { args: UpdateArgs { wide, ..args }, chunks, segments, dtype, _table: table }))
    }

    /// Launches a kernel with a block for each chunk.
    ///
    /// # Safety
    /// The kernel is one on `UpdateArgs`, a block a chunk; what else its arguments name has the sizes that it wants.
    pub(in crate::ops) unsafe fn launch(&self, gpu: &Gpu, kernel: Kernel, dtype: Option<DType>) -> Result<()> {
        // SAFETY: the buffers were checked to have one length, the segments to lie within it; the rest is the caller's promise.
        unsafe { gpu.launch(kernel, dtype, grid(self.chunks), &self.args) }
    }
}

/// Blocks with room for a f64 sum of each warp.
pub(in crate::ops) fn grid(blocks: usize) -> Grid {
    Grid::of(blocks, THREADS).with_shared(THREADS as usize / 32 * size_of::<f64>())
}

/// The rows of `Segment` in `chunks.cuh` as four 64-bit words each, and the number of chunks. With `gaps` what lies outside
/// of all groups is there, too. A few hundred rows: small enough for one upload that nobody waits for.
fn table(count: usize, groups: &[Group], gaps: bool, decay: impl Fn(&Group) -> f32) -> (Vec<i64>, usize) {
    let (mut rows, mut chunks) = (Vec::with_capacity(8 * groups.len() + 4), 0);
    let mut push = |start: usize, end: usize, group: Option<&Group>| {
        if start < end && (gaps || group.is_some()) {
            // Little-endian, as every GPU is: the decay is the lower half of the word, `live` the upper.
            let last = group.map_or(0, |group| u64::from(decay(group).to_bits()) | 1 << 32);
            rows.extend([start as i64, end as i64, chunks as i64, last as i64]);
            chunks += (end - start).div_ceil(CHUNK);
        }
    };
    let mut end = 0;
    for group in groups {
        push(end, group.range.start, None);
        push(group.range.start, group.range.end, Some(group));
        end = group.range.end;
    }
    push(end, count, None);
    (rows, chunks)
}
