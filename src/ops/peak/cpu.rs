//! The loops: chains of multiply-adds that never leave the registers, and the triad.

use std::hint::black_box;
use std::time::Duration;
use std::time::Instant;

use candle_core::DType;
use pulp::Simd;
use pulp::WithSimd;
use rayon::prelude::*;

use crate::instructions;
#[cfg(target_arch = "x86_64")]
use crate::instructions::Instructions;
#[cfg(target_arch = "x86_64")]
use crate::matmul::cpu::amx;
use crate::matmul::cpu::is_native;
use crate::simd::kernel;

/// Independent sums: more than latency times throughput of any multiplier, few enough for 16 registers.
const CHAINS: usize = 12;

/// A run takes at least this long, so that waking the threads does not count.
const RUN: Duration = Duration::from_millis(20);

/// Runs of which the best counts: others on the machine only ever make one slower.
const RUNS: usize = 5;

/// f32 values in one of the three arrays of the triad.
const TRIAD_VALUES: usize = (256 << 20) / 3 / size_of::<f32>();

/// Values of one task of the triad.
const TRIAD_BLOCK: usize = 1 << 16;

pub(super) fn flops_per_second(dtype: DType) -> f64 {
    if dtype == DType::BF16 && is_native(dtype) { best_flops(bf16_chains) } else { best_flops(f32_chains) }
}

/// `chains(rounds)` runs on every thread and returns how many operations that were on one.
fn best_flops(chains: fn(usize) -> f64) -> f64 {
    let run = |rounds: usize| {
        let start = Instant::now();
        let flops: f64 = rayon::broadcast(|_| chains(rounds)).iter().sum();
        (flops, start.elapsed())
    };
    let mut rounds = 1 << 12;
    while run(rounds).1 < RUN && rounds < 1 << 40 {
        rounds *= 2;
    }
    (0..RUNS).map(|_| run(rounds)).map(|(flops, took)| flops / took.as_secs_f64()).fold(0.0, f64::max)
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
        // The sums stay near one: subnormal and infinite values may take longer.
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
        // SAFETY: the machine has the instructions.
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
    use std::arch::x86_64::_mm512_cvtne2ps_pbh;
    use std::arch::x86_64::_mm512_dpbf16_ps;
    use std::arch::x86_64::_mm512_reduce_add_ps;
    use std::arch::x86_64::_mm512_set1_ps;
    /// An instruction adds 32 products to 16 sums.
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
    let filled = |value: f32| {
        (0..TRIAD_VALUES).into_par_iter().with_min_len(TRIAD_BLOCK).map(|_| value).collect::<Vec<f32>>()
    };
    let (mut a, b, c) = (filled(0.0), filled(1.0), filled(2.0));
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
