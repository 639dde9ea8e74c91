//! The loop on a toy task: observations at their intervals, and interruptions. Whole runs are in `whole`.

mod ahead;
mod average;
mod divergence;
#[cfg(all(feature = "cuda-on-host", not(feature = "cuda")))]
mod gpu_step;
mod half_gradients;
mod together;
mod whole;

use crate::train::probe::Probe;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use candle_core::{DType, Device, Tensor};

use crate::machine::Machine;
use crate::tasks::run::{Beginning, Data, Inputs, ModelFolder, Scores};
use crate::tasks::{Loss, PendingLoss, Seen, Task};
use crate::telemetry::{Outlets, Progress};
use crate::train::average::WeightAverage;
use crate::train::cadence::Cadence;
use crate::train::checkpoint_files::Resumed;
use crate::train::meter::Meter;
use crate::train::phases::Phases;
use crate::train::rollback::Unfinite;
use crate::train::run_folder::{RunFolder, RunFolderOptions};
use crate::train::signals::Signals;
use crate::train::state::TrainState;
use crate::train::step::{Skip, StepOutcome, Stepper};
use crate::train::{End, Trainer, run};
use base::scores::Better;
use config::{ComputeType, LossScaleConfig, PrecisionConfig, TrainingConfig};
use data::batches::{Batch, Cursor, Planner, StepBatches};
use model::layers::context::Pass;
use model::layers::{Gradients, Init, Parameters, Registry};
use model::optim::schedule::Schedule;
use model::precision::{Hardware, Policy};
use ops::cross_entropy::Entropy;
use ops::tensor::{with_slice, with_slice_mut};

/// Half the squared distance from one, element by element; its scaled gradients are in range below a factor.
struct Parabola {
    parameters: Parameters,
    overflows_from: f32,
    /// Ranges of samples and the loss that replaces theirs.
    planted: Vec<(Range<u64>, f64)>,
    /// From this sample on, gradients point away from the minimum.
    leaves_minimum_from: Option<u64>,
    /// The log of operations on samples; batches are prefetched if it is given.
    log: Option<ahead::Log>,
}

impl Parabola {
    fn new() -> Self {
        let mut registry = Registry::default();
        registry.weight("w", &[3, 2], Init::Normal);
        let parameters = Parameters::initialise(registry.layout(), 1.0, 1, &Device::Cpu).unwrap();
        Self {
            parameters,
            overflows_from: f32::INFINITY,
            planted: Vec::new(),
            leaves_minimum_from: None,
            log: None,
        }
    }

    fn note(&self, what: &'static str, batch: &Batch) {
        if let Some(log) = &self.log {
            log.lock().unwrap().push((what, batch.sample_ids[0]));
        }
    }

    fn loss(&self) -> candle_core::Result<f64> {
        with_slice(self.parameters.flat(), |w| w[..6].iter().map(|w| 0.5 * f64::from(w - 1.0).powi(2)).sum())
    }
}

impl Task for Parabola {
    fn accumulate(
        &self,
        batch: &Batch,
        _: Pass,
        scales: &[f32],
        gradients: &Gradients,
    ) -> candle_core::Result<Vec<PendingLoss>> {
        self.note("trained", batch);
        let scale = scales[0];
        let scale = if scale < self.overflows_from { scale } else { f32::INFINITY };
        let leaves = self.leaves_minimum_from.is_some_and(|sample| batch.sample_ids[0] >= sample);
        let scale = if leaves { -scale } else { scale };
        let values = self.parameters.flat().to_vec1::<f32>()?;
        with_slice_mut(gradients.flat()?, |g| {
            g.iter_mut().zip(values).take(6).for_each(|(g, w)| *g += scale * (w - 1.0));
        })?;
        let is_in =
            |(samples, _): &&(Range<u64>, f64)| batch.sample_ids.iter().any(|id| samples.contains(id));
        let planted = self.planted.iter().find(is_in).map(|(_, loss)| *loss);
        let totals = Tensor::new(&[planted.map_or_else(|| self.loss(), Ok)?, 0.0], &Device::Cpu)?;
        Ok(vec![PendingLoss::of(Entropy { log_sum_exp_m: totals.clone(), totals }, 1)])
    }

    fn planner(&self) -> Option<Planner> {
        self.log.as_ref().map(|_| Arc::new(|_: &mut Batch| ()) as Planner)
    }

    fn send(&self, batch: &mut Batch) -> candle_core::Result<()> {
        self.note("sent", batch);
        Ok(())
    }

    fn observe(&self, _: &Batch, _: Pass, _: &mut Seen<'_>) -> candle_core::Result<()> {
        candle_core::bail!("a parabola has no hidden states")
    }

    fn logits(&self, _: &Batch) -> candle_core::Result<Tensor> {
        candle_core::bail!("a parabola has no classes")
    }

    fn evaluate(&self, _: &Batch) -> candle_core::Result<Vec<Loss>> {
        Ok(vec![Loss { sum: self.loss()?, count: 1, correct: 0 }])
    }

    fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    fn flops(&self, _: &Batch) -> f64 {
        0.0
    }
}

/// Steps without content; a signal arrives during evaluation number `signal_in` (from 1), or while the final
/// files are written.
#[derive(Default)]
struct Steps {
    evaluations: usize,
    signals: Signals,
    signal_in: usize,
    signal_at_end: bool,
    /// True if the final files need an evaluation in the same process.
    wants_evaluation: bool,
    /// Duration of a step.
    step_time: Duration,
    /// A signal arrives while this sample is made.
    signal_at: Option<u64>,
    /// Every step gets the next sample.
    cursor: Cursor,
}

impl Data for Steps {
    fn start(&mut self, beginning: Beginning) -> Result<()> {
        self.cursor = beginning.cursor;
        Ok(())
    }

    fn next_step(&mut self) -> Result<StepBatches> {
        std::thread::sleep(self.step_time);
        let sample = self.cursor.index;
        if self.signal_at == Some(sample) {
            self.signals.pretend(15);
        }
        self.cursor.index += 1;
        let micro = vec![Batch { sample_ids: vec![sample], ..Batch::default() }];
        Ok(StepBatches {
            micro,
            micro_batches: 1,
            cursor_after: self.cursor.clone(),
            epoch: 0.5,
            rows: 1,
            tokens: 1,
            label_count: 1,
        })
    }

    fn evaluate(&mut self, task: &dyn Task, _interrupted: &dyn Fn() -> bool) -> Result<Option<Scores>> {
        self.evaluations += 1;
        if self.evaluations == self.signal_in {
            self.signals.pretend(15);
            return Ok(None);
        }
        // A perplexity above 10^308 is infinite, and must not keep a run from being resumed.
        let loss = task.evaluate(&Batch::default())?[0].mean();
        Ok(Some(vec![("loss".to_string(), loss), ("perplexity".to_string(), f64::INFINITY)]))
    }

    fn wants_evaluation(&self) -> bool {
        self.wants_evaluation && self.evaluations == 0
    }

    fn finish(&mut self, _: &Path, interrupted: &dyn Fn() -> bool) -> Result<Option<Scores>> {
        if self.signal_at_end {
            self.signals.pretend(15);
        }
        Ok((!interrupted()).then(Scores::new))
    }
}

const TOTAL: u64 = 10;

fn config() -> TrainingConfig {
    TrainingConfig {
        learning_rate: 0.1,
        logging_steps: 1,
        eval_steps: 4,
        save_steps: 0,
        max_steps: TOTAL as i64,
        ..TrainingConfig::default()
    }
}

/// f16 begins with a loss scale of 1024 here, and doubles it after three good steps.
fn policy(compute: ComputeType) -> Policy {
    let loss_scale = LossScaleConfig { init_scale: Some(1024.0), growth_interval: 3, min_scale: 1.0 };
    let loss_scale = (compute == ComputeType::F16).then_some(loss_scale);
    Policy::new(
        &PrecisionConfig { compute: compute.into(), loss_scale, ..PrecisionConfig::default() },
        &Hardware::cpu(),
    )
    .unwrap()
}

/// One sitting of a run in `folder`, resumed from its newest checkpoint.
fn sitting(folder: &Path, config: &TrainingConfig, signal_in: usize) -> (End, TrainState) {
    sitting_of(&Parabola::new(), &policy(ComputeType::F32), folder, config, signal_in)
}

fn sitting_of(
    task: &Parabola,
    policy: &Policy,
    folder: &Path,
    config: &TrainingConfig,
    signal_in: usize,
) -> (End, TrainState) {
    probed_sitting((task, policy), folder, config, signal_in, None)
}

fn probed_sitting(
    (task, policy): (&Parabola, &Policy),
    folder: &Path,
    config: &TrainingConfig,
    signal_in: usize,
    probe: Option<&dyn Probe>,
) -> (End, TrainState) {
    let signals = Signals::none();
    let machine = Machine::alone(&Device::Cpu, policy.clone());
    let mut stepper = run::stepper(task.parameters(), config, &machine, 1).unwrap();
    let mut average = WeightAverage::new(task.parameters(), config).unwrap();
    let folders = vec![ModelFolder {
        place: "",
        files: Vec::new(),
        names: vec![("w".into(), "w".into())],
        added: vec![],
    }];
    let mut state = TrainState::new(Cursor::default(), Better::Lower);
    let store = model::checkpoint::CheckpointStore::new(folder);
    let resumed = store.newest(Resumed::read).unwrap().0;
    if let Some(resumed) = &resumed {
        resumed.restore(&folders, task.parameters(), average.as_mut(), &mut stepper.optimizer).unwrap();
        state = resumed.state.clone();
    }
    let json = serde_json::Value::Null;
    let options = RunFolderOptions {
        path: folder,
        folders,
        config: json,
        inputs: Inputs::new(),
        training: config,
        total_steps: TOTAL,
        phases: Phases::new(config, 1, 0.0),
        first_step: state.step,
        outlets: Outlets::default(),
        world: machine.world,
        band: None,
    };
    let mut run_folder = RunFolder::open(options, resumed.as_ref(), &Progress::silent()).unwrap();
    let mut data = Steps { signal_in, signals: signals.clone(), ..Steps::default() };
    let mut trainer = Trainer {
        meter: Meter::silent(),
        task,
        stepper,
        average,
        schedule: Schedule::new(config, TOTAL),
        cadence: Cadence::new(config, TOTAL).probing(probe.map(Probe::every)),
        rules: run::stop_rules(config, None, &machine, &signals).unwrap(),
        pace: None,
        phases: Phases::new(config, 1, 0.0),
        loss_spike_threshold: config.loss_spike_threshold,
        best_metric: "loss",
        keep_best: config.load_best_model_at_end,
        data: &mut data,
        probe,
        probed: Scores::new(),
        unfinite: Unfinite::default(),
        folder: &mut run_folder,
    };
    let (end, _) = trainer.run(&mut state).unwrap();
    (end, state)
}

/// The records of a run folder without values that depend on time.
fn records(folder: &Path) -> Vec<serde_json::Value> {
    let text = std::fs::read_to_string(folder.join("metrics.jsonl")).unwrap();
    let mut records: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for record in &mut records {
        record.as_object_mut().unwrap().retain(|tag, _| !tag.starts_with("perf/"));
    }
    records
}

#[test]
fn an_evaluation_that_a_signal_cut_off_is_done_after_all() {
    let undisturbed = tempfile::tempdir().unwrap();
    let config = TrainingConfig { load_best_model_at_end: true, ..config() };
    let (end, whole) = sitting(undisturbed.path(), &config, 0);
    assert_eq!(end, End::Steps);
    assert!(whole.finished && whole.last_eval_step == Some(TOTAL));
    // Of the evaluations after steps 4, 8 and 10, the last one belongs to the end of the run.
    for (signal_in, step) in [(1, 4), (2, 8), (3, TOTAL)] {
        let folder = tempfile::tempdir().unwrap();
        let (end, state) = sitting(folder.path(), &config, signal_in);
        assert_eq!((end, state.step, state.finished), (End::Signal(15), step, false));
        let (end, state) = sitting(folder.path(), &config, 0);
        assert_eq!((end, &state.best, &state.last_eval), (End::Steps, &whole.best, &whole.last_eval));
        assert_eq!(
            records(folder.path()),
            records(undisturbed.path()),
            "a signal in the evaluation after step {step}"
        );
    }
}

#[test]
fn the_last_evaluation_is_not_done_twice() {
    let folder = tempfile::tempdir().unwrap();
    let config =
        TrainingConfig { learning_rate: 1e-30, eval_steps: 2, early_stopping_patience: Some(2), ..config() };
    let (end, state) = sitting(folder.path(), &config, 0);
    assert_eq!((end, state.step), (End::Patience, 6));
    let records = records(folder.path());
    let evaluated = records.iter().filter(|record| !record["eval/loss"].is_null());
    assert_eq!(evaluated.map(|record| record["step"].as_u64().unwrap()).collect::<Vec<_>>(), [2, 4, 6]);
}

/// Gradients of [`Parabola`] with the range of f16: a loss scale of 1024 overflows, one of 512 does not.
fn overflowing() -> Parabola {
    Parabola { overflows_from: 1000.0, ..Parabola::new() }
}

#[test]
fn an_interruption_leaves_the_loss_scale_as_it_was() {
    let undisturbed = tempfile::tempdir().unwrap();
    let (_, whole) = sitting_of(&overflowing(), &policy(ComputeType::F16), undisturbed.path(), &config(), 0);
    // Steps 1, 5 and 9 overflow, each after three good ones.
    assert_eq!((whole.step, whole.skipped_steps), (TOTAL, 3));
    let scales: Vec<f64> =
        records(undisturbed.path()).iter().filter_map(|record| record["train/loss_scale"].as_f64()).collect();
    assert_eq!(scales, [1024.0, 512.0, 512.0, 512.0, 1024.0, 512.0, 512.0, 512.0, 1024.0, 512.0]);
    let skipped: Vec<f64> = records(undisturbed.path())
        .iter()
        .filter_map(|record| record["train/skipped_steps"].as_f64())
        .collect();
    assert_eq!(skipped, [1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 2.0, 3.0, 3.0]);
    for signal_in in [1, 2] {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(
            sitting_of(&overflowing(), &policy(ComputeType::F16), folder.path(), &config(), signal_in).0,
            End::Signal(15)
        );
        let (_, state) = sitting_of(&overflowing(), &policy(ComputeType::F16), folder.path(), &config(), 0);
        assert_eq!((state.loss_scale, state.skipped_steps), (whole.loss_scale, whole.skipped_steps));
        assert_eq!(records(folder.path()), records(undisturbed.path()));
        for name in ["model.safetensors", "trainer/optimizer.safetensors"] {
            let [one, other] = [&folder, &undisturbed]
                .map(|folder| std::fs::read(folder.path().join("checkpoint-10").join(name)).unwrap());
            assert!(one == other, "`{name}` differs");
        }
    }
}

/// A stepper outside the loop, for details that the loop does not show.
fn stepper(task: &Parabola, compute: ComputeType) -> Stepper {
    let machine = Machine::alone(&Device::Cpu, policy(compute));
    run::stepper(task.parameters(), &config(), &machine, 1).unwrap()
}

fn step(task: &Parabola, stepper: &mut Stepper, step: u64) -> Result<StepOutcome> {
    stepper.run(task, &[Batch::default()], step, 0.1)
}

/// Parameters and moments.
fn bits(task: &Parabola, stepper: &Stepper) -> Vec<Vec<u32>> {
    let mut tensors = vec![task.parameters().flat().clone()];
    tensors.extend(stepper.optimizer.snapshot().unwrap().into_iter().map(|(_, tensor)| tensor));
    let values = tensors.iter().map(|t| t.to_dtype(DType::F32).unwrap().to_vec1::<f32>().unwrap());
    values.map(|values| values.into_iter().map(f32::to_bits).collect()).collect()
}

#[test]
fn a_skipped_step_is_as_if_it_had_not_been_and_scaling_costs_no_bit() {
    let plain = Parabola::new();
    let scaled = overflowing();
    let mut plain_stepper = stepper(&plain, ComputeType::F32);
    let mut scaled_stepper = stepper(&scaled, ComputeType::F16);
    for number in 1..=10 {
        let before = bits(&scaled, &scaled_stepper);
        let outcome = step(&scaled, &mut scaled_stepper, number).unwrap();
        assert_eq!(outcome.skipped, [1, 5, 9].contains(&number).then_some(Skip::Overflow));
        if outcome.skipped.is_some() {
            assert!(bits(&scaled, &scaled_stepper) == before && !outcome.grad_norm.is_finite());
            continue;
        }
        let want = step(&plain, &mut plain_stepper, number).unwrap();
        assert_eq!((&outcome.losses, outcome.grad_norm.to_bits()), (&want.losses, want.grad_norm.to_bits()));
        assert!(bits(&scaled, &scaled_stepper) == bits(&plain, &plain_stepper), "step {number}");
    }
}

#[test]
fn a_step_that_no_smaller_scale_can_mend_is_skipped_for_that() {
    let task = Parabola { overflows_from: 0.0, ..Parabola::new() };
    let mut stepper = stepper(&task, ComputeType::F16);
    let before = bits(&task, &stepper);
    // After ten halvings the scale is 1.
    for number in 1..=10 {
        assert_eq!(step(&task, &mut stepper, number).unwrap().skipped, Some(Skip::Overflow));
    }
    let skipped = step(&task, &mut stepper, 11).unwrap().skipped;
    assert_eq!(skipped, Some(Skip::NotFinite("gradient norm", f64::INFINITY)));
    assert!(bits(&task, &stepper) == before);

    // No loss scale helps if the loss is not finite.
    let task = Parabola::new();
    with_slice_mut(task.parameters().flat(), |values| values[0] = f32::NAN).unwrap();
    let skipped = step(&task, &mut stepper, 1).unwrap().skipped;
    assert!(matches!(skipped, Some(Skip::NotFinite("loss", value)) if value.is_nan()), "{skipped:?}");
}

/// A probe that fails, as on a full disk.
struct Failing([String; 1]);

impl Probe for Failing {
    fn names(&self) -> &[String] {
        &self.0
    }

    fn every(&self) -> u64 {
        0
    }

    fn scores(&self, _: &Path) -> Result<Option<Scores>> {
        anyhow::bail!("there is no room")
    }
}

#[test]
fn a_probe_that_fails_stops_nothing() {
    let without = tempfile::tempdir().unwrap();
    let with = tempfile::tempdir().unwrap();
    let (end, whole) = sitting(without.path(), &config(), 0);
    let probe = Failing(["a".to_string()]);
    let models = (&Parabola::new(), &policy(ComputeType::F32));
    let (probed_end, probed) = probed_sitting(models, with.path(), &config(), 0, Some(&probe));
    assert_eq!((end, whole.step, whole.last_eval), (probed_end, probed.step, probed.last_eval));
    assert_eq!(records(without.path()), records(with.path()));
}
