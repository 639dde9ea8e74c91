//! How many rows a device takes at once, and whether layers save their input only: what fits, by the
//! prediction of `models/memory`.
//!
//! The rows of an update stay what the configuration says: fewer rows at once mean more micro-batches. Which
//! tokens are masked and dropped does not depend on it, and no number on what layers save.

use std::fmt;

use anyhow::Result;

use crate::batches::BatchPlan;
use crate::config::BatchSize;
use crate::config::GradientCheckpointing;
use crate::config::TrainingConfig;
use crate::error::Problem;
use crate::fs;
use crate::machine::Machine;
use crate::machine::Place;
use crate::models::memory::Prediction;
use crate::ops::cuda;
use crate::quantity::format_bytes;
use crate::tasks::run::Shapes;
use crate::telemetry::Progress;

/// Left to what no prediction knows: CUDA's own context and the kernels, the workspace of products,
/// fragments.
pub const GPU_RESERVE_BYTES: u64 = 1 << 30;

/// Share of the free memory of a CPU that a run may take: the rest of the system lives, too.
const CPU_SHARE: f64 = 0.9;

/// Tokens at once that keep a CPU or a GPU busy: rather than fewer, more of each layer is computed again.
const BUSY_TOKENS: [usize; 2] = [1 << 10, 1 << 13];

/// What leaves the batch open.
const KEY: &str = "training.per_device_train_batch_size";

/// Memory of the largest step, of whatever phase, with so many rows at once.
pub fn predicted(rows: usize, training: &TrainingConfig, shapes: &Shapes, place: Place) -> Prediction {
    let training = TrainingConfig { per_device_train_batch_size: rows.into(), ..training.clone() };
    let tokens = BatchPlan::new(&training, shapes.length).most_tokens_at_once();
    shapes.prediction(tokens as u64, &training, place)
}

/// Bytes that [`predicted`] comes to.
pub fn predicted_bytes(rows: usize, training: &TrainingConfig, shapes: &Shapes, place: Place) -> u64 {
    predicted(rows, training, shapes, place).total()
}

/// Token positions of a batch are 32-bit numbers.
fn countable_rows(shapes: &Shapes) -> usize {
    i32::MAX as usize / shapes.length.max(1)
}

/// The most rows at once that fit into `bytes`, whatever an update has; zero where not even one does.
pub fn most_rows_at_once(training: &TrainingConfig, shapes: &Shapes, place: Place, bytes: u64) -> usize {
    let fits = |rows: usize| {
        rows <= countable_rows(shapes) && predicted_bytes(rows, training, shapes, place) <= bytes
    };
    (0..31).rev().map(|bit| 1 << bit).fold(0, |most, rows| if fits(most + rows) { most + rows } else { most })
}

/// The most rows at once, up to `most`, that divide the rows of an update and fit into `bytes`; `None` where
/// not even one does.
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

/// Bytes that a run on this machine may take; `None` where the system does not tell.
pub fn room(machine: &Machine) -> Option<u64> {
    match cuda::properties(&machine.device) {
        Some(gpu) => Some(gpu.memory_bytes.saturating_sub(GPU_RESERVE_BYTES)),
        None => fs::available_bytes().map(|bytes| (bytes as f64 * CPU_SHARE) as u64),
    }
}

/// A training whose steps were made to fit.
#[derive(Debug, Clone, PartialEq)]
pub struct Fit {
    /// With numbers for what was left open.
    pub training: TrainingConfig,
    needed_bytes: u64,
    room_bytes: u64,
}

impl fmt::Display for Fit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rows, times) = (self.training.rows_at_once(), self.training.gradient_accumulation_steps);
        let [needed, room] = [self.needed_bytes, self.room_bytes].map(format_bytes);
        let how =
            if self.training.gradient_checkpointing.is_on() { ", with gradient checkpointing" } else { "" };
        write!(f, "micro-batches of {rows} rows, {times} an update, need about {needed} of {room}{how}")
    }
}

/// The batch that fits, and whether with gradient checkpointing, where the configuration leaves that open and
/// there is something to say; `None` where all is as it stands there.
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

/// As [`fit`], where a run may take so many bytes.
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

/// The training with gradient checkpointing where that is open, and its rows do not fit without it.
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

fn settled(training: &TrainingConfig, on: bool) -> TrainingConfig {
    TrainingConfig { gradient_checkpointing: on.into(), ..training.clone() }
}

/// The most rows that fit, and whether with gradient checkpointing.
fn rows_into(bytes: u64, training: &TrainingConfig, shapes: &Shapes, place: Place) -> Result<Fit, Problem> {
    let update = training.rows_per_update();
    let most = |training: &TrainingConfig| most_rows(update, training, shapes, place, bytes);
    let [plain, light] = [false, true].map(|on| settled(training, on));
    let busy = BUSY_TOKENS[usize::from(place.on_gpu)];
    let (chosen, rows) = match training.gradient_checkpointing {
        GradientCheckpointing::Off => (plain.clone(), most(&plain)),
        GradientCheckpointing::On => (light.clone(), most(&light)),
        GradientCheckpointing::Auto => match (most(&plain), most(&light)) {
            (few, more) if more > few && few.is_none_or(|rows| rows * shapes.length < busy) => {
                (light.clone(), more)
            }
            (rows, _) => (plain.clone(), rows),
        },
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

/// The training with what fits, where the configuration leaves that open; else as it is. Says what it took.
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

/// Takes what the steps of a run, of up to `tokens` tokens at once, will need of a GPU, when the state of the
/// training is there. Says where that is more than is left: the longest rows may come after hours.
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

/// What to do about a step that is too large for the memory.
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

/// Where it is not done already.
fn checkpointing_hint(training: &TrainingConfig) -> Option<&'static str> {
    (!training.gradient_checkpointing.is_on()).then_some("set `training.gradient_checkpointing: true`")
}

/// Rows that fit where those of a training do not: what did not fit was more than its prediction, so half of
/// it is what the next try should take at most. `None` where there are no fewer.
fn fewer_rows(training: &TrainingConfig, shapes: &Shapes, machine: &Machine) -> Option<usize> {
    let most = training.rows_at_once() / 2;
    room(machine).and_then(|bytes| most_rows(most, training, shapes, machine.place(), bytes))
}

/// An error of a full GPU with the batch that should fit in its hint; any other error as it is.
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
    use crate::config::ComputeType;
    use crate::config::TrainingPhase;
    use crate::families::EncoderConfig;
    use crate::families::Family;
    use crate::families::ModelConfig;
    use crate::families::named_model;
    use crate::models::Blueprint;
    use crate::precision::Hardware;
    use crate::precision::Policy;
    use crate::tasks::run::TargetShare;

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

    /// A set of gradients for each level of the tree over which micro-batches are added up, and the copy of a
    /// checkpoint, which nobody has to have room for.
    #[test]
    fn what_is_taken_beside_a_step_is_counted() {
        let shapes = masked_lm(named_model("tiny").unwrap(), 128);
        let parameters = shapes.outline.num_parameters();
        let found = |times, save_steps| {
            let gradient_accumulation_steps = times;
            let training =
                TrainingConfig { gradient_accumulation_steps, save_steps, ..TrainingConfig::default() };
            predicted(8, &training, &shapes, machine().place())
        };
        let states = [1, 2, 6, 8, 64, 7].map(|times| found(times, 0).state_bytes - found(1, 0).state_bytes);
        // The batches of this update and of the next one, 24 bytes a token.
        let batches = [0, 1, 5, 7, 63, 6].map(|times| 2 * 24 * times * 8 * 128);
        assert_eq!(states, std::array::from_fn(|i| [0, 4, 4, 12, 12, 0][i] * parameters + batches[i]));
        let (without, with) = (found(1, 0), found(1, 500));
        assert_eq!((without.peak(u64::MAX), with.total()), (without.total(), without.total()));
        assert_eq!(with.peak(u64::MAX), with.total() + 12 * parameters);
        assert_eq!(with.peak(with.total() + 23 * parameters), with.total());
        // Four processes have two bytes of moments a parameter each, the first one all for a checkpoint; and
        // gradients that travel are copies.
        let place = Place { sharers: 4, overlaps: true, ..machine().place() };
        let one_of_four = predicted(8, &TrainingConfig::default(), &shapes, place);
        assert_eq!(one_of_four.state_bytes, without.state_bytes - (6 - 4) * parameters);
        let last = TrainingConfig { save_in_background: false, ..TrainingConfig::default() };
        assert_eq!(predicted(8, &last, &shapes, place).saving_bytes, 8 * parameters);
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
        let needs = |rows| predicted_bytes(rows, &training, shapes, machine().place());
        let fit = |bytes| rows_into(bytes, &training, shapes, machine().place());
        let cut = |bytes| {
            fit(bytes)
                .map(|fit| (fit.training.rows_at_once(), fit.training.gradient_accumulation_steps))
                .unwrap()
        };
        let most = |bytes| most_rows_at_once(&training, shapes, machine().place(), bytes);
        assert_eq!([most(needs(13)), most(needs(70) - 1), most(needs(1) - 1)], [13, 69, 0]);
        assert_eq!(cut(u64::MAX), (48, 1));
        assert_eq!(cut(needs(48) - 1), (24, 2));
        assert_eq!(cut(needs(13)), (12, 4), "13 rows would fit, but do not divide 48");
        assert_eq!(cut(needs(1)), (1, 48));
        let error = fit(needs(1) - 1).unwrap_err().to_string();
        assert!(
            error.contains("not even one row fits") && error.contains("per_device_train_batch_size"),
            "{error}"
        );
        let found = fit(needs(16)).unwrap();
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
        let needs = |rows, on| predicted_bytes(rows, &settled(&given, on), shapes, machine().place());
        assert!(needs(16, true) < needs(16, false), "or there is nothing to choose");
        assert_eq!(lighter(needs(16, false), &given, shapes, machine().place()), None);
        let found = lighter(needs(16, false) - 1, &given, shapes, machine().place()).unwrap();
        assert_eq!(found.training, settled(&given, true));
        assert!(found.to_string().ends_with(", with gradient checkpointing"), "{found}");
        let refused = TrainingConfig { gradient_checkpointing: false.into(), ..given.clone() };
        assert_eq!(lighter(1, &refused, shapes, machine().place()), None);
        // The largest step may be that of a phase.
        let phase = TrainingPhase {
            per_device_train_batch_size: Some(32),
            gradient_accumulation_steps: Some(1),
            ..TrainingPhase::of_length(10, 128)
        };
        let phased = TrainingConfig { phases: vec![phase], ..given.clone() };
        assert!(lighter(needs(16, false), &phased, shapes, machine().place()).is_some());
        // With the rows open, too: eight rows keep a CPU busy, fewer do not.
        let open = TrainingConfig {
            per_device_train_batch_size: BatchSize::Auto,
            train_batch_size: Some(16),
            ..given.clone()
        };
        let taken = |bytes| {
            let fit = rows_into(bytes, &open, shapes, machine().place()).unwrap();
            (fit.training.rows_at_once(), fit.training.gradient_checkpointing.is_on())
        };
        assert_eq!(taken(needs(8, false)), (8, false));
        let (rows, is_on) = taken(needs(8, false) - 1);
        assert!(rows > 4 && is_on, "{rows}");
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
        let of = |rows: usize| {
            let (per_device_train_batch_size, gradient_accumulation_steps) = (rows.into(), 2);
            let training = TrainingConfig {
                per_device_train_batch_size,
                gradient_accumulation_steps,
                ..TrainingConfig::default()
            };
            fewer_rows(&training, shapes, &machine())
        };
        assert_eq!([24, 15, 1].map(of), [Some(12), Some(6), None], "7 rows do not divide an update of 30");
    }

    #[test]
    fn a_gpu_that_is_too_small_is_told_in_bytes() {
        let training = TrainingConfig::default();
        let said = shortage(3072, 3 << 30, 1 << 30, &training);
        assert!(
            said.starts_with(
                "up to 3072 tokens at once need about 3GiB beside the model, 1GiB of the GPU are free: "
            ),
            "{said}"
        );
        assert!(said.contains("`training.gradient_checkpointing: true`"), "{said}");
        let said = shortage(3072, 3 << 30, 1 << 30, &settled(&training, true));
        assert!(said.ends_with("are the same update"), "it is on already: {said}");
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
