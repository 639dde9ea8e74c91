//! The two vectors of a `LayerNorm`.

use crate::layers::Init;
use crate::layers::ParameterId;
use crate::layers::Registry;

/// Scale and shift of a `LayerNorm`, and what is added to the variance.
#[derive(Debug, Clone, Copy)]
pub struct Norm {
    /// `[D]`.
    pub weight: ParameterId,
    /// `[D]`.
    pub bias: ParameterId,
    /// Added to the variance.
    pub eps: f64,
}

impl Norm {
    /// Registers `<name>.weight` and `<name>.bias`.
    pub fn new(registry: &mut Registry, name: &str, size: usize, eps: f64) -> Self {
        Self {
            weight: registry.vector(format!("{name}.weight"), size, Init::Ones),
            bias: registry.vector(format!("{name}.bias"), size, Init::Zeros),
            eps,
        }
    }
}
