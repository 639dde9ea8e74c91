//! Splits the flat buffers into blocks for all threads, and the arithmetic that AdamW and its relatives
//! share.

use std::borrow::Cow;
use std::ops::Range;

use candle_core::{Result, Tensor};
use half::bf16;

use crate::element::Element;
use crate::parallel;
use crate::tensor::{values, with_slice_mut, with_values_mut};
use crate::update::{Buffers, Clip, GradientPlace, Groups, Hyper};

/// The same range of all buffers, which is within one group, or outside of all groups.
pub(crate) struct Block<'a, T, const S: usize> {
    pub(crate) parameters: &'a mut [f32],
    pub(crate) gradients: Gradients<'a>,
    pub(crate) state: [&'a mut [f32]; S],
    pub(crate) shadow: Option<&'a mut [T]>,
    /// Index of the group; `None` for frozen elements, which are in no group.
    pub(crate) group: Option<usize>,
}

/// The gradients of a block.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Gradients<'a> {
    Single(&'a [f32]),
    Half(&'a [bf16]),
}

impl<'a> Gradients<'a> {
    /// The gradients in f32, exactly.
    pub(crate) fn widened(self) -> Cow<'a, [f32]> {
        match self {
            Self::Single(values) => Cow::Borrowed(values),
            Self::Half(values) => Cow::Owned(values.iter().map(|value| value.widen()).collect()),
        }
    }
}

/// The gradients of all groups.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AllGradients<'a> {
    single: &'a [f32],
    half: &'a [bf16],
    groups: Groups<'a>,
}

impl<'a> AllGradients<'a> {
    /// The gradients of the elements `range` of the parameters, which are within group number `index`.
    pub(crate) fn of_group(&self, index: usize, range: Range<usize>) -> Gradients<'a> {
        let Some(&GradientPlace { is_half, start }) = self.groups.places.get(index) else {
            return Gradients::Single(&self.single[range]);
        };
        let before = self.groups.list[index].range.start;
        let range = range.start - before + start..range.end - before + start;
        if is_half { Gradients::Half(&self.half[range]) } else { Gradients::Single(&self.single[range]) }
    }
}

/// Calls `f` with the gradients of all groups.
pub(crate) fn with_gradients<const S: usize, R>(
    buffers: &Buffers<'_, S>,
    groups: Groups<'_>,
    f: impl FnOnce(AllGradients<'_>) -> R,
) -> Result<R> {
    let single = values::<f32>(buffers.gradients)?;
    match buffers.half_gradients {
        None => Ok(f(AllGradients { single: &single, half: &[], groups })),
        Some(half) => Ok(f(AllGradients { single: &single, half: &values::<bf16>(half)?, groups })),
    }
}

/// Calls `f` with the blocks of all buffers, in order. The bounds of the blocks depend only on the groups.
/// `T` is the type of the shadow; any type if there is no shadow.
///
/// The list of blocks takes about a hundred bytes for each 600 KB of buffers.
pub(crate) fn with_blocks<T: Element, const S: usize, R>(
    buffers: Buffers<'_, S>,
    groups: Groups<'_>,
    f: impl FnOnce(Vec<Block<'_, T, S>>) -> R,
) -> Result<R> {
    with_gradients(&buffers, groups, |gradients| {
        let cut = |shadow: Option<&mut [T]>| {
            with_slice_mut(buffers.parameters, |parameters| {
                with_state(&buffers.state, Vec::with_capacity(S), |state| {
                    let state = state.try_into().expect("there is a slice for each tensor");
                    f(split(parameters, state, gradients, shadow))
                })
            })?
        };
        match buffers.shadow {
            None => cut(None),
            Some(shadow) => with_values_mut(shadow, |shadow| cut(Some(shadow)))?,
        }
    })?
}

/// Calls `f` with the values of `slices`, followed by those of `tensors`.
fn with_state<R>(
    tensors: &[&Tensor],
    slices: Vec<&mut [f32]>,
    f: impl FnOnce(Vec<&mut [f32]>) -> R,
) -> Result<R> {
    let Some((first, rest)) = tensors.split_first() else { return Ok(f(slices)) };
    with_slice_mut(first, |slice| {
        // All slices of the list live as long as the last one.
        let mut slices: Vec<&mut [f32]> = slices;
        slices.push(slice);
        with_state(rest, slices, f)
    })?
}

/// Returns the hyper-parameters with the clipping factor included in the gradient multiplier; `None` if the
/// norm is not finite and the update must be skipped.
pub(crate) fn clipped<const S: usize>(buffers: &Buffers<'_, S>, hyper: &Hyper) -> Result<Option<Hyper>> {
    let Some(clip) = buffers.clip else { return Ok(Some(*hyper)) };
    let norm = values::<f64>(clip.norm)?[0];
    let multiplier = Clip::multiplier(clip.max_norm, norm, hyper.gradient_multiplier);
    Ok(multiplier.map(|gradient_multiplier| Hyper { gradient_multiplier, ..*hyper }))
}

fn split<'a, T, const S: usize>(
    mut parameters: &'a mut [f32],
    mut state: [&'a mut [f32]; S],
    gradients: AllGradients<'a>,
    mut shadow: Option<&'a mut [T]>,
) -> Vec<Block<'a, T, S>> {
    const WITHIN: &str = "groups were checked to lie within the buffers";
    let count = parameters.len();
    let mut blocks = Vec::new();
    let mut at = 0;
    let mut cut = |end: usize, group: Option<usize>| {
        while at < end {
            let len = (end - at).min(parallel::BLOCK_VALUES);
            let parameters = parameters.split_off_mut(..len).expect(WITHIN);
            let state = state.each_mut().map(|slice| slice.split_off_mut(..len).expect(WITHIN));
            // The gradients of frozen elements are not read.
            let gradients =
                group.map_or(Gradients::Single(&[]), |group| gradients.of_group(group, at..at + len));
            let shadow = shadow.as_mut().map(|slice| slice.split_off_mut(..len).expect(WITHIN));
            blocks.push(Block { parameters, gradients, state, shadow, group });
            at += len;
        }
    };
    for (index, group) in gradients.groups.list.iter().enumerate() {
        cut(group.range.start, None);
        cut(group.range.end, Some(index));
    }
    cut(count, None);
    blocks
}

/// The update of the moments and their bias correction, with the constants of one step.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Adam {
    /// `1 - beta1^t`; 1 without bias correction.
    pub(crate) correction1: f64,
    /// `1 - beta1`.
    pub(crate) rest1: f32,
    /// Decay of the second moment.
    pub(crate) beta2: f32,
    /// `1 - beta2`.
    pub(crate) rest2: f32,
    /// `1 / sqrt(1 - beta2^t)`; 1 without bias correction.
    pub(crate) inverse_root: f32,
    /// Added to the root of the second moment.
    pub(crate) eps: f32,
    /// Factor of the gradients.
    pub(crate) multiplier: f32,
}

impl Adam {
    /// Computes the constants in f64, then rounds them: computed in f32, 1 - 0.999 would be off by 5e-5 of
    /// its value.
    pub(crate) fn new(hyper: &Hyper) -> Self {
        Self {
            correction1: hyper.correction(hyper.beta1),
            rest1: (1.0 - hyper.beta1) as f32,
            beta2: hyper.beta2 as f32,
            rest2: (1.0 - hyper.beta2) as f32,
            inverse_root: (1.0 / hyper.correction(hyper.beta2).sqrt()) as f32,
            eps: hyper.eps as f32,
            multiplier: hyper.gradient_multiplier,
        }
    }

    /// `m += (1 - beta1) * (g - m)` and `v = beta2 * v + (1 - beta2) * g^2`, with `g` multiplied first.
    #[inline(always)]
    pub(crate) fn advance(&self, g: f32, m: &mut f32, v: &mut f32) {
        let g = g * self.multiplier;
        *m = self.rest1.mul_add(g - *m, *m);
        *v = self.beta2.mul_add(*v, self.rest2 * g * g);
    }

    /// `sqrt(v) / sqrt(1 - beta2^t) + eps`.
    #[inline(always)]
    pub(crate) fn denominator(&self, v: f32) -> f32 {
        v.sqrt().mul_add(self.inverse_root, self.eps)
    }
}
