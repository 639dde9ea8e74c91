//! Axes of plots, with round numbers.

/// A number's place on an axis.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Scale {
    low: f64,
    high: f64,
    /// Distance of two ticks: 1, 2 or 5 times a power of ten.
    step: f64,
    from: f64,
    to: f64,
}

impl Scale {
    /// An axis from `from` to `to` that holds all finite `values` between round numbers; none without them.
    pub(super) fn around(values: &[f64], from: f64, to: f64) -> Option<Self> {
        let finite = || values.iter().copied().filter(|value| value.is_finite());
        let (low, high) = (finite().reduce(f64::min)?, finite().reduce(f64::max)?);
        // Values that are all the same get some room on either side.
        let span = if high > low { high - low } else { high.abs().max(1.0) * 0.1 };
        let rough = span / 4.0;
        let power = 10f64.powf(rough.log10().floor());
        let step =
            [1.0, 2.0, 5.0, 10.0].map(|times| times * power).into_iter().find(|step| *step >= rough)?;
        let (low, high) = ((low / step - 0.1).floor() * step, (high / step + 0.1).ceil() * step);
        Some(Self { low, high, step, from, to })
    }

    /// Where a value stands.
    pub(super) fn place(&self, value: f64) -> f64 {
        self.from + (value - self.low) / (self.high - self.low) * (self.to - self.from)
    }

    /// The round numbers on it.
    pub(super) fn ticks(&self) -> impl Iterator<Item = f64> + use<> {
        let (low, step) = (self.low, self.step);
        let count = ((self.high - low) / step).round() as u64;
        (0..=count).map(move |at| low + at as f64 * step)
    }

    /// A tick with the digits that tell it from the next.
    pub(super) fn label(&self, tick: f64) -> String {
        let digits = (-self.step.log10().floor()).max(0.0) as usize;
        let text = format!("{tick:.digits$}");
        if text.trim_start_matches('-').chars().all(|c| c == '0' || c == '.') {
            "0".to_string()
        } else {
            text
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_hold_all_values() {
        let labels = |values: &[f64]| {
            let scale = Scale::around(values, 0.0, 100.0).unwrap();
            assert!(values.iter().all(|value| (0.0..=100.0).contains(&scale.place(*value))), "{values:?}");
            scale.ticks().map(|tick| scale.label(tick)).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(labels(&[33.3, 91.7]), "20 40 60 80 100");
        assert_eq!(labels(&[0.512, 0.518]), "0.510 0.512 0.514 0.516 0.518 0.520");
        assert_eq!(labels(&[-0.3, 0.3]), "-0.4 -0.2 0 0.2 0.4");
        assert_eq!(labels(&[50.0]), "48 50 52");
        assert_eq!(Scale::around(&[f64::NAN], 0.0, 1.0), None);
    }
}
