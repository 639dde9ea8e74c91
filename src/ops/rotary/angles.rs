//! [`Angles`]: the table of cosines and sines of the rotation angles, for all positions needed so far.

use std::sync::{Mutex, PoisonError};

use candle_core::{Device, Result, Tensor};

/// Number of positions of the first table.
const LEAST_PLACES: usize = 512;

/// The rotation angles of the pairs of a head, shared by layers and calls: `p * theta^(-2 j / K)` for
/// position `p` and pair `j`.
///
/// The cosines and sines are computed in the first call, and again when a segment is longer than the table.
/// They are kept on the device of the last call.
#[derive(Debug)]
pub struct Angles {
    head_size: usize,
    kept: Mutex<Kept>,
}

/// The RoPE base, and the table that was computed for it.
#[derive(Debug)]
struct Kept {
    theta: f64,
    table: Option<Tensor>,
}

impl Angles {
    /// The angles for heads of `head_size` columns (`K`); `theta` is the RoPE base, `rope_theta` in
    /// transformers.
    pub fn new(head_size: usize, theta: f64) -> Self {
        Self { head_size, kept: Mutex::new(Kept { theta, table: None }) }
    }

    /// Sets the RoPE base for later calls. Models that are trained on rows of increasing length get a larger
    /// base ("ABF" of Xiong et al., "Effective Long-Context Scaling of Foundation Models", 2023).
    pub fn set_theta(&self, theta: f64) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.theta.total_cmp(&theta).is_ne() {
            *kept = Kept { theta, table: None };
        }
    }

    /// The number of columns of a head, `K`.
    pub fn head_size(&self) -> usize {
        self.head_size
    }

    /// The table `[P, K]` in f32 with `P >= places`. Row `p` has the cosines of the `K / 2` angles of
    /// position `p`, then their sines.
    pub(super) fn table(&self, places: usize, device: &Device) -> Result<Tensor> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(table) = &kept.table
            && table.device().same_device(device)
            && table.dim(0).is_ok_and(|kept_places| kept_places >= places)
        {
            return Ok(table.clone());
        }
        // Rounded up to a power of two, so that slowly growing lengths do not each need a new table.
        let places = places.next_power_of_two().max(LEAST_PLACES);
        let values = self.values(kept.theta, places);
        let table = Tensor::from_vec(values, (places, self.head_size), device)?;
        kept.table = Some(table.clone());
        Ok(table)
    }

    fn values(&self, theta: f64, places: usize) -> Vec<f32> {
        let frequencies = self.frequencies(theta);
        let mut values = Vec::with_capacity(places * self.head_size);
        for place in 0..places {
            let angles = frequencies.iter().map(|frequency| f64::from(place as f32 * frequency));
            values.extend(angles.clone().map(|angle| angle.cos() as f32));
            values.extend(angles.map(|angle| angle.sin() as f32));
        }
        values
    }

    /// `theta^(-2 j / K)` for each pair `j`. Exponent, power and inverse, and the angle in `values`, are each
    /// rounded to f32, as in transformers: at position 8,191, other roundings change the angle of a pair by
    /// up to 5e-4.
    fn frequencies(&self, theta: f64) -> Vec<f32> {
        let pairs = 0..self.head_size / 2;
        pairs
            .map(|pair| {
                let exponent = (2 * pair) as f32 / self.head_size as f32;
                let power = theta.powf(f64::from(exponent)) as f32;
                1.0 / power
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_kept_and_grows_for_longer_segments() {
        let angles = Angles::new(8, 10_000.0);
        let [first, same, longer, kept] =
            [3, LEAST_PLACES, LEAST_PLACES + 1, 3].map(|places| angles.table(places, &Device::Cpu).unwrap());
        assert_eq!(first.dims(), [LEAST_PLACES, 8]);
        assert_eq!(same.id(), first.id());
        assert_eq!(longer.dims(), [2 * LEAST_PLACES, 8]);
        assert_eq!(kept.id(), longer.id());
        let beginning = longer.narrow(0, 0, LEAST_PLACES).unwrap();
        assert_eq!(beginning.to_vec2::<f32>().unwrap(), first.to_vec2::<f32>().unwrap());
    }

    #[test]
    fn another_base_makes_another_table() {
        let angles = Angles::new(8, 10_000.0);
        let before = values(&angles);
        angles.set_theta(1e6);
        assert_eq!(values(&angles), values(&Angles::new(8, 1e6)));
        assert_ne!(values(&angles), before);
        let kept = angles.table(1, &Device::Cpu).unwrap().id();
        angles.set_theta(1e6);
        assert_eq!(angles.table(1, &Device::Cpu).unwrap().id(), kept, "the same base keeps its table");
    }

    fn values(angles: &Angles) -> Vec<f32> {
        angles.table(100, &Device::Cpu).unwrap().flatten_all().unwrap().to_vec1().unwrap()
    }

    /// The formula is evaluated in f64 without intermediate roundings, which agrees closely for small
    /// positions.
    #[test]
    fn angles_agree_with_the_formula() {
        for (head_size, theta) in [(64, 10_000.0), (64, 160_000.0), (6, 100.0), (2, 7.0)] {
            let table = Angles::new(head_size, theta).table(100, &Device::Cpu).unwrap();
            let rows = table.to_vec2::<f32>().unwrap();
            for (place, row) in rows.iter().enumerate().take(100) {
                for pair in 0..head_size / 2 {
                    let angle = place as f64 * theta.powf(-2.0 * pair as f64 / head_size as f64);
                    let got = [row[pair], row[head_size / 2 + pair]].map(f64::from);
                    let error = (got[0] - angle.cos()).abs().max((got[1] - angle.sin()).abs());
                    assert!(error < 2e-5, "place {place}, pair {pair} of {head_size}: off by {error:e}");
                }
            }
        }
    }
}
