//! Description of a product in cuBLASLt's terms: its descriptors as plain data, the same in every build.
//!
//! cuBLASLt's matrices are column-major. A row-major matrix is its own transpose there, so `out = a b` is
//! requested as `out^T = b^T a^T`: the operands change places, and a bias for each column of `out` becomes a
//! bias for each row. `driver/products.rs` passes the description to the library; builds without CUDA check
//! it against the library's rules (`rules.rs`) and compute it on the CPU exactly as described
//! (`host/products.rs`).

use candle_core::DType;

use super::Address;
use super::gemm::{Gemm, Operand};

/// Workspace size that NVIDIA recommends for Hopper; older generations need less.
pub(super) const WORKSPACE_BYTES: usize = 32 << 20;

/// Largest alignment that makes a difference to the library, in bytes.
pub(super) const MOST_ALIGNMENT: u32 = 256;

/// Operation that the library fuses with the product.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Epilogue {
    /// Nothing.
    Nothing,
    /// Adds a bias to each row of D.
    Bias,
    /// Writes the sum of each column of B, over the k of the product: the gradient of a bias.
    ColumnSumsOfB,
}

/// Column-major matrix: column `c` begins `leading * c` values after the first. In a batch, the matrix of
/// each product begins `batch_stride` values after the previous one's; with a stride of 0 all products share
/// one matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Layout {
    /// Type of the values.
    pub dtype: DType,
    /// Number of values in a column.
    pub rows: usize,
    /// Number of columns.
    pub cols: usize,
    /// Distance from one column to the next, in values.
    pub leading: usize,
    /// Number of products in the batch.
    pub batch_count: usize,
    /// Distance from the matrix of one product to that of the next, in values.
    pub batch_stride: usize,
}

impl Layout {
    /// Describes a stored operand X for which op(X) is a column-major matrix of `rows` by `cols`; if op
    /// transposes, X itself is `cols` by `rows`.
    fn new(
        operand: &Operand,
        dtype: DType,
        rows: usize,
        cols: usize,
        batch_count: usize,
        batch_stride: usize,
    ) -> Self {
        let (rows, cols) = if operand.transposed { (cols, rows) } else { (rows, cols) };
        Self { dtype, rows, cols, leading: operand.stride, batch_count, batch_stride }
    }

    /// Returns the type, sizes and distances as text. All matrices of a product have the same batch count.
    #[cfg(any(test, feature = "cuda", feature = "cuda-on-host"))]
    fn key(&self) -> String {
        let Self { dtype, rows, cols, leading, batch_stride, .. } = self;
        format!("{}[{rows}x{cols}/{leading} +{batch_stride}]", dtype.as_str())
    }

    /// Returns the bytes of the values of all matrices of the batch; a shared matrix counts once.
    fn bytes(&self) -> u64 {
        let matrices = if self.batch_stride == 0 { 1 } else { self.batch_count };
        (matrices * self.rows * self.cols * self.dtype.size_in_bytes()) as u64
    }
}

/// Returns the largest power of two, at most 256, that divides an address.
fn alignment(address: Address) -> u32 {
    (1 << address.0.trailing_zeros().min(8)).min(MOST_ALIGNMENT)
}

/// The product `D = op(A) op(B)`, plus the previous D if beta is 1, computed in f32.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Description {
    /// Layouts of A, of B, and of C and D, which are the same matrix.
    pub layouts: [Layout; 3],
    /// True for each of A and B that op transposes.
    pub transposed: [bool; 2],
    /// Operation fused with the product.
    pub epilogue: Epilogue,
    /// Type of the bias or of the column sums.
    pub vector: DType,
    /// Distance from the bias or column sums of one product to those of the next, in values.
    pub vector_stride: usize,
    /// True for beta = 1: the product is added to D.
    pub accumulate: bool,
    /// Largest powers of two, up to 256, that divide the addresses of A, B, D and the vector.
    pub alignments: [u32; 4],
    /// Bytes of scratch memory that the library may use during the product.
    pub workspace_bytes: usize,
}

impl Description {
    /// Describes a product, which also writes the sums of the rows of its `a` to `sums` if that is given.
    pub(super) fn of(gemm: &Gemm, sums: Option<Address>) -> Self {
        let batch = gemm.batch;
        let vector = gemm.bias.map(|bias| bias.address).or(sums);
        Self {
            layouts: [
                Layout::new(&gemm.b, gemm.dtype, gemm.n, gemm.k, batch.count, batch.b),
                Layout::new(&gemm.a, gemm.dtype, gemm.k, gemm.m, batch.count, batch.a),
                Layout::new(&gemm.out, gemm.out_dtype, gemm.n, gemm.m, batch.count, batch.out),
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

    /// Describes the product for which the algorithm of `gemm` is chosen (`Gemm::in_bucket`). There the
    /// distance between the matrices of a batch is rounded with their number of rows. How the exact distance
    /// is aligned counts as a part of the alignment of the matrix.
    #[cfg(any(test, feature = "cuda", feature = "cuda-on-host"))]
    pub(super) fn bucket_of(gemm: &Gemm, sums: Option<Address>) -> Self {
        let mut bucket = Self::of(&gemm.in_bucket(), sums);
        let exact = Self::of(gemm, sums);
        for (aligned, layout) in bucket.alignments.iter_mut().zip(exact.layouts) {
            let apart = Address((layout.batch_stride * layout.dtype.size_in_bytes()) as u64);
            *aligned = (*aligned).min(alignment(apart));
        }
        bucket
    }

    /// Returns the description as a line of text, under which the algorithm of this kind of product is
    /// stored. Different products have different lines. `tf32` is true if the product rounds its operands to
    /// TF32.
    #[cfg(any(test, feature = "cuda", feature = "cuda-on-host"))]
    pub(super) fn key(&self, tf32: bool) -> String {
        let [a, b, d] = self.layouts.map(|layout| layout.key());
        let [of_a, of_b] = self.transposed.map(|transposed| if transposed { "^T" } else { "" });
        let vector = match self.epilogue {
            Epilogue::Nothing => String::new(),
            Epilogue::Bias => format!(" bias {} +{}", self.vector.as_str(), self.vector_stride),
            Epilogue::ColumnSumsOfB => format!(" sums {} +{}", self.vector.as_str(), self.vector_stride),
        };
        let beta = u8::from(self.accumulate);
        let [of_a_bytes, of_b_bytes, of_d_bytes, of_vector] = self.alignments;
        let compute = if tf32 { " tf32" } else { "" };
        format!(
            "{a}{of_a} * {b}{of_b} = {d}{vector} beta {beta} batch {} aligned {of_a_bytes} {of_b_bytes} \
             {of_d_bytes} {of_vector} workspace {}{compute}",
            self.batch_count(),
            self.workspace_bytes,
        )
    }

    /// Returns true if the library may refuse this product without that being an error: callers have a
    /// fallback for epilogues and batches.
    #[cfg(any(feature = "cuda", feature = "cuda-on-host"))]
    pub(super) fn may_be_refused(&self) -> bool {
        self.epilogue != Epilogue::Nothing || self.batch_count() > 1
    }

    /// Number of products in the batch.
    pub fn batch_count(&self) -> usize {
        self.layouts[2].batch_count
    }

    /// Returns m, n and k of each product in cuBLASLt's column-major terms.
    pub fn sizes(&self) -> [usize; 3] {
        let [a, _, d] = self.layouts;
        [d.rows, d.cols, if self.transposed[0] { a.rows } else { a.cols }]
    }

    /// Returns the number of floating-point operations of the whole batch.
    pub fn flops(&self) -> f64 {
        let [m, n, k] = self.sizes();
        2.0 * self.batch_count() as f64 * m as f64 * n as f64 * k as f64
    }

    /// Bytes from the first value of the output to the end of its last value, over all products of the batch.
    #[cfg(feature = "cuda")]
    pub(super) fn out_bytes(&self) -> usize {
        let Layout { dtype, rows, cols, leading, batch_count, batch_stride } = self.layouts[2];
        ((batch_count - 1) * batch_stride + leading * (cols - 1) + rows) * dtype.size_in_bytes()
    }

    /// Bytes of memory traffic: each operand once, and the output once, or twice if it is added to.
    pub fn bytes(&self) -> u64 {
        let [a, b, d] = &self.layouts;
        a.bytes() + b.bytes() + d.bytes() * (1 + u64::from(self.accumulate))
    }
}
