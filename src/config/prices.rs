//! A file of prices: `h100: 1.99` a line, a device and what an hour of it costs in US dollars.

use std::path::Path;

use crate::config::load;
use crate::config::tree::Value;
use crate::error::Problem;
use crate::error::Problems;

/// How such a file looks.
const SHAPE: &str = "write a device and what an hour of it costs in US dollars, `h100: 1.99`, a line each";

/// What an hour of a device costs.
#[derive(Debug, Clone, PartialEq)]
pub struct Price {
    /// As the file names it.
    pub device: String,
    /// In US dollars, not negative.
    pub usd_per_hour: f64,
    /// Where it stands, for errors.
    pub place: String,
}

/// Reads a file of prices; every line that is none is reported.
pub fn load_prices(path: &Path) -> Result<Vec<Price>, Problems> {
    let root = load::read(path, &[])?;
    let (mut prices, mut problems) = (Vec::new(), Vec::new());
    if root.entries().is_empty() {
        problems.push(Problem::usage("holds no prices").at(path.display()).hint(SHAPE));
    }
    for entry in root.entries() {
        let usd_per_hour = match entry.node.value {
            Value::Integer(usd) => Some(usd as f64),
            Value::Float(usd) => Some(usd),
            _ => None,
        };
        let (device, place) = (entry.key.clone(), entry.place.shown());
        if let Some(usd_per_hour) = usd_per_hour.filter(|usd| usd.is_finite() && *usd >= 0.0) {
            prices.push(Price { device, usd_per_hour, place });
        } else {
            let message = format!("the price is {}", entry.node.value.described());
            problems.push(Problem::usage(message).at(place).hint(SHAPE));
        }
    }
    if problems.is_empty() { Ok(prices) } else { Err(Problems(problems)) }
}
