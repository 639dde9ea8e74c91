//! Reads a file of prices with lines like `h100: 1.99`: a device and its price per hour in US dollars.

use std::path::Path;

use crate::load;
use crate::tree::Value;
use base::error::{Problem, Problems};

/// Hint for errors in such a file.
const SHAPE: &str = "write a device and what an hour of it costs in US dollars, `h100: 1.99`, a line each";

/// The price of a device.
#[derive(Debug, Clone, PartialEq)]
pub struct Price {
    /// Name of the device in the file.
    pub device: String,
    /// Price of an hour in US dollars, not negative.
    pub usd_per_hour: f64,
    /// Place of the price in the file, for errors.
    pub place: String,
}

/// Reads a file of prices; reports every line that is not a price.
pub fn load_prices(path: &Path) -> Result<Vec<Price>, Problems> {
    let root = load::read(path, &[])?;
    let mut prices = Vec::new();
    let mut problems = Vec::new();
    if root.entries().is_empty() {
        problems.push(Problem::usage("holds no prices").at(path.display()).hint(SHAPE));
    }
    for entry in root.entries() {
        let usd_per_hour = match entry.node.value {
            Value::Integer(usd) => Some(usd as f64),
            Value::Float(usd) => Some(usd),
            _ => None,
        };
        let device = entry.key.clone();
        let place = entry.place.shown();
        if let Some(usd_per_hour) = usd_per_hour.filter(|usd| usd.is_finite() && *usd >= 0.0) {
            prices.push(Price { device, usd_per_hour, place });
        } else {
            let message = format!("the price is {}", entry.node.value.described());
            problems.push(Problem::usage(message).at(place).hint(SHAPE));
        }
    }
    if problems.is_empty() { Ok(prices) } else { Err(Problems(problems)) }
}
