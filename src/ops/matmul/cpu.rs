//! `C = C * keep + scale * A B` on the CPU for any strides.

/// A matrix in memory that somebody else owns: element (r, c) lies at `data[r * row_stride + c * col_stride]`.
#[derive(Debug, Clone, Copy)]
pub struct Matrix {
    data: *const f32,
    row_stride: usize,
    col_stride: usize,
}

impl Matrix {
    /// A row-major `[rows, cols]` matrix that fills `data`.
    pub fn rows(data: &[f32], cols: usize) -> Self {
        Self { data: data.as_ptr(), row_stride: cols, col_stride: 1 }
    }

    /// A window of a row-major matrix: starts at `offset`, rows are `row_stride` apart.
    ///
    /// # Safety
    /// Every element that a product reads through it must lie inside one live allocation.
    pub unsafe fn window(data: *const f32, offset: usize, row_stride: usize) -> Self {
        // SAFETY: the caller promises that the window lies inside the allocation.
        Self { data: unsafe { data.add(offset) }, row_stride, col_stride: 1 }
    }

    /// The transpose: no data moves.
    #[must_use]
    pub fn transposed(self) -> Self {
        Self { data: self.data, row_stride: self.col_stride, col_stride: self.row_stride }
    }
}

/// Where a product goes: row-major, rows `row_stride` apart.
#[derive(Debug, Clone, Copy)]
pub struct Output {
    /// First element.
    pub data: *mut f32,
    /// Distance between rows in elements.
    pub row_stride: usize,
    /// Add to what is there instead of overwriting it.
    pub accumulate: bool,
}

/// `out[m, n] (+)= scale * a[m, k] b[k, n]`.
///
/// # Safety
/// `a`, `b` and `out` must cover `[m, k]`, `[k, n]` and `[m, n]`; nothing else may touch `out` meanwhile.
pub unsafe fn product(shape: (usize, usize, usize), out: Output, a: Matrix, b: Matrix, scale: f32, parallel: bool) {
    let (m, n, k) = shape;
    let parallelism = if parallel { gemm::Parallelism::Rayon(0) } else { gemm::Parallelism::None };
    // SAFETY: the caller promises the extents; gemm reads and writes nothing outside them.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            out.data,
            1,
            out.row_stride as isize,
            out.accumulate,
            a.data,
            a.col_stride as isize,
            a.row_stride as isize,
            b.data,
            b.col_stride as isize,
            b.row_stride as isize,
            1.0f32,
            scale,
            false,
            false,
            false,
            parallelism,
        );
    }
}
