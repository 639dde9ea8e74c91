//! GPUs for rent, with figures from their data sheets and approximate prices per hour.

use crate::ops::cuda::Properties;

/// Year in which the prices below were gathered.
pub const PRICES_AS_OF: &str = "2025";

/// Compute capability of the oldest generation that the kernels are compiled for.
const OLDEST: (u32, u32) = (7, 5);

/// A model of GPU for rent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rentable {
    /// Name that `--device` takes.
    pub name: &'static str,
    /// Name that its driver reports.
    pub driver_name: &'static str,
    /// Compute capability.
    pub capability: (u32, u32),
    /// Memory in MiB, as its driver reports it.
    pub memory_mib: u64,
    /// Bandwidth of its memory in GB/s.
    pub gigabytes_per_second: f64,
    /// Bandwidth of its link to the other GPUs of a machine, in GB/s per direction: NVLink, or PCIe if it has
    /// no NVLink.
    pub link_gigabytes_per_second: f64,
    /// Power of the board in watts.
    pub watts: f64,
    /// US dollars per hour for one GPU on demand: a round figure, since prices differ by a factor of two.
    pub usd_per_hour: f64,
}

impl Rentable {
    /// All models, the newest first.
    pub const ALL: [Self; 13] = [
        gpu("b200", "NVIDIA B200", (10, 0), 183_359, [8000.0, 900.0], 1000.0, 5.5),
        gpu("h200", "NVIDIA H200", (9, 0), 143_771, [4800.0, 450.0], 700.0, 3.5),
        gpu("h100", "NVIDIA H100 80GB HBM3", (9, 0), 81_559, [3350.0, 450.0], 700.0, 2.5),
        gpu("l40s", "NVIDIA L40S", (8, 9), 46_068, [864.0, 32.0], 350.0, 1.1),
        gpu("l4", "NVIDIA L4", (8, 9), 23_034, [300.0, 32.0], 72.0, 0.7),
        gpu("rtx-4090", "NVIDIA GeForce RTX 4090", (8, 9), 24_564, [1008.0, 32.0], 450.0, 0.45),
        gpu("a100-80", "NVIDIA A100-SXM4-80GB", (8, 0), 81_920, [2039.0, 300.0], 400.0, 1.8),
        gpu("a100-40", "NVIDIA A100-SXM4-40GB", (8, 0), 40_960, [1555.0, 300.0], 400.0, 1.3),
        gpu("a10g", "NVIDIA A10G", (8, 6), 23_028, [600.0, 32.0], 300.0, 1.0),
        gpu("rtx-3090", "NVIDIA GeForce RTX 3090", (8, 6), 24_576, [936.0, 32.0], 350.0, 0.25),
        gpu("t4", "Tesla T4", (7, 5), 15_360, [320.0, 16.0], 70.0, 0.5),
        gpu("v100-32", "Tesla V100-SXM2-32GB", (7, 0), 32_768, [900.0, 150.0], 300.0, 2.5),
        gpu("v100-16", "Tesla V100-SXM2-16GB", (7, 0), 16_384, [900.0, 150.0], 300.0, 2.0),
    ];

    /// The GPU with this name, in upper or lower case. `a100` is the one with 80 GB, `v100` the one with 16
    /// GB.
    pub fn named(name: &str) -> Option<Self> {
        let name = name.to_ascii_lowercase().replace([' ', '_'], "-");
        let name = match name.as_str() {
            "a100" => "a100-80",
            "v100" => "v100-16",
            other => other,
        };
        Self::ALL.into_iter().find(|gpu| gpu.name == name)
    }

    /// Returns true if the kernels are compiled for this GPU.
    pub fn is_served(&self) -> bool {
        self.capability >= OLDEST
    }

    /// The properties that the driver would report.
    pub fn properties(&self) -> Properties {
        Properties {
            ordinal: 0,
            uuid: String::new(),
            name: self.driver_name.to_string(),
            capability: self.capability,
            memory_bytes: self.memory_mib << 20,
        }
    }
}

const fn gpu(
    name: &'static str,
    driver_name: &'static str,
    capability: (u32, u32),
    memory_mib: u64,
    [gigabytes_per_second, link_gigabytes_per_second]: [f64; 2],
    watts: f64,
    usd_per_hour: f64,
) -> Rentable {
    Rentable {
        name,
        driver_name,
        capability,
        memory_mib,
        gigabytes_per_second,
        link_gigabytes_per_second,
        watts,
        usd_per_hour,
    }
}
