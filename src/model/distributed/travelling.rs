//! Values in the type in which they are sent: rounded while they are copied for the exchange, widened while
//! the sums are copied back. So the communication thread touches only values that it adds up itself.

use half::bf16;

use config::Wire;
use ops::element::Element;
use ops::simd;

/// Values to be sent, or sums that have arrived.
#[derive(Debug)]
pub(super) enum Travelling {
    F32(Vec<f32>),
    Bf16(Vec<bf16>),
}

impl Travelling {
    /// Copies these values.
    pub(super) fn from_values(values: &[f32], wire: Wire) -> Self {
        match wire {
            Wire::F32 => Self::F32(values.to_vec()),
            Wire::Bf16 => {
                let mut narrowed = vec![bf16::ZERO; values.len()];
                narrow_into(values, &mut narrowed);
                Self::Bf16(narrowed)
            }
        }
    }

    /// Copies them into `values`, which has the same length.
    pub(super) fn write_to(&self, values: &mut [f32]) {
        match self {
            Self::F32(own) => values.copy_from_slice(own),
            Self::Bf16(own) => widen_into(own, values),
        }
    }
}

/// Rounds each value to the type of `out`, which has the same length.
pub(super) fn narrow_into<T: Element>(values: &[f32], out: &mut [T]) {
    assert_eq!(values.len(), out.len(), "room for other values");
    simd::run(|| out.iter_mut().zip(values).for_each(|(out, value)| *out = T::narrow(*value)));
}

/// Converts each value to f32 exactly; `out` has the same length.
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
            Travelling::from_values(&values, wire).write_to(&mut back);
            let worst = values.iter().zip(&back).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(worst <= at_most && (worst > 0.0) == (wire == Wire::Bf16), "{wire:?}: {worst}");
        }
    }
}
