//! Matrix products on the GPU by cuBLASLt, described in row-major terms.

use std::sync::LazyLock;

use candle_core::{DType, Result, Tensor};

use super::{Address, Gpu, Grid, Kernel};

/// Row-major matrix in memory: row `r` begins `r * stride` elements after the first.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Operand {
    pub(crate) address: Address,
    /// Distance between the stored rows, in elements.
    pub(crate) stride: usize,
    /// True if the product uses the transpose of the matrix.
    pub(crate) transposed: bool,
}

impl Operand {
    /// Returns a matrix whose rows of `cols` values are contiguous.
    pub(crate) fn rows(address: Address, cols: usize) -> Self {
        Self { address, stride: cols, transposed: false }
    }

    /// Returns the same matrix with its start moved forward by `bytes` bytes.
    fn advanced(self, bytes: usize) -> Self {
        Self { address: self.address.plus(bytes), ..self }
    }

    /// Returns the distance between matrices like this one in a batch if their `rows` stored rows become
    /// `rounded` ones. Matrices that are stored side by side, or that all products share, stay.
    #[cfg(any(test, feature = "cuda", feature = "cuda-on-host"))]
    fn apart(&self, apart: usize, rows: usize, rounded: usize) -> usize {
        if apart >= self.stride * rows { self.stride * rounded } else { apart }
    }

    /// Returns the transpose; no data moves.
    #[must_use]
    pub(crate) fn transposed(self) -> Self {
        Self { transposed: !self.transposed, ..self }
    }
}

/// Batch of products of one shape: their number, and for each matrix the distance, in values, from that of
/// one product to that of the next. The distance of a matrix that all products share is 0.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Batch {
    pub(crate) count: usize,
    pub(crate) a: usize,
    pub(crate) b: usize,
    pub(crate) out: usize,
    /// Distance of the biases, or of the row sums.
    pub(crate) vector: usize,
}

impl Batch {
    /// Batch of a single product.
    pub(crate) const ONE: Self = Self { count: 1, a: 0, b: 0, out: 0, vector: 0 };
}

/// Size of a product that follows from the tokens of a batch and therefore changes from step to step. The
/// other sizes are those of parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Varying {
    /// All sizes are those of parameters.
    Nothing,
    /// `m`: the rows of the output are those of a batch.
    Rows,
    /// `k`: the product sums over the rows of a batch, as the gradient of a weight does.
    Depth,
}

/// Numbers of rows are rounded up to a multiple of this for the choice of an algorithm: the height of the
/// tiles in which most kernels compute, so that all numbers of a bucket fill the same tiles.
#[cfg(any(test, feature = "cuda", feature = "cuda-on-host"))]
const BUCKET_ROWS: usize = 128;

/// The product `out[m, n] = a[m, k] b[k, n]`, plus `bias[n]` if there is one, or added to `out` if
/// `accumulate` is set. Sums are computed in f32.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Gemm {
    pub(crate) m: usize,
    pub(crate) n: usize,
    pub(crate) k: usize,
    pub(crate) a: Operand,
    pub(crate) b: Operand,
    /// Output; never transposed.
    pub(crate) out: Operand,
    /// Type of `a` and `b`.
    pub(crate) dtype: DType,
    /// Type of `out`: equal to `dtype`, or f32.
    pub(crate) out_dtype: DType,
    pub(crate) accumulate: bool,
    /// Bias to add. cuBLASLt wants it in the output's type: an f32 bias of a half-precision output is rounded
    /// first.
    pub(crate) bias: Option<Bias>,
    pub(crate) batch: Batch,
    pub(crate) varying: Varying,
}

/// Bias vector `[n]` that is added to each row of a product.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Bias {
    pub(crate) address: Address,
    pub(crate) dtype: DType,
}

impl Gemm {
    /// Returns the product for which the algorithm is chosen: the number of rows that varies is rounded up to
    /// a multiple of [`BUCKET_ROWS`], and matrices that are stored one after another in a batch move apart
    /// accordingly. Only a number of stored rows is rounded, never their width: the library would choose
    /// kernels for widths that the product does not have.
    #[cfg(any(test, feature = "cuda", feature = "cuda-on-host"))]
    pub(super) fn in_bucket(&self) -> Self {
        let Self { m, k, a, b, out, batch, .. } = *self;
        match self.varying {
            Varying::Rows if !a.transposed => {
                let rounded = m.next_multiple_of(BUCKET_ROWS);
                let [of_a, of_out] =
                    [(a, batch.a), (out, batch.out)].map(|(matrix, apart)| matrix.apart(apart, m, rounded));
                Self { m: rounded, batch: Batch { a: of_a, out: of_out, ..batch }, ..*self }
            }
            Varying::Depth if a.transposed && !b.transposed => {
                let rounded = k.next_multiple_of(BUCKET_ROWS);
                let [of_a, of_b] =
                    [(a, batch.a), (b, batch.b)].map(|(matrix, apart)| matrix.apart(apart, k, rounded));
                Self { k: rounded, batch: Batch { a: of_a, b: of_b, ..batch }, ..*self }
            }
            _ => *self,
        }
    }

    /// Splits the product in two where the rows of all matrices begin at multiples of 16 bytes and only a
    /// width is not a multiple of 16 bytes. cuBLASLt chooses its kernels by widths, and those for arbitrary
    /// widths take five to seven times as long (the logits of a base model with 50,265 words on an H200: 1.07
    /// ms).
    fn cut(&self) -> Option<[Self; 2]> {
        let bytes = self.dtype.size_in_bytes();
        let wide = 16 / bytes;
        let [a_fits, b_fits, out_fits] =
            [self.a, self.b, self.out].map(|operand| operand.stride.is_multiple_of(wide));
        if is_odd(self.n, wide) && out_fits && b_fits {
            let n = self.n - self.n % wide;
            let by = if self.b.transposed { n * self.b.stride } else { n } * bytes;
            let bias = self
                .bias
                .map(|bias| Bias { address: bias.address.plus(n * bias.dtype.size_in_bytes()), ..bias });
            let out = self.out.advanced(n * self.out_dtype.size_in_bytes());
            return Some([
                Self { n, ..*self },
                Self { n: self.n - n, b: self.b.advanced(by), out, bias, ..*self },
            ]);
        }
        // A cut along the depth needs alignment only of operands whose stored rows run along the depth. The
        // second part is added to the output, which excludes a bias.
        let holds_depth = [(!self.a.transposed, a_fits), (self.b.transposed, b_fits)];
        let fits = holds_depth.iter().any(|(holds, _)| *holds)
            && holds_depth.iter().all(|(holds, fits)| !holds || *fits);
        if is_odd(self.k, wide) && fits && self.bias.is_none() {
            let k = self.k - self.k % wide;
            let a_values = if self.a.transposed { k * self.a.stride } else { k };
            let b_values = if self.b.transposed { k } else { k * self.b.stride };
            let a = self.a.advanced(a_values * bytes);
            let b = self.b.advanced(b_values * bytes);
            // The small part comes first: its sum is rounded to the output's type before the large one is
            // added.
            return Some([Self { k: self.k - k, a, b, ..*self }, Self { k, accumulate: true, ..*self }]);
        }
        None
    }
}

/// Returns true if a width has more than `wide` values but is not a multiple of it.
fn is_odd(width: usize, wide: usize) -> bool {
    width > wide && !width.is_multiple_of(wide)
}

impl Gpu {
    /// Runs a product, and overwrites `sums`, f32 `[m]`, with the sums of the rows of `a`: the bias gradient
    /// of a linear map. Returns false, with nothing done, if the library has no such product, or if
    /// `MLMTRAIN_ROW_SUMS=apart` selects mlmtrain's own kernel for the sums, for comparison.
    ///
    /// # Safety
    /// As [`Gpu::gemm`].
    pub(crate) unsafe fn gemm_with_row_sums(&self, gemm: &Gemm, sums: Address) -> Result<bool> {
        debug_assert!(gemm.bias.is_none() && gemm.k > 0, "there is one epilogue, and rows to sum");
        // SAFETY: the caller's promise.
        unsafe { self.gemm_batch(gemm, Some(sums)) }
    }

    /// Runs a batch of products, with biases of the output's type, or with the sums of the rows of each `a`
    /// as [`Gpu::gemm_with_row_sums`] describes. Returns false, with nothing done, if the library has no such
    /// product.
    ///
    /// # Safety
    /// As [`Gpu::gemm`], for each product of the batch.
    pub(crate) unsafe fn gemm_batch(&self, gemm: &Gemm, sums: Option<Address>) -> Result<bool> {
        static APART: LazyLock<bool> =
            LazyLock::new(|| std::env::var_os("MLMTRAIN_ROW_SUMS").is_some_and(|value| value == "apart"));
        if sums.is_some() && *APART {
            return Ok(false);
        }
        // SAFETY: the caller's promise.
        unsafe { self.0.gemm(gemm, sums) }
    }

    /// Runs a single product.
    ///
    /// # Safety
    /// The operands and the output are matrices of the sizes and types that `gemm` gives.
    pub(crate) unsafe fn gemm(&self, gemm: &Gemm) -> Result<()> {
        debug_assert_eq!(gemm.batch, Batch::ONE, "ways around a product are for one at a time");
        debug_assert!(
            !(gemm.accumulate && gemm.bias.is_some()),
            "a bias and what is there cannot both be the start"
        );
        if gemm.m == 0 || gemm.n == 0 {
            return Ok(());
        }
        if let Some(parts) = gemm.cut() {
            // SAFETY: both parts are within the matrices of the product, which the caller promises.
            return parts.iter().try_for_each(|part| unsafe { self.gemm(part) });
        }
        let Some(mut bias) = gemm.bias else {
            // SAFETY: the caller's promise.
            return unsafe { self.0.gemm(gemm, None) }.map(|_| ());
        };
        // Keeps the rounded bias alive until the product is launched.
        let mut rounded = None;
        if bias.dtype != gemm.out_dtype {
            let rounded = rounded.insert(self.uninitialised(gemm.n, gemm.out_dtype)?);
            // SAFETY: both vectors have `n` values.
            unsafe { self.round(bias.address, rounded) }?;
            bias = Bias { address: self.input(rounded, gemm.out_dtype)?, dtype: gemm.out_dtype };
        }
        // SAFETY: the bias has `n` values of the output's type; the rest is the caller's promise.
        unsafe {
            if self.0.gemm(&Gemm { bias: Some(bias), ..*gemm }, None)? {
                return Ok(());
            }
            // If the library has no product with a bias, the bias is written to every row of the output and
            // the product is added to it.
            self.spread(bias.address, gemm)?;
            self.0.gemm(&Gemm { bias: None, accumulate: true, ..*gemm }, None).map(|_| ())
        }
    }

    /// Writes a bias of the output's type to each row of the output.
    ///
    /// # Safety
    /// The bias has `n` values, and the output is a matrix of the size that `gemm` gives.
    unsafe fn spread(&self, bias: Address, gemm: &Gemm) -> Result<()> {
        const KERNEL: Kernel = Kernel { op: "cuda", name: "spread_rows" };
        let count = gemm.m * gemm.n;
        let args = SpreadArgs {
            row: bias,
            out: gemm.out.address,
            count: count as i64,
            cols: gemm.n as i64,
            stride: gemm.out.stride as i64,
        };
        let blocks = count.div_ceil(256).min(MOST_BLOCKS);
        // SAFETY: the caller's promise.
        unsafe { self.launch(KERNEL, Some(gemm.out_dtype), Grid::of(blocks, 256), &args) }
    }

    /// Rounds the f32 values at `from` to the type of `to`, one for each element of `to`.
    ///
    /// # Safety
    /// `from` points to at least as many f32 values as `to` has elements.
    pub(crate) unsafe fn round(&self, from: Address, to: &Tensor) -> Result<()> {
        const KERNEL: Kernel = Kernel { op: "cuda", name: "round_values" };
        let dtype = to.dtype();
        let count = to.elem_count();
        let args = RoundArgs { from, to: self.output(to, dtype)?, count: count as i64 };
        let blocks = count.div_ceil(256).min(MOST_BLOCKS);
        // SAFETY: the caller promises `count` values, and `to` has as many.
        unsafe { self.launch(KERNEL, Some(dtype), Grid::of(blocks, 256), &args) }
    }
}

/// Most blocks of a launch; for larger sizes each thread processes several values.
const MOST_BLOCKS: usize = 4096;

/// Same layout as `RoundArgs` in `kernel.cu`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct RoundArgs {
    from: Address,
    to: Address,
    count: i64,
}

/// Same layout as `SpreadArgs` in `kernel.cu`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct SpreadArgs {
    row: Address,
    out: Address,
    count: i64,
    cols: i64,
    stride: i64,
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::described::Description;
    use super::*;

    /// The product of a linear map with a bias, in bf16: `[rows, 768] = [rows, 512] [768, 512]^T`.
    pub(in crate::cuda) fn forward(rows: usize) -> Gemm {
        Gemm {
            m: rows,
            n: 768,
            k: 512,
            a: Operand::rows(Address(1 << 20), 512),
            b: Operand::rows(Address(2 << 20), 512).transposed(),
            out: Operand::rows(Address(3 << 20), 768),
            dtype: DType::BF16,
            out_dtype: DType::BF16,
            accumulate: false,
            bias: Some(Bias { address: Address(4 << 20), dtype: DType::BF16 }),
            batch: Batch::ONE,
            varying: Varying::Rows,
        }
    }

    /// The product of the gradient of its weight: `[768, 512] = [rows, 768]^T [rows, 512]`.
    fn of_weight(rows: usize) -> Gemm {
        Gemm {
            m: 768,
            n: 512,
            k: rows,
            a: Operand::rows(Address(3 << 20), 768).transposed(),
            b: Operand::rows(Address(1 << 20), 512),
            out: Operand::rows(Address(2 << 20), 512),
            out_dtype: DType::F32,
            bias: None,
            varying: Varying::Depth,
            ..forward(rows)
        }
    }

    /// Three maps of one input, whose outputs are stored one after another.
    fn three(rows: usize) -> Gemm {
        let parameters = 768 * 512 + 768;
        let batch = Batch { count: 3, a: 0, b: parameters, out: rows * 768, vector: parameters };
        Gemm { batch, ..forward(rows) }
    }

    /// Twelve heads, which are columns of one matrix, and whose outputs are stored one after another.
    fn heads(rows: usize) -> Gemm {
        let batch = Batch { count: 12, a: 64, b: 64, out: rows * 512, vector: 0 };
        let out = Operand::rows(Address(3 << 20), 512);
        Gemm { n: 512, k: 64, out, bias: None, batch, ..forward(rows) }
    }

    fn key(gemm: &Gemm) -> String {
        Description::bucket_of(gemm, None).key(false)
    }

    #[test]
    fn all_numbers_of_rows_of_a_bucket_have_one_description() {
        for product in [forward, of_weight, three, heads] {
            let [first, second] = [BUCKET_ROWS, 2 * BUCKET_ROWS].map(|rows| key(&product(rows)));
            assert_ne!(first, second);
            assert!((1..=BUCKET_ROWS).all(|rows| key(&product(rows)) == first));
            assert!((BUCKET_ROWS + 1..=2 * BUCKET_ROWS).all(|rows| key(&product(rows)) == second));
            // The largest product of the bucket is described as it is.
            let largest = product(BUCKET_ROWS);
            assert_eq!(largest.in_bucket(), largest);
        }
    }

    #[test]
    fn everything_else_that_an_algorithm_depends_on_is_part_of_the_description() {
        type Change = fn(&mut Gemm);
        let changes: [(&str, Change); 9] = [
            ("width", |gemm| gemm.n -= 8),
            ("depth", |gemm| gemm.k -= 8),
            ("types", |gemm| gemm.dtype = DType::F16),
            ("output", |gemm| gemm.out_dtype = DType::F32),
            ("stride", |gemm| gemm.a.stride += 8),
            ("transposed", |gemm| gemm.b = gemm.b.transposed()),
            ("bias", |gemm| gemm.bias = None),
            ("beta", |gemm| gemm.accumulate = true),
            ("alignment", |gemm| gemm.a.address = gemm.a.address.plus(8)),
        ];
        let whole = key(&forward(50));
        for (what, change) in changes {
            let mut product = forward(50);
            change(&mut product);
            assert_ne!(key(&product), whole, "{what}");
        }
        assert_ne!(Description::bucket_of(&forward(50), None).key(true), whole, "TF32");
        // The second output of a batch begins at a multiple of 16 bytes, of 8, of 4 or of 2.
        let apart = |values: usize| {
            let batch = Batch { out: 50 * 768 + values, ..three(50).batch };
            key(&Gemm { batch, ..three(50) })
        };
        let keys = [8, 4, 2, 1].map(apart);
        assert!((1..4).all(|index| !keys[..index].contains(&keys[index])), "{keys:?}");
        assert_eq!(apart(24), keys[0], "the distance itself does not count");
    }

    /// With widths that no product has, the library would choose kernels that cannot compute the exact ones.
    #[test]
    fn only_numbers_of_stored_rows_are_rounded() {
        let columns = Gemm { a: Operand::rows(Address(1 << 20), 50).transposed(), ..forward(50) };
        let depth = Gemm { varying: Varying::Depth, k: 50, ..forward(50) };
        let fixed = Gemm { varying: Varying::Nothing, ..forward(50) };
        for product in [columns, depth, fixed] {
            assert_eq!(product.in_bucket(), product);
        }
    }

    #[test]
    fn the_description_of_a_bucket_is_one_line_that_a_reader_of_the_file_understands() {
        assert_eq!(
            key(&three(50)),
            "bf16[512x768/512 +393984]^T * bf16[512x128/512 +0] = bf16[768x128/768 +98304] bias bf16 +393984 \
             beta 0 batch 3 aligned 256 256 256 256 workspace 33554432"
        );
    }
}
