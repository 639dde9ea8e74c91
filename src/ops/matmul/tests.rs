//! Products of every type and layout against sums in f64: odd sizes, several terms, windows, bias,
//! accumulation, threads.

use half::bf16;
use half::f16;

use crate::element::Element;
use crate::element::rounding;
use crate::matmul::cpu::Code;
use crate::matmul::cpu::Matrix;
use crate::matmul::cpu::Output;
use crate::matmul::cpu::Term;
use crate::matmul::cpu::sum_by;
use base::rng::Purpose;
use base::rng::Stream;

fn values<T: Element>(count: usize, id: u64) -> Vec<T> {
    let stream = Stream::new(7, Purpose::Test, id);
    (0..count).map(|i| T::narrow(stream.normal(i as u64) as f32)).collect()
}

/// How an operand lies in memory.
#[derive(Debug, Clone, Copy)]
enum Lay {
    Rows,
    Columns,
    /// Rows of a wider matrix.
    Window,
    /// Each row begins at a cache line.
    Lines,
}

struct Operand<T> {
    data: Vec<T>,
    lay: Lay,
    rows: usize,
    cols: usize,
    /// Where (0, 0) lies.
    first: usize,
    /// Distance between rows, or of columns where they are side by side.
    stride: usize,
}

impl<T: Element> Operand<T> {
    fn new(rows: usize, cols: usize, lay: Lay, id: u64) -> Self {
        let line = 64 / size_of::<T>();
        let (lines, stride) = match lay {
            Lay::Rows => (rows, cols),
            Lay::Columns => (cols, rows),
            Lay::Window => (rows, cols + 3),
            Lay::Lines => (rows, cols.next_multiple_of(line)),
        };
        let mut data: Vec<T> = values(lines * stride + line, id);
        let first = match lay {
            Lay::Rows | Lay::Columns => 0,
            Lay::Window => 1,
            Lay::Lines => data.as_ptr().align_offset(64),
        };
        // The same values wherever the first one lies.
        data.rotate_right(first);
        Self { data, lay, rows, cols, first, stride }
    }

    fn matrix(&self) -> Matrix<T> {
        match self.lay {
            Lay::Columns => Matrix::rows(&self.data, self.rows).transposed(),
            // SAFETY: the vector was made for it.
            _ => unsafe { Matrix::window(self.data.as_ptr(), self.first, self.stride) },
        }
    }

    fn at(&self, row: usize, col: usize) -> f64 {
        let index = if matches!(self.lay, Lay::Columns) {
            col * self.stride + row
        } else {
            self.first + row * self.stride + col
        };
        f64::from(self.data[index].widen())
    }
}

/// One product of random operands against f64, into `O`, by all code that this machine has for it; gives the
/// bits that came out. Both widths of multiply-adds give the same.
fn check<T: Element, O: Element>(
    shape: (usize, usize),
    depths: &[usize],
    lays: (Lay, Lay),
    start: Start,
) -> Vec<Vec<u32>> {
    let codes: Vec<Code> = Code::available(T::DTYPE).collect();
    let bits: Vec<Vec<u32>> =
        codes.iter().map(|&code| check_one::<T, O>(code, shape, depths, lays, start)).collect();
    let of = |code: Code| codes.iter().position(|&other| other == code).map(|index| &bits[index]);
    if let (Some(wide), Some(narrow)) = (of(Code::Fma512), of(Code::Fma256)) {
        let differ = wide.iter().zip(narrow).position(|(wide, narrow)| wide != narrow);
        let types = (T::DTYPE, O::DTYPE);
        assert!(
            differ.is_none(),
            "{shape:?} of {depths:?} {lays:?} {types:?}: AVX-512 and AVX2 differ at {differ:?}"
        );
    }
    bits
}

fn check_one<T: Element, O: Element>(
    code: Code,
    (m, n): (usize, usize),
    depths: &[usize],
    lays: (Lay, Lay),
    start: Start,
) -> Vec<u32> {
    let terms: Vec<(Operand<T>, Operand<T>)> = (0..)
        .zip(depths)
        .map(|(i, &depth)| (Operand::new(m, depth, lays.0, 10 + i), Operand::new(depth, n, lays.1, 20 + i)))
        .collect();
    let (stride, scale) = (n + 2, 0.5f32);
    let (before, bias): (Vec<O>, Vec<f32>) = (values(m * stride, 1), values(n, 2));
    let mut out = before.clone();
    let target = Output {
        data: out.as_mut_ptr(),
        row_stride: stride,
        accumulate: matches!(start, Start::There),
        bias: matches!(start, Start::Bias).then_some(bias.as_slice()),
    };
    let products: Vec<Term<T>> =
        terms.iter().map(|(a, b)| Term { a: a.matrix(), b: b.matrix(), depth: a.cols }).collect();
    // SAFETY: operands and output were made with these extents; the code is available.
    unsafe { sum_by(code, (m, n), target, &products, scale, true) };
    let (mut error, mut size) = (0.0, 0.0);
    for row in 0..m {
        for col in 0..stride {
            let (got, was) =
                (f64::from(out[row * stride + col].widen()), f64::from(before[row * stride + col].widen()));
            if col >= n {
                assert_eq!(got.to_bits(), was.to_bits(), "written beyond the last column");
                continue;
            }
            let sum: f64 = terms
                .iter()
                .map(|(a, b)| (0..a.cols).map(|k| a.at(row, k) * b.at(k, col)).sum::<f64>())
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
        "{m}x{n} of {depths:?}, {lays:?} {start:?} {:?} to {:?} by {code:?}: {:e} of {:e}",
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

fn check_types(shape: (usize, usize), depths: &[usize], lays: (Lay, Lay), start: Start) {
    check::<f32, f32>(shape, depths, lays, start);
    check::<bf16, f32>(shape, depths, lays, start);
    check::<bf16, bf16>(shape, depths, lays, start);
    check::<f16, f32>(shape, depths, lays, start);
    check::<f16, f16>(shape, depths, lays, start);
}

#[test]
fn every_layout_and_start_of_odd_sizes_is_the_sum() {
    let sizes = [(1, 1), (1, 70), (13, 33), (25, 16), (12, 32), (40, 100)];
    for (shape, depths) in
        sizes.into_iter().zip([&[1usize] as &[_], &[7], &[64], &[33, 2, 65], &[128, 128, 128], &[97]])
    {
        for a in [Lay::Rows, Lay::Columns, Lay::Window] {
            for b in [Lay::Rows, Lay::Columns, Lay::Window] {
                for start in [Start::Nothing, Start::There, Start::Bias] {
                    check_types(shape, depths, (a, b), start);
                }
            }
        }
    }
}

/// Rows that begin at cache lines are read in place by some code, whatever their number.
#[test]
fn rows_at_cache_lines_and_every_number_of_them() {
    for rows in (1..=33).chain([64, 65, 79, 80, 81, 95]) {
        check_types((rows, 40), &[96], (Lay::Lines, Lay::Columns), Start::Bias);
        check_types((rows, 33), &[32, 64], (Lay::Lines, Lay::Rows), Start::There);
    }
}

/// Sizes beyond one task and one piece of the depth.
#[test]
fn large_products_are_cut_and_put_together_again() {
    for (shape, depths) in [((525, 9), &[1100usize] as &[_]), ((5, 790), &[1030, 31]), ((3, 5), &[5000])] {
        for lays in [(Lay::Rows, Lay::Columns), (Lay::Columns, Lay::Rows), (Lay::Rows, Lay::Rows)] {
            check_types(shape, depths, lays, Start::There);
            check_types(shape, depths, lays, Start::Bias);
        }
    }
}

#[test]
fn without_depth_only_the_start_remains() {
    check_types((3, 4), &[0], (Lay::Rows, Lay::Rows), Start::Nothing);
    check_types((3, 4), &[0], (Lay::Rows, Lay::Rows), Start::There);
    check_types((3, 4), &[0], (Lay::Rows, Lay::Rows), Start::Bias);
    check_types((0, 4), &[2], (Lay::Rows, Lay::Rows), Start::Bias);
}

#[test]
fn the_number_of_threads_does_not_change_a_bit() {
    let run = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let lays = (Lay::Columns, Lay::Rows);
            [
                check::<bf16, f32>((100, 70), &[1500], lays, Start::There),
                check::<bf16, bf16>((100, 70), &[1500], lays, Start::Bias),
                check::<f16, f16>((100, 70), &[1500], lays, Start::Nothing),
                // Rows in place but for the last piece of the depth.
                check::<bf16, bf16>((14, 100), &[9731], (Lay::Rows, Lay::Rows), Start::Bias),
            ]
        })
    };
    let one = run(1);
    assert!([2, 3, 7].into_iter().all(|threads| run(threads) == one));
}
