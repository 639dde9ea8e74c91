//! How large the numbers of a model may be: the same in a configuration and in every `config.json`, so that what is
//! trained can be read again.

use std::ops::RangeInclusive;

/// The largest epsilon of a layer norm; hidden states have a variance of about 1.
pub const MOST_LAYER_NORM_EPS: f64 = 1.0;

/// The largest standard deviation of weights that are drawn.
pub const MOST_INITIALIZER_RANGE: f64 = 1e3;

/// The base of the angles of rotary positions.
pub const ROPE_THETA: RangeInclusive<f64> = 1e-9..=1e12;
