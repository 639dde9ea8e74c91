//! Measures how a run uses its machine: share of the peak rate (MFU), memory, power, cost. It only observes.

use candle_core::Device;

use crate::machine::Machine;
use crate::telemetry::GpuMeter;
use ops::cuda;
use ops::peak::gpu::data_sheet;

/// Measurements of the machine of a run, and its price.
pub struct Meter {
    device: Device,
    /// Peak rate by the GPU's data sheet for the number type of the run.
    peak_flops: Option<f64>,
    gpu: Option<GpuMeter>,
    usd_per_hour: Option<f64>,
    /// Floating-point operations and seconds of steps since the last reading.
    flops: f64,
    seconds: f64,
}

impl Meter {
    /// A meter for a machine that costs `usd_per_hour`.
    pub fn new(machine: &Machine, tf32: bool, usd_per_hour: Option<f64>) -> Self {
        let gpu = cuda::properties(&machine.device);
        let peak_flops = gpu.as_ref().and_then(|gpu| data_sheet(&gpu.name, machine.policy.compute, tf32));
        let gpu = gpu.and_then(|gpu| GpuMeter::open(&gpu.uuid));
        Self { device: machine.device.clone(), peak_flops, gpu, usd_per_hour, flops: 0.0, seconds: 0.0 }
    }

    /// A meter without a GPU and a price, which reports nothing.
    pub fn silent() -> Self {
        Self {
            device: Device::Cpu,
            peak_flops: None,
            gpu: None,
            usd_per_hour: None,
            flops: 0.0,
            seconds: 0.0,
        }
    }

    /// Adds the floating-point operations and seconds of a step.
    pub fn step(&mut self, flops: f64, seconds: f64) {
        self.flops += flops;
        self.seconds += seconds;
    }

    /// Returns the values to log: utilisation and memory since the last call, the cost so far and per million
    /// tokens.
    pub fn take(&mut self, tokens_per_second: f64, elapsed_seconds: f64) -> Vec<(&'static str, f64)> {
        let flops = std::mem::take(&mut self.flops);
        let seconds = std::mem::take(&mut self.seconds);
        let reading = self.gpu.as_ref().map(GpuMeter::read).unwrap_or_default();
        let values = [
            ("perf/mfu", self.peak_flops.map(|peak| flops / seconds.max(1e-9) / peak)),
            ("perf/gpu_peak_memory_bytes", cuda::memory(&self.device).map(|memory| memory.peak_bytes as f64)),
            ("perf/gpu_utilisation", reading.utilisation),
            ("perf/gpu_power_watts", reading.power_watts),
            ("cost/usd", self.usd_per_hour.map(|usd| usd_in_all(usd, elapsed_seconds))),
            (
                "cost/usd_per_million_tokens",
                self.usd_per_hour.map(|usd| usd_per_million(usd, tokens_per_second)),
            ),
        ];
        values.into_iter().filter_map(|(tag, value)| Some((tag, value?))).collect()
    }
}

/// Dollars for the time of a run on a machine with this price.
pub fn usd_in_all(usd_per_hour: f64, elapsed_seconds: f64) -> f64 {
    usd_per_hour * elapsed_seconds / 3600.0
}

/// Dollars per million tokens on a machine with this price and speed.
pub fn usd_per_million(usd_per_hour: f64, tokens_per_second: f64) -> f64 {
    usd_per_hour / 3600.0 / tokens_per_second * 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_those_since_the_last_reading_and_money_that_of_the_run() {
        let mut meter = Meter { peak_flops: Some(1e12), usd_per_hour: Some(3.6), ..Meter::silent() };
        meter.step(1e12, 2.0);
        meter.step(1e12, 2.0);
        let values = meter.take(1e6, 1800.0);
        assert_eq!(values, [("perf/mfu", 0.5), ("cost/usd", 1.8), ("cost/usd_per_million_tokens", 0.001)]);
        meter.step(1e12, 4.0);
        assert_eq!(meter.take(1e6, 1800.0)[0], ("perf/mfu", 0.25));
        assert!(Meter::silent().take(1.0, 1.0).is_empty());
    }
}
