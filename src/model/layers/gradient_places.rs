//! Place of the gradient of each parameter, if matrix products write gradients of weights in bf16: those are
//! in one buffer, all others in an f32 buffer.
//!
//! Both buffers have the order of the parameters and their alignment, so that neighbouring parameters of one
//! type have neighbouring gradients.

use std::ops::Range;

use crate::layers::Layout;
use ops::update::GradientPlace;

/// The place of each gradient in one of two buffers.
#[derive(Debug, Clone)]
pub struct GradientPlaces {
    /// Ranges of the flat buffer of parameters, with the gaps that follow them, whose gradients are f32.
    single: Vec<Range<usize>>,
    /// Those whose gradients are bf16.
    half: Vec<Range<usize>>,
}

impl GradientPlaces {
    /// Gradients of linear maps are bf16, except for maps that several layers share.
    pub fn new(layout: &Layout) -> Self {
        let mut places = Self { single: Vec::new(), half: Vec::new() };
        let ends = layout.specs().skip(1).map(|next| next.range.start).chain([layout.len()]);
        for (spec, end) in layout.specs().zip(ends) {
            let runs = if spec.is_product { &mut places.half } else { &mut places.single };
            match runs.last_mut().filter(|run| run.end == spec.range.start) {
                Some(run) => run.end = end,
                None => runs.push(spec.range.start..end),
            }
        }
        places
    }

    /// Values of the f32 buffer.
    pub(super) fn single_len(&self) -> usize {
        self.single.iter().map(Range::len).sum()
    }

    /// Values of the bf16 buffer.
    pub fn half_len(&self) -> usize {
        self.half.iter().map(Range::len).sum()
    }

    /// The place of the gradient of the parameter that begins at the element `start` of the flat buffer.
    pub fn place_of(&self, start: usize) -> GradientPlace {
        let is_half = self.half.iter().any(|run| run.contains(&start));
        let runs = if is_half { &self.half } else { &self.single };
        GradientPlace { is_half, start: packed(start, runs) }
    }
}

/// Number of elements of `runs` before the element `at` of the flat buffer.
pub fn packed(at: usize, runs: &[Range<usize>]) -> usize {
    runs.iter().map(|run| at.clamp(run.start, run.end) - run.start).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layers::linear::Linear;
    use crate::layers::{Init, Part, Registry};

    #[test]
    fn gradients_of_linear_maps_are_in_one_buffer_and_all_others_in_another() {
        let mut registry = Registry::default();
        registry.weight("embeddings", &[5, 3], Init::Normal);
        registry.enter(Part::Layer(0));
        Linear::new(&mut registry, "layer.0.a", 3, 50);
        let map = Linear::new(&mut registry, "layer.0.b", 50, 3);
        registry.mark_product(map.bias.unwrap());
        let layout = registry.layout();
        let places = GradientPlaces::new(&layout);
        // 64 values each of `embeddings` and `a.bias`; 192 each of the weights, 64 of `b.bias`.
        assert_eq!((places.single_len(), places.half_len()), (128, 448));
        let found: Vec<_> = layout.specs().map(|spec| places.place_of(spec.range.start)).collect();
        let want = [(false, 0), (false, 64), (true, 0), (true, 192), (true, 256)];
        assert_eq!(found, want.map(|(is_half, start)| GradientPlace { is_half, start }));
    }

    #[test]
    fn runs_are_packed_without_what_is_between_them() {
        let runs = [64..128, 192..320];
        assert_eq!(
            [0, 64, 100, 128, 150, 192, 200, 320, 400].map(|at| packed(at, &runs)),
            [0, 0, 36, 64, 64, 64, 72, 192, 192]
        );
    }
}
