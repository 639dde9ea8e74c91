//! LAMB on the CPU: two passes in blocks over all threads, both bound by memory.

use candle_core::Result;
use rayon::iter::IntoParallelRefMutIterator;
use rayon::iter::ParallelIterator;

use crate::element::Element;
use crate::element::by_dtype;
use crate::simd::kernel;
use crate::simd::sum_of_squares;
use crate::update::Buffers;
use crate::update::Group;
use crate::update::Hyper;
use crate::update::cpu::Adam;
use crate::update::cpu::Block;
use crate::update::cpu::clipped;
use crate::update::cpu::with_blocks;

/// Updates that wait on the stack, in the first level of cache, for their squares to be summed.
const TILE: usize = 1024;

pub(super) fn update(buffers: Buffers<'_>, groups: &[Group], hyper: &Hyper) -> Result<()> {
    let Some(hyper) = clipped(&buffers, hyper)? else { return Ok(()) };
    match buffers.shadow {
        None => run::<f32>(buffers, groups, &hyper),
        Some(shadow) => by_dtype!("lamb: shadow", shadow, T => run::<T>(buffers, groups, &hyper)),
    }
}

fn run<T: Element>(buffers: Buffers<'_>, groups: &[Group], hyper: &Hyper) -> Result<()> {
    let adam = Adam::new(hyper);
    let rule = |index: usize| Rule {
        adam,
        inverse1: (1.0 / adam.correction1) as f32,
        decay: groups[index].weight_decay,
    };
    with_blocks::<T, _>(buffers, groups, |mut blocks| {
        let squares = blocks.par_iter_mut().map(|block| {
            let index = block.group?;
            Some((index, advance(block.parameters, block.gradients, block.first, block.second, &rule(index))))
        });
        let squares: Vec<Option<(usize, Squares)>> = squares.collect();
        let ratios = trust_ratios(groups, squares.into_iter().flatten());
        blocks.par_iter_mut().for_each(|block| {
            let Block { parameters, first, second, shadow, group: Some(index), .. } = block else { return };
            let step_size = (hyper.lr * ratios[*index]) as f32 * groups[*index].lr_scale;
            match shadow {
                None => apply(parameters, first, second, &rule(*index), step_size),
                Some(shadow) => apply_and_round(parameters, first, second, shadow, &rule(*index), step_size),
            }
        });
    })
}

/// Sums over a block or a group.
#[derive(Debug, Clone, Copy, Default)]
struct Squares {
    parameters: f64,
    updates: f64,
}

/// `|p| / |u|` of each group; 1 where either is 0, or the group does not decay.
fn trust_ratios(groups: &[Group], blocks: impl Iterator<Item = (usize, Squares)>) -> Vec<f64> {
    let mut sums = vec![Squares::default(); groups.len()];
    for (index, block) in blocks {
        sums[index].parameters += block.parameters;
        sums[index].updates += block.updates;
    }
    let ratio = |(group, Squares { parameters, updates }): (&Group, Squares)| {
        let adapts = group.weight_decay != 0.0 && parameters > 0.0 && updates > 0.0;
        if adapts { (parameters / updates).sqrt() } else { 1.0 }
    };
    groups.iter().zip(sums).map(ratio).collect()
}

struct Rule {
    adam: Adam,
    inverse1: f32,
    decay: f32,
}

impl Rule {
    /// `u`, the same bits in both passes.
    #[inline(always)]
    fn update(&self, p: f32, m: f32, v: f32) -> f32 {
        self.decay.mul_add(p, self.inverse1 * m / self.adam.denominator(v))
    }
}

kernel! {
    fn advance(p: &[f32], g: &[f32], m: &mut [f32], v: &mut [f32], rule: &Rule) -> Squares {
        let mut squares = Squares::default();
        let mut tile = [0.0f32; TILE];
        let tiles = p.chunks(TILE).zip(g.chunks(TILE)).zip(m.chunks_mut(TILE)).zip(v.chunks_mut(TILE));
        for (((p, g), m), v) in tiles {
            let updates = &mut tile[..p.len()];
            for ((((u, p), g), m), v) in updates.iter_mut().zip(p).zip(g).zip(m).zip(v) {
                rule.adam.advance(*g, m, v);
                *u = rule.update(*p, *m, *v);
            }
            squares.parameters += sum_of_squares(p);
            squares.updates += sum_of_squares(updates);
        }
        squares
    }

    fn apply(p: &mut [f32], m: &[f32], v: &[f32], rule: &Rule, step_size: f32) {
        for ((p, m), v) in p.iter_mut().zip(m).zip(v) {
            *p = step_size.mul_add(-rule.update(*p, *m, *v), *p);
        }
    }

    fn apply_and_round<T>(p: &mut [f32], m: &[f32], v: &[f32], shadow: &mut [T], rule: &Rule, step_size: f32) {
        for (((p, m), v), shadow) in p.iter_mut().zip(m).zip(v).zip(shadow) {
            *p = step_size.mul_add(-rule.update(*p, *m, *v), *p);
            *shadow = T::narrow(*p);
        }
    }
}
