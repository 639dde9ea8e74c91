//! The measuring loops: chains of multiply-adds that stay in registers, and the triad `a = b + s c` over
//! memory.

use std::hint::black_box;
use std::time::{Duration, Instant};

use candle_core::DType;
use pulp::{Simd, WithSimd};
use rayon::prelude::*;

#[cfg(target_arch = "x86_64")]
use crate::matmul::cpu::amx;
use crate::matmul::cpu::is_native;
use crate::simd::kernel;
use base::instructions;
#[cfg(target_arch = "x86_64")]
use base::instructions::Instructions;

/// Number of independent sums: more than latency times throughput of any multiplier, few enough for 16
/// registers.
const CHAINS: usize = 12;

/// Minimal duration of a run, so that the time to wake the threads is negligible.
const RUN: Duration = Duration::from_millis(20);

/// Number of runs, of which the fastest counts: other programs on the machine can only make a run slower.
const RUNS: usize = 5;

/// Number of f32 values in each of the three arrays of the triad.
const TRIAD_VALUES: usize = (256 << 20) / 3 / size_of::<f32>();

/// Number of values of one task of the triad.
const TRIAD_BLOCK: usize = 1 << 16;

pub(super) fn flops_per_second(dtype: DType) -> f64 {
    if dtype == DType::BF16 && is_native(dtype) { best_flops(bf16_chains) } else { best_flops(f32_chains) }
}

/// The best measured operations per second. `chains(rounds)` runs on every thread and returns the number of
/// operations that it did on that thread.
fn best_flops(chains: fn(usize) -> f64) -> f64 {
    let mut rounds = 1 << 12;
    while run_on_all_threads(chains, rounds).1 < RUN && rounds < 1 << 40 {
        rounds *= 2;
    }
    let runs = (0..RUNS).map(|_| run_on_all_threads(chains, rounds));
    runs.map(|(flops, took)| flops / took.as_secs_f64()).fold(0.0, f64::max)
}

/// The number of operations on all threads, and the time that they took.
fn run_on_all_threads(chains: fn(usize) -> f64, rounds: usize) -> (f64, Duration) {
    let start = Instant::now();
    let flops: f64 = rayon::broadcast(|_| chains(rounds)).iter().sum();
    (flops, start.elapsed())
}

fn f32_chains(rounds: usize) -> f64 {
    instructions::arch().dispatch(F32Chains { rounds })
}

struct F32Chains {
    rounds: usize,
}

impl WithSimd for F32Chains {
    type Output = f64;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> f64 {
        // Factor and addend keep the sums near one: subnormal and infinite values may take longer.
        let (factor, addend) = (simd.splat_f32s(0.5), simd.splat_f32s(black_box(0.5)));
        let mut sums = [simd.splat_f32s(black_box(1.0)); CHAINS];
        for _ in 0..self.rounds {
            for sum in &mut sums {
                *sum = simd.mul_add_e_f32s(*sum, factor, addend);
            }
        }
        for sum in sums {
            black_box(simd.reduce_sum_f32s(sum));
        }
        2.0 * (self.rounds * CHAINS * S::F32_LANES) as f64
    }
}

fn bf16_chains(rounds: usize) -> f64 {
    #[cfg(target_arch = "x86_64")]
    match instructions::in_use() {
        // SAFETY: `in_use` returns only instructions that the machine has.
        Instructions::Amx => return unsafe { amx::chains(rounds) },
        // SAFETY: as above.
        Instructions::Avx512Bf16 => return unsafe { avx512_bf16_chains(rounds) },
        _ => {}
    }
    f32_chains(rounds)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bf16")]
fn avx512_bf16_chains(rounds: usize) -> f64 {
    use std::arch::x86_64::{_mm512_cvtne2ps_pbh, _mm512_dpbf16_ps, _mm512_reduce_add_ps, _mm512_set1_ps};
    /// Operations of one instruction, which adds 32 products to 16 sums.
    const FLOPS: usize = 64;
    let value = _mm512_set1_ps(black_box(0.001));
    let pairs = _mm512_cvtne2ps_pbh(value, value);
    let mut sums = [_mm512_set1_ps(black_box(1.0)); CHAINS];
    for _ in 0..rounds {
        for sum in &mut sums {
            *sum = _mm512_dpbf16_ps(*sum, pairs, pairs);
        }
    }
    for sum in sums {
        black_box(_mm512_reduce_add_ps(sum));
    }
    (rounds * CHAINS * FLOPS) as f64
}

pub(super) fn bytes_per_second() -> f64 {
    let [mut a, b, c] = [0.0, 1.0, 2.0].map(|value| {
        (0..TRIAD_VALUES).into_par_iter().with_min_len(TRIAD_BLOCK).map(|_| value).collect::<Vec<f32>>()
    });
    let mut best = 0.0f64;
    for _ in 0..RUNS {
        let start = Instant::now();
        let blocks =
            a.par_chunks_mut(TRIAD_BLOCK).zip(b.par_chunks(TRIAD_BLOCK)).zip(c.par_chunks(TRIAD_BLOCK));
        blocks.for_each(|((a, b), c)| triad(a, b, c, 0.5));
        best = best.max((3 * size_of_val(a.as_slice())) as f64 / start.elapsed().as_secs_f64());
    }
    black_box(&a);
    best
}

kernel! {
    fn triad(a: &mut [f32], b: &[f32], c: &[f32], s: f32) {
        for ((a, b), c) in a.iter_mut().zip(b).zip(c) {
            *a = c.mul_add(s, *b);
        }
    }
}
