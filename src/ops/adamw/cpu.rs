//! AdamW on the CPU: one pass over four buffers, bound by memory, in blocks over all threads.

use candle_core::Result;
use rayon::iter::IntoParallelIterator;
use rayon::iter::ParallelIterator;

use crate::ops::adamw::Buffers;
use crate::ops::adamw::Group;
use crate::ops::adamw::Hyper;
use crate::ops::parallel;
use crate::ops::simd::kernel;
use crate::ops::tensor::with_slice_mut;

pub(super) fn update(buffers: Buffers<'_>, groups: &[Group], hyper: &Hyper) -> Result<()> {
    with_slice_mut(buffers.parameters, |parameters| {
        with_slice_mut(buffers.gradients, |gradients| {
            with_slice_mut(buffers.first_moment, |first| {
                with_slice_mut(buffers.second_moment, |second| {
                    let blocks = split([parameters, gradients, first, second], groups);
                    blocks.into_par_iter().for_each(|block| update_block(block, hyper));
                })
            })
        })
    })???
}

/// The same range of the four buffers, and its weight decay; none for elements outside of all groups.
struct Block<'a> {
    slices: [&'a mut [f32]; 4],
    weight_decay: Option<f32>,
}

/// Cuts the buffers into blocks that do not cross the border of a group.
fn split<'a>(mut rest: [&'a mut [f32]; 4], groups: &[Group]) -> Vec<Block<'a>> {
    let count = rest[0].len();
    let mut blocks = Vec::new();
    let mut at = 0;
    let mut cut = |end: usize, weight_decay: Option<f32>| {
        while at < end {
            let len = (end - at).min(parallel::BLOCK_VALUES);
            let slices = rest.each_mut().map(|slice| slice.split_off_mut(..len).expect("the range lies within the buffers"));
            blocks.push(Block { slices, weight_decay });
            at += len;
        }
    };
    for group in groups {
        cut(group.range.start, None);
        cut(group.range.end, Some(group.weight_decay));
    }
    cut(count, None);
    blocks
}

fn update_block(Block { slices, weight_decay }: Block<'_>, hyper: &Hyper) {
    let [parameters, gradients, first, second] = slices;
    if let Some(weight_decay) = weight_decay {
        update_values(parameters, gradients, first, second, weight_decay, hyper);
    }
    if hyper.clear_gradients {
        gradients.fill(0.0);
    }
}

kernel! {
    fn update_values(p: &mut [f32], g: &[f32], m: &mut [f32], v: &mut [f32], weight_decay: f32, hyper: &Hyper) {
        // In f64 first: 1 - 0.999 in f32 is off by 5e-5 of its value.
        let exponent = hyper.step.min(i32::MAX as u64) as i32;
        let decay = (hyper.lr * f64::from(weight_decay)) as f32;
        let step_size = (hyper.lr / (1.0 - hyper.beta1.powi(exponent))) as f32;
        let inverse_root = (1.0 / (1.0 - hyper.beta2.powi(exponent)).sqrt()) as f32;
        let (beta2, eps, multiplier) = (hyper.beta2 as f32, hyper.eps as f32, hyper.gradient_multiplier);
        let (rest1, rest2) = ((1.0 - hyper.beta1) as f32, (1.0 - hyper.beta2) as f32);
        for (((p, g), m), v) in p.iter_mut().zip(g).zip(m).zip(v) {
            let g = g * multiplier;
            *m = rest1.mul_add(g - *m, *m);
            *v = beta2.mul_add(*v, rest2 * g * g);
            // The decay is part of the change: as a factor of 1 - 1e-6 it would lose most of its digits.
            *p -= decay.mul_add(*p, step_size * *m / v.sqrt().mul_add(inverse_root, eps));
        }
    }
}
