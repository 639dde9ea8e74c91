//! Disentangled attention on the GPU: attention's launches, with products of the library around them.
//!
//! Before, all heads at once: what each query and each key says of the rows of the tables, `[H, T, W]` for
//! the `W` rows that the longest segment reaches. The kernels pick from it by distance, and leave the
//! gradients in the same form; the products behind them take these to contents and tables. What is said is
//! not kept for backward: where segments have 128 tokens, it is four times as much as queries and keys.

use candle_core::DType;
use candle_core::Result;
use candle_core::Tensor;

use super::InputGradients;
use super::Relative;
use super::buckets::Window;
use crate::ops::attention::Activations;
use crate::ops::attention::Saved;
use crate::ops::attention::Segments;
use crate::ops::attention::cuda;
use crate::ops::attention::cuda::Form;
use crate::ops::attention::cuda::Kernels;
use crate::ops::attention::cuda::TensorKernels;
use crate::ops::attention::cuda::kernels;
use crate::ops::attention::cuda::tensor_kernels;
use crate::ops::cuda::Address;
use crate::ops::cuda::Gpu;
use crate::ops::cuda::apart::Apart;
use crate::ops::cuda::gemm::Batch;
use crate::ops::cuda::gemm::Gemm;
use crate::ops::cuda::gemm::Operand;

const PLAIN: Kernels = kernels!("disentangled_attention", "");
const TENSOR: [TensorKernels; 2] =
    [tensor_kernels!("disentangled_attention", 32), tensor_kernels!("disentangled_attention", 64)];

/// `sizeof(PlainPlaces)`, and that of four `WarpPlaces`, in `positions.cuh`.
const SHARED_BYTES: [usize; 2] = [1536, 5888];

/// Twin of what `RelativeArgs` in `positions.cuh` adds to attention's arguments.
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

/// Twin of `RelativeArgs`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct Args {
    attention: cuda::Args,
    positions: Positions,
}

/// What a pass knows before its products.
struct Pass<'a> {
    gpu: &'a Gpu,
    dtype: DType,
    tokens: usize,
    hidden: usize,
    heads: usize,
    window: Window,
    /// Values from what a token says to what the next one does.
    stride: usize,
    /// The row of each distance, and how many distances there are to either side, with 0.
    table: (Tensor, usize),
}

impl<'a> Pass<'a> {
    fn new(gpu: &'a Gpu, q_td: &Tensor, relative: &Relative<'_>, segments: &Segments<'_>) -> Result<Self> {
        let (tokens, hidden) = q_td.dims2()?;
        let lengths = segments.cu_seqlens.host().windows(2).map(|w| (w[1] - w[0]) as usize);
        let longest = lengths.max().unwrap_or(0).max(1);
        let window = relative.buckets.window(longest);
        let (stride, table) = (relative.buckets.width(longest), relative.buckets.table(gpu, longest)?);
        Ok(Self { gpu, dtype: q_td.dtype(), tokens, hidden, heads: segments.heads, window, stride, table })
    }

    fn head_size(&self) -> usize {
        self.hidden / self.heads
    }

    fn form(&self, relative: &Relative<'_>) -> Form<'static> {
        let scale = 1.0 / ((self.head_size() * relative.terms()) as f32).sqrt();
        Form { plain: PLAIN, tensor: &TENSOR, shared_bytes: SHARED_BYTES, scale }
    }

    /// Addresses of what is said by queries and by keys, and of the gradients of both.
    fn positions(&self, said: [Address; 2], gradients: [Address; 2]) -> Result<Positions> {
        let ([by_query, by_key], [d_by_query, d_by_key]) = (said, gradients);
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

    /// Room for what all heads of all tokens say of the rows of a table.
    fn room(&self) -> Result<Tensor> {
        self.gpu.uninitialised((self.heads, self.tokens, self.stride), self.dtype)
    }

    /// What rows of contents say of the rows of a table, `[H, T, stride]`.
    fn say(&self, contents_td: &Tensor, table_rd: &Tensor) -> Result<Tensor> {
        let said = self.room()?;
        let gemm = Gemm {
            m: self.tokens,
            n: self.window.count,
            k: self.head_size(),
            a: Operand::rows(self.gpu.input(contents_td, self.dtype)?, self.hidden),
            b: Operand::rows(self.rows(self.gpu.input(table_rd, self.dtype)?), self.hidden).transposed(),
            out: Operand::rows(self.gpu.output(&said, self.dtype)?, self.stride),
            batch: Batch { out: self.tokens * self.stride, ..self.batch() },
            ..self.product()
        };
        // SAFETY: of each head, contents are `[T, K]`, the rows of the table `[W, K]`, and there is room for
        // `[T, W]`.
        unsafe { self.run(&gemm) }?;
        Ok(said)
    }

    /// Adds to the gradient of contents what the gradients of what they said come to by way of the table, and
    /// writes that of the table, `[R, D]`.
    fn take_back(
        &self,
        d_said: &Tensor,
        (contents_td, d_contents_td): (&Tensor, &Tensor),
        (table_rd, d_table): (&Tensor, &Tensor),
    ) -> Result<()> {
        let (gpu, dtype, hidden) = (self.gpu, self.dtype, self.hidden);
        self.clear_beside_window(d_table)?;
        let d_said = Operand::rows(gpu.input(d_said, dtype)?, self.stride);
        let apart = self.tokens * self.stride;
        let of_contents = Gemm {
            m: self.tokens,
            n: self.head_size(),
            k: self.window.count,
            a: d_said,
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
            a: d_said.transposed(),
            b: Operand::rows(gpu.input(contents_td, dtype)?, hidden),
            out: Operand::rows(self.rows(gpu.output(d_table, dtype)?), hidden),
            batch: Batch { a: apart, ..self.batch() },
            ..self.product()
        };
        // SAFETY: as in `say`, and both gradients are as large as what they are of.
        unsafe {
            self.run(&of_contents)?;
            self.run(&of_table)
        }
    }

    /// Room for the gradients of the tables that there are. Where both are parts of one tensor, as the
    /// outputs of maps that are one product, so are their gradients, in the same order: the gradients of the
    /// maps are one product, too.
    fn gradients(&self, tables: [Option<&Tensor>; 2]) -> Result<[Option<Tensor>; 2]> {
        let room = |table: Option<&Tensor>| {
            table.map(|table| self.gpu.uninitialised(table.dims(), self.dtype)).transpose()
        };
        if let [Some(keys), Some(queries)] = tables {
            let address = |table: &&Tensor| self.gpu.input(table, self.dtype);
            let apart = Apart::of(&[keys, queries], self.dtype, address)?;
            if let Some(apart) = apart.filter(|apart| apart.stride == keys.elem_count()) {
                let (rows, hidden) = keys.dims2()?;
                let both = self.gpu.uninitialised((2, rows, hidden), self.dtype)?;
                let [of_keys, of_queries] = apart.ranks;
                return Ok([Some(both.get(of_keys)?), Some(both.get(of_queries)?)]);
            }
        }
        Ok([room(tables[0])?, room(tables[1])?])
    }

    /// No distance reaches the rows before the window and behind it; without tokens, none is reached.
    fn clear_beside_window(&self, d_table: &Tensor) -> Result<()> {
        let Window { first, count } = self.window;
        let (rows, end) = (d_table.dim(0)?, first + count);
        let parts = if self.tokens == 0 { [(0, rows), (rows, 0)] } else { [(0, first), (end, rows - end)] };
        let parts = parts.into_iter().filter(|(_, count)| *count > 0);
        parts.into_iter().try_for_each(|(first, count)| self.gpu.clear(&d_table.narrow(0, first, count)?))
    }

    /// Where the rows of a table begin that are reached.
    fn rows(&self, table: Address) -> Address {
        table.plus(self.window.first * self.hidden * self.dtype.size_in_bytes())
    }

    /// Columns of a head on both sides.
    fn batch(&self) -> Batch {
        let head = self.head_size();
        Batch { count: self.heads, a: head, b: head, out: head, vector: 0 }
    }

    /// What all products have in common.
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
        }
    }

    /// Runs the products of all heads: at once, or one by one where the library has no such product.
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
            let of_head = |operand: Operand, apart: usize| Operand {
                address: operand.address.plus(head * apart * size),
                ..operand
            };
            let Batch { a, b, out, .. } = gemm.batch;
            let (a, b, out) = (of_head(gemm.a, a), of_head(gemm.b, b), of_head(gemm.out, out));
            // SAFETY: the caller's promise.
            unsafe { self.gpu.gemm(&Gemm { a, b, out, batch: Batch::ONE, ..*gemm }) }
        })
    }

    /// What is said by queries and by keys, where there are such terms.
    fn say_all(&self, [q_td, k_td]: [&Tensor; 2], relative: &Relative<'_>) -> Result<[Option<Tensor>; 2]> {
        let by_query = relative.keys_rd.map(|table| self.say(q_td, table)).transpose()?;
        let by_key = relative.queries_rd.map(|table| self.say(k_td, table)).transpose()?;
        Ok([by_query, by_key])
    }

    /// Addresses of tensors for a kernel; null for those that are not there.
    fn addresses(
        &self,
        tensors: &[Option<Tensor>; 2],
        of: fn(&Gpu, &Tensor, DType) -> Result<Address>,
    ) -> Result<[Address; 2]> {
        let address =
            |t: &Option<Tensor>| t.as_ref().map_or(Ok(Address::NULL), |t| of(self.gpu, t, self.dtype));
        Ok([address(&tensors[0])?, address(&tensors[1])?])
    }
}

pub(super) fn forward(
    gpu: &Gpu,
    contents: [&Tensor; 3],
    relative: &Relative<'_>,
    segments: &Segments<'_>,
) -> Result<(Tensor, Saved)> {
    let pass = Pass::new(gpu, contents[0], relative, segments)?;
    let said = pass.say_all([contents[0], contents[1]], relative)?;
    let positions = pass.positions(pass.addresses(&said, Gpu::input)?, [Address::NULL; 2])?;
    let all = |attention| Args { attention, positions };
    // SAFETY: what is said is `[H, T, stride]` for the rows that any two tokens of a segment reach, and the
    // table has a row for each of their distances.
    unsafe { cuda::forward_of(gpu, pass.form(relative), contents, segments, all) }
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
    let said = pass.say_all([q_td, k_td], relative)?;
    let room = |said: &Option<Tensor>| said.as_ref().map(|_| pass.room()).transpose();
    let d_said = [room(&said[0])?, room(&said[1])?];
    let addresses = (pass.addresses(&said, Gpu::input)?, pass.addresses(&d_said, Gpu::output)?);
    let positions = pass.positions(addresses.0, addresses.1)?;
    let all = |attention| Args { attention, positions };
    // SAFETY: as in `forward`; the gradients have the shape of what is said.
    let of_contents =
        unsafe { cuda::backward_of(gpu, pass.form(relative), do_td, activations, saved, segments, all) }?;
    drop(said);
    let tables = [relative.keys_rd, relative.queries_rd];
    let d_tables = pass.gradients(tables)?;
    for (index, contents) in [q_td, k_td].into_iter().enumerate() {
        if let (Some(d_said), Some(table), Some(d_table)) = (&d_said[index], tables[index], &d_tables[index])
        {
            pass.take_back(d_said, (contents, &of_contents[index]), (table, d_table))?;
        }
    }
    let [dkeys_rd, dqueries_rd] = d_tables;
    Ok(InputGradients { of_contents, dkeys_rd, dqueries_rd })
}
