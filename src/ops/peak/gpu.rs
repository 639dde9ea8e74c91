//! Dense peaks of GPUs from their data sheets: what the speed of training is compared with there.
//!
//! Measured peaks are 75 to 90 % of these; the data sheet is what everybody's MFU is quoted against.

use candle_core::DType;

/// TFLOP/s of one kind of GPU, without sparsity, with f32 sums.
struct Peak {
    /// Part of the driver's name.
    name: &'static str,
    /// bf16 and f16 on tensor cores; bf16 only from Ampere on.
    half: f64,
    /// f32 operands rounded to TF32.
    tf32: f64,
    /// f32 outside of tensor cores.
    f32: f64,
}

/// The first whose name is part of the driver's: more particular names stand first.
const PEAKS: [Peak; 23] = [
    Peak { name: "B200", half: 2250.0, tf32: 1125.0, f32: 75.0 },
    Peak { name: "GH200", half: 989.4, tf32: 494.7, f32: 66.9 },
    Peak { name: "H200", half: 989.4, tf32: 494.7, f32: 66.9 },
    Peak { name: "H100 PCIe", half: 756.0, tf32: 378.0, f32: 51.2 },
    Peak { name: "H100 NVL", half: 835.0, tf32: 417.5, f32: 60.0 },
    Peak { name: "H100", half: 989.4, tf32: 494.7, f32: 66.9 },
    Peak { name: "A100", half: 312.0, tf32: 156.0, f32: 19.5 },
    Peak { name: "A800", half: 312.0, tf32: 156.0, f32: 19.5 },
    Peak { name: "A30", half: 165.0, tf32: 82.0, f32: 10.3 },
    Peak { name: "A40", half: 149.7, tf32: 74.8, f32: 37.4 },
    Peak { name: "A10G", half: 70.0, tf32: 35.0, f32: 31.5 },
    Peak { name: "A10", half: 125.0, tf32: 62.5, f32: 31.2 },
    Peak { name: "A2", half: 18.0, tf32: 9.0, f32: 4.5 },
    Peak { name: "L40S", half: 362.0, tf32: 183.0, f32: 91.6 },
    Peak { name: "L40", half: 181.0, tf32: 90.5, f32: 90.5 },
    Peak { name: "L4", half: 121.0, tf32: 60.0, f32: 30.3 },
    Peak { name: "RTX 6000 Ada", half: 364.2, tf32: 182.1, f32: 91.1 },
    Peak { name: "RTX A6000", half: 154.8, tf32: 77.4, f32: 38.7 },
    Peak { name: "RTX 4090", half: 165.2, tf32: 82.6, f32: 82.6 },
    Peak { name: "RTX 4080", half: 97.5, tf32: 48.7, f32: 48.7 },
    Peak { name: "RTX 3090", half: 71.0, tf32: 35.6, f32: 35.6 },
    Peak { name: "RTX 3080", half: 59.5, tf32: 29.8, f32: 29.8 },
    Peak { name: "T4", half: 65.0, tf32: 8.1, f32: 8.1 },
];

/// Floating-point operations a second that the data sheet of the GPU with this name says of products of
/// `dtype`; `None` for a GPU that is not in the table.
pub fn data_sheet(name: &str, dtype: DType, tf32: bool) -> Option<f64> {
    let peak = PEAKS.iter().find(|peak| words_of(name, peak.name))?;
    let tera = match dtype {
        DType::BF16 | DType::F16 => peak.half,
        DType::F32 if tf32 => peak.tf32,
        DType::F32 => peak.f32,
        _ => return None,
    };
    Some(tera * 1e12)
}

/// Whether the words of `part` stand in `name`: `A10` is no part of `A100`, but `A100` is one of
/// `A100-SXM4-40GB`.
fn words_of(name: &str, part: &str) -> bool {
    let words = |text: &str| text.split([' ', '-', '_']).map(str::to_string).collect::<Vec<_>>();
    let (name, part) = (words(name), words(part));
    name.windows(part.len()).any(|window| window == part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_as_drivers_give_them_are_found() {
        let half = |name| data_sheet(name, DType::BF16, false).map(|flops| flops / 1e12);
        assert_eq!(half("NVIDIA H200"), Some(989.4));
        assert_eq!(half("NVIDIA H100 80GB HBM3"), Some(989.4));
        assert_eq!(half("NVIDIA H100 PCIe"), Some(756.0));
        assert_eq!(half("NVIDIA A100-SXM4-40GB"), Some(312.0));
        assert_eq!(half("NVIDIA A10"), Some(125.0));
        assert_eq!(half("NVIDIA A10G"), Some(70.0));
        assert_eq!(half("NVIDIA L4"), Some(121.0));
        assert_eq!(half("Tesla T4"), Some(65.0));
        assert_eq!(half("NVIDIA GeForce RTX 4090"), Some(165.2));
        assert_eq!(half("Quadro P400"), None);
        assert_eq!(data_sheet("NVIDIA A100 80GB PCIe", DType::F32, true), Some(156e12));
        assert_eq!(data_sheet("NVIDIA A100 80GB PCIe", DType::F32, false), Some(19.5e12));
    }
}
