//! Values in the type in which they travel: rounded while they are copied for the exchange, widened while the sums are
//! copied back, so that the thread that talks to the others touches none that it does not add up.

use half::bf16;

use crate::config::Wire;
use crate::ops::element::Element;
use crate::ops::simd;

/// Values on their way, or sums that have come.
#[derive(Debug)]
pub(super) enum Travelling {
    F32(Vec<f32>),
    Bf16(Vec<bf16>),
}

impl Travelling {
    /// A copy of these values.
    pub(super) fn of(values: &[f32], wire: Wire) -> Self {
        match wire {
            Wire::F32 => Self::F32(values.to_vec()),
            Wire::Bf16 => {
                let mut narrowed = vec![bf16::ZERO; values.len()];
                narrow_into(values, &mut narrowed);
                Self::Bf16(narrowed)
            }
        }
    }

    /// Writes them over as many others.
    pub(super) fn write_to(&self, values: &mut [f32]) {
        match self {
            Self::F32(own) => values.copy_from_slice(own),
            Self::Bf16(own) => widen_into(own, values),
        }
    }
}

/// Writes the nearest values of a type over as many others.
pub(super) fn narrow_into<T: Element>(values: &[f32], out: &mut [T]) {
    assert_eq!(values.len(), out.len(), "room for other values");
    simd::run(|| out.iter_mut().zip(values).for_each(|(out, value)| *out = T::narrow(*value)));
}

/// Writes the exact values over as many others.
pub(super) fn widen_into<T: Element>(values: &[T], out: &mut [f32]) {
    assert_eq!(values.len(), out.len(), "room for other values");
    simd::run(|| out.iter_mut().zip(values).for_each(|(out, value)| *out = value.widen()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_back_as_they_were_or_rounded() {
        let values: Vec<f32> = (0..1003).map(|i| 1.0 + i as f32 / 1003.0).collect();
        for (wire, at_most) in [(Wire::F32, 0.0), (Wire::Bf16, 1.0 / 256.0)] {
            let mut back = vec![0.0; values.len()];
            Travelling::of(&values, wire).write_to(&mut back);
            let worst = values.iter().zip(&back).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(worst <= at_most && (worst > 0.0) == (wire == Wire::Bf16), "{wire:?}: {worst}");
        }
    }
}
