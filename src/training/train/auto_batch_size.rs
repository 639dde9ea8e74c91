//! Chooses the rows of a micro-batch and whether to use gradient checkpointing: the largest choice that fits
//! into memory by the prediction of `models/memory`.
//!
//! The rows of an update stay those of the configuration: smaller micro-batches mean more of them. Neither
//! masking nor dropout depends on the size of a micro-batch, and gradient checkpointing changes no number.

use std::fmt;

use anyhow::Result;

use crate::machine::{Machine, Place};
use crate::tasks::run::Shapes;
use crate::telemetry::Progress;
use base::error::Problem;
use base::fs;
use base::quantity::format_bytes;
use config::{BatchSize, GradientCheckpointing, TrainingConfig};
use data::batches::BatchPlan;
use model::models::memory::Prediction;
use ops::cuda;

/// GPU memory left free for what the prediction does not cover: the CUDA context, loaded kernels, the
/// workspace of matrix products and fragmentation.
pub const GPU_RESERVE_BYTES: u64 = 1 << 30;

/// Share of the free CPU memory that a run may use; the remainder is for the rest of the system.
const CPU_SHARE: f64 = 0.9;

/// Tokens of a micro-batch that keep a CPU or a GPU (in this order) busy. Below this number, gradient
/// checkpointing is preferred to even smaller micro-batches.
const BUSY_TOKENS: [usize; 2] = [1 << 10, 1 << 13];

/// The key that leaves the size of a micro-batch open when it is `auto`.
const KEY: &str = "training.per_device_train_batch_size";

/// Memory of the largest step of any phase with `rows` rows in a micro-batch.
pub fn predicted(rows: usize, training: &TrainingConfig, shapes: &Shapes, place: Place) -> Prediction {
    let training = TrainingConfig { per_device_train_batch_size: rows.into(), ..training.clone() };
    let tokens = BatchPlan::new(&training, shapes.length).most_tokens_at_once();
    shapes.prediction(tokens as u64, &training, place)
}

/// Total bytes of the prediction by [`predicted`].
pub fn predicted_bytes(rows: usize, training: &TrainingConfig, shapes: &Shapes, place: Place) -> u64 {
    predicted(rows, training, shapes, place).total()
}

/// Most rows of a micro-batch that can be indexed: token positions of a batch are 32-bit numbers.
fn countable_rows(shapes: &Shapes) -> usize {
    i32::MAX as usize / shapes.length.max(1)
}

/// Returns the most rows of a micro-batch that fit into `bytes`, independent of the rows of an update; zero
/// if not even one row fits.
pub fn most_rows_at_once(training: &TrainingConfig, shapes: &Shapes, place: Place, bytes: u64) -> usize {
    (0..31).rev().map(|bit| 1 << bit).fold(0, |most, more| {
        let rows = most + more;
        let fits = rows <= countable_rows(shapes) && predicted_bytes(rows, training, shapes, place) <= bytes;
        if fits { rows } else { most }
    })
}

/// Returns the most rows of a micro-batch, up to `most`, that divide the rows of an update and fit into
/// `bytes`; `None` if not even one row fits.
fn most_rows(
    most: usize,
    training: &TrainingConfig,
    shapes: &Shapes,
    place: Place,
    bytes: u64,
) -> Option<usize> {
    let update = training.rows_per_update();
    let countable = countable_rows(shapes).min(most);
    let divisors = (1..=countable).rev().filter(|rows| update.is_multiple_of(*rows));
    divisors.into_iter().find(|&rows| predicted_bytes(rows, training, shapes, place) <= bytes)
}

/// Bytes that a run may use on this machine; `None` if the system does not report its free memory.
pub fn room(machine: &Machine) -> Option<u64> {
    match cuda::properties(&machine.device) {
        Some(gpu) => Some(gpu.memory_bytes.saturating_sub(GPU_RESERVE_BYTES)),
        None => fs::available_bytes().map(|bytes| (bytes as f64 * CPU_SHARE) as u64),
    }
}

/// A training section whose steps fit into memory.
#[derive(Debug, Clone, PartialEq)]
pub struct Fit {
    /// The training section with a number for every key that was left open.
    pub training: TrainingConfig,
    needed_bytes: u64,
    room_bytes: u64,
}

impl fmt::Display for Fit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = self.training.rows_at_once();
        let times = self.training.gradient_accumulation_steps;
        let [needed, room] = [self.needed_bytes, self.room_bytes].map(format_bytes);
        let how =
            if self.training.gradient_checkpointing.is_on() { ", with gradient checkpointing" } else { "" };
        write!(f, "micro-batches of {rows} rows, {times} an update, need about {needed} of {room}{how}")
    }
}

/// Settles the size of a micro-batch and gradient checkpointing where the configuration leaves them open;
/// `None` if the configuration stays as it is.
pub fn fit(training: &TrainingConfig, shapes: &Shapes, machine: &Machine) -> Result<Option<Fit>, Problem> {
    let is_batch_open = training.per_device_train_batch_size == BatchSize::Auto;
    match room(machine) {
        Some(bytes) => fit_into(bytes, training, shapes, machine.place()),
        None if is_batch_open => {
            Err(Problem::usage("is `auto`, but the free memory is not known").at(KEY).hint(
                "give it a number of rows, and `training.gradient_accumulation_steps` for more rows in an update",
            ))
        }
        None => Ok(None),
    }
}

/// As [`fit`], for a run that may use `bytes` bytes.
pub fn fit_into(
    bytes: u64,
    training: &TrainingConfig,
    shapes: &Shapes,
    place: Place,
) -> Result<Option<Fit>, Problem> {
    match training.per_device_train_batch_size {
        BatchSize::Auto => rows_into(bytes, training, shapes, place).map(Some),
        BatchSize::Rows(_) => Ok(lighter(bytes, training, shapes, place)),
    }
}

/// Returns the training section with gradient checkpointing if that key is open and the given rows do not fit
/// without it.
fn lighter(bytes: u64, training: &TrainingConfig, shapes: &Shapes, place: Place) -> Option<Fit> {
    let rows = training.rows_at_once();
    let is_open = training.gradient_checkpointing == GradientCheckpointing::Auto;
    let training = TrainingConfig { gradient_checkpointing: GradientCheckpointing::On, ..training.clone() };
    (is_open && predicted_bytes(rows, &settled(&training, false), shapes, place) > bytes).then(|| Fit {
        needed_bytes: predicted_bytes(rows, &training, shapes, place),
        room_bytes: bytes,
        training,
    })
}

/// The training section with gradient checkpointing on or off.
fn settled(training: &TrainingConfig, on: bool) -> TrainingConfig {
    TrainingConfig { gradient_checkpointing: on.into(), ..training.clone() }
}

/// Chooses the most rows of a micro-batch that fit, and gradient checkpointing if that key is open.
fn rows_into(bytes: u64, training: &TrainingConfig, shapes: &Shapes, place: Place) -> Result<Fit, Problem> {
    let update = training.rows_per_update();
    let [plain, light] = [false, true].map(|on| settled(training, on));
    let busy = BUSY_TOKENS[usize::from(place.on_gpu)];
    let (chosen, rows) = match training.gradient_checkpointing {
        GradientCheckpointing::Off => (plain.clone(), most_rows(update, &plain, shapes, place, bytes)),
        GradientCheckpointing::On => (light.clone(), most_rows(update, &light, shapes, place, bytes)),
        GradientCheckpointing::Auto => {
            let [few, more] =
                [&plain, &light].map(|training| most_rows(update, training, shapes, place, bytes));
            if more > few && few.is_none_or(|rows| rows * shapes.length < busy) {
                (light.clone(), more)
            } else {
                (plain.clone(), few)
            }
        }
    };
    let Some(rows) = rows else {
        let least = if training.gradient_checkpointing == GradientCheckpointing::Off { plain } else { light };
        let needed = format_bytes(predicted_bytes(1, &least, shapes, place));
        let problem = Problem::usage(format!(
            "not even one row fits: it needs about {needed}, {} are there",
            format_bytes(bytes)
        ));
        let or_else = "lower `training.per_device_eval_batch_size`, or take a smaller model";
        return Err(problem.at(KEY).hint(match checkpointing_hint(&least) {
            Some(hint) => format!("{hint}, {or_else}"),
            None => or_else.to_string(),
        }));
    };
    let found = TrainingConfig {
        per_device_train_batch_size: rows.into(),
        gradient_accumulation_steps: update / rows,
        train_batch_size: None,
        ..chosen
    };
    Ok(Fit { needed_bytes: predicted_bytes(rows, &found, shapes, place), training: found, room_bytes: bytes })
}

/// Returns the training section with what [`fit`] chose, and prints a note about it; otherwise a copy of
/// `training`.
pub fn fitted(
    training: &TrainingConfig,
    shapes: &Shapes,
    machine: &Machine,
    progress: &Progress,
) -> Result<TrainingConfig> {
    let Some(fit) = fit(training, shapes, machine)? else { return Ok(training.clone()) };
    progress.note(&fit.to_string());
    Ok(fit.training)
}

/// Reserves the GPU memory that the largest step (`tokens` tokens in a micro-batch) will need, once
/// parameters and optimizer state are allocated. Prints a note if too little is free, since the longest rows
/// may come hours later.
pub fn reserve(
    tokens: usize,
    training: &TrainingConfig,
    shapes: &Shapes,
    machine: &Machine,
    progress: &Progress,
) -> Result<()> {
    let needed = shapes.prediction(tokens as u64, training, machine.place()).step_bytes();
    if let Some(free) = cuda::reserve(&machine.device, needed)? {
        progress.note(&shortage(tokens, needed, free, training));
    }
    Ok(())
}

fn shortage(tokens: usize, needed: u64, free: u64, training: &TrainingConfig) -> String {
    let [needed, free] = [needed, free].map(format_bytes);
    format!(
        "up to {tokens} tokens at once need about {needed} beside the model, {free} of the GPU are free: \
         it may run out of memory later; {}",
        less_memory(training)
    )
}

/// A hint about what to change if a step is too large for the memory.
pub(super) fn less_memory(training: &TrainingConfig) -> String {
    let fewer = format!(
        "smaller micro-batches (`{KEY}`, or `auto`) with more `training.gradient_accumulation_steps` \
         are the same update"
    );
    match checkpointing_hint(training) {
        Some(hint) => format!("{fewer}; or {hint}"),
        None => fewer,
    }
}

/// A hint to turn gradient checkpointing on; `None` if it is on already.
fn checkpointing_hint(training: &TrainingConfig) -> Option<&'static str> {
    (!training.gradient_checkpointing.is_on()).then_some("set `training.gradient_checkpointing: true`")
}

/// Returns a smaller number of rows that should fit after `training` ran out of memory: what did not fit
/// exceeded its prediction, so the next try uses at most half the rows. `None` if no smaller number fits.
fn fewer_rows(training: &TrainingConfig, shapes: &Shapes, machine: &Machine) -> Option<usize> {
    let most = training.rows_at_once() / 2;
    room(machine).and_then(|bytes| most_rows(most, training, shapes, machine.place(), bytes))
}

/// Adds to an out-of-memory error of the GPU a hint with the rows that should fit; returns any other error
/// unchanged.
pub fn explain(
    error: anyhow::Error,
    training: &TrainingConfig,
    shapes: &Shapes,
    machine: &Machine,
) -> anyhow::Error {
    if machine.device.is_cpu() || !cuda::is_out_of_memory(&format!("{error:#}")) {
        return error;
    }
    let rows = training.rows_at_once();
    let hint = match fewer_rows(training, shapes, machine) {
        Some(fewer) => format!(
            "`{KEY}: {fewer}` with `training.gradient_accumulation_steps: {}` should fit and is the same update",
            training.rows_per_update() / fewer
        ),
        None => match checkpointing_hint(training) {
            Some(hint) => format!("{hint}, or take a smaller model"),
            None => "take a smaller model".to_string(),
        },
    };
    Problem::new(format!("{rows} rows of up to {} tokens do not fit: {error:#}", shapes.length))
        .at(KEY)
        .hint(hint)
        .into()
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;
    use crate::tasks::run::TargetShare;
    use base::families::{EncoderConfig, Family, ModelConfig, named_model};
    use config::{ComputeType, TrainingPhase, WeightAverage};
    use model::models::Blueprint;
    use model::precision::{Hardware, Policy};

    fn machine() -> Machine {
        Machine::alone(&Device::Cpu, Policy::plain(ComputeType::F32, &Hardware::cpu()).unwrap())
    }

    fn masked_lm(model: ModelConfig, length: usize) -> Shapes {
        Shapes {
            outline: Box::new(Blueprint::masked_lm(&model)),
            model,
            length,
            targets: TargetShare::OfTokens(0.15),
        }
    }

    /// Predicted are one set of gradients for each level of the tree that adds up micro-batches, and the copy
    /// of a checkpoint, for which free memory is not required.
    #[test]
    fn memory_in_addition_to_a_step_is_counted() {
        let shapes = masked_lm(named_model("tiny").unwrap(), 128);
        let parameters = shapes.outline.num_parameters();
        let one = accumulated(&shapes, 1, 0).state_bytes;
        let states = [1, 2, 6, 8, 64, 7].map(|times| accumulated(&shapes, times, 0).state_bytes - one);
        // The batches of this update and of the next one, 24 bytes a token.
        let batches = [0, 1, 5, 7, 63, 6].map(|times| 2 * 24 * times * 8 * 128);
        assert_eq!(states, std::array::from_fn(|i| [0, 4, 4, 12, 12, 0][i] * parameters + batches[i]));
        let without = accumulated(&shapes, 1, 0);
        let with = accumulated(&shapes, 1, 500);
        assert_eq!((without.peak(u64::MAX), with.total()), (without.total(), without.total()));
        assert_eq!(with.peak(u64::MAX), with.total() + 12 * parameters);
        assert_eq!(with.peak(with.total() + 23 * parameters), with.total());
        // Each of four processes stores a quarter of the moments, two bytes a parameter; rank 0 gathers all
        // of them for a checkpoint. Gradients that are exchanged during the backward pass are copies.
        let place = Place { sharers: 4, overlaps: true, ..machine().place() };
        let one_of_four = predicted(8, &TrainingConfig::default(), &shapes, place);
        assert_eq!(one_of_four.state_bytes, without.state_bytes - (6 - 4) * parameters);
        let last = TrainingConfig { save_in_background: false, ..TrainingConfig::default() };
        assert_eq!(predicted(8, &last, &shapes, place).saving_bytes, 8 * parameters);
        // They are gathered in the memory of the CPU.
        let on_gpu = Place { on_gpu: true, ..place };
        assert_eq!(predicted(8, &last, &shapes, on_gpu).saving_bytes, 0);
        // An average of the weights is one more value, in memory and in a checkpoint.
        let averaged = TrainingConfig { weight_average: Some(WeightAverage::default()), ..last };
        let averaged = TrainingConfig { save_in_background: true, ..averaged };
        let averaged = predicted(8, &averaged, &shapes, machine().place());
        assert_eq!(averaged.state_bytes, without.state_bytes + 4 * parameters);
        assert_eq!(averaged.saving_bytes, 16 * parameters);
    }

    /// The prediction for eight rows with this accumulation of gradients.
    fn accumulated(shapes: &Shapes, gradient_accumulation_steps: usize, save_steps: u64) -> Prediction {
        let training =
            TrainingConfig { gradient_accumulation_steps, save_steps, ..TrainingConfig::default() };
        predicted(8, &training, shapes, machine().place())
    }

    #[test]
    fn the_most_rows_that_fit_divide_the_update() {
        let model = ModelConfig {
            family: Family::ROBERTA,
            encoder: EncoderConfig { vocab_size: 8192, ..EncoderConfig::of(Family::ROBERTA) },
        };
        let shapes = &masked_lm(model, 128);
        let training = TrainingConfig {
            per_device_train_batch_size: BatchSize::Auto,
            train_batch_size: Some(48),
            gradient_checkpointing: false.into(),
            learning_rate: 1e-3,
            ..TrainingConfig::default()
        };
        let place = machine().place();
        let [one, of_13, of_16, of_48, of_70] =
            [1, 13, 16, 48, 70].map(|rows| predicted_bytes(rows, &training, shapes, place));
        for (bytes, most) in [(of_13, 13), (of_70 - 1, 69), (one - 1, 0)] {
            assert_eq!(most_rows_at_once(&training, shapes, place, bytes), most);
        }
        // With the bytes of 13 rows, these would fit, but do not divide 48.
        for (bytes, expected) in [(u64::MAX, (48, 1)), (of_48 - 1, (24, 2)), (of_13, (12, 4)), (one, (1, 48))]
        {
            let found = rows_into(bytes, &training, shapes, place).unwrap().training;
            assert_eq!((found.rows_at_once(), found.gradient_accumulation_steps), expected);
        }
        let error = rows_into(one - 1, &training, shapes, place).unwrap_err().to_string();
        assert!(
            error.contains("not even one row fits") && error.contains("per_device_train_batch_size"),
            "{error}"
        );
        let found = rows_into(of_16, &training, shapes, place).unwrap();
        let want = TrainingConfig {
            per_device_train_batch_size: 16.into(),
            gradient_accumulation_steps: 3,
            train_batch_size: None,
            gradient_checkpointing: false.into(),
            ..training
        };
        assert_eq!(found.training, want, "nothing else changes");
        assert!(
            found.to_string().starts_with("micro-batches of 16 rows, 3 an update, need about "),
            "{found}"
        );
    }

    #[test]
    fn layers_save_their_input_only_where_a_step_does_not_fit_otherwise() {
        let model = ModelConfig {
            family: Family::ROBERTA,
            encoder: EncoderConfig { vocab_size: 8192, ..EncoderConfig::of(Family::ROBERTA) },
        };
        let shapes = &masked_lm(model, 128);
        let given = TrainingConfig { per_device_train_batch_size: 16.into(), ..TrainingConfig::default() };
        let [plain, light] =
            [false, true].map(|on| predicted_bytes(16, &settled(&given, on), shapes, machine().place()));
        assert!(light < plain, "or there is nothing to choose");
        assert_eq!(lighter(plain, &given, shapes, machine().place()), None);
        let found = lighter(plain - 1, &given, shapes, machine().place()).unwrap();
        assert_eq!(found.training, settled(&given, true));
        assert!(found.to_string().ends_with(", with gradient checkpointing"), "{found}");
        let refused = TrainingConfig { gradient_checkpointing: false.into(), ..given.clone() };
        assert_eq!(lighter(1, &refused, shapes, machine().place()), None);
        // The largest step may be in a phase.
        let phase = TrainingPhase {
            per_device_train_batch_size: Some(32),
            gradient_accumulation_steps: Some(1),
            ..TrainingPhase::of_length(10, 128)
        };
        let phased = TrainingConfig { phases: vec![phase], ..given.clone() };
        assert!(lighter(plain, &phased, shapes, machine().place()).is_some());
        // With the rows open as well: eight rows keep a CPU busy, fewer do not.
        let open = TrainingConfig {
            per_device_train_batch_size: BatchSize::Auto,
            train_batch_size: Some(16),
            ..given.clone()
        };
        let eight = predicted_bytes(8, &settled(&given, false), shapes, machine().place());
        let [exact, less] = [eight, eight - 1].map(|bytes| {
            let fit = rows_into(bytes, &open, shapes, machine().place()).unwrap();
            (fit.training.rows_at_once(), fit.training.gradient_checkpointing.is_on())
        });
        assert_eq!(exact, (8, false));
        assert!(less.0 > 4 && less.1, "{less:?}");
    }

    #[test]
    fn a_batch_that_is_given_stays_and_one_that_is_not_is_found() {
        let model = ModelConfig {
            family: Family::ROBERTA,
            encoder: EncoderConfig { vocab_size: 512, ..EncoderConfig::of(Family::ROBERTA) },
        };
        let shapes = &masked_lm(model, 8);
        let given = TrainingConfig {
            per_device_train_batch_size: 7.into(),
            gradient_accumulation_steps: 3,
            ..TrainingConfig::default()
        };
        assert_eq!(fit(&given, shapes, &machine()).unwrap(), None);
        let open = TrainingConfig {
            per_device_train_batch_size: BatchSize::Auto,
            train_batch_size: Some(2),
            ..TrainingConfig::default()
        };
        assert_eq!(fit(&open, shapes, &machine()).unwrap().unwrap().training.rows_per_update(), 2);
    }

    #[test]
    fn fewer_rows_divide_the_update() {
        let model = ModelConfig { family: Family::ROBERTA, encoder: EncoderConfig::of(Family::ROBERTA) };
        let shapes = &masked_lm(model, 128);
        for (rows, fewer) in [(24, Some(12)), (15, Some(6)), (1, None)] {
            let training = TrainingConfig {
                per_device_train_batch_size: rows.into(),
                gradient_accumulation_steps: 2,
                ..TrainingConfig::default()
            };
            assert_eq!(fewer_rows(&training, shapes, &machine()), fewer, "7 rows do not divide 30");
        }
    }

    #[test]
    fn a_shortage_of_gpu_memory_is_reported_in_bytes() {
        let training = TrainingConfig::default();
        let note = shortage(3072, 3 << 30, 1 << 30, &training);
        assert!(
            note.starts_with(
                "up to 3072 tokens at once need about 3GiB beside the model, 1GiB of the GPU are free: "
            ),
            "{note}"
        );
        assert!(note.contains("`training.gradient_checkpointing: true`"), "{note}");
        let note = shortage(3072, 3 << 30, 1 << 30, &settled(&training, true));
        assert!(note.ends_with("are the same update"), "it is on already: {note}");
    }

    #[test]
    fn errors_of_other_kinds_stay_as_they_are() {
        let model = ModelConfig { family: Family::ROBERTA, encoder: EncoderConfig::of(Family::ROBERTA) };
        let shapes = &masked_lm(model, 128);
        let error =
            explain(anyhow::anyhow!("a disk is full"), &TrainingConfig::default(), shapes, &machine());
        assert_eq!(error.to_string(), "a disk is full");
    }
}
