//! Peak speeds of GPUs from their data sheets, for dense matrices: the reference for the MFU (model FLOP
//! utilisation) of training on a GPU.
//!
//! Measured peaks are 75 to 90 % of these. MFU is usually quoted against the data sheet, so it is here, too.

use candle_core::DType;

/// TFLOP/s of one GPU model, without sparsity, with f32 accumulation.
struct Peak {
    /// Words that the name reported by the driver contains.
    name: &'static str,
    /// bf16 and f16 on tensor cores; GPUs before Ampere have f16 only.
    half: f64,
    /// f32 operands rounded to TF32, on tensor cores.
    tf32: f64,
    /// f32 without tensor cores.
    f32: f64,
}

/// The table of peaks. A GPU has the first entry whose name is part of the driver's name, so more specific
/// names come first.
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

/// Floating-point operations per second of products of `dtype`, from the data sheet of the GPU that the
/// driver calls `name`; `None` for a GPU that is not in the table. `tf32` selects TF32 for f32 products.
pub fn data_sheet(name: &str, dtype: DType, tf32: bool) -> Option<f64> {
    let peak = PEAKS.iter().find(|peak| contains_words(name, peak.name))?;
    let tera = match dtype {
        DType::BF16 | DType::F16 => peak.half,
        DType::F32 if tf32 => peak.tf32,
        DType::F32 => peak.f32,
        _ => return None,
    };
    Some(tera * 1e12)
}

/// Returns true if `name` contains the words of `part` in sequence, in capitals or not: `A100-SXM4-40GB`
/// contains `A100` but not `A10`.
fn contains_words(name: &str, part: &str) -> bool {
    let [name, part] = [name, part].map(|text| text.split([' ', '-', '_']).collect::<Vec<_>>());
    name.windows(part.len()).any(|window| window.iter().zip(&part).all(|(a, b)| a.eq_ignore_ascii_case(b)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_reported_by_drivers_are_found() {
        for (name, want) in [
            ("NVIDIA H200", Some(989.4)),
            ("NVIDIA H100 80GB HBM3", Some(989.4)),
            ("NVIDIA H100 PCIe", Some(756.0)),
            ("NVIDIA A100-SXM4-40GB", Some(312.0)),
            ("NVIDIA A10", Some(125.0)),
            ("NVIDIA A10G", Some(70.0)),
            ("NVIDIA L4", Some(121.0)),
            ("Tesla T4", Some(65.0)),
            ("NVIDIA GeForce RTX 4090", Some(165.2)),
            ("Quadro P400", None),
        ] {
            let peak = data_sheet(name, DType::BF16, false).map(|flops| flops / 1e12);
            assert_eq!(peak, want, "{name}");
        }
        assert_eq!(data_sheet("NVIDIA A100 80GB PCIe", DType::F32, true), Some(156e12));
        assert_eq!(data_sheet("NVIDIA A100 80GB PCIe", DType::F32, false), Some(19.5e12));
    }
}
