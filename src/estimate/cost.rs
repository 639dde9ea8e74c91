//! Memory, time, energy and money of a run on one device.

use candle_core::DType;

use crate::config::BatchSize;
use crate::config::GradientCheckpointing;
use crate::config::TrainingConfig;
use crate::estimate::catalogue::Rentable;
use crate::estimate::work::Part;
use crate::estimate::work::Work;
use crate::machine::Place;
use crate::ops::peak::gpu::data_sheet;
use crate::precision;
use crate::precision::Hardware;
use crate::tasks::run::Shapes;
use crate::train::batch_size;
use crate::train::batch_size::GPU_RESERVE_BYTES;

/// The share of a GPU's data sheet that products of training are taken to reach.
pub const GPU_SHARE: f64 = 0.35;

/// Seconds that a micro-batch takes on a GPU at least: a small model waits for its launches.
pub const GPU_LEAST_SECONDS: f64 = 3e-3;

/// Share of a GPU's bandwidth that an update of the parameters reaches.
const BANDWIDTH_SHARE: f64 = 0.8;

/// Bytes of each parameter that an update reads or writes: value, gradient and two moments, all but the
/// gradient both ways, and the copy in a half type.
pub const UPDATE_BYTES: f64 = 30.0;

/// What checkpointing adds to a step: its forward pass once more.
const CHECKPOINTING_FACTOR: f64 = 4.0 / 3.0;

/// How a training fits into the memory of a device.
#[derive(Debug, Clone, PartialEq)]
pub struct Fitted {
    /// With the rows at once that fit.
    pub training: TrainingConfig,
    /// Memory of the largest step.
    pub needed_bytes: u64,
    /// Memory that a run may take there.
    pub room_bytes: u64,
    /// Whether it is as the configuration says, or something else that does the same updates.
    pub is_as_given: bool,
}

impl Fitted {
    /// The training as it is where it fits, else with gradient checkpointing, else with fewer rows at once and
    /// more micro-batches; `None` where not even one row fits.
    pub fn new(training: &TrainingConfig, shapes: &Shapes, place: Place, room_bytes: u64) -> Option<Self> {
        let as_given = |training: &TrainingConfig| {
            let needed_bytes = batch_size::predicted_bytes(training.rows_at_once(), training, shapes, place);
            let training = training.clone();
            (needed_bytes <= room_bytes).then_some((training, needed_bytes))
        };
        let open = TrainingConfig {
            per_device_train_batch_size: BatchSize::Auto,
            train_batch_size: Some(training.rows_per_update()),
            gradient_checkpointing: GradientCheckpointing::Auto,
            ..training.clone()
        };
        let light = TrainingConfig { gradient_checkpointing: GradientCheckpointing::On, ..training.clone() };
        let is_open = training.per_device_train_batch_size == BatchSize::Auto;
        let given = (!is_open).then(|| as_given(training)).flatten();
        let is_as_given = given.is_some() || is_open;
        let (training, needed_bytes) =
            given.or_else(|| (!is_open).then(|| as_given(&light)).flatten()).or_else(|| {
                let training = if is_open { training } else { &open };
                let fit = batch_size::fit_into(room_bytes, training, shapes, place).ok().flatten()?;
                as_given(&fit.training)
            })?;
        Some(Self { training, needed_bytes, room_bytes, is_as_given })
    }
}

/// What a run takes on a device.
#[derive(Debug, Clone, PartialEq)]
pub struct Estimate {
    /// The type that it computes in.
    pub compute: DType,
    /// How it fits.
    pub fitted: Fitted,
    /// Seconds of training.
    pub seconds: f64,
    /// Tokens of training a second.
    pub tokens_per_second: f64,
}

impl Estimate {
    /// On a GPU that is not here, where the configuration computes in `wanted`, or in the best type of each
    /// device where that is open. An error says why it cannot.
    pub fn on_gpu(
        gpu: &Rentable,
        training: &TrainingConfig,
        shapes: &Shapes,
        wanted: Option<DType>,
        tf32: bool,
        work: impl Fn(&TrainingConfig) -> Work,
    ) -> Result<Self, String> {
        if !gpu.is_served() {
            return Err("no code for it: a T4 or newer is wanted".to_string());
        }
        let properties = gpu.properties();
        let hardware = Hardware::gpu(&properties);
        let compute = wanted.unwrap_or_else(|| precision::dtype(hardware.best()));
        if hardware.support(compute) == precision::Support::Missing {
            return Err(format!("cannot compute in {}", compute.as_str()));
        }
        let place = Place { compute, on_gpu: true };
        let room_bytes = properties.memory_bytes.saturating_sub(GPU_RESERVE_BYTES);
        let fitted = Fitted::new(training, shapes, place, room_bytes)
            .ok_or_else(|| "does not fit, not even a row at a time".to_string())?;
        let peak = data_sheet(&properties.name, compute, tf32)
            .ok_or_else(|| format!("its speed in {} is not known", compute.as_str()))?;
        let on = fitted.training.gradient_checkpointing.is_on();
        let factor = if on { CHECKPOINTING_FACTOR } else { 1.0 };
        let parameters = shapes.outline.num_parameters() as f64;
        let update_seconds = parameters * UPDATE_BYTES / (BANDWIDTH_SHARE * gpu.gigabytes_per_second * 1e9);
        let seconds = |part: &Part| {
            let flops = shapes.outline.flops(&shapes.sizes(part.tokens_at_once(), part.length, on, place));
            (factor * flops / (GPU_SHARE * peak)).max(GPU_LEAST_SECONDS)
        };
        Ok(Self::of(fitted, compute, &work, |part| (seconds(part), update_seconds)))
    }

    /// Where a micro-batch of each size takes so many seconds, and an update so many besides.
    pub fn of(
        fitted: Fitted,
        compute: DType,
        work: &impl Fn(&TrainingConfig) -> Work,
        seconds: impl Fn(&Part) -> (f64, f64),
    ) -> Self {
        let work = work(&fitted.training);
        let of_part = |part: &Part| {
            let (micro_batch, update) = seconds(part);
            part.micro_batches as f64 * micro_batch + part.updates as f64 * update
        };
        let seconds: f64 = work.parts.iter().map(of_part).sum();
        Self { compute, fitted, seconds, tokens_per_second: work.tokens() as f64 / seconds }
    }

    /// Kilowatt-hours of a board of so many watts at full power.
    pub fn kilowatt_hours(&self, watts: f64) -> f64 {
        watts * self.seconds / 3.6e6
    }

    /// US dollars at so many an hour.
    pub fn usd(&self, per_hour: f64) -> f64 {
        per_hour * self.seconds / 3600.0
    }
}
