//! Disentangled attention on the GPU: attention's launches, with products by cuBLASLt before and after them.
//!
//! Products of all heads at once compute the position scores of each query and each key first: `[H, T, W]`
//! for the `W` rows of the tables that the longest segment uses. The attention kernels read them by distance,
//! and write their gradients in the same layout; further products compute from these the gradients of
//! queries, keys and tables. Position scores are not kept for backward, because for segments of 128 tokens
//! they are four times as large as queries and keys.

use candle_core::{DType, Result, Tensor};

use super::buckets::Window;
use super::{InputGradients, Relative};
use crate::attention::cuda::{Form, Kernels, TensorKernels, kernels, tensor_kernels};
use crate::attention::{Activations, Saved, Segments, cuda};
use crate::cuda::apart::Apart;
use crate::cuda::gemm::{Batch, Gemm, Operand, Varying};
use crate::cuda::{Address, Gpu};

const PLAIN: Kernels = kernels!("disentangled_attention", "");
const TENSOR: [TensorKernels; 2] =
    [tensor_kernels!("disentangled_attention", 32), tensor_kernels!("disentangled_attention", 64)];

/// `sizeof(PlainPlaces)`, and that of four `WarpPlaces`, in `positions.cuh`.
const SHARED_BYTES: [usize; 2] = [1536, 5888];

/// Same layout as the fields that `RelativeArgs` in `positions.cuh` adds to attention's arguments.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct Positions {
    by_query: Address,
    by_key: Address,
    d_by_query: Address,
    d_by_key: Address,
    table_rows: Address,
    tokens: i64,
    stride: i64,
    places: u32,
    first: u32,
}

/// Same layout as `RelativeArgs` in `positions.cuh`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct Args {
    attention: cuda::Args,
    positions: Positions,
}

/// The sizes of a pass, and the table of rows by distance.
struct Pass<'a> {
    gpu: &'a Gpu,
    dtype: DType,
    tokens: usize,
    hidden: usize,
    heads: usize,
    window: Window,
    /// Number of values from the position scores of one token to those of the next.
    stride: usize,
    /// The row of each distance, and the number of distances to either side, including 0.
    table: (Tensor, usize),
}

impl<'a> Pass<'a> {
    fn new(gpu: &'a Gpu, q_td: &Tensor, relative: &Relative<'_>, segments: &Segments<'_>) -> Result<Self> {
        let (tokens, hidden) = q_td.dims2()?;
        let lengths = segments.cu_seqlens.host().windows(2).map(|w| (w[1] - w[0]) as usize);
        let longest = lengths.max().unwrap_or(0).max(1);
        let window = relative.buckets.window(longest);
        let stride = relative.buckets.width(longest);
        let table = relative.buckets.table(gpu, longest)?;
        Ok(Self { gpu, dtype: q_td.dtype(), tokens, hidden, heads: segments.heads, window, stride, table })
    }

    fn head_size(&self) -> usize {
        self.hidden / self.heads
    }

    fn form(&self, relative: &Relative<'_>) -> Form<'static> {
        let scale = 1.0 / ((self.head_size() * relative.terms()) as f32).sqrt();
        Form { plain: PLAIN, tensor: &TENSOR, shared_bytes: SHARED_BYTES, scale }
    }

    /// The kernel arguments for the position scores of queries and of keys, and the gradients of both.
    fn positions(&self, scores: [Address; 2], gradients: [Address; 2]) -> Result<Positions> {
        let [by_query, by_key] = scores;
        let [d_by_query, d_by_key] = gradients;
        Ok(Positions {
            by_query,
            by_key,
            d_by_query,
            d_by_key,
            table_rows: self.gpu.input(&self.table.0, DType::U32)?,
            tokens: self.tokens as i64,
            stride: self.stride as i64,
            places: self.table.1 as u32,
            first: self.window.first as u32,
        })
    }

    /// Allocates position scores of all tokens with one table.
    fn room(&self) -> Result<Tensor> {
        self.gpu.uninitialised((self.heads, self.tokens, self.stride), self.dtype)
    }

    /// Computes the position scores of queries or keys with a table, `[H, T, stride]`.
    fn position_scores(&self, contents_td: &Tensor, table_rd: &Tensor) -> Result<Tensor> {
        let scores = self.room()?;
        let gemm = Gemm {
            m: self.tokens,
            n: self.window.count,
            k: self.head_size(),
            a: Operand::rows(self.gpu.input(contents_td, self.dtype)?, self.hidden),
            b: Operand::rows(self.rows(self.gpu.input(table_rd, self.dtype)?), self.hidden).transposed(),
            out: Operand::rows(self.gpu.output(&scores, self.dtype)?, self.stride),
            batch: Batch { out: self.tokens * self.stride, ..self.batch() },
            ..self.product()
        };
        // SAFETY: for each head, contents are `[T, K]`, the rows of the table `[W, K]`, and there is room for
        // `[T, W]`.
        unsafe { self.run(&gemm) }?;
        Ok(scores)
    }

    /// The backward pass of [`Self::position_scores`]: adds to the gradient of the contents, and writes that
    /// of the table, `[R, D]`.
    fn backward_position_scores(
        &self,
        d_scores: &Tensor,
        contents_td: &Tensor,
        d_contents_td: &Tensor,
        table_rd: &Tensor,
        d_table: &Tensor,
    ) -> Result<()> {
        let Self { gpu, dtype, hidden, .. } = *self;
        self.clear_outside_window(d_table)?;
        let d_scores = Operand::rows(gpu.input(d_scores, dtype)?, self.stride);
        let apart = self.tokens * self.stride;
        let of_contents = Gemm {
            m: self.tokens,
            n: self.head_size(),
            k: self.window.count,
            a: d_scores,
            b: Operand::rows(self.rows(gpu.input(table_rd, dtype)?), hidden),
            out: Operand::rows(gpu.output(d_contents_td, dtype)?, hidden),
            accumulate: true,
            batch: Batch { a: apart, ..self.batch() },
            ..self.product()
        };
        let of_table = Gemm {
            m: self.window.count,
            n: self.head_size(),
            k: self.tokens,
            a: d_scores.transposed(),
            b: Operand::rows(gpu.input(contents_td, dtype)?, hidden),
            out: Operand::rows(self.rows(gpu.output(d_table, dtype)?), hidden),
            batch: Batch { a: apart, ..self.batch() },
            varying: Varying::Depth,
            ..self.product()
        };
        // SAFETY: as in `position_scores`, and both gradients have the shapes of their tensors.
        unsafe {
            self.run(&of_contents)?;
            self.run(&of_table)
        }
    }

    /// Allocates the gradients of the tables that are not `None`. If both tables are adjacent parts of one
    /// tensor, which are the outputs of linear maps computed in one product, then their gradients are
    /// adjacent parts of one tensor in the same order, so that the gradients of these maps can be computed in
    /// one product, too.
    fn gradients(&self, tables: [Option<&Tensor>; 2]) -> Result<[Option<Tensor>; 2]> {
        if let [Some(keys), Some(queries)] = tables {
            let apart = Apart::of(&[keys, queries], self.dtype, |table| self.gpu.input(table, self.dtype))?;
            if let Some(apart) = apart.filter(|apart| apart.stride == keys.elem_count()) {
                let (rows, hidden) = keys.dims2()?;
                let both = self.gpu.uninitialised((2, rows, hidden), self.dtype)?;
                let [of_keys, of_queries] = apart.ranks;
                return Ok([Some(both.get(of_keys)?), Some(both.get(of_queries)?)]);
            }
        }
        let [keys, queries] =
            tables.map(|table| table.map(|t| self.gpu.uninitialised(t.dims(), self.dtype)).transpose());
        Ok([keys?, queries?])
    }

    /// Zeroes the gradients of the rows before and after the window, which no distance uses; without tokens,
    /// those of all rows.
    fn clear_outside_window(&self, d_table: &Tensor) -> Result<()> {
        let Window { first, count } = self.window;
        let rows = d_table.dim(0)?;
        let end = first + count;
        let parts = if self.tokens == 0 { [(0, rows), (rows, 0)] } else { [(0, first), (end, rows - end)] };
        let parts = parts.into_iter().filter(|(_, count)| *count > 0);
        parts.into_iter().try_for_each(|(first, count)| self.gpu.clear(&d_table.narrow(0, first, count)?))
    }

    /// The address of the first row of the window in a table.
    fn rows(&self, table: Address) -> Address {
        table.plus(self.window.first * self.hidden * self.dtype.size_in_bytes())
    }

    /// The batch of all heads, for operands and output that have the heads as columns.
    fn batch(&self) -> Batch {
        let head = self.head_size();
        Batch { count: self.heads, a: head, b: head, out: head, vector: 0 }
    }

    /// The fields that all products share.
    fn product(&self) -> Gemm {
        let nothing = Operand::rows(Address::NULL, 0);
        Gemm {
            m: 0,
            n: 0,
            k: 0,
            a: nothing,
            b: nothing,
            out: nothing,
            dtype: self.dtype,
            out_dtype: self.dtype,
            accumulate: false,
            bias: None,
            batch: Batch::ONE,
            varying: Varying::Rows,
        }
    }

    /// Runs the products of all heads: in one batch, or one by one if cuBLASLt has no such batched product.
    ///
    /// # Safety
    /// As [`Gpu::gemm`], for each product of the batch.
    unsafe fn run(&self, gemm: &Gemm) -> Result<()> {
        // SAFETY: the caller's promise.
        if self.tokens == 0 || unsafe { self.gpu.gemm_batch(gemm, None) }? {
            return Ok(());
        }
        let size = self.dtype.size_in_bytes();
        (0..self.heads).try_for_each(|head| {
            let Batch { a, b, out, .. } = gemm.batch;
            let [a, b, out] = [(gemm.a, a), (gemm.b, b), (gemm.out, out)].map(|(operand, apart)| Operand {
                address: operand.address.plus(head * apart * size),
                ..operand
            });
            // SAFETY: the caller's promise.
            unsafe { self.gpu.gemm(&Gemm { a, b, out, batch: Batch::ONE, ..*gemm }) }
        })
    }

    /// The position scores of queries and of keys; `None` for a term that the model does not have.
    fn all_position_scores(
        &self,
        q_td: &Tensor,
        k_td: &Tensor,
        relative: &Relative<'_>,
    ) -> Result<[Option<Tensor>; 2]> {
        let by_query = relative.keys_rd.map(|table| self.position_scores(q_td, table)).transpose()?;
        let by_key = relative.queries_rd.map(|table| self.position_scores(k_td, table)).transpose()?;
        Ok([by_query, by_key])
    }

    /// Addresses of tensors for a kernel, from [`Gpu::input`] or [`Gpu::output`]; null for `None`.
    fn addresses(
        &self,
        tensors: &[Option<Tensor>; 2],
        address: fn(&Gpu, &Tensor, DType) -> Result<Address>,
    ) -> Result<[Address; 2]> {
        let [first, second] = tensors
            .each_ref()
            .map(|t| t.as_ref().map_or(Ok(Address::NULL), |t| address(self.gpu, t, self.dtype)));
        Ok([first?, second?])
    }
}

pub(super) fn forward(
    gpu: &Gpu,
    contents: [&Tensor; 3],
    relative: &Relative<'_>,
    segments: &Segments<'_>,
) -> Result<(Tensor, Saved)> {
    let pass = Pass::new(gpu, contents[0], relative, segments)?;
    let scores = pass.all_position_scores(contents[0], contents[1], relative)?;
    let positions = pass.positions(pass.addresses(&scores, Gpu::input)?, [Address::NULL; 2])?;
    // SAFETY: position scores are `[H, T, stride]`, with all rows that the distances within a segment use,
    // and the table has an entry for each of these distances.
    unsafe {
        cuda::forward_of(gpu, pass.form(relative), contents, segments, |attention| Args {
            attention,
            positions,
        })
    }
}

pub(super) fn backward(
    gpu: &Gpu,
    do_td: &Tensor,
    activations: Activations<'_>,
    relative: &Relative<'_>,
    saved: &Saved,
    segments: &Segments<'_>,
) -> Result<InputGradients> {
    let Activations { q_td, k_td, .. } = activations;
    let pass = Pass::new(gpu, q_td, relative, segments)?;
    let scores = pass.all_position_scores(q_td, k_td, relative)?;
    let [of_queries, of_keys] =
        scores.each_ref().map(|scores| scores.as_ref().map(|_| pass.room()).transpose());
    let d_scores = [of_queries?, of_keys?];
    let positions =
        pass.positions(pass.addresses(&scores, Gpu::input)?, pass.addresses(&d_scores, Gpu::output)?)?;
    let form = pass.form(relative);
    // SAFETY: as in `forward`; the gradients have the shapes of the position scores.
    let of_contents = unsafe {
        cuda::backward_of(gpu, form, do_td, activations, saved, segments, |attention| Args {
            attention,
            positions,
        })
    }?;
    drop(scores);
    let tables = [relative.keys_rd, relative.queries_rd];
    let d_tables = pass.gradients(tables)?;
    for (index, contents) in [q_td, k_td].into_iter().enumerate() {
        if let (Some(d_scores), Some(table), Some(d_table)) =
            (&d_scores[index], tables[index], &d_tables[index])
        {
            pass.backward_position_scores(d_scores, contents, &of_contents[index], table, d_table)?;
        }
    }
    let [dkeys_rd, dqueries_rd] = d_tables;
    Ok(InputGradients { of_contents, dkeys_rd, dqueries_rd })
}
