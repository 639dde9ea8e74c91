//! Attention on the GPU: one block per tile of a segment and head. Backward takes two launches, one for the
//! queries and one for the keys, so that no sum runs across blocks; or one launch, if a block has room for
//! whole segments. Disentangled attention uses the same launches except for the last one, with kernels of its
//! own.

use std::sync::LazyLock;

use candle_core::{DType, Result, Tensor, bail};

use super::earlier::Way;
use super::tiles::{SHORT_ROWS, SQUARE_WORDS, TILE_ROWS, WIDE_TILE_ROWS};
use super::{Activations, Saved, Segments, Tiles, earlier};
use crate::cuda::apart::Apart;
use crate::cuda::{Address, Array, Gpu, Grid, Kernel, Kind, wide};
use crate::dropout::{Dropout, DropoutArgs};
use crate::tensor::check_shape;

/// Kernels of one variant.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kernels {
    pub(crate) forward: Kernel,
    pub(crate) backward_queries: Kernel,
    pub(crate) backward_keys: Kernel,
}

/// Kernels of an op, named after the op, the pass and a suffix.
macro_rules! kernels {
    ($op:literal, $suffix:expr) => {
        $crate::attention::cuda::Kernels {
            forward: $crate::cuda::Kernel { op: $op, name: concat!($op, "_forward", $suffix) },
            backward_queries: $crate::cuda::Kernel {
                op: $op,
                name: concat!($op, "_backward_queries", $suffix),
            },
            backward_keys: $crate::cuda::Kernel { op: $op, name: concat!($op, "_backward_keys", $suffix) },
        }
    };
}
pub(crate) use kernels;

/// Tensor-core kernels for heads of one size.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TensorKernels {
    pub(crate) head_size: usize,
    /// Kernels without dropout, with dropout, and the earlier ones, which handle both.
    pub(crate) kernels: [Kernels; 3],
    /// Kernels with 128 queries per block, without dropout and with it.
    pub(crate) wide: Option<[Kernels; 2]>,
    /// Kernels of backward for segments of at most [`SHORT_ROWS`] rows, in the order of `kernels`.
    pub(crate) short: Option<[Kernel; 3]>,
}

/// Tensor-core kernels of an op for heads of one size.
macro_rules! tensor_kernels {
    ($op:literal, $head_size:literal) => {
        $crate::attention::cuda::TensorKernels {
            head_size: $head_size,
            kernels: [
                $crate::attention::cuda::kernels!($op, concat!("_", $head_size)),
                $crate::attention::cuda::kernels!($op, concat!("_", $head_size, "_dropout")),
                $crate::attention::cuda::kernels!($op, concat!("_", $head_size, "_earlier")),
            ],
            wide: None,
            short: None,
        }
    };
}
pub(crate) use tensor_kernels;

/// Kernels and parameters by which one kind of attention differs from the others.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Form<'a> {
    /// Kernels for every type and head size.
    pub(crate) plain: Kernels,
    /// Kernels for half types on tensor cores.
    pub(crate) tensor: &'a [TensorKernels],
    /// Bytes of shared memory in addition to attention's own, without and with tensor cores.
    pub(crate) shared_bytes: [usize; 2],
    /// Factor by which scores are multiplied.
    pub(crate) scale: f32,
}

const PLAIN: Kernels = kernels!("attention", "");
/// [`tensor_kernels`] together with the kernels of wide tiles and of short segments.
macro_rules! all_kernels {
    ($head_size:literal) => {
        TensorKernels {
            wide: Some([
                kernels!("attention", concat!("_", $head_size, "_wide")),
                kernels!("attention", concat!("_", $head_size, "_wide_dropout")),
            ]),
            short: Some([
                Kernel { op: "attention", name: concat!("attention_backward_short_", $head_size) },
                Kernel {
                    op: "attention",
                    name: concat!("attention_backward_short_", $head_size, "_dropout"),
                },
                Kernel {
                    op: "attention",
                    name: concat!("attention_backward_short_", $head_size, "_earlier"),
                },
            ]),
            ..tensor_kernels!("attention", $head_size)
        }
    };
}
const TENSOR: [TensorKernels; 5] = [
    all_kernels!(32),
    all_kernels!(64),
    tensor_kernels!("attention", 80),
    tensor_kernels!("attention", 96),
    tensor_kernels!("attention", 128),
];

/// Plain attention.
fn form(head_size: usize) -> Form<'static> {
    let scale = 1.0 / (head_size as f32).sqrt();
    Form { plain: PLAIN, tensor: &TENSOR, shared_bytes: [0; 2], scale }
}

/// `sizeof(PlainRoom)` in `plain.cuh`.
const PLAIN_SHARED_BYTES: usize = 34_560;
/// Columns of a head's output that a block of the plain kernels computes.
const PLAIN_COLUMNS: usize = 128;
/// Threads of a block that processes a whole segment.
const SHORT_THREADS: u32 = 256;
/// Shared memory of each streamed row in addition to its values: `KeptSquares` in both backward kernels on
/// tensor cores, and `QueryRows` in that of the keys.
const ROW_BYTES: [usize; 2] = [8, 8 + 8];
/// Shared memory in addition to the rows in the kernels of wide tiles: in forward two `RowDraws` per thread,
/// and in the backward kernel of the queries the `KeptSquares` of two stages.
const WIDE_BYTES: [usize; 2] = [2 * 128 * 12, 2 * 8 * 2 * 32];

/// Same layout as `Args` in `arguments.cuh`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct Args {
    q: Address,
    k: Address,
    v: Address,
    o: Address,
    d_out: Address,
    dq: Address,
    dk: Address,
    dv: Address,
    log_sum_exp: Address,
    delta: Address,
    tiles: Address,
    token_keys: Address,
    kept: Address,
    squares: i64,
    hidden: i64,
    dropout: DropoutArgs,
    heads: u32,
    head_size: u32,
    scale: f32,
    before: u32,
    after: u32,
}

/// Fails if dropout keys of rows of probabilities would lose bits: 16 of a counter's 64 bits are used for the
/// columns.
fn check_keys(segments: &Segments<'_>) -> Result<()> {
    let keys = segments.token_keys.host();
    let most = (1u64 << 48) / segments.heads as u64;
    // The bitwise or of all keys needs no comparisons, and is at least as large as the largest key.
    if keys.iter().fold(0, |all, key| all | key) >= most
        && let Some(key) = keys.iter().max().filter(|key| **key >= most)
    {
        bail!("attention: the dropout key {key} of a token is not below 2^48 / {} heads", segments.heads);
    }
    Ok(())
}

/// Values that the launches of a pass share, including the arrays that the addresses point into.
struct Launch<'a> {
    args: Args,
    form: Form<'a>,
    dtype: DType,
    head_size: usize,
    tiles: Tiles,
    drops: bool,
    /// True if a multiprocessor has shared memory for several blocks of wide tiles.
    takes_wide: bool,
}

impl<'a> Launch<'a> {
    /// Prepares a pass over `q`, `k`, `v` with the dropout of `segments`; the addresses of the pass's other
    /// tensors stay null.
    fn new(gpu: &Gpu, form: Form<'a>, [q, k, v]: [&Tensor; 3], segments: &Segments<'_>) -> Result<Self> {
        let dtype = q.dtype();
        let hidden = q.dim(1)?;
        let heads = segments.heads;
        let tiles = Tiles::of(gpu, segments.cu_seqlens)?;
        let dropout = Dropout::active(segments.dropout)?;
        let head_size = hidden / heads;
        let args = Args {
            q: gpu.input(q, dtype)?,
            k: gpu.input(k, dtype)?,
            v: gpu.input(v, dtype)?,
            o: Address::NULL,
            d_out: Address::NULL,
            dq: Address::NULL,
            dk: Address::NULL,
            dv: Address::NULL,
            log_sum_exp: Address::NULL,
            delta: Address::NULL,
            tiles: tiles.bounds.address(Kind::U32)?,
            token_keys: Address::NULL,
            kept: Address::NULL,
            squares: tiles.squares as i64,
            hidden: hidden as i64,
            dropout: DropoutArgs::of(dropout),
            heads: heads as u32,
            head_size: head_size as u32,
            scale: form.scale,
            before: u32::try_from(segments.reach.before).unwrap_or(u32::MAX),
            after: u32::try_from(segments.reach.after).unwrap_or(u32::MAX),
        };
        let takes_wide = gpu.capability() >= (8, 0);
        Ok(Self { args, form, dtype, head_size, tiles, drops: dropout.is_some(), takes_wide })
    }

    /// With dropout, sets the addresses of the keys to draw from and of a new tensor for the decisions. The
    /// returned tensors must live until the kernel is launched.
    fn prepare_dropout(&mut self, gpu: &Gpu, segments: &Segments<'_>) -> Result<Option<(Tensor, Array)>> {
        if !self.drops {
            return Ok(None);
        }
        let squares = self.tiles.squares;
        if u32::try_from(squares).is_err() {
            bail!("attention: {squares} squares of 16 by 16 probabilities are more than dropout can number");
        }
        check_keys(segments)?;
        let kept = gpu.uninitialised((segments.heads, squares as usize, SQUARE_WORDS), DType::U32)?;
        let (token_keys, keys) = segments.token_keys.on_gpu(gpu)?;
        self.args.token_keys = token_keys;
        self.args.kept = gpu.output(&kept, DType::U32)?;
        Ok(Some((kept, keys)))
    }

    /// With dropout, sets the address of the decisions that forward has saved.
    fn load_dropout(&mut self, gpu: &Gpu, kept: Option<&Tensor>, heads: usize) -> Result<()> {
        if !self.drops {
            return Ok(());
        }
        let Some(kept) = kept else {
            bail!("attention: backward is to drop probabilities, and forward has kept no decisions")
        };
        check_shape("attention: kept", kept, &[heads, self.tiles.squares as usize, SQUARE_WORDS])?;
        self.args.kept = gpu.input(kept, DType::U32)?;
        Ok(())
    }

    /// Returns the tensor-core kernels for this launch, if there are any. They need a half type, one of
    /// certain head sizes, and addresses that allow accesses of 16 bytes.
    fn tensor(&self) -> Option<&'a TensorKernels> {
        let Args { q, k, v, o, d_out, dq, dk, dv, kept, .. } = self.args;
        let fits = self.dtype != DType::F32
            && wide::flag(self.head_size, self.dtype, &[q, k, v, o, d_out, dq, dk, dv, kept]) != 0;
        self.form.tensor.iter().find(|kernels| fits && kernels.head_size == self.head_size)
    }

    /// Returns the kernels of this launch and the work of their blocks.
    fn kernels(&self) -> (Kernels, Work) {
        let Some(tensor) = self.tensor() else { return (self.form.plain, Work::Plain) };
        let takes_wide =
            self.takes_wide && self.tiles.are_wide_tiles_full() && earlier::way(self.head_size) == Way::Now;
        match tensor.wide {
            Some(wide) if takes_wide => (wide[usize::from(self.drops)], Work::WideTile),
            _ => (tensor.kernels[self.index()], Work::Tile),
        }
    }

    /// Returns the index of the variant in [`TensorKernels::kernels`].
    fn index(&self) -> usize {
        if earlier::way(self.head_size) == Way::Earlier { 2 } else { usize::from(self.drops) }
    }

    /// Returns the kernel and the grid of backward in one launch, if a block has room for each whole segment.
    /// Only the first of a segment's blocks does any work.
    fn short(&self) -> Option<(Kernel, Grid)> {
        static APART: LazyLock<bool> = LazyLock::new(|| {
            std::env::var_os("MLMTRAIN_ATTENTION_BACKWARD").is_some_and(|value| value == "apart")
        });
        if self.tiles.longest > SHORT_ROWS || *APART {
            return None;
        }
        let kernel = self.tensor()?.short?[self.index()];
        // Size of `ShortRoom` in `tensor_short.cuh`: keys and two stages, with rows padded by 16 bytes;
        // dropout decisions for two stages; gradients of scores for 32 queries, padded as well; two numbers
        // per query.
        let rows = SHORT_ROWS as usize;
        let shared_bytes = rows * (2 * (self.head_size + 8) + 40) * size_of::<u16>() + rows * (8 + 8);
        let blocks = [self.tiles.count as u32, self.args.heads, 1];
        Some((kernel, Grid { blocks, threads: SHORT_THREADS, shared_bytes: shared_bytes as u32 }))
    }

    /// Returns the grid with a block for each tile and head. `row_bytes` is the shared memory of each
    /// streamed row in addition to its values, on tensor cores.
    fn grid(&self, work: Work, row_bytes: usize) -> Grid {
        let across = [self.tiles.count as u32, self.args.heads];
        if work == Work::Plain {
            let blocks = [across[0], across[1], self.head_size.div_ceil(PLAIN_COLUMNS) as u32];
            let shared_bytes = PLAIN_SHARED_BYTES + self.form.shared_bytes[0];
            return Grid { blocks, threads: 256, shared_bytes: shared_bytes as u32 };
        }
        // Size of `Room` in `tensor.cuh`: two stages of two tiles, with rows padded by 16 bytes.
        let stream = if self.head_size <= 80 { TILE_ROWS } else { TILE_ROWS / 2 };
        let streamed = 2 * stream * (2 * self.padded_row_bytes() + row_bytes);
        let shared_bytes = streamed + self.form.shared_bytes[1];
        Grid { blocks: [across[0], across[1], 1], threads: 128, shared_bytes: shared_bytes as u32 }
    }

    /// Returns the grid for wide tiles, with shared memory for the block's own rows, twice 64 streamed rows
    /// and `more_bytes`.
    fn wide_grid(&self, more_bytes: usize) -> Grid {
        let shared_bytes = (WIDE_TILE_ROWS + 2 * TILE_ROWS) * self.padded_row_bytes() + more_bytes;
        let blocks = [self.tiles.wide as u32, self.args.heads, 1];
        Grid { blocks, threads: 128, shared_bytes: shared_bytes as u32 }
    }

    /// Returns the bytes of a padded row of a half type in shared memory.
    fn padded_row_bytes(&self) -> usize {
        (self.head_size + 8) * size_of::<u16>()
    }

    /// Returns the arguments of a kernel of wide tiles, whose bounds are stored after those of the other
    /// tiles.
    fn wide_args(&self) -> Args {
        Args { tiles: self.args.tiles.plus(self.tiles.count * size_of::<[u32; 4]>()), ..self.args }
    }
}

/// Work of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    /// A tile, processed without tensor cores.
    Plain,
    /// A tile, processed on tensor cores.
    Tile,
    /// A wide tile of queries, or a tile of keys.
    WideTile,
}

pub(super) fn forward(
    gpu: &Gpu,
    q_td: &Tensor,
    k_td: &Tensor,
    v_td: &Tensor,
    segments: &Segments<'_>,
) -> Result<(Tensor, Saved)> {
    let form = form(q_td.dim(1)? / segments.heads);
    // SAFETY: the kernels of attention take `Args`.
    unsafe { forward_of(gpu, form, [q_td, k_td, v_td], segments, |args| args) }
}

/// Runs the forward pass of any kind of attention; `all` extends the arguments to those of its kernels.
///
/// # Safety
/// The kernels of `form` take the arguments that `all` returns, and the memory that these point to
/// in addition to attention's own arguments is as large as the kernels read it to be.
pub(crate) unsafe fn forward_of<A: Copy>(
    gpu: &Gpu,
    form: Form<'_>,
    [q_td, k_td, v_td]: [&Tensor; 3],
    segments: &Segments<'_>,
    all: impl Fn(Args) -> A,
) -> Result<(Tensor, Saved)> {
    let (tokens, hidden) = q_td.dims2()?;
    let mut launch = Launch::new(gpu, form, [q_td, k_td, v_td], segments)?;
    let o_td = gpu.uninitialised((tokens, hidden), launch.dtype)?;
    let log_sum_exp_th = gpu.uninitialised((tokens, segments.heads), DType::F32)?;
    launch.args.o = gpu.output(&o_td, launch.dtype)?;
    launch.args.log_sum_exp = gpu.output(&log_sum_exp_th, DType::F32)?;
    let drawn = launch.prepare_dropout(gpu, segments)?;
    let (kernels, work) = launch.kernels();
    let (grid, args) = match work {
        Work::WideTile => (launch.wide_grid(WIDE_BYTES[0]), launch.wide_args()),
        Work::Plain | Work::Tile => (launch.grid(work, 0), launch.args),
    };
    let args = all(args);
    // SAFETY: all `[T, D]` tensors have the same shape and type, log-sum-exp is `[T, H]`, there is a key for
    // each token, and tiles are inside the segments, which end at `T`: all checked by the caller. There is
    // room for the decisions of all squares of each head. The caller promises the arguments that the op adds.
    unsafe { gpu.launch(kernels.forward, Some(launch.dtype), grid, &args) }?;
    Ok((o_td, Saved { log_sum_exp_th, kept: drawn.map(|(kept, _)| kept) }))
}

/// Allocates the gradients of `q`, `k` and `v`. If these three are parts of one tensor, as the outputs of
/// linear maps that are computed as one product, then so are their gradients, in the same order, so that the
/// gradients of the maps can be computed as one product, too.
fn gradients(gpu: &Gpu, launch: &Launch<'_>, tokens: usize, hidden: usize) -> Result<[Tensor; 3]> {
    let Args { q, k, v, .. } = launch.args;
    let apart = Apart::of(&[q, k, v], launch.dtype, |address| Ok(*address))?;
    let room = |parts: usize| gpu.uninitialised((parts, tokens, hidden), launch.dtype);
    let Some(apart) = apart.filter(|apart| apart.stride == tokens * hidden) else {
        return Ok([room(1)?.get(0)?, room(1)?.get(0)?, room(1)?.get(0)?]);
    };
    let all = room(3)?;
    let [q_rank, k_rank, v_rank] = apart.ranks;
    Ok([all.get(q_rank)?, all.get(k_rank)?, all.get(v_rank)?])
}

pub(super) fn backward(
    gpu: &Gpu,
    do_td: &Tensor,
    activations: Activations<'_>,
    saved: &Saved,
    segments: &Segments<'_>,
) -> Result<[Tensor; 3]> {
    let form = form(do_td.dim(1)? / segments.heads);
    // SAFETY: the kernels of attention take `Args`.
    unsafe { backward_of(gpu, form, do_td, activations, saved, segments, |args| args) }
}

/// Runs the backward pass of any kind of attention.
///
/// # Safety
/// As [`forward_of`].
pub(crate) unsafe fn backward_of<A: Copy>(
    gpu: &Gpu,
    form: Form<'_>,
    do_td: &Tensor,
    activations: Activations<'_>,
    saved: &Saved,
    segments: &Segments<'_>,
    all: impl Fn(Args) -> A,
) -> Result<[Tensor; 3]> {
    let Activations { q_td, k_td, v_td, o_td } = activations;
    let (tokens, hidden) = q_td.dims2()?;
    check_shape("attention: log-sum-exp", &saved.log_sum_exp_th, &[tokens, segments.heads])?;
    let mut launch = Launch::new(gpu, form, [q_td, k_td, v_td], segments)?;
    let dtype = launch.dtype;
    let [dq_td, dk_td, dv_td] = gradients(gpu, &launch, tokens, hidden)?;
    launch.args = Args {
        o: gpu.input(o_td, dtype)?,
        d_out: gpu.input(do_td, dtype)?,
        dq: gpu.output(&dq_td, dtype)?,
        dk: gpu.output(&dk_td, dtype)?,
        dv: gpu.output(&dv_td, dtype)?,
        log_sum_exp: gpu.input(&saved.log_sum_exp_th, DType::F32)?,
        ..launch.args
    };
    launch.load_dropout(gpu, saved.kept.as_ref(), segments.heads)?;
    let (kernels, work) = launch.kernels();
    if let Some((kernel, grid)) = launch.short() {
        // SAFETY: as in `forward_of`, and no segment is longer than the kernel has room for.
        unsafe { gpu.launch(kernel, Some(dtype), grid, &all(launch.args)) }?;
        return Ok([dq_td, dk_td, dv_td]);
    }
    let delta_th = gpu.uninitialised((tokens, segments.heads), DType::F32)?;
    launch.args.delta = gpu.output(&delta_th, DType::F32)?;
    let [mut queries_grid, keys_grid] = ROW_BYTES.map(|row_bytes| launch.grid(work, row_bytes));
    let mut queries_args = launch.args;
    if work == Work::WideTile {
        queries_grid = launch.wide_grid(WIDE_BYTES[1]);
        queries_args = launch.wide_args();
    }
    let queries_args = all(queries_args);
    let keys_args = all(launch.args);
    // SAFETY: as in `forward_of`; delta is `[T, H]`, and the kernel of the queries, launched first, writes
    // all of it.
    unsafe {
        gpu.launch(kernels.backward_queries, Some(dtype), queries_grid, &queries_args)?;
        gpu.launch(kernels.backward_keys, Some(dtype), keys_grid, &keys_args)?;
    }
    Ok([dq_td, dk_td, dv_td])
}
