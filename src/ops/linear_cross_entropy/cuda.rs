//! The op on the GPU, for some rows ("a piece") at a time: a product for the logits, a pass over the rows of
//! logits, and two products with their gradient.

use std::ops::Range;

use candle_core::{DType, Result, Tensor};

use super::{Draw, Map, MapGradients, Passed};
use crate::cross_entropy::Entropy;
use crate::cross_entropy::cuda::{Found, FoundAt, ROOM_BYTES, forward_rows, row_threads};
use crate::cuda::gemm::{Batch, Bias, Gemm, Operand, Varying};
use crate::cuda::{Address, Array, Gpu, Grid, Kernel};
use crate::gumbel;
use crate::indices::Indices;
use crate::linear::cuda::weight_and_bias;

const LOSS_AND_GRADIENT: Kernel = Kernel { op: "linear_cross_entropy", name: "linear_cross_entropy" };

/// Largest number of logits in memory at once: 256 MiB in f32, and half of that for a bf16 or f16 gradient.
/// It is larger than on the CPU, because each piece reads and writes the whole gradient of the weight once
/// (300 MB for 50,000 words), which takes little time compared with the three products only if a piece has a
/// thousand rows or more.
pub(super) const PIECE_VALUES: usize = 64 << 20;

/// Same layout as `Args` in `kernel.cu`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct Args {
    logits: Address,
    labels: Address,
    gradient: Address,
    found: Address,
    log_sum_exp: Address,
    cols: i64,
    stride: i64,
    scale: f32,
}

/// Number of values from one row of logits, or of their gradient, to the next. cuBLASLt's fast kernels need
/// rows that begin at multiples of 16 bytes, which unpadded rows of a vocabulary of 50,265 do not. Rows are
/// padded to whole cache lines of both dtypes.
pub(super) fn row_stride(classes: usize) -> usize {
    classes.next_multiple_of(64)
}

/// Number of rows of a piece, whose logits are in memory at once.
pub(super) fn piece_rows(rows: usize, classes: usize, most_values: usize) -> usize {
    (most_values / row_stride(classes).max(1)).max(1).min(rows)
}

fn pieces(rows: usize, size: usize) -> impl Iterator<Item = Range<usize>> {
    (0..rows).step_by(size.max(1)).map(move |first| first..rows.min(first + size))
}

/// The sizes and addresses of the linear map and its inputs, which all pieces share.
struct Decoder<'a> {
    gpu: &'a Gpu,
    dtype: DType,
    inputs: usize,
    classes: usize,
    x: Address,
    weight: Address,
    bias: Address,
    labels: Address,
}

impl Decoder<'_> {
    /// The address of row `first` of `x`.
    fn x_at(&self, first: usize) -> Address {
        self.x.plus(first * self.inputs * self.dtype.size_in_bytes())
    }

    fn label_at(&self, first: usize) -> Address {
        self.labels.plus(first * size_of::<u32>())
    }

    /// Computes the logits of the rows of a piece into `logits`, f32.
    fn logits(&self, piece: &Range<usize>, logits: Operand) -> Result<()> {
        let gemm = Gemm {
            m: piece.len(),
            n: self.classes,
            k: self.inputs,
            a: Operand::rows(self.x_at(piece.start), self.inputs),
            b: Operand::rows(self.weight, self.inputs).transposed(),
            out: logits,
            dtype: self.dtype,
            out_dtype: DType::F32,
            accumulate: false,
            bias: Some(Bias { address: self.bias, dtype: DType::F32 }),
            batch: Batch::ONE,
            varying: Varying::Rows,
        };
        // SAFETY: the piece is within `x` `[rows, inputs]`, the weight is `[classes, inputs]`, the bias is
        // `[classes]`.
        unsafe { self.gpu.gemm(&gemm) }
    }

    /// Computes the losses of the rows of a piece, and the gradient of their logits, from the logits.
    fn loss_and_gradient(
        &self,
        piece: &Range<usize>,
        logits: Operand,
        gradient: Operand,
        found: FoundAt,
        scale: f32,
    ) -> Result<()> {
        let args = Args {
            logits: logits.address,
            labels: self.label_at(piece.start),
            gradient: gradient.address,
            found: found.rows,
            log_sum_exp: found.log_sum_exp,
            cols: self.classes as i64,
            stride: logits.stride as i64,
            scale,
        };
        let grid = Grid::of(piece.len(), row_threads(self.classes)).with_shared(ROOM_BYTES);
        // SAFETY: logits and gradient have room for the piece; labels and results begin at its first row.
        unsafe { self.gpu.launch(LOSS_AND_GRADIENT, Some(self.dtype), grid, &args) }
    }

    /// Computes the gradient of the piece's rows of `x` from that of its logits, and adds to the gradients of
    /// the map.
    fn gradients(
        &self,
        piece: &Range<usize>,
        gradient: Operand,
        dx: Address,
        into: MapGradients<'_>,
    ) -> Result<()> {
        let Self { inputs, classes, dtype, .. } = *self;
        let rows = piece.len();
        let weight = Operand::rows(self.weight, inputs);
        let dx = dx.plus(piece.start * inputs * dtype.size_in_bytes());
        let of_x = Gemm {
            m: rows,
            n: inputs,
            k: classes,
            a: gradient,
            b: weight,
            out: Operand::rows(dx, inputs),
            dtype,
            out_dtype: dtype,
            accumulate: false,
            bias: None,
            batch: Batch::ONE,
            varying: Varying::Rows,
        };
        let x = Operand::rows(self.x_at(piece.start), inputs);
        let of_weight = Gemm {
            m: classes,
            n: inputs,
            k: rows,
            a: gradient.transposed(),
            b: x,
            out: Operand::rows(self.gpu.output(into.dweight_vd.sum, DType::F32)?, inputs),
            dtype,
            out_dtype: DType::F32,
            accumulate: into.dweight_vd.begun,
            bias: None,
            batch: Batch::ONE,
            varying: Varying::Depth,
        };
        // SAFETY: the gradient of the logits is `[rows of the piece, classes]`; the piece is within `x` and
        // `dx`, both `[.., inputs]`; the weight and its gradient are `[classes, inputs]`.
        unsafe {
            self.gpu.gemm(&of_x)?;
            weight_and_bias(self.gpu, &of_weight, into.dbias_v)
        }
    }
}

/// Calls `f` with a decoder, and keeps the labels on the GPU until `f` has returned.
fn with_decoder<R>(
    gpu: &Gpu,
    x_md: &Tensor,
    map: Map<'_>,
    labels: Indices<'_>,
    f: impl FnOnce(&Decoder<'_>) -> Result<R>,
) -> Result<R> {
    let dtype = x_md.dtype();
    let (labels, _kept) = if labels.is_empty() {
        (Address::NULL, None)
    } else {
        labels.on_gpu(gpu).map(|(at, t)| (at, Some(t)))?
    };
    f(&Decoder {
        gpu,
        dtype,
        inputs: x_md.dim(1)?,
        classes: map.bias_v.elem_count(),
        x: gpu.input(x_md, dtype)?,
        weight: gpu.input(map.weight_vd, dtype)?,
        bias: gpu.input(map.bias_v, DType::F32)?,
        labels,
    })
}

/// Drawing of ids, piece by piece. Owns the keys and ids on the GPU, and must live until everything is
/// launched.
struct Drawing<'a> {
    draw: Draw<'a>,
    keys: Address,
    _kept: Array,
    ids: Tensor,
}

impl<'a> Drawing<'a> {
    /// Uploads the keys and allocates the ids; `None` if nothing is to be drawn, or there are no rows.
    fn new(gpu: &Gpu, draw: Option<Draw<'a>>) -> Result<Option<Self>> {
        let Some(draw) = draw.filter(|draw| !draw.keys.is_empty()) else { return Ok(None) };
        let (keys, kept) = draw.keys.on_gpu(gpu)?;
        let ids = gpu.uninitialised(draw.keys.len(), DType::U32)?;
        Ok(Some(Self { draw, keys, _kept: kept, ids }))
    }

    /// Draws the ids of the rows of a piece, from their f32 logits.
    fn draw_piece(&self, gpu: &Gpu, piece: &Range<usize>, logits: Operand, classes: usize) -> Result<()> {
        let keys = self.keys.plus(piece.start * size_of::<u64>());
        let ids = gpu.output(&self.ids, DType::U32)?.plus(piece.start * size_of::<u32>());
        let shape = [piece.len(), classes];
        // SAFETY: the piece is within the rows, each of which has a key and an id; its logits were just
        // written.
        unsafe { gumbel::cuda::sample_rows(gpu, DType::F32, logits, shape, self.draw.stream, keys, ids) }
    }
}

/// The drawn ids: empty if there were no rows, `None` if nothing was to be drawn.
fn ids(gpu: &Gpu, draw: Option<Draw<'_>>, drawing: Option<Drawing<'_>>) -> Result<Option<Tensor>> {
    match (draw, drawing) {
        (None, _) => Ok(None),
        (Some(_), Some(drawing)) => Ok(Some(drawing.ids)),
        (Some(_), None) => gpu.uninitialised(0, DType::U32).map(Some),
    }
}

pub(super) fn forward(
    gpu: &Gpu,
    x_md: &Tensor,
    map: Map<'_>,
    labels: Indices<'_>,
    draw: Option<Draw<'_>>,
    most_values: usize,
) -> Result<(Entropy, Option<Tensor>)> {
    let rows = x_md.dim(0)?;
    let classes = map.bias_v.elem_count();
    let drawing = Drawing::new(gpu, draw)?;
    let found = Found::new(gpu, rows)?;
    let size = piece_rows(rows, classes, most_values);
    with_decoder(gpu, x_md, map, labels, |decoder| {
        let logits_mv = gpu.uninitialised((size, row_stride(classes)), DType::F32)?;
        let logits = Operand::rows(gpu.output(&logits_mv, DType::F32)?, row_stride(classes));
        for piece in pieces(rows, size) {
            decoder.logits(&piece, logits)?;
            if let Some(drawing) = &drawing {
                drawing.draw_piece(gpu, &piece, logits, classes)?;
            }
            let labels = decoder.label_at(piece.start);
            let found = found.addresses(gpu, piece.start)?;
            // SAFETY: the logits of the piece were just written; labels and results begin at its first row.
            unsafe { forward_rows(gpu, DType::F32, logits, piece.len(), classes, labels, found) }?;
        }
        Ok(())
    })?;
    Ok((found.entropy(gpu)?, ids(gpu, draw, drawing)?))
}

#[expect(clippy::too_many_arguments, reason = "the op's own, and the size of a piece")]
pub(super) fn forward_backward(
    gpu: &Gpu,
    x_md: &Tensor,
    map: Map<'_>,
    labels: Indices<'_>,
    scale: f32,
    mut into: MapGradients<'_>,
    draw: Option<Draw<'_>>,
    most_values: usize,
) -> Result<Passed> {
    let dtype = x_md.dtype();
    let (rows, inputs) = x_md.dims2()?;
    let classes = map.bias_v.elem_count();
    let drawing = Drawing::new(gpu, draw)?;
    let found = Found::new(gpu, rows)?;
    let size = piece_rows(rows, classes, most_values);
    let dx_md = gpu.uninitialised((rows, inputs), dtype)?;
    with_decoder(gpu, x_md, map, labels, |decoder| {
        let stride = row_stride(classes);
        let logits_mv = gpu.uninitialised((size, stride), DType::F32)?;
        // An f32 gradient is written over the logits.
        let dz_mv = match dtype {
            DType::F32 => logits_mv.clone(),
            dtype => gpu.uninitialised((size, stride), dtype)?,
        };
        let logits = Operand::rows(gpu.output(&logits_mv, DType::F32)?, stride);
        let dz = Operand::rows(gpu.output(&dz_mv, dtype)?, stride);
        let dx = gpu.output(&dx_md, dtype)?;
        for piece in pieces(rows, size) {
            decoder.logits(&piece, logits)?;
            if let Some(drawing) = &drawing {
                drawing.draw_piece(gpu, &piece, logits, classes)?;
            }
            decoder.loss_and_gradient(&piece, logits, dz, found.addresses(gpu, piece.start)?, scale)?;
            decoder.gradients(&piece, dz, dx, into)?;
            into = into.continued();
        }
        into.begin()
    })?;
    Ok(Passed { entropy: found.entropy(gpu)?, dx_md, drawn: ids(gpu, draw, drawing)? })
}
