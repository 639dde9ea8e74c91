//! Passes records of a run to sinks: progress bar, `metrics.jsonl`, TensorBoard, MLflow, Prometheus. The
//! trainer never reads a number back from here.
//!
//! A sink that fails (a full disk, a closed pipe) is reported once and never stops training.

mod append_log;
mod gpu;
mod histogram;
pub mod log;
mod metrics;
mod mlflow;
mod outlets;
mod progress;
mod prometheus;
mod record;
mod results;
mod sink;
mod tensorboard;
mod throughput;
mod trainer_state;

pub use gpu::GpuDriver;
pub use gpu::GpuFacts;
pub use gpu::GpuMeter;
pub use gpu::GpuReading;
pub use gpu::gpu_driver;
pub use histogram::Histogram;
pub use histogram::SAMPLE;
pub use metrics::MetricsLog;
pub use outlets::METRICS;
pub use outlets::Outlets;
pub use progress::Progress;
pub use progress::Stage;
pub use progress::TrainingProgress;
pub use progress::Unit;
pub use progress::events;
pub use record::Record;
pub use results::write_results;
pub use sink::Sink;
pub use sink::Sinks;
pub use throughput::Throughput;
pub use trainer_state::TrainerState;

/// Converts a number to JSON, which lacks non-finite numbers: NaN, a value that was not measured, becomes
/// null, and the infinities become `"Infinity"` and `"-Infinity"`.
fn json_number(value: f64) -> serde_json::Value {
    match value {
        _ if value.is_nan() => serde_json::Value::Null,
        _ if value.is_infinite() => if value > 0.0 { "Infinity" } else { "-Infinity" }.into(),
        _ => value.into(),
    }
}
