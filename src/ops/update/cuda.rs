//! Updates of the flat buffers on the GPU: the table from which a block finds its chunk, and the kernel
//! arguments of one update.

use std::sync::PoisonError;

use candle_core::{DType, Result, Tensor};

use crate::cuda::{Address, Gpu, Grid, Kernel, wide};
use crate::update::cpu::Adam;
use crate::update::{Buffers, GradientPlace, Group, Groups, Hyper};

/// Number of threads in a block.
const THREADS: u32 = 256;
/// Number of elements in a chunk; the same as in `chunks.cuh`.
pub(crate) const CHUNK: usize = 16_384;

/// Same layout as `UpdateArgs` in `chunks.cuh`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct UpdateArgs {
    parameters: Address,
    gradients: Address,
    half_gradients: Address,
    first: Address,
    second: Address,
    shadow: Address,
    segments: Address,
    norm: Address,
    pub(crate) squares: Address,
    pub(crate) step_sizes: Address,
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
    wide: u32,
}

/// An update that is ready to be launched.
pub(crate) struct Update {
    /// The arguments of all its kernels.
    pub(crate) args: UpdateArgs,
    /// The groups, and the assignment of chunks to blocks.
    pub(crate) table: Table,
    /// Type of the shadow; f32 if there is no shadow.
    pub(crate) dtype: DType,
}

impl Update {
    /// Prepares an update; `factor` multiplies the first moment (see `chunks.cuh`). Returns `None` if all
    /// groups are empty.
    pub(crate) fn new<const S: usize>(
        gpu: &Gpu,
        buffers: &Buffers<'_, S>,
        groups: Groups<'_>,
        hyper: &Hyper,
        factor: f32,
    ) -> Result<Option<Self>> {
        let Some(table) = Table::kept_or_new(gpu, groups)? else { return Ok(None) };
        let adam = Adam::new(hyper);
        let dtype = buffers.shadow.map_or(DType::F32, Tensor::dtype);
        let mut state = buffers.state.iter().map(|t| gpu.output(t, DType::F32));
        let args = UpdateArgs {
            parameters: gpu.output(buffers.parameters, DType::F32)?,
            gradients: gpu.input(buffers.gradients, DType::F32)?,
            half_gradients: buffers
                .half_gradients
                .map_or(Ok(Address::NULL), |t| gpu.input(t, DType::BF16))?,
            first: state.next().unwrap_or(Ok(Address::NULL))?,
            second: state.next().unwrap_or(Ok(Address::NULL))?,
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
            wide: 0,
        };
        // The address of a missing buffer is 0, which counts as aligned.
        let addresses =
            [args.parameters, args.gradients, args.half_gradients, args.first, args.second, args.shadow];
        let wide = wide::flag(4, DType::F32, &addresses) * u32::from(table.are_gradients_aligned);
        Ok(Some(Self { args: UpdateArgs { wide, ..args }, table, dtype }))
    }

    /// Launches a kernel with one block for each chunk.
    ///
    /// # Safety
    /// The kernel must take `UpdateArgs` and process one chunk per block. `squares` and `step_sizes` must
    /// have the sizes that the kernel needs.
    pub(crate) unsafe fn launch(&self, gpu: &Gpu, kernel: Kernel, dtype: Option<DType>) -> Result<()> {
        // SAFETY: the buffers were checked to have equal lengths, and the segments to be within them; the
        // rest is the caller's promise.
        unsafe { gpu.launch(kernel, dtype, grid(self.table.chunks), &self.args) }
    }
}

/// A grid of `blocks` blocks with shared memory for one f64 sum per warp.
pub(crate) fn grid(blocks: usize) -> Grid {
    Grid::of(blocks, THREADS).with_shared(THREADS as usize / 32 * size_of::<f64>())
}

/// The array of `Segment` (see `chunks.cuh`) on a GPU.
#[derive(Debug, Clone)]
pub(crate) struct Table {
    /// Six I64 values for each segment.
    rows: Tensor,
    /// True if gradients begin as many values before or after a multiple of four as their parameters.
    are_gradients_aligned: bool,
    /// Number of groups that are not empty.
    pub(crate) segments: usize,
    /// Number of chunks, which is the number of blocks of a pass over the buffers.
    pub(crate) chunks: usize,
}

impl Table {
    /// Returns the table that is kept with the groups if it is on this GPU. Otherwise makes a table, and
    /// keeps it if the groups have room for one ([`crate::update::KeptGroups`]). Returns `None` if all groups
    /// are empty.
    fn kept_or_new(gpu: &Gpu, groups: Groups<'_>) -> Result<Option<Self>> {
        let Some(kept) = groups.table else { return Self::new(gpu, groups) };
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        if !kept.as_ref().is_some_and(|table| table.rows.device().same_device(gpu.device())) {
            *kept = Self::new(gpu, groups)?;
        }
        Ok(kept.clone())
    }

    fn new(gpu: &Gpu, groups: Groups<'_>) -> Result<Option<Self>> {
        let (rows, chunks) = rows(groups);
        if rows.is_empty() {
            return Ok(None);
        }
        let mut begins = groups.list.iter().zip(groups.places);
        let are_gradients_aligned = begins.all(|(group, place)| group.range.start % 4 == place.start % 4);
        let segments = rows.len() / ROW_WORDS;
        Ok(Some(Self { segments, rows: gpu.upload(&rows)?, are_gradients_aligned, chunks }))
    }
}

/// Number of 64-bit words of a `Segment` in `chunks.cuh`.
const ROW_WORDS: usize = 6;

/// Returns the segments as [`ROW_WORDS`] words each, and the number of chunks.
fn rows(groups: Groups<'_>) -> (Vec<i64>, usize) {
    let mut rows = Vec::with_capacity(ROW_WORDS * groups.list.len());
    let mut chunks = 0;
    for (index, group) in groups.list.iter().enumerate().filter(|(_, group)| !group.range.is_empty()) {
        let Group { range, weight_decay, lr_scale } = group;
        let in_place = GradientPlace { is_half: false, start: range.start };
        let place = groups.places.get(index).unwrap_or(&in_place);
        // GPUs are little-endian: the decay, which comes before the scale in `Segment`, is the lower half of
        // their word.
        let factors = u64::from(weight_decay.to_bits()) | u64::from(lr_scale.to_bits()) << 32;
        rows.extend([range.start as i64, range.end as i64, chunks as i64, factors as i64]);
        rows.extend([place.start as i64, i64::from(place.is_half)]);
        chunks += range.len().div_ceil(CHUNK);
    }
    (rows, chunks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::update::KeptGroups;

    #[test]
    fn groups_follow_one_another_in_whole_chunks() {
        let groups = [(3..CHUNK + 4, 0.5), (CHUNK + 4..CHUNK + 4, 0.1), (CHUNK + 9..CHUNK + 10, 0.0)]
            .map(|(range, weight_decay)| Group { range, weight_decay, lr_scale: 2.0 });
        let chunk = CHUNK as i64;
        let scale = i64::from(2f32.to_bits()) << 32;
        let decay = scale | i64::from(0.5f32.to_bits());
        let want = [[3, chunk + 4, 0, decay, 3, 0], [chunk + 9, chunk + 10, 2, scale, chunk + 9, 0]].concat();
        assert_eq!(rows((&groups).into()), (want, 3));
        assert_eq!(rows((&[]).into()), (vec![], 0));
        let places = [(true, 7), (false, 0), (true, 64)];
        let places = places.map(|(is_half, start)| GradientPlace { is_half, start }).to_vec();
        let kept = KeptGroups::with_places(groups.to_vec(), places);
        let want = [[3, chunk + 4, 0, decay, 7, 1], [chunk + 9, chunk + 10, 2, scale, 64, 1]].concat();
        assert_eq!(rows((&kept).into()), (want, 3));
    }

    #[cfg(all(feature = "cuda-on-host", not(feature = "cuda")))]
    #[test]
    fn a_kept_table_is_uploaded_once() {
        crate::cuda::on_host(|| {
            let gpu = Gpu::of_device(&candle_core::Device::Cpu).unwrap().unwrap();
            let groups = KeptGroups::new(vec![Group { range: 2..7, weight_decay: 0.5, lr_scale: 1.0 }]);
            let id = |groups: Groups<'_>| Table::kept_or_new(&gpu, groups).unwrap().unwrap().rows.id();
            assert_eq!(id((&groups).into()), id((&groups).into()));
            assert_ne!(id((&*groups).into()), id((&*groups).into()), "nothing is kept for a slice");
            assert!(Table::kept_or_new(&gpu, (&KeptGroups::new(vec![])).into()).unwrap().is_none());
        });
    }
}
