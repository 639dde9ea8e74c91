//! LAMB on the CPU: two passes in blocks over all threads, both bound by memory.

use candle_core::Result;
use rayon::iter::{IntoParallelRefMutIterator, ParallelIterator};

use crate::element::{Element, by_dtype};
use crate::simd::{kernel, sum_of_squares};
use crate::update::cpu::{Adam, Block, clipped, with_blocks};
use crate::update::{Buffers, Group, Groups, Hyper};

/// Number of updates that are buffered on the stack, in the L1 cache, before their squares are summed.
const TILE: usize = 1024;

pub(super) fn update(buffers: Buffers<'_>, groups: Groups<'_>, hyper: &Hyper) -> Result<()> {
    let Some(hyper) = clipped(&buffers, hyper)? else { return Ok(()) };
    match buffers.shadow {
        None => run::<f32>(buffers, groups, &hyper),
        Some(shadow) => by_dtype!("lamb: shadow", shadow, T => run::<T>(buffers, groups, &hyper)),
    }
}

fn run<T: Element>(buffers: Buffers<'_>, groups: Groups<'_>, hyper: &Hyper) -> Result<()> {
    let adam = Adam::new(hyper);
    with_blocks::<T, 2, _>(buffers, groups, |mut blocks| {
        let squares = blocks.par_iter_mut().map(|block| {
            let index = block.group?;
            let rule = Rule::new(adam, &groups.list[index]);
            let [first, second] = &mut block.state;
            Some((index, advance(block.parameters, &block.gradients.widened(), first, second, &rule)))
        });
        let squares: Vec<Option<(usize, Squares)>> = squares.collect();
        let ratios = trust_ratios(groups.list, squares.into_iter().flatten());
        blocks.par_iter_mut().for_each(|block| {
            let Block { parameters, state: [first, second], shadow, group: Some(index), .. } = block else {
                return;
            };
            let step_size = (hyper.lr * ratios[*index]) as f32 * groups.list[*index].lr_scale;
            let rule = Rule::new(adam, &groups.list[*index]);
            match shadow {
                None => apply(parameters, first, second, &rule, step_size),
                Some(shadow) => apply_and_round(parameters, first, second, shadow, &rule, step_size),
            }
        });
    })
}

/// Sums of squares over a block or a group.
#[derive(Debug, Clone, Copy, Default)]
struct Squares {
    parameters: f64,
    updates: f64,
}

/// `|p| / |u|` of each group; 1 if either norm is 0, or if the group has no weight decay.
fn trust_ratios(groups: &[Group], blocks: impl Iterator<Item = (usize, Squares)>) -> Vec<f64> {
    let mut sums = vec![Squares::default(); groups.len()];
    for (index, block) in blocks {
        sums[index].parameters += block.parameters;
        sums[index].updates += block.updates;
    }
    let groups = groups.iter().zip(sums);
    groups
        .map(|(group, Squares { parameters, updates })| {
            let adapts = group.weight_decay != 0.0 && parameters > 0.0 && updates > 0.0;
            if adapts { (parameters / updates).sqrt() } else { 1.0 }
        })
        .collect()
}

struct Rule {
    adam: Adam,
    inverse1: f32,
    decay: f32,
}

impl Rule {
    fn new(adam: Adam, group: &Group) -> Self {
        Self { adam, inverse1: (1.0 / adam.correction1) as f32, decay: group.weight_decay }
    }

    /// The update `u` of one element; both passes compute the same bits.
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
