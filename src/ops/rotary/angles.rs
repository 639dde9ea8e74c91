//! Cosines and sines of the angles of all places that were needed so far.

use std::sync::Mutex;
use std::sync::PoisonError;

use candle_core::Device;
use candle_core::Result;
use candle_core::Tensor;

/// Places of the first table.
const LEAST_PLACES: usize = 512;

/// By how much the pairs of a head are turned, the same for all layers and calls that share it: place `p` and
/// pair `j` by `p * theta^(-2 j / K)`.
///
/// The cosines and sines are computed for the first call, and again when a longer segment comes; they are
/// kept on the device of the last call.
#[derive(Debug)]
pub struct Angles {
    head_size: usize,
    kept: Mutex<Kept>,
}

/// The base of the angles, and the table that was made of it.
#[derive(Debug)]
struct Kept {
    theta: f64,
    table: Option<Tensor>,
}

impl Angles {
    /// For heads of `head_size` columns (K); `theta` is `rope_theta` of transformers.
    pub fn new(head_size: usize, theta: f64) -> Self {
        Self { head_size, kept: Mutex::new(Kept { theta, table: None }) }
    }

    /// Turns by another base from the next call on: models that are trained on longer and longer rows get a
    /// larger one ("ABF" of Xiong et al., "Effective Long-Context Scaling of Foundation Models", 2023).
    pub fn set_theta(&self, theta: f64) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.theta.total_cmp(&theta).is_ne() {
            *kept = Kept { theta, table: None };
        }
    }

    /// K.
    pub fn head_size(&self) -> usize {
        self.head_size
    }

    /// `[P, K]` in f32 for at least so many places: a row holds the cosines of the `K / 2` angles of its
    /// place, then their sines.
    pub(super) fn table(&self, places: usize, device: &Device) -> Result<Tensor> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let is_enough = |table: &&Tensor| {
            table.device().same_device(device) && table.dim(0).is_ok_and(|kept_places| kept_places >= places)
        };
        if let Some(table) = kept.table.as_ref().filter(is_enough) {
            return Ok(table.clone());
        }
        // Powers of two: lengths that grow little by little do not make a table each.
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

    /// `theta^(-2 j / K)` for each pair. Exponent, power, inverse and (above) angle are each rounded to f32,
    /// as transformers has them: at place 8,191 other roundings turn a pair by up to 5e-4.
    fn frequencies(&self, theta: f64) -> Vec<f32> {
        let exponent = |pair: usize| (2 * pair) as f32 / self.head_size as f32;
        let power = |pair| theta.powf(f64::from(exponent(pair))) as f32;
        (0..self.head_size / 2).map(|pair| 1.0 / power(pair)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_kept_and_grows_for_longer_segments() {
        let angles = Angles::new(8, 10_000.0);
        let table = |places| angles.table(places, &Device::Cpu).unwrap();
        let first = table(3);
        assert_eq!(first.dims(), [LEAST_PLACES, 8]);
        assert_eq!(table(LEAST_PLACES).id(), first.id());
        let longer = table(LEAST_PLACES + 1);
        assert_eq!(longer.dims(), [2 * LEAST_PLACES, 8]);
        assert_eq!(table(3).id(), longer.id());
        let rows = |table: &Tensor| table.narrow(0, 0, LEAST_PLACES).unwrap().to_vec2::<f32>().unwrap();
        assert_eq!(rows(&longer), rows(&first));
    }

    #[test]
    fn another_base_makes_another_table() {
        let angles = Angles::new(8, 10_000.0);
        let values = |angles: &Angles| {
            angles.table(100, &Device::Cpu).unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap()
        };
        let before = values(&angles);
        angles.set_theta(1e6);
        assert_eq!(values(&angles), values(&Angles::new(8, 1e6)));
        assert_ne!(values(&angles), before);
        let kept = angles.table(1, &Device::Cpu).unwrap().id();
        angles.set_theta(1e6);
        assert_eq!(angles.table(1, &Device::Cpu).unwrap().id(), kept, "the same base keeps its table");
    }

    /// In f64, without a rounding on the way: close as long as places are near.
    #[test]
    fn angles_are_those_of_the_formula() {
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
