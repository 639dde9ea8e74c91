//! How busy a GPU is and what it draws, as NVIDIA's management library (NVML) says; nothing where that is not
//! there.

/// The readings of one GPU.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct GpuReading {
    /// Share of the last moments in which a kernel ran.
    pub utilisation: Option<f64>,
    /// What it draws now.
    pub power_watts: Option<f64>,
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
