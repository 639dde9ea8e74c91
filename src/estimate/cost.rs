//! Memory, time, energy and money of a run on one device.

use candle_core::DType;

use crate::config::BatchSize;
use crate::config::GradientCheckpointing;
use crate::config::TrainingConfig;
use crate::estimate::catalogue::Rentable;
use crate::estimate::work::Part;
use crate::estimate::work::Work;
use crate::machine::Place;
use crate::models::memory::Prediction;
use crate::ops::peak::gpu::data_sheet;
use crate::precision;
use crate::precision::Hardware;
use crate::tasks::run::Shapes;
use crate::train::batch_size;
use crate::train::batch_size::GPU_RESERVE_BYTES;

/// The share of a GPU's data sheet that products of training are taken to reach.
pub const GPU_SHARE: f64 = 0.35;

/// Seconds that a micro-batch takes on a GPU at least: a small model waits for its launches.
const GPU_LEAST_SECONDS: f64 = 3e-3;

/// Share of a GPU's bandwidth that an update of the parameters reaches.
const BANDWIDTH_SHARE: f64 = 0.8;

/// Bytes of each parameter that an update reads or writes: value, gradient and two moments, all but the
/// gradient both ways, and the copy in a half type.
pub const UPDATE_BYTES: f64 = 30.0;

/// What checkpointing adds to a step: its forward pass once more.
const CHECKPOINTING_FACTOR: f64 = 4.0 / 3.0;

/// Seconds of a micro-batch of so many floating-point operations on a GPU whose data sheet says so many a
/// second.
pub fn gpu_seconds(flops: f64, peak_flops: f64) -> f64 {
    (flops / (GPU_SHARE * peak_flops)).max(GPU_LEAST_SECONDS)
}

/// How a training fits into the memory of a device.
#[derive(Debug, Clone, PartialEq)]
pub struct Fitted {
    /// With the rows at once that fit.
    pub training: TrainingConfig,
    /// Memory of the largest step, by parts.
    pub prediction: Prediction,
    /// Memory that a run may take there.
    pub room_bytes: u64,
    /// The most rows at once that would fit.
    pub most_rows: usize,
    /// Whether it is as the configuration says, or something else that does the same updates.
    pub is_as_given: bool,
}

impl Fitted {
    /// The training as it is where it fits, else with gradient checkpointing, else with fewer rows at once
    /// and more micro-batches; `None` where not even one row fits.
    pub fn new(training: &TrainingConfig, shapes: &Shapes, place: Place, room_bytes: u64) -> Option<Self> {
        let needed = |training: &TrainingConfig| {
            batch_size::predicted_bytes(training.rows_at_once(), training, shapes, place)
        };
        let fit = |training: &TrainingConfig| batch_size::fit_into(room_bytes, training, shapes, place).ok();
        // What the configuration leaves open is settled as a run settles it.
        let given = fit(training)?.map_or_else(|| training.clone(), |fit| fit.training);
        let light = TrainingConfig { gradient_checkpointing: GradientCheckpointing::On, ..given.clone() };
        let cut = || {
            let open = TrainingConfig {
                per_device_train_batch_size: BatchSize::Auto,
                train_batch_size: Some(given.rows_per_update()),
                gradient_checkpointing: GradientCheckpointing::Auto,
                ..given.clone()
            };
            Some(fit(&open)??.training)
        };
        let is_as_given = needed(&given) <= room_bytes;
        let training = if is_as_given {
            given
        } else if needed(&light) <= room_bytes {
            light
        } else {
            cut()?
        };
        Some(Self {
            prediction: batch_size::predicted(training.rows_at_once(), &training, shapes, place),
            most_rows: batch_size::most_rows_at_once(&training, shapes, place, room_bytes),
            training,
            room_bytes,
            is_as_given,
        })
    }

    /// Memory at the peak.
    pub fn peak_bytes(&self) -> u64 {
        self.prediction.peak(self.room_bytes)
    }
}

/// Micro-batches of one size, and what they take on a device.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Timed {
    /// How many there are.
    pub part: Part,
    /// Seconds of one of them.
    pub micro_batch_seconds: f64,
    /// Seconds that an update takes besides.
    pub update_seconds: f64,
}

impl Timed {
    fn seconds(&self) -> f64 {
        self.part.micro_batches as f64 * self.micro_batch_seconds
            + self.part.updates as f64 * self.update_seconds
    }
}

/// What a run takes on a device.
#[derive(Debug, Clone, PartialEq)]
pub struct Estimate {
    /// The type that it computes in.
    pub compute: DType,
    /// How it fits.
    pub fitted: Fitted,
    /// The parts of the work, and what each takes.
    pub timed: Vec<Timed>,
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
        let place = Place::alone(compute, true);
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
            (gpu_seconds(factor * flops, peak), update_seconds)
        };
        let work = work(&fitted.training);
        let seconds: Vec<(f64, f64)> = work.parts.iter().map(seconds).collect();
        Ok(Self::of(fitted, compute, &work, &seconds))
    }

    /// Where a micro-batch of each part of the work takes so many seconds, and an update so many besides.
    pub fn of(fitted: Fitted, compute: DType, work: &Work, seconds: &[(f64, f64)]) -> Self {
        let timed = |(&part, &(micro_batch_seconds, update_seconds)): (&Part, &(f64, f64))| Timed {
            part,
            micro_batch_seconds,
            update_seconds,
        };
        let timed: Vec<Timed> = work.parts.iter().zip(seconds).map(timed).collect();
        let seconds: f64 = timed.iter().map(Timed::seconds).sum();
        Self { compute, fitted, timed, seconds, tokens_per_second: work.tokens() as f64 / seconds }
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
