//! StableAdamW on the CPU: two passes in blocks over all threads, both bound by memory.

use candle_core::Result;
use rayon::iter::{IntoParallelRefMutIterator, ParallelIterator};

use crate::element::{Element, by_dtype};
use crate::simd::{kernel, sum_of_squares};
use crate::update::cpu::{Adam, Block, clipped, with_blocks};
use crate::update::{Buffers, Group, Groups, Hyper};

/// Number of values that are buffered on the stack, in the L1 cache, before their squares are summed.
const TILE: usize = 1024;

pub(super) fn update(buffers: Buffers<'_>, groups: Groups<'_>, hyper: &Hyper) -> Result<()> {
    let Some(hyper) = clipped(&buffers, hyper)? else { return Ok(()) };
    match buffers.shadow {
        None => run::<f32>(buffers, groups, &hyper),
        Some(shadow) => by_dtype!("stable_adamw: shadow", shadow, T => run::<T>(buffers, groups, &hyper)),
    }
}

fn run<T: Element>(buffers: Buffers<'_>, groups: Groups<'_>, hyper: &Hyper) -> Result<()> {
    let adam = Adam::new(hyper);
    with_blocks::<T, 2, _>(buffers, groups, |mut blocks| {
        let squares = blocks.par_iter_mut().map(|block| {
            let index = block.group?;
            let [first, second] = &mut block.state;
            Some((index, advance(&block.gradients.widened(), first, second, &adam)))
        });
        let squares: Vec<Option<(usize, f64)>> = squares.collect();
        let clips = clips(groups.list, squares.into_iter().flatten());
        blocks.par_iter_mut().for_each(|block| {
            let Block { parameters, state: [first, second], shadow, group: Some(index), .. } = block else {
                return;
            };
            let scale = groups.list[*index].lr_scale * clips[*index];
            let decay = (hyper.lr * f64::from(groups.list[*index].weight_decay)) as f32 * scale;
            let rule = Rule { adam, decay, step_size: (hyper.lr / adam.correction1) as f32 * scale };
            match shadow {
                None => apply(parameters, first, second, &rule),
                Some(shadow) => apply_and_round(parameters, first, second, shadow, &rule),
            }
        });
    })
}

/// `1 / max(1, rms)` of each group.
fn clips(groups: &[Group], blocks: impl Iterator<Item = (usize, f64)>) -> Vec<f32> {
    let mut sums = vec![0.0; groups.len()];
    for (index, squares) in blocks {
        sums[index] += squares;
    }
    let means = groups.iter().zip(sums).map(|(group, sum)| sum / group.range.len().max(1) as f64);
    means.map(|mean| (1.0 / mean.sqrt().max(1.0)) as f32).collect()
}

struct Rule {
    adam: Adam,
    decay: f32,
    step_size: f32,
}

impl Rule {
    #[inline(always)]
    fn apply(&self, p: &mut f32, m: f32, v: f32) {
        *p -= self.decay.mul_add(*p, self.step_size * m / self.adam.denominator(v));
    }
}

kernel! {
    fn advance(g: &[f32], m: &mut [f32], v: &mut [f32], adam: &Adam) -> f64 {
        let mut squares = 0.0;
        let mut tile = [0.0f32; TILE];
        for ((g, m), v) in g.chunks(TILE).zip(m.chunks_mut(TILE)).zip(v.chunks_mut(TILE)) {
            let ratios = &mut tile[..g.len()];
            for (((ratio, g), m), v) in ratios.iter_mut().zip(g).zip(m).zip(v) {
                adam.advance(*g, m, v);
                *ratio = *g * adam.multiplier / (v.sqrt() * adam.inverse_root).max(adam.eps);
            }
            squares += sum_of_squares(ratios);
        }
        squares
    }

    fn apply(p: &mut [f32], m: &[f32], v: &[f32], rule: &Rule) {
        for ((p, m), v) in p.iter_mut().zip(m).zip(v) {
            rule.apply(p, *m, *v);
        }
    }

    fn apply_and_round<T>(p: &mut [f32], m: &[f32], v: &[f32], shadow: &mut [T], rule: &Rule) {
        for (((p, m), v), shadow) in p.iter_mut().zip(m).zip(v).zip(shadow) {
            rule.apply(p, *m, *v);
            *shadow = T::narrow(*p);
        }
    }
}
