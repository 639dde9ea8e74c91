//! Which GPUs there are, how busy one is and what it draws, as NVIDIA's management library (NVML) says;
//! nothing where that is not there.

use serde::Serialize;

/// The readings of one GPU.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct GpuReading {
    /// Share of the last moments in which a kernel ran.
    pub utilisation: Option<f64>,
    /// What it draws now.
    pub power_watts: Option<f64>,
}

/// What the driver says of itself and its GPUs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GpuDriver {
    /// Such as `580.95.05`.
    pub version: Option<String>,
    /// In the order of NVML, which hides none.
    pub gpus: Vec<GpuFacts>,
}

/// What does not depend on what a GPU computes, and its free memory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct GpuFacts {
    /// As the driver calls it.
    pub name: Option<String>,
    /// The same in NVIDIA's other tools.
    pub uuid: Option<String>,
    /// Its generation, as `8.0`.
    pub compute_capability: Option<String>,
    /// All of its memory.
    pub total_bytes: Option<u64>,
    /// What no process has taken.
    pub free_bytes: Option<u64>,
}

/// The driver and all GPUs; `None` without NVML.
#[cfg(feature = "cuda")]
pub fn gpu_driver() -> Option<GpuDriver> {
    let nvml = nvml_wrapper::Nvml::init().ok()?;
    let facts = |index| {
        let Ok(gpu) = nvml.device_by_index(index) else { return GpuFacts::default() };
        let memory = gpu.memory_info().ok();
        GpuFacts {
            name: gpu.name().ok(),
            uuid: gpu.uuid().ok(),
            compute_capability: gpu
                .cuda_compute_capability()
                .ok()
                .map(|it| format!("{}.{}", it.major, it.minor)),
            total_bytes: memory.as_ref().map(|memory| memory.total),
            free_bytes: memory.as_ref().map(|memory| memory.free),
        }
    };
    let count = nvml.device_count().unwrap_or(0);
    Some(GpuDriver { version: nvml.sys_driver_version().ok(), gpus: (0..count).map(facts).collect() })
}

/// There is no NVML in this build.
#[cfg(not(feature = "cuda"))]
pub fn gpu_driver() -> Option<GpuDriver> {
    None
}

/// A door to the readings of one GPU.
pub struct GpuMeter {
    #[cfg(feature = "cuda")]
    nvml: nvml_wrapper::Nvml,
    #[cfg(feature = "cuda")]
    uuid: String,
}

impl GpuMeter {
    /// The meter of the GPU with this UUID (`GPU-...`: CUDA's own numbers are not NVML's where some GPUs are
    /// hidden); `None` without NVML.
    #[cfg(feature = "cuda")]
    pub fn open(uuid: &str) -> Option<Self> {
        Some(Self { nvml: nvml_wrapper::Nvml::init().ok()?, uuid: uuid.to_string() })
    }

    /// There is no GPU in this build.
    #[cfg(not(feature = "cuda"))]
    pub fn open(_: &str) -> Option<Self> {
        None
    }

    /// What the GPU does now.
    #[cfg(feature = "cuda")]
    pub fn read(&self) -> GpuReading {
        let Ok(device) = self.nvml.device_by_uuid(self.uuid.as_str()) else { return GpuReading::default() };
        GpuReading {
            utilisation: device.utilization_rates().ok().map(|rates| f64::from(rates.gpu) / 100.0),
            power_watts: device.power_usage().ok().map(|milliwatts| f64::from(milliwatts) / 1000.0),
        }
    }

    /// There is no GPU in this build.
    #[cfg(not(feature = "cuda"))]
    pub fn read(&self) -> GpuReading {
        GpuReading::default()
    }
}
