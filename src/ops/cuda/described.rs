//! A product as cuBLASLt is asked for it: its descriptors as plain data, the same in every build.
//!
//! cuBLASLt knows matrices by columns. A row-major matrix is its own transpose there, so `out = a b` is asked
//! for as `out^T = b^T a^T`: operands change places, and a bias for each column of `out` becomes one for each
//! row. `driver/products.rs` hands the description on; builds without CUDA hold it against the library's
//! rules (`rules.rs`), and carry it out as it says (`host/products.rs`).

use candle_core::DType;

use super::Address;
use super::gemm::Gemm;
use super::gemm::Operand;

/// What NVIDIA recommends for Hopper; older generations take less of it.
pub(super) const WORKSPACE_BYTES: usize = 32 << 20;

/// Larger alignments make no difference to the library.
pub(super) const MOST_ALIGNMENT: u32 = 256;

/// What the library does beside the product.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Epilogue {
    /// Nothing.
    Nothing,
    /// Adds a bias to each row of D.
    Bias,
    /// Writes the sum of each column of B, over the k of the product: the gradient of a bias.
    ColumnSumsOfB,
}

/// A matrix by columns: column `c` begins `leading * c` values after the first. Of a batch of products, each
/// has its own, `batch_stride` values after the one before, or all have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Layout {
    /// Type of its values.
    pub dtype: DType,
    /// Values of a column.
    pub rows: usize,
    /// Columns.
    pub cols: usize,
    /// Values from one column to the next.
    pub leading: usize,
    /// Products that have such a matrix.
    pub batch_count: usize,
    /// Values from one product's matrix to the next one's.
    pub batch_stride: usize,
}

/// `D = op(A) op(B)`, with beta = 1 plus D as it was, in f32 inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Description {
    /// Of A, of B, and of C and D, which are one matrix.
    pub layouts: [Layout; 3],
    /// Whether op transposes A and B.
    pub transposed: [bool; 2],
    /// What else is done.
    pub epilogue: Epilogue,
    /// Type of the bias or of the sums.
    pub vector: DType,
    /// Values from one product's bias or sums to those of the next.
    pub vector_stride: usize,
    /// Whether beta is 1.
    pub accumulate: bool,
    /// Powers of two that the addresses of A, B, D and the vector are multiples of, at most 256.
    pub alignments: [u32; 4],
    /// Memory that the library may use meanwhile.
    pub workspace_bytes: usize,
}

impl Description {
    /// Of a product, with the sums of the rows of its `a` where they are asked for.
    pub(super) fn of(gemm: &Gemm, sums: Option<Address>) -> Self {
        let batch = gemm.batch;
        let layout = |dtype, rows: usize, cols: usize, operand: &Operand, batch_stride| {
            let (rows, cols) = if operand.transposed { (cols, rows) } else { (rows, cols) };
            Layout { dtype, rows, cols, leading: operand.stride, batch_count: batch.count, batch_stride }
        };
        let alignment = |address: Address| (1 << address.0.trailing_zeros().min(8)).min(MOST_ALIGNMENT);
        let vector = gemm.bias.map(|bias| bias.address).or(sums);
        Self {
            layouts: [
                layout(gemm.dtype, gemm.n, gemm.k, &gemm.b, batch.b),
                layout(gemm.dtype, gemm.k, gemm.m, &gemm.a, batch.a),
                layout(gemm.out_dtype, gemm.n, gemm.m, &gemm.out, batch.out),
            ],
            transposed: [gemm.b.transposed, gemm.a.transposed],
            epilogue: match (gemm.bias, sums) {
                (None, None) => Epilogue::Nothing,
                (Some(_), _) => Epilogue::Bias,
                (None, Some(_)) => Epilogue::ColumnSumsOfB,
            },
            vector: gemm.bias.map_or(gemm.out_dtype, |bias| bias.dtype),
            vector_stride: batch.vector,
            accumulate: gemm.accumulate,
            alignments: [
                alignment(gemm.b.address),
                alignment(gemm.a.address),
                alignment(gemm.out.address),
                vector.map_or(MOST_ALIGNMENT, alignment),
            ],
            workspace_bytes: WORKSPACE_BYTES,
        }
    }

    /// Whether the library may have no such product without that being an error: there are ways around.
    #[cfg(any(feature = "cuda", feature = "cuda-on-host"))]
    pub(super) fn may_be_refused(&self) -> bool {
        self.epilogue != Epilogue::Nothing || self.batch_count() > 1
    }

    /// Products that are done at once.
    pub fn batch_count(&self) -> usize {
        self.layouts[2].batch_count
    }

    /// m, n and k of each product as the library knows them.
    pub fn sizes(&self) -> [usize; 3] {
        let [a, _, d] = self.layouts;
        [d.rows, d.cols, if self.transposed[0] { a.rows } else { a.cols }]
    }

    /// Floating-point operations.
    pub fn flops(&self) -> f64 {
        let [m, n, k] = self.sizes();
        2.0 * self.batch_count() as f64 * m as f64 * n as f64 * k as f64
    }

    /// Bytes from the first value of the output to behind its last one, in all products of the batch.
    #[cfg(feature = "cuda")]
    pub(super) fn out_bytes(&self) -> usize {
        let Layout { dtype, rows, cols, leading, batch_count, batch_stride } = self.layouts[2];
        ((batch_count - 1) * batch_stride + leading * (cols - 1) + rows) * dtype.size_in_bytes()
    }

    /// Bytes of the operands, each once, and of the output, twice where it is added to.
    pub fn bytes(&self) -> u64 {
        let bytes = |layout: &Layout| {
            let matrices = if layout.batch_stride == 0 { 1 } else { layout.batch_count };
            (matrices * layout.rows * layout.cols * layout.dtype.size_in_bytes()) as u64
        };
        let [a, b, d] = &self.layouts;
        bytes(a) + bytes(b) + bytes(d) * (1 + u64::from(self.accumulate))
    }
}
