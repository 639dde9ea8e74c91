//! Reads the list of GPUs, their utilisation and their power draw from NVIDIA's management library (NVML);
//! returns nothing if the library is missing.

use serde::Serialize;

/// The readings of one GPU.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct GpuReading {
    /// Fraction of NVML's last sampling period in which a kernel ran, from 0 to 1.
    pub utilisation: Option<f64>,
    /// Power draw at the moment.
    pub power_watts: Option<f64>,
}

/// The version of NVIDIA's driver and the GPUs that it knows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GpuDriver {
    /// The driver's version, such as `580.95.05`.
    pub version: Option<String>,
    /// All GPUs in the order of NVML, which ignores `CUDA_VISIBLE_DEVICES`.
    pub gpus: Vec<GpuFacts>,
}

/// Fixed properties of a GPU, and its free memory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct GpuFacts {
    /// Name of the model, as the driver gives it.
    pub name: Option<String>,
    /// UUID, the same in all of NVIDIA's tools.
    pub uuid: Option<String>,
    /// CUDA compute capability, such as `8.0`.
    pub compute_capability: Option<String>,
    /// Size of the GPU's memory.
    pub total_bytes: Option<u64>,
    /// Memory that no process has allocated.
    pub free_bytes: Option<u64>,
}

/// Returns the driver and all GPUs; `None` without NVML.
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

/// Returns `None`: this build has no NVML.
#[cfg(not(feature = "cuda"))]
pub fn gpu_driver() -> Option<GpuDriver> {
    None
}

/// A handle for readings of one GPU.
pub struct GpuMeter {
    #[cfg(feature = "cuda")]
    nvml: nvml_wrapper::Nvml,
    #[cfg(feature = "cuda")]
    uuid: String,
}

impl GpuMeter {
    /// Opens the meter of the GPU with this UUID (`GPU-...`); `None` without NVML. GPUs are found by UUID
    /// because CUDA numbers them differently from NVML if some are hidden.
    #[cfg(feature = "cuda")]
    pub fn open(uuid: &str) -> Option<Self> {
        Some(Self { nvml: nvml_wrapper::Nvml::init().ok()?, uuid: uuid.to_string() })
    }

    /// Returns `None`: this build has no GPU support.
    #[cfg(not(feature = "cuda"))]
    pub fn open(_: &str) -> Option<Self> {
        None
    }

    /// Returns the present utilisation and power draw.
    #[cfg(feature = "cuda")]
    pub fn read(&self) -> GpuReading {
        let Ok(device) = self.nvml.device_by_uuid(self.uuid.as_str()) else { return GpuReading::default() };
        GpuReading {
            utilisation: device.utilization_rates().ok().map(|rates| f64::from(rates.gpu) / 100.0),
            power_watts: device.power_usage().ok().map(|milliwatts| f64::from(milliwatts) / 1000.0),
        }
    }

    /// Returns no readings: this build has no GPU support.
    #[cfg(not(feature = "cuda"))]
    pub fn read(&self) -> GpuReading {
        GpuReading::default()
    }
}
