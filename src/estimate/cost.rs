//! Memory, time, energy and cost of a run on one device.

use candle_core::DType;

use crate::config::{BatchSize, GradientCheckpointing, PrecisionConfig, TrainingConfig};
use crate::estimate::catalogue::Rentable;
use crate::estimate::work::{Part, Work};
use crate::machine::Place;
use crate::models::memory::Prediction;
use crate::ops::peak::gpu::data_sheet;
use crate::optim;
use crate::precision::{Hardware, Policy};
use crate::tasks::run::Shapes;
use crate::train::auto_batch_size;
use crate::train::auto_batch_size::GPU_RESERVE_BYTES;

/// Share of the peak on a GPU's data sheet that the matrix products of training are assumed to reach.
pub const GPU_SHARE: f64 = 0.35;

/// Shortest time of a micro-batch on a GPU, in seconds: a small model waits for its kernel launches.
const GPU_LEAST_SECONDS: f64 = 3e-3;

/// Share of a GPU's bandwidth that an update of the parameters reaches.
const BANDWIDTH_SHARE: f64 = 0.8;

/// Bytes that an update reads or writes for each parameter: value and gradient, the value in both directions,
/// and the copy in a half type.
const PARAMETER_BYTES: u64 = 14;

/// Bytes that an update reads or writes: parameters, and the optimizer's state in both directions.
pub fn update_bytes(shapes: &Shapes, training: &TrainingConfig) -> f64 {
    (PARAMETER_BYTES * shapes.outline.num_parameters() + 8 * shapes.state_values(training)) as f64
}

/// Factor of gradient checkpointing on the time of a step: the forward pass runs a second time.
const CHECKPOINTING_FACTOR: f64 = 4.0 / 3.0;

/// Seconds of a micro-batch of `flops` floating-point operations on a GPU whose data sheet promises
/// `peak_flops` per second.
pub fn gpu_seconds(flops: f64, peak_flops: f64) -> f64 {
    (flops / (GPU_SHARE * peak_flops)).max(GPU_LEAST_SECONDS)
}

/// A training configuration that fits into the memory of a device.
#[derive(Debug, Clone, PartialEq)]
pub struct Fitted {
    /// The configuration, with a number of rows at once that fits.
    pub training: TrainingConfig,
    /// Memory of the largest step, by parts.
    pub prediction: Prediction,
    /// Memory that a run may use on the device.
    pub room_bytes: u64,
    /// The largest number of rows at once that would fit.
    pub most_rows: usize,
    /// True if this is the given configuration; otherwise it is another one that does the same updates.
    pub is_as_given: bool,
}

impl Fitted {
    /// Keeps the configuration if it fits. Otherwise turns on gradient checkpointing; if that is not enough,
    /// takes fewer rows at once and more micro-batches. `None` if not even one row fits.
    pub fn new(training: &TrainingConfig, shapes: &Shapes, place: Place, room_bytes: u64) -> Option<Self> {
        // Settings that the configuration leaves open are chosen as a run would choose them.
        let fit = auto_batch_size::fit_into(room_bytes, training, shapes, place).ok()?;
        let given = fit.map_or_else(|| training.clone(), |fit| fit.training);
        let light = TrainingConfig { gradient_checkpointing: GradientCheckpointing::On, ..given.clone() };
        let is_as_given = fits(&given, shapes, place, room_bytes);
        let training = if is_as_given {
            given
        } else if fits(&light, shapes, place, room_bytes) {
            light
        } else {
            with_fewer_rows(given, shapes, place, room_bytes)?
        };
        Some(Self {
            prediction: auto_batch_size::predicted(training.rows_at_once(), &training, shapes, place),
            most_rows: auto_batch_size::most_rows_at_once(&training, shapes, place, room_bytes),
            training,
            room_bytes,
            is_as_given,
        })
    }

    /// Peak memory in bytes.
    pub fn peak_bytes(&self) -> u64 {
        self.prediction.peak(self.room_bytes)
    }
}

fn fits(training: &TrainingConfig, shapes: &Shapes, place: Place, room_bytes: u64) -> bool {
    auto_batch_size::predicted_bytes(training.rows_at_once(), training, shapes, place) <= room_bytes
}

/// A configuration with the same rows per update and with fewer rows at once; `None` if not even one row
/// fits.
fn with_fewer_rows(
    given: TrainingConfig,
    shapes: &Shapes,
    place: Place,
    room_bytes: u64,
) -> Option<TrainingConfig> {
    let open = TrainingConfig {
        per_device_train_batch_size: BatchSize::Auto,
        train_batch_size: Some(given.rows_per_update()),
        gradient_checkpointing: GradientCheckpointing::Auto,
        ..given
    };
    Some(auto_batch_size::fit_into(room_bytes, &open, shapes, place).ok()??.training)
}

/// Micro-batches of one size, and their time on a device.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Timed {
    /// Size and number of the micro-batches.
    pub part: Part,
    /// Seconds of one micro-batch.
    pub micro_batch_seconds: f64,
    /// Seconds of an update, in addition to its micro-batches.
    pub update_seconds: f64,
}

impl Timed {
    fn seconds(&self) -> f64 {
        self.part.micro_batches as f64 * self.micro_batch_seconds
            + self.part.updates as f64 * self.update_seconds
    }
}

/// Memory and time of a run on a device.
#[derive(Debug, Clone, PartialEq)]
pub struct Estimate {
    /// Number type of the computation.
    pub compute: DType,
    /// The configuration that fits.
    pub fitted: Fitted,
    /// Parts of the work, with their times.
    pub timed: Vec<Timed>,
    /// Seconds of training.
    pub seconds: f64,
    /// Tokens per second of training.
    pub tokens_per_second: f64,
}

impl Estimate {
    /// Estimates a run on a GPU that is not in this machine, which computes in the best type of the GPU if
    /// `precision` leaves it open. The error is the reason why the run is not possible.
    pub fn on_gpu(
        gpu: &Rentable,
        training: &TrainingConfig,
        shapes: &Shapes,
        precision: &PrecisionConfig,
        work: impl Fn(&TrainingConfig) -> Work,
    ) -> Result<Self, String> {
        if !gpu.is_served() {
            return Err("no code for it: a T4 or newer is wanted".to_string());
        }
        let properties = gpu.properties();
        let hardware = Hardware::gpu(&properties);
        let Ok(policy) = Policy::new(precision, &hardware) else {
            let wanted = precision.compute.known().unwrap_or_else(|| hardware.best());
            return Err(format!("cannot compute in {}", wanted.name()));
        };
        let Policy { compute, weight_gradients, .. } = policy;
        let place = Place { weight_gradients, ..Place::alone(compute, true) };
        let room_bytes = properties.memory_bytes.saturating_sub(GPU_RESERVE_BYTES);
        let fitted = Fitted::new(training, shapes, place, room_bytes)
            .ok_or_else(|| "does not fit, not even a row at a time".to_string())?;
        let peak = data_sheet(&properties.name, compute, precision.tf32)
            .ok_or_else(|| format!("its speed in {} is not known", compute.as_str()))?;
        let on = fitted.training.gradient_checkpointing.is_on();
        let factor = if on { CHECKPOINTING_FACTOR } else { 1.0 };
        let bytes_per_second = BANDWIDTH_SHARE * gpu.gigabytes_per_second * 1e9;
        let update_flops = optim::update_flops(shapes.outline.layout(), training);
        let update_seconds =
            update_bytes(shapes, training) / bytes_per_second + update_flops / (GPU_SHARE * peak);
        let work = work(&fitted.training);
        let seconds = work.parts.iter().map(|part| {
            let sizes = shapes.sizes(part.tokens_at_once(), part.length, on, place);
            let flops = shapes.outline.flops(&sizes.predicting_all(part.is_causal));
            (gpu_seconds(factor * flops, peak), update_seconds)
        });
        let seconds: Vec<(f64, f64)> = seconds.collect();
        Ok(Self::of(fitted, compute, &work, &seconds))
    }

    /// The estimate from times: `seconds` has, for each part of the work, those of a micro-batch and of an
    /// update.
    pub fn of(fitted: Fitted, compute: DType, work: &Work, seconds: &[(f64, f64)]) -> Self {
        let timed: Vec<Timed> = work
            .parts
            .iter()
            .zip(seconds)
            .map(|(&part, &(micro_batch_seconds, update_seconds))| Timed {
                part,
                micro_batch_seconds,
                update_seconds,
            })
            .collect();
        let seconds: f64 = timed.iter().map(Timed::seconds).sum();
        Self { compute, fitted, timed, seconds, tokens_per_second: work.tokens() as f64 / seconds }
    }

    /// Energy in kilowatt-hours of a board that always draws `watts`.
    pub fn kilowatt_hours(&self, watts: f64) -> f64 {
        watts * self.seconds / 3.6e6
    }

    /// Cost in US dollars, at `per_hour` dollars per hour.
    pub fn usd(&self, per_hour: f64) -> f64 {
        per_hour * self.seconds / 3600.0
    }
}
