//! Whole runs of the toy task: which process writes, signals during the last phase, and resuming.

use std::cell::Cell;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use candle_core::Device;

use super::ahead::Log;
use super::{Parabola, Steps, TOTAL, bits, config, overflowing, policy, records, stepper};
use crate::machine::Machine;
use crate::tasks::run::{Inputs, Kind, ModelFolder, Parts, Setting, Shapes, TargetShare};
use crate::telemetry::Progress;
use crate::train::request::Request;
use crate::train::resume::Start;
use crate::train::step::Share;
use crate::train::trial::{Pause, Trial};
use crate::train::{End, run};
use base::error::class_of;
use base::families::{EncoderConfig, Family, ModelConfig};
use base::scores::Better;
use config::{ComputeType, PrecisionConfig, RunSection, TrainingConfig};
use data::batches::Batch;
use model::models::Blueprint;

/// A run of the parabola.
#[derive(Default)]
pub(super) struct Toy {
    pub(super) data: Steps,
    /// Hashes of the inputs.
    pub(super) inputs: Inputs,
    /// Ranges of samples and the loss that replaces theirs.
    pub(super) planted: Vec<(Range<u64>, f64)>,
    /// From this sample on, gradients point away from the minimum.
    pub(super) leaves_minimum_from: Option<u64>,
    /// The log of operations; batches are prefetched if it is given.
    pub(super) log: Option<Log>,
}

impl Kind for Toy {
    type Task = Parabola;
    type Data = Steps;

    fn shapes(&self) -> Result<Shapes> {
        let encoder = EncoderConfig { vocab_size: 10, ..EncoderConfig::of(Family::BERT) };
        let model = ModelConfig { family: Family::BERT, encoder };
        let outline = Box::new(Blueprint::masked_lm(&model));
        Ok(Shapes { outline, model, length: 1, targets: TargetShare::OneARow })
    }

    fn inputs(&self) -> Result<Inputs> {
        Ok(self.inputs.clone())
    }

    fn build(self, setting: Setting<'_>) -> Result<Parts<Parabola, Steps>> {
        let task = Parabola {
            planted: self.planted,
            leaves_minimum_from: self.leaves_minimum_from,
            log: self.log,
            ..Parabola::new()
        };
        let data = self.data;
        let folders = vec![ModelFolder {
            place: "",
            files: Vec::new(),
            names: vec![("w".into(), "w".into())],
            added: vec![],
        }];
        let total_steps = setting.training.max_steps as u64;
        Ok(Parts { task, data, total_steps, folders, best: ("loss", Better::Lower) })
    }
}

/// A whole run in `folder`, by process `rank`.
pub(super) fn whole_run(
    toy: Toy,
    folder: &Path,
    training: &TrainingConfig,
    rank: usize,
) -> Result<run::Outcome<Parabola, Steps>> {
    limited_run(toy, folder, training, rank, &RunSection::default())
}

/// A sitting of a run up to a pause.
fn paused_run(folder: &Path, training: &TrainingConfig, trial: Trial) -> run::Outcome<Parabola, Steps> {
    run_of(Toy::default(), folder, training, 0, &RunSection::default(), Some(trial)).unwrap()
}

/// As [`whole_run`], with a budget or a deadline in `run`.
fn limited_run(
    toy: Toy,
    folder: &Path,
    training: &TrainingConfig,
    rank: usize,
    run: &RunSection,
) -> Result<run::Outcome<Parabola, Steps>> {
    run_of(toy, folder, training, rank, run, None)
}

fn run_of(
    toy: Toy,
    folder: &Path,
    training: &TrainingConfig,
    rank: usize,
    run: &RunSection,
    trial: Option<Trial>,
) -> Result<run::Outcome<Parabola, Steps>> {
    let mut machine = Machine::alone(&Device::Cpu, policy(ComputeType::F32));
    machine.world.processes.rank = rank;
    let precision = PrecisionConfig::default();
    let request = Request {
        config: training,
        run,
        training,
        precision: &precision,
        max_seq_length: 1,
        output: folder,
        seed: 1,
        start: &Start::Auto,
        probe: None,
        loss_band: None,
        parent: None,
        trial,
    };
    let signals = toy.data.signals.clone();
    run::run(toy, &request, &machine, &Progress::silent(), &signals)
}

#[test]
fn only_the_first_process_writes() {
    let written = [
        "all_results.json",
        "checkpoint-10",
        "config.yaml",
        "eval_results.json",
        "final",
        "machine.json",
        "metrics.jsonl",
        "runs",
        "train_results.json",
    ];
    assert_eq!(names_of_rank(0), written);
    assert_eq!(names_of_rank(1), Vec::<String>::new());
}

/// The files that process `rank` writes in a run.
fn names_of_rank(rank: usize) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let outcome = whole_run(Toy::default(), folder.path(), &config(), rank).unwrap();
    assert_eq!((outcome.end, outcome.step), (Some(End::Steps), TOTAL));
    assert!(outcome.results.contains_key("eval_loss"), "every process has the scores");
    let entries = std::fs::read_dir(folder.path()).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|name| name != ".lock");
    names.sort();
    names
}

/// The end of a run with these data, in the configuration of the tests.
fn end_of(data: Steps, folder: &Path) -> Option<End> {
    whole_run(Toy { data, ..Toy::default() }, folder, &config(), 0).unwrap().end
}

#[test]
fn a_run_that_a_signal_stops_in_its_last_phase_is_resumed_to_its_end() {
    let folder = tempfile::tempdir().unwrap();
    // The signal arrives while predictions are written: the run is not complete.
    let at_end = Steps { signal_at_end: true, ..Steps::default() };
    assert_eq!(end_of(at_end, folder.path()), Some(End::Signal(15)));
    assert!(!folder.path().join("all_results.json").exists());
    assert_eq!(end_of(Steps::default(), folder.path()), Some(End::Steps));
    // The signal arrives while a complete run is evaluated once more.
    let again = Steps { signal_in: 1, wants_evaluation: true, ..Steps::default() };
    assert_eq!(end_of(again, folder.path()), Some(End::Signal(15)));
    let complete = Steps { wants_evaluation: true, ..Steps::default() };
    assert_eq!(end_of(complete, folder.path()), None);
}

#[test]
fn a_final_model_that_is_damaged_or_gone_is_made_again() {
    let folder = tempfile::tempdir().unwrap();
    end_of(Steps::default(), folder.path());
    let model = folder.path().join("final/model.safetensors");
    let whole = std::fs::read(&model).unwrap();
    let mut damaged = whole.clone();
    *damaged.last_mut().unwrap() ^= 1;
    std::fs::write(&model, damaged).unwrap();
    assert_eq!(end_of(Steps::default(), folder.path()), Some(End::Steps));
    assert!(std::fs::read(&model).unwrap() == whole);
    std::fs::remove_dir_all(folder.path().join("final")).unwrap();
    assert_eq!(end_of(Steps::default(), folder.path()), Some(End::Steps));
    assert!(std::fs::read(&model).unwrap() == whole);
    assert_eq!(end_of(Steps::default(), folder.path()), None, "the run is complete");
}

#[test]
fn a_run_that_time_has_ended_trains_no_further_for_its_final_model() {
    let folder = tempfile::tempdir().unwrap();
    // At the end there is time left, but not for one more step.
    let training = TrainingConfig { max_train_time: Some("1s".to_string()), ..config() };
    let step_time = Duration::from_millis(300);
    let toys = [(); 2].map(|()| Toy { data: Steps { step_time, ..Steps::default() }, ..Toy::default() });
    let [first, again] = toys;
    let first = whole_run(first, folder.path(), &training, 0).unwrap();
    assert_eq!(first.end, Some(End::Time));
    std::fs::remove_dir_all(folder.path().join("final")).unwrap();
    let again = whole_run(again, folder.path(), &training, 0).unwrap();
    assert_eq!(again.step, first.step);
    assert!(folder.path().join("final/model.safetensors").exists());
}

#[test]
fn a_run_with_too_little_money_has_fewer_steps_and_its_learning_rate_still_falls() {
    let folder = tempfile::tempdir().unwrap();
    let training =
        TrainingConfig { max_steps: 5_000, learning_rate: 1e-3, logging_steps: 1, eval_steps: 0, ..config() };
    // Time for two seconds.
    let limited = RunSection { usd_per_hour: Some(3600.0), budget_usd: Some(2.0), ..RunSection::default() };
    let data = Steps { step_time: Duration::from_millis(20), ..Steps::default() };
    let toy = Toy { data, ..Toy::default() };
    let done = limited_run(toy, folder.path(), &training, 0, &limited).unwrap();
    assert!(done.step < 150, "{} steps of 20 ms", done.step);
    // A dollar is a second.
    let [planned, cost, seconds] =
        ["train_planned_steps", "train_cost_usd", "train_runtime"].map(|name| done.results[name]);
    assert_eq!(planned as u64, 5_000);
    assert!((cost - seconds).abs() < 1e-6, "{cost} dollars for {seconds} seconds");
    let rates: Vec<f64> =
        records(folder.path()).iter().filter_map(|record| record["train/learning_rate"].as_f64()).collect();
    assert_eq!(rates.len() as u64, done.step);
    // On a busy machine there is time for fewer steps than was foreseen, and the rate ends higher.
    assert!(rates[rates.len() - 1] < 0.5 * rates[0], "{rates:?}");
    let past = RunSection { deadline: Some("2020-01-01T00:00:00Z".to_string()), ..RunSection::default() };
    let late = limited_run(Toy::default(), tempfile::tempdir().unwrap().path(), &training, 0, &past);
    assert_eq!(class_of(&late.err().unwrap()).exit_code(), 2);
}

#[test]
fn a_run_that_pauses_is_evaluated_there_and_ends_in_the_same_bytes() {
    let [straight, paused, short] = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let training = TrainingConfig { max_steps: 12, logging_steps: 5, eval_steps: 0, ..config() };
    let whole = whole_run(Toy::default(), straight.path(), &training, 0).unwrap();
    for (part, step, end) in [(4, 3, End::Pause), (4, 3, End::Pause), (2, 6, End::Pause), (1, 12, End::Steps)]
    {
        let trial = Trial { steps: 12, of: 12, pause: Pause::AfterPart(part) };
        let outcome = paused_run(paused.path(), &training, trial);
        assert_eq!((outcome.end, outcome.step, outcome.planned_steps), (Some(end), step, 12));
        assert!(outcome.results["eval_loss"].is_finite());
        assert_eq!(paused.path().join("final").exists(), end == End::Steps);
    }
    assert!(final_model(paused.path()) == final_model(straight.path()), "a pause changes a byte");
    assert_eq!(whole.end, Some(End::Steps));
    assert_eq!(
        logged_losses(paused.path()),
        logged_losses(straight.path()),
        "a pause is not logged as a last step"
    );
    // Half of the steps, with all of the schedule.
    for (part, step) in [(3, 2), (1, 6)] {
        let trial = Trial { steps: 6, of: 12, pause: Pause::AfterPart(part) };
        assert_eq!(paused_run(short.path(), &training, trial).step, step);
    }
    let trial = Trial { steps: 6, of: 12, pause: Pause::AfterPart(1) };
    assert_eq!(paused_run(short.path(), &training, trial).end, None, "it is complete");
    assert!(final_model(short.path()) != final_model(straight.path()));
}

fn final_model(folder: &Path) -> Vec<u8> {
    std::fs::read(folder.join("final/model.safetensors")).unwrap()
}

/// The training losses in the records of a run.
fn logged_losses(folder: &Path) -> Vec<String> {
    let losses = records(folder).into_iter().map(|record| record["train/loss"].to_string());
    losses.filter(|loss| loss != "null").collect()
}

#[test]
fn a_run_ends_without_a_best_checkpoint_that_was_never_saved() {
    let folder = tempfile::tempdir().unwrap();
    // Nothing is learnt, so that the first evaluation stays the best.
    let training = TrainingConfig { learning_rate: 1e-30, load_best_model_at_end: true, ..config() };
    let ended = || whole_run(Toy::default(), folder.path(), &training, 0).unwrap().end;
    ended();
    for name in ["checkpoint-4", "final"] {
        std::fs::remove_dir_all(folder.path().join(name)).unwrap();
    }
    assert_eq!(ended(), Some(End::Steps));
    assert_eq!(ended(), None, "the run is complete");
}

#[test]
fn a_run_resumes_only_with_the_inputs_with_which_it_began() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let first = run_with_inputs(&[("model", "1"), ("data.train_file", "2")], folder);
    assert_eq!(first.unwrap(), Some(End::Steps));
    let second = run_with_inputs(&[("model", "1"), ("data.train_file", "2")], folder);
    assert_eq!(second.unwrap(), None);
    for (inputs, places) in [
        (&[("model", "1"), ("data.train_file", "3")][..], &["data.train_file: its content is not"][..]),
        (&[("model", "1")], &["data.train_file: its content is not"]),
        (&[("data.labels", "2")], &["data.labels: ", "data.train_file: ", "model: "]),
    ] {
        let error = run_with_inputs(inputs, folder).unwrap_err();
        assert_eq!(class_of(&error).exit_code(), 2);
        assert!(places.iter().all(|place| error.to_string().contains(place)), "{error}");
    }
}

#[test]
fn an_interrupted_step_is_as_if_it_had_not_been() {
    for interrupted_at in [1, 2] {
        let (whole, cut) = (overflowing(), overflowing());
        let [mut whole_stepper, mut cut_stepper] = [&whole, &cut].map(|task| stepper(task, ComputeType::F16));
        let micro = [Batch::default(), Batch::default(), Batch::default()];
        for number in 1..=4 {
            let before = bits(&cut, &cut_stepper);
            let asked = Cell::new(0);
            let is_interrupted = || asked.replace(asked.get() + 1) + 1 == interrupted_at;
            let share = Share { micro: &micro, micro_batches: 3, is_interrupted: &is_interrupted };
            let outcome =
                cut_stepper.run_share(&cut, share, number, 0.1, || panic!("a cut step waits for nothing"));
            assert!(outcome.unwrap().is_none() && bits(&cut, &cut_stepper) == before);
            cut_stepper.run(&cut, &micro, number, 0.1).unwrap();
            whole_stepper.run(&whole, &micro, number, 0.1).unwrap();
            assert!(bits(&cut, &cut_stepper) == bits(&whole, &whole_stepper), "step {number}");
        }
    }
}

/// The end of a run with these hashes of its inputs.
fn run_with_inputs(inputs: &[(&str, &str)], folder: &Path) -> Result<Option<End>> {
    let inputs = inputs.iter().map(|(key, hash)| ((*key).to_string(), (*hash).to_string()));
    let toy = Toy { inputs: inputs.collect(), ..Toy::default() };
    whole_run(toy, folder, &config(), 0).map(|outcome| outcome.end)
}
