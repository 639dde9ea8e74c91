//! The loop on a toy task: what is observed when, whatever interrupts it.

use std::path::Path;

use anyhow::Result;
use candle_core::Device;
use candle_core::Tensor;

use crate::batches::Batch;
use crate::batches::Cursor;
use crate::batches::StepBatches;
use crate::config::TrainingConfig;
use crate::layers::Gradients;
use crate::layers::Init;
use crate::layers::Parameters;
use crate::layers::Registry;
use crate::layers::context::DropoutSeed;
use crate::ops::tensor::with_slice;
use crate::ops::tensor::with_slice_mut;
use crate::optim::schedule::Schedule;
use crate::tasks::Loss;
use crate::tasks::Task;
use crate::telemetry::Progress;
use crate::train::Data;
use crate::train::End;
use crate::train::Trainer;
use crate::train::assemble;
use crate::train::cadence::Cadence;
use crate::train::run_folder::Resumed;
use crate::train::run_folder::RunFolder;
use crate::train::run_folder::RunFolderOptions;
use crate::train::signals::Signals;
use crate::train::state::TrainState;
use crate::train::stopping::Better;

/// Half the squared distance from one, element by element.
struct Parabola {
    parameters: Parameters,
}

impl Parabola {
    fn new() -> Self {
        let mut registry = Registry::default();
        registry.weight("w", &[3, 2], Init::Normal);
        Self { parameters: Parameters::initialise(registry.layout(), 1.0, 1, &Device::Cpu).unwrap() }
    }

    fn loss(&self) -> candle_core::Result<f64> {
        with_slice(self.parameters.flat(), |w| w[..6].iter().map(|w| 0.5 * f64::from(w - 1.0).powi(2)).sum())
    }
}

impl Task for Parabola {
    fn accumulate(&self, _: &Batch, _: DropoutSeed, gradients: &Gradients) -> candle_core::Result<Loss> {
        let values = self.parameters.flat().to_vec1::<f32>()?;
        with_slice_mut(gradients.flat(), |g| g.iter_mut().zip(values).take(6).for_each(|(g, w)| *g += w - 1.0))?;
        Ok(Loss { sum: self.loss()?, count: 1, correct: 0 })
    }

    fn logits(&self, _: &Batch) -> candle_core::Result<Tensor> {
        candle_core::bail!("a parabola has no classes")
    }

    fn evaluate(&self, _: &Batch) -> candle_core::Result<Loss> {
        Ok(Loss { sum: self.loss()?, count: 1, correct: 0 })
    }

    fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    fn flops(&self, _: &Batch) -> f64 {
        0.0
    }
}

/// Steps without content; a signal comes in during evaluation number `signal_in`, from 1.
#[derive(Default)]
struct Steps {
    evaluations: usize,
    signal_in: usize,
}

impl Data for Steps {
    fn next_step(&mut self) -> Result<StepBatches> {
        let micro = vec![Batch::default()];
        Ok(StepBatches { micro, cursor_after: Cursor::default(), epoch: 0.5, rows: 1, tokens: 1, label_count: 1 })
    }

    fn evaluate(&mut self, task: &dyn Task, signals: &Signals) -> Result<Option<Vec<(String, f64)>>> {
        self.evaluations += 1;
        if self.evaluations == self.signal_in {
            signals.pretend(15);
            return Ok(None);
        }
        Ok(Some(vec![("loss".to_string(), task.evaluate(&Batch::default())?.mean())]))
    }
}

const TOTAL: u64 = 10;

fn config() -> TrainingConfig {
    TrainingConfig { learning_rate: 0.1, logging_steps: 1, eval_steps: 4, save_steps: 0, ..TrainingConfig::default() }
}

/// One sitting of a run in `folder`: goes on with its newest checkpoint.
fn sitting(folder: &Path, config: &TrainingConfig, signal_in: usize) -> (End, TrainState) {
    let (task, signals) = (Parabola::new(), Signals::none());
    let mut stepper = assemble::stepper(task.parameters(), config, 1).unwrap();
    let mut state = TrainState::new(Cursor::default(), Better::Lower);
    let store = crate::checkpoint::CheckpointStore::new(folder);
    let resumed = store.newest_valid().unwrap().0.map(|checkpoint| Resumed::read(checkpoint).unwrap());
    if let Some(resumed) = &resumed {
        resumed.restore(task.parameters(), &mut stepper.optimizer).unwrap();
        state = resumed.state.clone();
    }
    let json = serde_json::Value::Null;
    let options =
        RunFolderOptions { path: folder, model_files: Vec::new(), config: json, training: config, total_steps: TOTAL, tensorboard: false };
    let mut run_folder = RunFolder::open(options, resumed.as_ref().map(|r| &r.checkpoint), &Progress::silent()).unwrap();
    let mut data = Steps { signal_in, ..Steps::default() };
    let mut trainer = Trainer {
        task: &task,
        stepper,
        schedule: Schedule::new(config, TOTAL),
        cadence: Cadence::new(config, TOTAL),
        rules: assemble::stop_rules(config, &signals).unwrap(),
        best_metric: "loss",
        keep_best: config.load_best_model_at_end,
        data: &mut data,
        folder: &mut run_folder,
    };
    let (end, _) = trainer.run(&mut state).unwrap();
    (end, state)
}

/// The records of a run folder without what depends on time.
fn records(folder: &Path) -> Vec<serde_json::Value> {
    let text = std::fs::read_to_string(folder.join("metrics.jsonl")).unwrap();
    let mut records: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
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
        assert_eq!(records(folder.path()), records(undisturbed.path()), "a signal in the evaluation after step {step}");
    }
}

#[test]
fn the_last_evaluation_is_not_done_twice() {
    let folder = tempfile::tempdir().unwrap();
    let config = TrainingConfig { learning_rate: 1e-30, eval_steps: 2, early_stopping_patience: Some(2), ..config() };
    let (end, state) = sitting(folder.path(), &config, 0);
    assert_eq!((end, state.step), (End::Patience, 6));
    let evaluated = |record: &serde_json::Value| (!record["eval/loss"].is_null()).then(|| record["step"].as_u64().unwrap());
    assert_eq!(records(folder.path()).iter().filter_map(evaluated).collect::<Vec<_>>(), [2, 4, 6]);
}
