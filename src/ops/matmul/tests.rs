//! Tests of products of every type and layout against sums in f64: odd sizes, several terms, windows, bias,
//! accumulation, threads.

use half::{bf16, f16};

use crate::element::{Element, rounding};
use crate::matmul::cpu::{Code, Matrix, Output, Term, sum_by};
use base::rng::{Purpose, Stream};

fn values<T: Element>(count: usize, id: u64) -> Vec<T> {
    let stream = Stream::new(7, Purpose::Test, id);
    (0..count).map(|i| T::narrow(stream.normal(i as u64) as f32)).collect()
}

/// Memory layout of an operand.
#[derive(Debug, Clone, Copy)]
enum Layout {
    Rows,
    Columns,
    /// Rows of a wider matrix.
    Window,
    /// Each row begins at a cache line.
    Lines,
}

struct Operand<T> {
    data: Vec<T>,
    layout: Layout,
    rows: usize,
    cols: usize,
    /// Index of element (0, 0).
    first: usize,
    /// Distance between rows, or between columns if the layout is by columns.
    stride: usize,
}

impl<T: Element> Operand<T> {
    fn new(rows: usize, cols: usize, layout: Layout, id: u64) -> Self {
        let line = 64 / size_of::<T>();
        let (lines, stride) = match layout {
            Layout::Rows => (rows, cols),
            Layout::Columns => (cols, rows),
            Layout::Window => (rows, cols + 3),
            Layout::Lines => (rows, cols.next_multiple_of(line)),
        };
        let mut data: Vec<T> = values(lines * stride + line, id);
        let first = match layout {
            Layout::Rows | Layout::Columns => 0,
            Layout::Window => 1,
            Layout::Lines => data.as_ptr().align_offset(64),
        };
        // The values are the same wherever the first one is stored.
        data.rotate_right(first);
        Self { data, layout, rows, cols, first, stride }
    }

    fn matrix(&self) -> Matrix<T> {
        match self.layout {
            Layout::Columns => Matrix::rows(&self.data, self.rows).transposed(),
            // SAFETY: the vector was allocated for this window.
            _ => unsafe { Matrix::window(self.data.as_ptr(), self.first, self.stride) },
        }
    }

    fn value(&self, row: usize, col: usize) -> f64 {
        let index = if matches!(self.layout, Layout::Columns) {
            col * self.stride + row
        } else {
            self.first + row * self.stride + col
        };
        f64::from(self.data[index].widen())
    }
}

/// Compares one product of random operands, with output type `O`, against f64, for every implementation that
/// this machine can run. Returns the bits of the outputs. The AVX-512 and AVX2 multiply-adds must give the
/// same bits.
fn check<T: Element, O: Element>(
    shape: (usize, usize),
    depths: &[usize],
    layouts: (Layout, Layout),
    start: Start,
) -> Vec<Vec<u32>> {
    let codes: Vec<Code> = Code::available(T::DTYPE).collect();
    let bits: Vec<Vec<u32>> =
        codes.iter().map(|&code| check_one::<T, O>(code, shape, depths, layouts, start)).collect();
    let wide = codes.iter().position(|&code| code == Code::Fma512);
    let narrow = codes.iter().position(|&code| code == Code::Fma256);
    if let (Some(wide), Some(narrow)) = (wide, narrow) {
        let differ = bits[wide].iter().zip(&bits[narrow]).position(|(wide, narrow)| wide != narrow);
        let types = (T::DTYPE, O::DTYPE);
        assert!(
            differ.is_none(),
            "{shape:?} of {depths:?} {layouts:?} {types:?}: AVX-512 and AVX2 differ at {differ:?}"
        );
    }
    bits
}

fn check_one<T: Element, O: Element>(
    code: Code,
    shape: (usize, usize),
    depths: &[usize],
    layouts: (Layout, Layout),
    start: Start,
) -> Vec<u32> {
    let (m, n) = shape;
    let terms: Vec<(Operand<T>, Operand<T>)> = (0..)
        .zip(depths)
        .map(|(i, &depth)| {
            (Operand::new(m, depth, layouts.0, 10 + i), Operand::new(depth, n, layouts.1, 20 + i))
        })
        .collect();
    let stride = n + 2;
    let scale = 0.5f32;
    let before: Vec<O> = values(m * stride, 1);
    let bias: Vec<f32> = values(n, 2);
    let mut out = before.clone();
    let target = Output {
        data: out.as_mut_ptr(),
        row_stride: stride,
        accumulate: matches!(start, Start::There),
        bias: matches!(start, Start::Bias).then_some(bias.as_slice()),
    };
    let products: Vec<Term<T>> =
        terms.iter().map(|(a, b)| Term { a: a.matrix(), b: b.matrix(), depth: a.cols }).collect();
    // SAFETY: operands and output were made with these extents, and the implementation is available.
    unsafe { sum_by(code, m, n, target, &products, scale, true) };
    let mut error: f64 = 0.0;
    let mut size: f64 = 0.0;
    for row in 0..m {
        for col in 0..stride {
            let got = f64::from(out[row * stride + col].widen());
            let was = f64::from(before[row * stride + col].widen());
            if col >= n {
                assert_eq!(got.to_bits(), was.to_bits(), "written beyond the last column");
                continue;
            }
            let sum: f64 = terms
                .iter()
                .map(|(a, b)| (0..a.cols).map(|k| a.value(row, k) * b.value(k, col)).sum::<f64>())
                .sum();
            let want = sum * f64::from(scale)
                + match start {
                    Start::Nothing => 0.0,
                    Start::There => was,
                    Start::Bias => f64::from(bias[col]),
                };
            error += (got - want).powi(2);
            size += want.powi(2);
        }
    }
    let tolerance = 1e-6 + rounding(O::DTYPE);
    assert!(
        error.sqrt() <= tolerance * size.sqrt().max(1e-3),
        "{m}x{n} of {depths:?}, {layouts:?} {start:?} {:?} to {:?} by {code:?}: {:e} of {:e}",
        T::DTYPE,
        O::DTYPE,
        error.sqrt(),
        size.sqrt()
    );
    out.iter().map(|v| v.widen().to_bits()).collect()
}

#[derive(Debug, Clone, Copy)]
enum Start {
    Nothing,
    There,
    Bias,
}

fn check_types(shape: (usize, usize), depths: &[usize], layouts: (Layout, Layout), start: Start) {
    check::<f32, f32>(shape, depths, layouts, start);
    check::<bf16, f32>(shape, depths, layouts, start);
    check::<bf16, bf16>(shape, depths, layouts, start);
    check::<f16, f32>(shape, depths, layouts, start);
    check::<f16, f16>(shape, depths, layouts, start);
}

#[test]
fn every_layout_and_start_of_odd_sizes_is_the_sum() {
    let sizes = [(1, 1), (1, 70), (13, 33), (25, 16), (12, 32), (40, 100)];
    for (shape, depths) in
        sizes.into_iter().zip([&[1usize] as &[_], &[7], &[64], &[33, 2, 65], &[128, 128, 128], &[97]])
    {
        for a in [Layout::Rows, Layout::Columns, Layout::Window] {
            for b in [Layout::Rows, Layout::Columns, Layout::Window] {
                for start in [Start::Nothing, Start::There, Start::Bias] {
                    check_types(shape, depths, (a, b), start);
                }
            }
        }
    }
}

/// Rows that begin at cache lines are read in place by some implementations, whatever their number.
#[test]
fn rows_at_cache_lines_and_every_number_of_them() {
    for rows in (1..=33).chain([64, 65, 79, 80, 81, 95]) {
        check_types((rows, 40), &[96], (Layout::Lines, Layout::Columns), Start::Bias);
        check_types((rows, 33), &[32, 64], (Layout::Lines, Layout::Rows), Start::There);
    }
}

/// Sizes larger than one task and one piece of the depth.
#[test]
fn large_products_are_cut_and_put_together_again() {
    for (shape, depths) in [((525, 9), &[1100usize] as &[_]), ((5, 790), &[1030, 31]), ((3, 5), &[5000])] {
        for layouts in
            [(Layout::Rows, Layout::Columns), (Layout::Columns, Layout::Rows), (Layout::Rows, Layout::Rows)]
        {
            check_types(shape, depths, layouts, Start::There);
            check_types(shape, depths, layouts, Start::Bias);
        }
    }
}

#[test]
fn without_depth_only_the_start_remains() {
    check_types((3, 4), &[0], (Layout::Rows, Layout::Rows), Start::Nothing);
    check_types((3, 4), &[0], (Layout::Rows, Layout::Rows), Start::There);
    check_types((3, 4), &[0], (Layout::Rows, Layout::Rows), Start::Bias);
    check_types((0, 4), &[2], (Layout::Rows, Layout::Rows), Start::Bias);
}

#[test]
fn the_number_of_threads_does_not_change_a_bit() {
    let one = bits_by_threads(1);
    assert!([2, 3, 7].into_iter().all(|threads| bits_by_threads(threads) == one));
}

/// Bits of several products, computed by this number of threads.
fn bits_by_threads(threads: usize) -> [Vec<Vec<u32>>; 4] {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    pool.install(|| {
        let layouts = (Layout::Columns, Layout::Rows);
        [
            check::<bf16, f32>((100, 70), &[1500], layouts, Start::There),
            check::<bf16, bf16>((100, 70), &[1500], layouts, Start::Bias),
            check::<f16, f16>((100, 70), &[1500], layouts, Start::Nothing),
            // Rows are read in place except in the last piece of the depth.
            check::<bf16, bf16>((14, 100), &[9731], (Layout::Rows, Layout::Rows), Start::Bias),
        ]
    })
}
