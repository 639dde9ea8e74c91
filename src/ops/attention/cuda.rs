//! Attention on the GPU: a block for each tile of a segment and head; backward in two launches, one for the
//! queries and one for the keys, so that nothing is added up across blocks, or, where a block has room for
//! whole segments, in one. Disentangled attention has the same launches but for the last, of kernels of its
//! own.

use std::sync::LazyLock;

use candle_core::DType;
use candle_core::Result;
use candle_core::Tensor;
use candle_core::bail;

use super::Activations;
use super::Saved;
use super::Segments;
use super::Tiles;
use super::earlier;
use super::earlier::Way;
use super::tiles::SHORT_ROWS;
use super::tiles::SQUARE_WORDS;
use super::tiles::TILE_ROWS;
use super::tiles::WIDE_TILE_ROWS;
use crate::cuda::Address;
use crate::cuda::Array;
use crate::cuda::Gpu;
use crate::cuda::Grid;
use crate::cuda::Kernel;
use crate::cuda::Kind;
use crate::cuda::apart::Apart;
use crate::cuda::wide;
use crate::dropout::Dropout;
use crate::dropout::DropoutArgs;
use crate::tensor::check_shape;

/// The kernels of one way to compute.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kernels {
    pub(crate) forward: Kernel,
    pub(crate) backward_queries: Kernel,
    pub(crate) backward_keys: Kernel,
}

/// The kernels of an op, named after it, with a suffix.
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

/// The kernels on tensor cores for heads of one size.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TensorKernels {
    pub(crate) head_size: usize,
    /// Without dropout, with it, and the earlier ones, which did both.
    pub(crate) kernels: [Kernels; 3],
    /// With 128 queries a block, without dropout and with it.
    pub(crate) wide: Option<[Kernels; 2]>,
    /// The same for backward of segments of at most [`SHORT_ROWS`] rows.
    pub(crate) short: Option<[Kernel; 3]>,
}

/// The kernels on tensor cores of an op for heads of one size.
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

/// What an op that is attention brings along to its launches.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Form<'a> {
    /// For every type and head size.
    pub(crate) plain: Kernels,
    /// For half types on tensor cores.
    pub(crate) tensor: &'a [TensorKernels],
    /// Bytes of shared memory behind attention's own, without and with tensor cores.
    pub(crate) shared_bytes: [usize; 2],
    /// What scores are multiplied with.
    pub(crate) scale: f32,
}

const PLAIN: Kernels = kernels!("attention", "");
/// [`tensor_kernels`] with those of wide tiles and of short segments.
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

/// Attention without more.
fn form(head_size: usize) -> Form<'static> {
    let scale = 1.0 / (head_size as f32).sqrt();
    Form { plain: PLAIN, tensor: &TENSOR, shared_bytes: [0; 2], scale }
}

/// `sizeof(PlainRoom)` in `plain.cuh`.
const PLAIN_SHARED_BYTES: usize = 34_560;
/// Columns of a head's results that a block of the plain kernels computes.
const PLAIN_COLUMNS: usize = 128;
/// Threads of a block that has a whole segment.
const SHORT_THREADS: u32 = 256;
/// Bytes for each streamed row beside its values: of `KeptSquares` in both kernels of backward on tensor
/// cores, and of `QueryRows` in that of the keys.
const ROW_BYTES: [usize; 2] = [8, 8 + 8];
/// Bytes of shared memory after the rows in the kernels of wide tiles: in forward two `RowDraws` of each
/// thread, and the `KeptSquares` of two stages in that of the queries.
const WIDE_BYTES: [usize; 2] = [2 * 128 * 12, 2 * 8 * 2 * 32];

/// Twin of `Args` in `arguments.cuh`.
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
    window: u32,
}

/// An error where keys of rows of probabilities would lose bits: 16 of a counter's 64 name the columns.
fn check_keys(segments: &Segments<'_>) -> Result<()> {
    let (keys, most) = (segments.token_keys.host(), (1u64 << 48) / segments.heads as u64);
    // All bits together are one pass without a comparison, and no less than the largest key.
    if keys.iter().fold(0, |all, key| all | key) >= most
        && let Some(key) = keys.iter().max().filter(|key| **key >= most)
    {
        bail!("attention: the dropout key {key} of a token is not below 2^48 / {} heads", segments.heads);
    }
    Ok(())
}

/// What the launches of a pass have in common, and the arrays behind its addresses.
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
    /// For `q`, `k`, `v` and the dropout of `segments`; addresses of what a pass adds are left out.
    fn new(gpu: &Gpu, form: Form<'a>, [q, k, v]: [&Tensor; 3], segments: &Segments<'_>) -> Result<Self> {
        let (dtype, hidden, heads) = (q.dtype(), q.dim(1)?, segments.heads);
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
            window: segments.window.and_then(|window| u32::try_from(window).ok()).unwrap_or(u32::MAX),
        };
        let takes_wide = gpu.capability() >= (8, 0);
        Ok(Self { args, form, dtype, head_size, tiles, drops: dropout.is_some(), takes_wide })
    }

    /// Keys to draw from, and room for what is decided, where anything is dropped. The array is to live until
    /// the kernel is launched.
    fn draws(&mut self, gpu: &Gpu, segments: &Segments<'_>) -> Result<Option<(Tensor, Array)>> {
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

    /// What forward has decided, where anything is dropped.
    fn finds(&mut self, gpu: &Gpu, kept: Option<&Tensor>, heads: usize) -> Result<()> {
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

    /// Tensor cores take half types of some head sizes, 16 bytes at a time.
    fn tensor(&self) -> Option<&'a TensorKernels> {
        let Args { q, k, v, o, d_out, dq, dk, dv, kept, .. } = self.args;
        let fits = self.dtype != DType::F32
            && wide::flag(self.head_size, self.dtype, &[q, k, v, o, d_out, dq, dk, dv, kept]) != 0;
        self.form.tensor.iter().find(|kernels| fits && kernels.head_size == self.head_size)
    }

    /// The kernels that this launch takes, and what they have of a tile.
    fn kernels(&self) -> (Kernels, Of) {
        let Some(tensor) = self.tensor() else { return (self.form.plain, Of::Plain) };
        let takes_wide =
            self.takes_wide && self.tiles.fill_wide_ones() && earlier::way(self.head_size) == Way::Now;
        match tensor.wide {
            Some(wide) if takes_wide => (wide[usize::from(self.drops)], Of::WideTile),
            _ => (tensor.kernels[self.index()], Of::Tile),
        }
    }

    /// Index of the kernels on tensor cores.
    fn index(&self) -> usize {
        if earlier::way(self.head_size) == Way::Earlier { 2 } else { usize::from(self.drops) }
    }

    /// The kernel and the grid of backward in one launch, where a block has room for each whole segment. Of
    /// the blocks for a segment's tiles only the first does something.
    fn short(&self) -> Option<(Kernel, Grid)> {
        static APART: LazyLock<bool> = LazyLock::new(|| {
            std::env::var_os("MLMTRAIN_ATTENTION_BACKWARD").is_some_and(|value| value == "apart")
        });
        if self.tiles.longest > SHORT_ROWS || *APART {
            return None;
        }
        let kernel = self.tensor()?.short?[self.index()];
        // `ShortRoom` in `tensor_short.cuh`: keys and two stages, rows padded by 16 bytes; decisions of
        // dropout for two stages; gradients of scores for 32 queries, padded as well; two numbers a query.
        let rows = SHORT_ROWS as usize;
        let shared_bytes = rows * (2 * (self.head_size + 8) + 40) * size_of::<u16>() + rows * (8 + 8);
        let blocks = [self.tiles.count as u32, self.args.heads, 1];
        Some((kernel, Grid { blocks, threads: SHORT_THREADS, shared_bytes: shared_bytes as u32 }))
    }

    /// A block for each tile and head. `row_bytes`: shared memory for each streamed row beside its values, on
    /// tensor cores.
    fn grid(&self, of: Of, row_bytes: usize) -> Grid {
        let across = [self.tiles.count as u32, self.args.heads];
        if of == Of::Plain {
            let blocks = [across[0], across[1], self.head_size.div_ceil(PLAIN_COLUMNS) as u32];
            let shared_bytes = PLAIN_SHARED_BYTES + self.form.shared_bytes[0];
            return Grid { blocks, threads: 256, shared_bytes: shared_bytes as u32 };
        }
        // `Room` in `tensor.cuh`: two stages of two tiles, rows padded by 16 bytes.
        let stream = if self.head_size <= 80 { TILE_ROWS } else { TILE_ROWS / 2 };
        let streamed = 2 * stream * (2 * self.padded_row_bytes() + row_bytes);
        let shared_bytes = streamed + self.form.shared_bytes[1];
        Grid { blocks: [across[0], across[1], 1], threads: 128, shared_bytes: shared_bytes as u32 }
    }

    /// The same for wide tiles: the block's own rows, and two times 64 that are streamed.
    fn wide_grid(&self, more_bytes: usize) -> Grid {
        let shared_bytes = (WIDE_TILE_ROWS + 2 * TILE_ROWS) * self.padded_row_bytes() + more_bytes;
        let blocks = [self.tiles.wide as u32, self.args.heads, 1];
        Grid { blocks, threads: 128, shared_bytes: shared_bytes as u32 }
    }

    /// Bytes of a row of half types in shared memory.
    fn padded_row_bytes(&self) -> usize {
        (self.head_size + 8) * size_of::<u16>()
    }

    /// The arguments of a kernel of wide tiles, which come after the others.
    fn wide_args(&self) -> Args {
        Args { tiles: self.args.tiles.plus(self.tiles.count * size_of::<[u32; 4]>()), ..self.args }
    }
}

/// The work of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Of {
    /// A tile, without tensor cores.
    Plain,
    /// A tile.
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

/// The forward pass of an op that is attention; `all` makes the arguments of its kernels.
///
/// # Safety The kernels of `form` take what `all` gives, and what that names beside attention's own arguments
/// is as large as they read it to be.
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
    let drawn = launch.draws(gpu, segments)?;
    let (kernels, of) = launch.kernels();
    let (grid, args) = match of {
        Of::WideTile => (launch.wide_grid(WIDE_BYTES[0]), launch.wide_args()),
        Of::Plain | Of::Tile => (launch.grid(of, 0), launch.args),
    };
    let args = all(args);
    // SAFETY: all of `[T, D]` are of one shape and type, log-sum-exp is `[T, H]`, there is a key for each
    // token, and tiles lie inside the segments, which end at `T`: all checked by the caller. There is room
    // for the decisions of all squares of each head. What the op adds is the caller's promise.
    unsafe { gpu.launch(kernels.forward, Some(launch.dtype), grid, &args) }?;
    Ok((o_td, Saved { log_sum_exp_th, kept: drawn.map(|(kept, _)| kept) }))
}

/// Room for the gradients of `q`, `k` and `v`. Where these are parts of one tensor, as the outputs of maps
/// that are one product, so are their gradients, in the same order: the gradients of the maps are one
/// product, too.
fn gradients(gpu: &Gpu, launch: &Launch<'_>, (tokens, hidden): (usize, usize)) -> Result<[Tensor; 3]> {
    let Args { q, k, v, .. } = launch.args;
    let apart = Apart::of(&[q, k, v], launch.dtype, |address| Ok(*address))?;
    let room = |parts: usize| gpu.uninitialised((parts, tokens, hidden), launch.dtype);
    let Some(apart) = apart.filter(|apart| apart.stride == tokens * hidden) else {
        return Ok([room(1)?.get(0)?, room(1)?.get(0)?, room(1)?.get(0)?]);
    };
    let all = room(3)?;
    let [of_q, of_k, of_v] = apart.ranks;
    Ok([all.get(of_q)?, all.get(of_k)?, all.get(of_v)?])
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

/// The backward pass of an op that is attention.
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
    let [dq_td, dk_td, dv_td] = gradients(gpu, &launch, (tokens, hidden))?;
    launch.args = Args {
        o: gpu.input(o_td, dtype)?,
        d_out: gpu.input(do_td, dtype)?,
        dq: gpu.output(&dq_td, dtype)?,
        dk: gpu.output(&dk_td, dtype)?,
        dv: gpu.output(&dv_td, dtype)?,
        log_sum_exp: gpu.input(&saved.log_sum_exp_th, DType::F32)?,
        ..launch.args
    };
    launch.finds(gpu, saved.kept.as_ref(), segments.heads)?;
    let (kernels, of) = launch.kernels();
    if let Some((kernel, grid)) = launch.short() {
        // SAFETY: as in `forward_of`, and no segment is longer than the kernel has room for.
        unsafe { gpu.launch(kernel, Some(dtype), grid, &all(launch.args)) }?;
        return Ok([dq_td, dk_td, dv_td]);
    }
    let delta_th = gpu.uninitialised((tokens, segments.heads), DType::F32)?;
    launch.args.delta = gpu.output(&delta_th, DType::F32)?;
    let [mut of_queries, of_keys] = ROW_BYTES.map(|row_bytes| launch.grid(of, row_bytes));
    let (mut args_of_queries, args) = (launch.args, all(launch.args));
    if of == Of::WideTile {
        (of_queries, args_of_queries) = (launch.wide_grid(WIDE_BYTES[1]), launch.wide_args());
    }
    // SAFETY: as in `forward_of`; delta is `[T, H]`, and the kernel of the queries, launched first, writes
    // all of it.
    unsafe {
        gpu.launch(kernels.backward_queries, Some(dtype), of_queries, &all(args_of_queries))?;
        gpu.launch(kernels.backward_keys, Some(dtype), of_keys, &args)?;
    }
    Ok([dq_td, dk_td, dv_td])
}
