//! AdamW on the CPU: one pass over all buffers, bound by memory, in blocks over all threads.

use candle_core::Result;
use rayon::iter::{IntoParallelIterator, ParallelIterator};

use crate::element::{Element, by_dtype};
use crate::simd::kernel;
use crate::update::cpu::{Adam, Block, clipped, with_blocks};
use crate::update::{Buffers, Group, Groups, Hyper};

pub(super) fn update(buffers: Buffers<'_>, groups: Groups<'_>, hyper: &Hyper) -> Result<()> {
    let Some(hyper) = clipped(&buffers, hyper)? else { return Ok(()) };
    match buffers.shadow {
        None => run::<f32>(buffers, groups, &hyper),
        Some(shadow) => by_dtype!("adamw: shadow", shadow, T => run::<T>(buffers, groups, &hyper)),
    }
}

fn run<T: Element>(buffers: Buffers<'_>, groups: Groups<'_>, hyper: &Hyper) -> Result<()> {
    let adam = Adam::new(hyper);
    with_blocks::<T, 2, _>(buffers, groups, |blocks| {
        blocks.into_par_iter().for_each(|block| {
            let Block { parameters, gradients, state: [first, second], shadow, group: Some(index) } = block
            else {
                return;
            };
            let Group { weight_decay, lr_scale, .. } = groups.list[index];
            let decay = (hyper.lr * f64::from(weight_decay)) as f32 * lr_scale;
            let rule = Rule { adam, decay, step_size: (hyper.lr / adam.correction1) as f32 * lr_scale };
            let gradients = &gradients.widened();
            match shadow {
                None => update_values(parameters, gradients, first, second, &rule),
                Some(shadow) => update_and_round(parameters, gradients, first, second, shadow, &rule),
            }
        });
    })
}

struct Rule {
    adam: Adam,
    decay: f32,
    step_size: f32,
}

impl Rule {
    #[inline(always)]
    fn apply(&self, p: &mut f32, g: f32, m: &mut f32, v: &mut f32) {
        self.adam.advance(g, m, v);
        // The decay is part of the change: as a factor of 1 - 1e-6 it would lose most of its digits.
        *p -= self.decay.mul_add(*p, self.step_size * *m / self.adam.denominator(*v));
    }
}

kernel! {
    fn update_values(p: &mut [f32], g: &[f32], m: &mut [f32], v: &mut [f32], rule: &Rule) {
        for (((p, g), m), v) in p.iter_mut().zip(g).zip(m).zip(v) {
            rule.apply(p, *g, m, v);
        }
    }

    fn update_and_round<T>(p: &mut [f32], g: &[f32], m: &mut [f32], v: &mut [f32], shadow: &mut [T], rule: &Rule) {
        for ((((p, g), m), v), shadow) in p.iter_mut().zip(g).zip(m).zip(v).zip(shadow) {
            rule.apply(p, *g, m, v);
            *shadow = T::narrow(*p);
        }
    }
}
