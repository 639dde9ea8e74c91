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

pub use gpu::{GpuDriver, GpuFacts, GpuMeter, GpuReading, gpu_driver};
pub use histogram::{Histogram, SAMPLE};
pub use metrics::MetricsLog;
pub use outlets::{METRICS, Outlets};
pub use progress::{Progress, Stage, TrainingProgress, Unit, events};
pub use record::Record;
pub use results::write_results;
pub use sink::{Sink, Sinks};
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
