//! Lion on the CPU: one pass over all buffers, bound by memory, in blocks over all threads.

use candle_core::Result;
use rayon::iter::{IntoParallelIterator, ParallelIterator};

use crate::element::{Element, by_dtype};
use crate::simd::kernel;
use crate::update::cpu::{Adam, Block, clipped, with_blocks};
use crate::update::{Buffers, Group, Groups, Hyper};

pub(super) fn update(buffers: Buffers<'_, 1>, groups: Groups<'_>, hyper: &Hyper) -> Result<()> {
    let Some(hyper) = clipped(&buffers, hyper)? else { return Ok(()) };
    match buffers.shadow {
        None => run::<f32>(buffers, groups, &hyper),
        Some(shadow) => by_dtype!("lion: shadow", shadow, T => run::<T>(buffers, groups, &hyper)),
    }
}

fn run<T: Element>(buffers: Buffers<'_, 1>, groups: Groups<'_>, hyper: &Hyper) -> Result<()> {
    let Adam { multiplier, rest1, rest2, .. } = Adam::new(hyper);
    with_blocks::<T, 1, _>(buffers, groups, |blocks| {
        blocks.into_par_iter().for_each(|block| {
            let Block { parameters, gradients, state: [momentum], shadow, group: Some(index) } = block else {
                return;
            };
            let Group { weight_decay, lr_scale, .. } = groups.list[index];
            let decay = (hyper.lr * f64::from(weight_decay)) as f32 * lr_scale;
            let rule = Rule { multiplier, rest1, rest2, decay, step_size: hyper.lr as f32 * lr_scale };
            let gradients = &gradients.widened();
            match shadow {
                None => update_values(parameters, gradients, momentum, &rule),
                Some(shadow) => update_and_round(parameters, gradients, momentum, shadow, &rule),
            }
        });
    })
}

struct Rule {
    /// Factor of the gradients.
    multiplier: f32,
    /// `1 - beta1`.
    rest1: f32,
    /// `1 - beta2`.
    rest2: f32,
    decay: f32,
    step_size: f32,
}

impl Rule {
    #[inline(always)]
    fn apply(&self, p: &mut f32, g: f32, m: &mut f32) {
        let g = g * self.multiplier;
        let direction = self.rest1.mul_add(g - *m, *m);
        let step = if direction == 0.0 { 0.0 } else { self.step_size.copysign(direction) };
        *p -= self.decay.mul_add(*p, step);
        *m = self.rest2.mul_add(g - *m, *m);
    }
}

kernel! {
    fn update_values(p: &mut [f32], g: &[f32], m: &mut [f32], rule: &Rule) {
        for ((p, g), m) in p.iter_mut().zip(g).zip(m) {
            rule.apply(p, *g, m);
        }
    }

    fn update_and_round<T>(p: &mut [f32], g: &[f32], m: &mut [f32], shadow: &mut [T], rule: &Rule) {
        for (((p, g), m), shadow) in p.iter_mut().zip(g).zip(m).zip(shadow) {
            rule.apply(p, *g, m);
            *shadow = T::narrow(*p);
        }
    }
}
