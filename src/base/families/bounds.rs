//! Limits of the numbers that describe a model. A configuration and every `config.json` have the same limits,
//! so that a trained model can be read again.

use std::ops::RangeInclusive;

/// The largest epsilon of a layer norm. For comparison, hidden states have a variance of about 1.
pub const MOST_LAYER_NORM_EPS: f64 = 1.0;

/// The largest standard deviation of initial weights.
pub const MOST_INITIALIZER_RANGE: f64 = 1e3;

/// Permitted RoPE bases.
pub const ROPE_THETA: RangeInclusive<f64> = 1e-9..=1e12;
