//! Operands and output of a product on the CPU, and the choice of its implementation.

#[cfg(target_arch = "x86_64")]
pub(crate) mod amx;
#[cfg(target_arch = "x86_64")]
mod amx_bf16;
#[cfg(target_arch = "x86_64")]
mod avx512_bf16;
mod blocked;
#[cfg(target_arch = "x86_64")]
mod fma;
#[cfg(target_arch = "x86_64")]
mod lanes;
mod packing;
#[cfg(target_arch = "x86_64")]
mod pairs;
mod single;
mod target;
mod tile_kernel;
mod widened;

use std::mem::MaybeUninit;

use candle_core::DType;

use crate::element::Element;
use base::instructions;
use base::instructions::Instructions;

/// Borrowed matrix: element (r, c) is stored at `data[r * row_stride + c * col_stride]`.
#[derive(Debug, Clone, Copy)]
pub struct Matrix<T> {
    data: *const T,
    row_stride: usize,
    col_stride: usize,
}

impl<T: Element> Matrix<T> {
    /// Returns a row-major `[rows, cols]` matrix that fills `data`.
    pub fn rows(data: &[T], cols: usize) -> Self {
        Self { data: data.as_ptr(), row_stride: cols, col_stride: 1 }
    }

    /// Returns a window of a row-major matrix: it starts at `offset`, and its rows are `row_stride` elements
    /// apart.
    ///
    /// # Safety
    /// Every element that a product reads through the window must be inside one live allocation.
    pub unsafe fn window(data: *const T, offset: usize, row_stride: usize) -> Self {
        // SAFETY: the caller promises that the window is inside the allocation.
        Self { data: unsafe { data.add(offset) }, row_stride, col_stride: 1 }
    }

    /// Returns the transpose; no data moves.
    #[must_use]
    pub fn transposed(self) -> Self {
        Self { data: self.data, row_stride: self.col_stride, col_stride: self.row_stride }
    }

    /// Returns the part of the matrix that begins at (row, col).
    ///
    /// # Safety
    /// The element (row, col) must be inside the matrix.
    pub(crate) unsafe fn from(self, row: usize, col: usize) -> Self {
        // SAFETY: the caller promises that the element exists.
        Self { data: unsafe { self.data.add(row * self.row_stride + col * self.col_stride) }, ..self }
    }
}

// SAFETY: a `Matrix` is only read; the caller of a product promises that its elements are not written while
// the product runs.
unsafe impl<T: Element> Send for Matrix<T> {}
// SAFETY: as above.
unsafe impl<T: Element> Sync for Matrix<T> {}

/// Output of a product: row-major, with rows `row_stride` elements apart.
#[derive(Debug, Clone, Copy)]
pub struct Output<'a, O> {
    /// Address of the first element.
    pub data: *mut O,
    /// Distance between rows, in elements.
    pub row_stride: usize,
    /// If true, the product is added to the previous values instead of overwriting them.
    pub accumulate: bool,
    /// Bias `[n]` added to each row; not together with `accumulate`.
    pub bias: Option<&'a [f32]>,
}

impl<O: Element> Output<'_, O> {
    /// Returns a row-major output with rows of `cols` values that is overwritten.
    pub fn rows(data: *mut O, cols: usize) -> Self {
        Self { data, row_stride: cols, accumulate: false, bias: None }
    }

    /// Returns [`Output::rows`] for uninitialised memory.
    pub fn unwritten(room: &mut [MaybeUninit<O>], cols: usize) -> Self {
        Self::rows(room.as_mut_ptr().cast(), cols)
    }

    /// Returns the same output, to which the product is added.
    #[must_use]
    pub fn accumulating(self) -> Self {
        Self { accumulate: true, ..self }
    }
}

// SAFETY: the tasks of a product write disjoint parts of its output, and the caller promises that nothing
// else accesses it.
unsafe impl<O: Element> Send for Output<'_, O> {}
// SAFETY: as above.
unsafe impl<O: Element> Sync for Output<'_, O> {}

/// Summand of a product: `a [m, depth]` times `b [depth, n]`.
#[derive(Debug, Clone, Copy)]
pub struct Term<T> {
    /// Left operand.
    pub a: Matrix<T>,
    /// Right operand.
    pub b: Matrix<T>,
    /// Size of the dimension that is summed over.
    pub depth: usize,
}

/// Implementations of products.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Code {
    /// AMX, for bf16.
    Amx,
    /// AVX-512-BF16, for bf16.
    Avx512Bf16,
    /// The `gemm` crate, for f32: it uses the widest vectors of the machine, and this cannot be disabled.
    Gemm,
    /// Multiply-adds of f32 by AVX-512, for every type.
    Fma512,
    /// Multiply-adds of f32 by AVX2, for every type.
    Fma256,
    /// Plain loops for half types on every machine: operands are converted to f32 while they are packed.
    Widened,
}

impl Code {
    /// All implementations, the fastest first.
    const ALL: [Self; 6] =
        [Self::Amx, Self::Avx512Bf16, Self::Gemm, Self::Fma512, Self::Fma256, Self::Widened];

    /// Returns the implementations that this machine can use for a type, the fastest first.
    pub(super) fn available(dtype: DType) -> impl Iterator<Item = Self> {
        let in_use = instructions::in_use();
        let is_single = dtype == DType::F32;
        Self::ALL.into_iter().filter(move |code| match code {
            Self::Amx => dtype == DType::BF16 && in_use >= Instructions::Amx,
            Self::Avx512Bf16 => dtype == DType::BF16 && in_use >= Instructions::Avx512Bf16,
            Self::Gemm => is_single && in_use != Instructions::Avx2,
            Self::Fma512 => in_use >= Instructions::Avx512,
            Self::Fma256 => in_use >= Instructions::Avx2,
            Self::Widened => !is_single,
        })
    }

    fn fastest(dtype: DType) -> Self {
        Self::available(dtype).next().expect("there is code for every machine")
    }
}

/// The best instructions that products of this type may use. Only bf16 has special ones; products of other
/// types use at most AVX-512.
pub fn instructions_for(dtype: DType) -> Instructions {
    let in_use = instructions::in_use();
    if dtype == DType::BF16 { in_use } else { in_use.min(Instructions::Avx512) }
}

/// Returns true if products of this type run on instructions made for it. Otherwise they are converted to f32
/// and run at most at the speed of f32.
pub fn is_native(dtype: DType) -> bool {
    dtype == DType::F32 || matches!(Code::fastest(dtype), Code::Amx | Code::Avx512Bf16)
}

/// Computes `out[m, n] (+)= scale * a[m, depth] b[depth, n] (+ bias)`.
///
/// # Safety
/// `a`, `b` and `out` must cover `[m, depth]`, `[depth, n]` and `[m, n]`, and nothing else may access `out`
/// while the product runs. All of `[m, n]` is written; it must be initialised before only if `accumulate` is
/// set.
pub unsafe fn product<T: Element, O: Element>(
    (m, n, depth): (usize, usize, usize),
    out: Output<'_, O>,
    a: Matrix<T>,
    b: Matrix<T>,
    scale: f32,
    parallel: bool,
) {
    // SAFETY: the caller's promise is that of `sum_of_products`.
    unsafe { sum_of_products((m, n), out, &[Term { a, b, depth }], scale, parallel) }
}

/// Computes `out[m, n] (+)= scale * sum of the terms (+ bias)`: the terms are summed in f32 and rounded once.
///
/// # Safety
/// Each term's operands must cover `[m, depth]` and `[depth, n]`, `out` must cover `[m, n]`, and nothing else
/// may access `out` while the product runs. `O` is f32 or `T`.
pub unsafe fn sum_of_products<T: Element, O: Element>(
    (m, n): (usize, usize),
    out: Output<'_, O>,
    terms: &[Term<T>],
    scale: f32,
    parallel: bool,
) {
    debug_assert!(
        !(out.accumulate && out.bias.is_some()),
        "a bias and what is there cannot both be the start"
    );
    // SAFETY: this machine can run the implementation; the caller promises the extents.
    unsafe { sum_by(Code::fastest(T::DTYPE), m, n, out, terms, scale, parallel) }
}

/// Computes [`sum_of_products`] with the given implementation.
///
/// # Safety
/// As [`sum_of_products`], and `code` must be available for `T` on this machine.
pub(super) unsafe fn sum_by<T: Element, O: Element>(
    code: Code,
    m: usize,
    n: usize,
    out: Output<'_, O>,
    terms: &[Term<T>],
    scale: f32,
    parallel: bool,
) {
    // SAFETY: the caller's promise. An implementation for bf16 alone is available only if `T` is bf16, and
    // one for f32 alone only if `T`, and thus `O`, is f32.
    unsafe {
        match code {
            #[cfg(target_arch = "x86_64")]
            Code::Amx => {
                blocked::run::<amx_bf16::Kernel, O>(m, n, out, &cast_terms(terms), scale, parallel);
            }
            #[cfg(target_arch = "x86_64")]
            Code::Avx512Bf16 => {
                blocked::run::<avx512_bf16::Kernel, O>(m, n, out, &cast_terms(terms), scale, parallel);
            }
            #[cfg(target_arch = "x86_64")]
            Code::Fma512 => {
                blocked::run::<fma::Kernel<pulp::x86::V4, T>, O>(m, n, out, terms, scale, parallel);
            }
            #[cfg(target_arch = "x86_64")]
            Code::Fma256 => {
                blocked::run::<fma::Kernel<pulp::x86::V3, T>, O>(m, n, out, terms, scale, parallel);
            }
            Code::Gemm => single::sum_of_products(m, n, cast_output(out), terms, scale, parallel),
            _ => blocked::run::<widened::Kernel<T>, O>(m, n, out, terms, scale, parallel),
        }
    }
}

/// Casts a matrix to the type that `T` is known to be.
fn cast_matrix<T: Element, U: Element>(matrix: Matrix<T>) -> Matrix<U> {
    Matrix { data: matrix.data.cast(), row_stride: matrix.row_stride, col_stride: matrix.col_stride }
}

fn cast_term<T: Element, U: Element>(term: &Term<T>) -> Term<U> {
    Term { a: cast_matrix(term.a), b: cast_matrix(term.b), depth: term.depth }
}

#[cfg(target_arch = "x86_64")]
fn cast_terms<T: Element, U: Element>(terms: &[Term<T>]) -> Vec<Term<U>> {
    terms.iter().map(cast_term).collect()
}

fn cast_output<O: Element, U: Element>(out: Output<'_, O>) -> Output<'_, U> {
    Output { data: out.data.cast(), row_stride: out.row_stride, accumulate: out.accumulate, bias: out.bias }
}
