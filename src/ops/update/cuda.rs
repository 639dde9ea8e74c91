//! The flat buffers on the GPU: which chunk a block works on, and the numbers of an update as kernels take them.

use std::sync::PoisonError;

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
use crate::ops::update::Groups;
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
    /// Which block does what.
    pub(in crate::ops) table: Table,
    /// Type of the shadow; f32 where there is none.
    pub(in crate::ops) dtype: DType,
}

impl Update {
    /// An update with the factor of the first moment (see `chunks.cuh`); `None` where there is not an element to look at.
    pub(in crate::ops) fn of(gpu: &Gpu, buffers: &Buffers<'_>, groups: Groups<'_>, hyper: &Hyper, factor: f32) -> Result<Option<Self>> {
        let Some(table) = Table::of(gpu, groups, buffers.parameters.elem_count(), hyper.clear_gradients)? else { return Ok(None) };
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
            segments: gpu.input(&table.rows, DType::I64)?,
            norm: buffers.clip.map_or(Ok(Address::NULL), |clip| gpu.input(clip.norm, DType::F64))?,
            squares: Address::NULL,
            step_sizes: Address::NULL,
            segment_count: table.segments as i64,
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
        Ok(Some(Self { args: UpdateArgs { wide, ..args }, table, dtype }))
    }

    /// Launches a kernel with a block for each chunk.
    ///
    /// # Safety
    /// The kernel is one on `UpdateArgs`, a block a chunk; what else its arguments name has the sizes that it wants.
    pub(in crate::ops) unsafe fn launch(&self, gpu: &Gpu, kernel: Kernel, dtype: Option<DType>) -> Result<()> {
        // SAFETY: the buffers were checked to have one length, the segments to lie within it; the rest is the caller's promise.
        unsafe { gpu.launch(kernel, dtype, grid(self.table.chunks), &self.args) }
    }
}

/// Blocks with room for a f64 sum of each warp.
pub(in crate::ops) fn grid(blocks: usize) -> Grid {
    Grid::of(blocks, THREADS).with_shared(THREADS as usize / 32 * size_of::<f64>())
}

/// The rows of `Segment` in `chunks.cuh` on a GPU.
#[derive(Debug, Clone)]
pub(in crate::ops) struct Table {
    /// I64, four to a segment.
    rows: Tensor,
    /// Groups, and gaps between them where these are cleared.
    pub(in crate::ops) segments: usize,
    /// Blocks of a pass over the buffers.
    pub(in crate::ops) chunks: usize,
    /// Elements of the buffers, and whether there are gaps.
    made_for: (usize, bool),
}

impl Table {
    /// The table that is kept with the groups, if it fits; else one is made, and kept where there is a place for it. `None`
    /// where it would be empty.
    fn of(gpu: &Gpu, groups: Groups<'_>, count: usize, gaps: bool) -> Result<Option<Self>> {
        let Some(kept) = groups.table else { return Self::new(gpu, groups.list, count, gaps) };
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = |table: &Self| table.made_for == (count, gaps) && table.rows.device().same_device(gpu.device());
        if !kept.as_ref().is_some_and(fits) {
            *kept = Self::new(gpu, groups.list, count, gaps)?;
        }
        Ok(kept.clone())
    }

    fn new(gpu: &Gpu, groups: &[Group], count: usize, gaps: bool) -> Result<Option<Self>> {
        let (rows, chunks) = rows(count, groups, gaps);
        if rows.is_empty() {
            return Ok(None);
        }
        Ok(Some(Self { segments: rows.len() / 4, rows: gpu.upload(&rows)?, chunks, made_for: (count, gaps) }))
    }
}

/// The rows as four 64-bit words each, and the number of chunks. With `gaps` what lies outside of all groups is there, too.
fn rows(count: usize, groups: &[Group], gaps: bool) -> (Vec<i64>, usize) {
    let (mut rows, mut chunks) = (Vec::with_capacity(8 * groups.len() + 4), 0);
    let mut push = |start: usize, end: usize, group: Option<&Group>| {
        if start < end && (gaps || group.is_some()) {
            // Little-endian, as every GPU is: the decay is the lower half of the word, `live` the upper.
            let last = group.map_or(0, |group| u64::from(group.weight_decay.to_bits()) | 1 << 32);
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

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(all(feature = "cuda-on-host", not(feature = "cuda")))]
    use crate::ops::update::KeptGroups;

    #[test]
    fn groups_and_gaps_follow_one_another_in_whole_chunks() {
        let group = |range, weight_decay| Group { range, weight_decay };
        let groups = [group(3..CHUNK + 4, 0.5), group(CHUNK + 4..CHUNK + 4, 0.1), group(CHUNK + 9..CHUNK + 10, 0.0)];
        let (live, decay, at) = (1i64 << 32, i64::from(0.5f32.to_bits()), |offset: i64| CHUNK as i64 + offset);
        let dense = [[3, at(4), 0, live | decay], [at(9), at(10), 2, live]];
        assert_eq!(rows(CHUNK + 20, &groups, false), (dense.concat(), 3));
        let whole = [[0, 3, 0, 0], [3, at(4), 1, live | decay], [at(4), at(9), 3, 0], [at(9), at(10), 4, live], [at(10), at(20), 5, 0]];
        assert_eq!(rows(CHUNK + 20, &groups, true), (whole.concat(), 6));
        assert_eq!(rows(0, &[], true), (vec![], 0));
    }

    #[cfg(all(feature = "cuda-on-host", not(feature = "cuda")))]
    #[test]
    fn a_kept_table_is_uploaded_once_for_each_shape_of_the_buffers() {
        crate::ops::cuda::on_host(|| {
            let gpu = Gpu::of_device(&candle_core::Device::Cpu).unwrap().unwrap();
            let groups = KeptGroups::new(vec![Group { range: 2..7, weight_decay: 0.5 }]);
            let id = |groups: Groups<'_>, count, gaps| Table::of(&gpu, groups, count, gaps).unwrap().unwrap().rows.id();
            let first = id((&groups).into(), 10, true);
            assert_eq!(id((&groups).into(), 10, true), first);
            assert_ne!(id((&groups).into(), 11, true), first);
            assert_ne!(id((&*groups).into(), 10, true), id((&*groups).into(), 10, true), "nothing is kept for a slice");
            assert!(Table::of(&gpu, (&KeptGroups::new(vec![])).into(), 10, false).unwrap().is_none());
        });
    }
}
