//! Losses of a batch, on the host or still being computed on the device.

use candle_core::{Device, Result, Tensor};

use ops::cross_entropy::{Entropy, Totals};
use ops::norm;
use ops::tensor::from_vec;

/// Summed losses of a batch. The caller that adds up the batches divides once by the *global* number of
/// targets.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Loss {
    /// Sum of the losses of all targets, in nats.
    pub sum: f64,
    /// Number of targets.
    pub count: usize,
    /// Number of targets for which the class with the highest score is right.
    pub correct: usize,
}

impl Loss {
    /// Returns the mean loss per target: NaN without targets (the loss was not measured), infinite if the sum
    /// is NaN.
    pub fn mean(&self) -> f64 {
        match self.count {
            0 => f64::NAN,
            _ if self.sum.is_nan() => f64::INFINITY,
            count => self.sum / count as f64,
        }
    }

    /// Returns true if the loss was measured and is not finite.
    pub fn is_not_finite(&self) -> bool {
        self.count > 0 && !self.sum.is_finite()
    }

    /// Share of targets that were predicted correctly; NaN without targets.
    pub fn accuracy(&self) -> f64 {
        if self.count == 0 { f64::NAN } else { self.correct as f64 / self.count as f64 }
    }
}

impl std::ops::AddAssign for Loss {
    fn add_assign(&mut self, other: Self) {
        self.sum += other.sum;
        self.count += other.count;
        self.correct += other.correct;
    }
}

/// A loss that may still be being computed on the device.
#[derive(Debug, Clone, Default)]
pub struct PendingLoss {
    /// Totals as in [`Entropy`]; `None` for a batch without targets.
    totals: Option<Tensor>,
    count: usize,
}

impl PendingLoss {
    /// The loss of `count` targets.
    pub fn of(entropy: Entropy, count: usize) -> Self {
        Self { totals: Some(entropy.totals), count }
    }

    /// The loss of `count` targets from f64 totals that start with those of [`Entropy`].
    pub fn of_totals(totals: Tensor, count: usize) -> Self {
        Self { totals: Some(totals), count }
    }

    /// A loss that was received from another process, on the device of the gradient norm that
    /// [`Self::poison`] changes.
    pub fn known(Loss { sum, count, correct }: Loss, device: &Device) -> Result<Self> {
        let totals = from_vec(vec![sum, correct as f64], 2)?.to_device(device)?;
        Ok(Self { totals: Some(totals), count })
    }

    /// Makes `norm` NaN unless this loss is finite, without waiting for either value.
    pub fn poison(&self, norm: &Tensor) -> Result<()> {
        self.totals.as_ref().map_or(Ok(()), |totals| norm::poison(norm, totals))
    }

    /// Waits for the device and returns the loss.
    pub fn read(&self) -> Result<Loss> {
        let Some(totals) = &self.totals else { return Ok(Loss::default()) };
        let Totals { loss_sum, correct } = Totals::read(totals)?;
        Ok(Loss { sum: loss_sum, count: self.count, correct })
    }
}
