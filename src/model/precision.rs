//! The number types of a run.
//!
//! Parameters, moments and sums are always f32, gradients of parameters unless the configuration says
//! otherwise. The policy decides in which type the
//! model computes, and if the loss is scaled for it. The layers carry it out: `Parameters::computing_in`.

mod hardware;
mod loss_scale;

use candle_core::DType;

use base::error::Problem;
use config::{ComputeType, LossScaleConfig, PrecisionConfig, WeightGradients};

pub use hardware::{Hardware, Support};
pub use loss_scale::{LossScale, LossScaleState};

/// The number types of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// Type of activations, of their gradients, and of matrix products.
    pub compute: DType,
    /// Type of the gradients that matrix products write, f32 or bf16.
    pub weight_gradients: DType,
    /// Notes for the user about this type on this hardware.
    pub notes: Vec<String>,
    loss_scale: Option<LossScaleConfig>,
}

impl Policy {
    /// A policy without a configuration: this type on this hardware, regardless of its speed.
    pub fn plain(compute: ComputeType, hardware: &Hardware) -> Result<Self, Problem> {
        Self::new(&PrecisionConfig { compute: compute.into(), ..PrecisionConfig::default() }, hardware)
    }

    /// The policy of a configuration. If the hardware cannot compute in its type, the error names the types
    /// that it can compute in.
    pub fn new(config: &PrecisionConfig, hardware: &Hardware) -> Result<Self, Problem> {
        let compute = dtype(config.compute.known().unwrap_or_else(|| hardware.best()));
        let mut notes: Vec<String> = hardware.cap.iter().cloned().collect();
        match hardware.support(compute) {
            Support::Native => {}
            Support::Slow(why) => {
                notes.push(format!("note: `precision.compute: {}` is slow here: {why}", compute.as_str()));
            }
            Support::Missing => {
                let able = [DType::F32, DType::BF16, DType::F16]
                    .into_iter()
                    .filter(|dtype| hardware.support(*dtype) != Support::Missing);
                let able: Vec<String> = able.map(|dtype| format!("`{}`", dtype.as_str())).collect();
                return Err(Problem::usage(format!(
                    "{} cannot compute in {}",
                    hardware.name,
                    compute.as_str()
                ))
                .at("precision.compute")
                .hint(format!("it can in {}", able.join(" and "))));
            }
        }
        let mut weight_gradients = DType::F32;
        if config.weight_gradients == WeightGradients::Bf16 {
            if compute == DType::BF16 {
                weight_gradients = DType::BF16;
            } else {
                notes.push(format!(
                    "note: `precision.weight_gradients: bf16` has no effect: the run computes in {}",
                    compute.as_str()
                ));
            }
        }
        // bf16 has the exponents of f32, so values that fit into f32 do not overflow in it.
        let loss_scale = (compute == DType::F16).then(|| config.loss_scale.clone().unwrap_or_default());
        Ok(Self { compute, weight_gradients, notes, loss_scale })
    }

    /// The type by its name in configurations.
    pub fn compute_type(&self) -> ComputeType {
        let named = ComputeType::ALL.into_iter().find(|compute| dtype(*compute) == self.compute);
        named.unwrap_or(ComputeType::F32)
    }

    /// The loss scale at the start of a run; `None` if the type needs no scale.
    pub fn loss_scale(&self) -> Option<LossScale> {
        self.loss_scale.as_ref().map(LossScale::new)
    }
}

/// The type that a configuration names, for tensors.
pub fn dtype(compute: ComputeType) -> DType {
    match compute {
        ComputeType::F32 => DType::F32,
        ComputeType::Bf16 => DType::BF16,
        ComputeType::F16 => DType::F16,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ops::cuda::Properties;

    fn policy(compute: ComputeType, hardware: &Hardware) -> Result<Policy, Problem> {
        Policy::new(&PrecisionConfig { compute: compute.into(), ..PrecisionConfig::default() }, hardware)
    }

    #[test]
    fn a_cpu_computes_in_every_type_and_says_what_is_slow() {
        let without = Hardware {
            name: "the CPU".into(),
            bf16: Support::Slow("it widens".into()),
            f16: Support::Slow("it widens".into()),
            cap: None,
        };
        let f32 = policy(ComputeType::F32, &without).unwrap();
        assert_eq!((f32.compute, f32.notes.len(), f32.loss_scale()), (DType::F32, 0, None));
        let bf16 = policy(ComputeType::Bf16, &without).unwrap();
        assert_eq!((bf16.compute, bf16.loss_scale()), (DType::BF16, None));
        insta::assert_snapshot!(bf16.notes[0], @"note: `precision.compute: bf16` is slow here: it widens");
        let f16 = policy(ComputeType::F16, &Hardware { cap: None, ..Hardware::cpu() }).unwrap();
        assert_eq!(f16.loss_scale().unwrap().factor().to_bits(), 65536f64.to_bits());
        assert_eq!(f16.notes.len(), 1, "f16 is slow on every CPU");
        let native = Hardware { bf16: Support::Native, ..without };
        assert!(policy(ComputeType::Bf16, &native).unwrap().notes.is_empty());
        let capped = Hardware { cap: Some("note: it is capped".into()), ..native };
        assert_eq!(policy(ComputeType::F32, &capped).unwrap().notes, ["note: it is capped"]);
    }

    #[test]
    fn types_that_the_hardware_lacks_are_refused_with_those_that_it_has() {
        let turing = Hardware::gpu(&gpu("Tesla T4", (7, 5)));
        assert!(policy(ComputeType::Bf16, &Hardware::gpu(&gpu("NVIDIA A10", (8, 6)))).is_ok());
        assert!(policy(ComputeType::F16, &turing).is_ok());
        insta::assert_snapshot!(policy(ComputeType::Bf16, &turing).unwrap_err(), @r"
        precision.compute: GPU 0 `Tesla T4` cannot compute in bf16
          hint: it can in `f32` and `f16`
        ");
    }

    #[test]
    fn gradients_are_bf16_only_where_the_run_computes_in_bf16() {
        let hardware = Hardware::cpu();
        for (compute, want, notes) in [
            (ComputeType::Bf16, DType::BF16, 0),
            (ComputeType::F32, DType::F32, 1),
            (ComputeType::F16, DType::F32, 1),
        ] {
            let config = PrecisionConfig { compute: compute.into(), ..PrecisionConfig::default() };
            let plain = Policy::new(&config, &hardware).unwrap();
            assert_eq!(plain.weight_gradients, DType::F32);
            let config = PrecisionConfig { weight_gradients: WeightGradients::Bf16, ..config };
            let policy = Policy::new(&config, &hardware).unwrap();
            assert_eq!(policy.weight_gradients, want);
            assert_eq!(policy.notes.len() - plain.notes.len(), notes, "{:?}", policy.notes);
        }
    }

    fn gpu(name: &str, capability: (u32, u32)) -> Properties {
        Properties { ordinal: 0, uuid: String::new(), name: name.into(), capability, memory_bytes: 15 << 30 }
    }
}
