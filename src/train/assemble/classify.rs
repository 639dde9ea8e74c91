//! A fine-tuning run: labelled examples, a pretrained encoder, a new head; one training for each seed.

use std::collections::BTreeMap;
use std::path::Path;
use std::path::PathBuf;

use anyhow::Result;
use candle_core::DType;
use candle_core::Device;

use crate::batches::Cursor;
use crate::batches::StepBatches;
use crate::checkpoint::CheckpointStore;
use crate::config::FinetuneConfig;
use crate::config::TrainingConfig;
use crate::fs;
use crate::fs::FolderLock;
use crate::interop::HeadKind;
use crate::interop::HubConfig;
use crate::interop::PretrainedFolder;
use crate::interop::read_folder;
use crate::ops::cross_entropy;
use crate::ops::memory;
use crate::optim::schedule::Schedule;
use crate::scores::Confusion;
use crate::tasks::Loss;
use crate::tasks::PendingLoss;
use crate::tasks::Task;
use crate::tasks::classify::Classifier;
use crate::tasks::classify::Columns;
use crate::tasks::classify::Encoded;
use crate::tasks::classify::Example;
use crate::tasks::classify::LabelSet;
use crate::tasks::classify::PredictionRow;
use crate::tasks::classify::TextPair;
use crate::tasks::classify::collate::Collator;
use crate::tasks::classify::epoch_order;
use crate::tasks::classify::read_examples;
use crate::tasks::classify::report::best_class;
use crate::tasks::classify::stratified;
use crate::tasks::classify::subset_size;
use crate::tasks::classify::write_rows;
use crate::telemetry::Progress;
use crate::train::Data;
use crate::train::End;
use crate::train::Trainer;
use crate::train::assemble;
use crate::train::assemble::Machine;
use crate::train::assemble::batch_size;
use crate::train::assemble::batch_size::Shapes;
use crate::train::assemble::results;
use crate::train::assemble::resume;
use crate::train::assemble::resume::Start;
use crate::train::cadence::Cadence;
use crate::train::meter::Meter;
use crate::train::run_folder::FINAL;
use crate::train::run_folder::RunFolder;
use crate::train::run_folder::RunFolderOptions;
use crate::train::run_folder::load_parameters;
use crate::train::signals::Signals;
use crate::train::state::TrainState;
use crate::train::stopping::Better;

/// Predictions on the evaluation file, beside the final model.
pub const PREDICTIONS: &str = "predictions.jsonl";

/// The examples of a run, read and checked before anything is trained.
pub struct Examples {
    /// Names of the labels in the order of their ids.
    pub labels: Vec<String>,
    /// Training examples, after the subset was taken.
    pub train: Vec<Example>,
    train_ids: Vec<u32>,
    /// Evaluation examples.
    pub eval: Vec<Example>,
    eval_ids: Vec<u32>,
}

impl Examples {
    /// Reads both files; the subset is drawn with the seed of the run, the same for every training seed.
    pub fn read(config: &FinetuneConfig) -> Result<Self> {
        let data = &config.data;
        let columns = Columns::of(data);
        let (mut train, eval) =
            (read_examples(&data.train_file, &columns)?, read_examples(&data.eval_file, &columns)?);
        let labels = if data.labels.is_empty() {
            LabelSet::discover(&data.train_file, &train)?
        } else {
            LabelSet::given(&data.labels)?
        };
        let (mut train_ids, eval_ids) =
            (labels.ids(&data.train_file, &train)?, labels.ids(&data.eval_file, &eval)?);
        let size = subset_size(train.len(), data.max_train_fraction, data.max_train_samples)?;
        if size < train.len() {
            let chosen = stratified(&train_ids, size, config.run.seed);
            train = chosen.iter().map(|&index| train[index].clone()).collect();
            train_ids = chosen.iter().map(|&index| train_ids[index]).collect();
        }
        Ok(Self { labels: labels.names().to_vec(), train, train_ids, eval, eval_ids })
    }
}

/// What one seed came to.
#[derive(Debug)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// Why it ended; `None` when it was complete already.
    pub end: Option<End>,
    /// Updates done.
    pub step: u64,
    /// Scores by the Trainer's names.
    pub results: BTreeMap<String, f64>,
    /// Gold against predicted labels of the evaluation file.
    pub confusion: Confusion,
    /// Folder of the final model.
    pub model: PathBuf,
}

/// Trains one seed in `output`.
pub fn run_seed(
    config: &FinetuneConfig,
    examples: &Examples,
    seed: u64,
    output: &Path,
    machine: &Machine,
    progress: &Progress,
    signals: &Signals,
) -> Result<Outcome> {
    let _lock = FolderLock::take(output)?;
    let folder = read_folder(&config.model)?;
    // From here to the end every step needs the memory of the one before.
    let _keeping = memory::keep_freed_blocks();
    let mut classifier = classifier(config, examples, &folder, seed, machine, progress)?;
    classifier.task.model.encoder.gradient_checkpointing = config.training.gradient_checkpointing;
    let given = config;
    let model_config = classifier.task.model.config.clone();
    let shapes = Shapes { model: &model_config, length: config.data.max_seq_length, masked_share: 0.0 };
    let config = &FinetuneConfig {
        training: batch_size::fitted(&config.training, shapes, machine, progress)?,
        ..config.clone()
    };
    let mut data = TrainingData::encode(config, examples, &classifier, seed, progress)?;
    let task = &classifier.task;
    let training = &config.training;
    let mut stepper = assemble::stepper(task.parameters(), training, &machine.policy, seed)?;
    let total_steps =
        assemble::total_steps(training, data.steps_per_epoch() * assemble::rows_per_step(training));
    let found = resume::find(&Start::Auto, &CheckpointStore::new(output), given, progress)?;
    let mut state = TrainState::new(Cursor::default(), Better::Higher);
    let mut is_complete = false;
    if let Some((resumed, complete)) = &found {
        resumed.restore(task.parameters(), &mut stepper.optimizer)?;
        state = resumed.state.clone();
        is_complete = *complete || state.step >= total_steps;
        state.finished = false;
        if !is_complete {
            progress.note(&format!(
                "resuming after step {} of `{}`",
                state.step,
                resumed.checkpoint.path().display()
            ));
        }
    }
    let (model, results) = (output.join(FINAL), results::read(output)?);
    if is_complete && results::are_whole(&results) {
        // In the type of the run, so that the scores are those that it gave when it ended.
        let probabilities =
            data.predict(&Classifier::load(&model, &machine.device)?.computing_in(machine.policy.compute)?)?;
        return Ok(Outcome {
            seed,
            end: None,
            step: state.step,
            results,
            confusion: confusion(examples, &probabilities),
            model,
        });
    }
    batch_size::reserve(training.rows_at_once() * shapes.length, training, shapes, machine, progress)?;
    results::forget(output)?;
    data.cursor = state.cursor;
    let options = RunFolderOptions {
        path: output,
        model_files: assemble::model_files(&hub_config(&folder, &examples.labels), &classifier.tokenizer),
        config: serde_json::to_value(given)?,
        training,
        total_steps,
        tensorboard: config.run.tensorboard,
    };
    let mut run_folder = RunFolder::open(options, found.as_ref().map(|(r, _)| &r.checkpoint), progress)?;
    run_folder.require_space(task.parameters())?;
    let mut trainer = Trainer {
        meter: Meter::new(machine, config.precision.tf32, config.run.usd_per_hour),
        task,
        stepper,
        schedule: Schedule::new(training, total_steps),
        cadence: Cadence::new(training, total_steps),
        rules: assemble::stop_rules(training, signals)?,
        best_metric: "accuracy",
        keep_best: training.load_best_model_at_end,
        data: &mut data,
        folder: &mut run_folder,
    };
    let trained = trainer.run(&mut state);
    let (end, rates) = trained.map_err(|e| batch_size::explain(e, training, shapes, machine))?;
    if matches!(end, End::Signal(_)) {
        let confusion = Confusion::new(examples.labels.len());
        return Ok(Outcome {
            seed,
            end: Some(end),
            step: state.step,
            results: BTreeMap::new(),
            confusion,
            model,
        });
    }
    if let Some(step) =
        state.best.step().filter(|&step| training.load_best_model_at_end && step != state.step)
    {
        load_parameters(&run_folder.checkpoint(step)?, task.parameters())?;
    }
    run_folder.finish(task.parameters())?;
    let probabilities = data.predict(&classifier)?;
    write_predictions(&output.join(PREDICTIONS), examples, &probabilities)?;
    let confusion = confusion(examples, &probabilities);
    let mut results = results::of_training(&state, rates);
    results.extend(
        data.eval_loss(task)?
            .into_iter()
            .chain(scores(&confusion))
            .map(|(name, value)| (format!("eval_{name}"), value)),
    );
    results::save(output, &results)?;
    Ok(Outcome { seed, end: Some(end), step: state.step, results, confusion, model })
}

fn classifier(
    config: &FinetuneConfig,
    examples: &Examples,
    folder: &PretrainedFolder,
    seed: u64,
    machine: &Machine,
    progress: &Progress,
) -> Result<Classifier> {
    folder.notes.iter().for_each(|note| progress.note(&format!("{}: {note}", config.model.display())));
    let pairs = config.data.text_pair_column.is_some();
    let length = config.data.max_seq_length;
    let (classifier, new) = Classifier::from_folder(
        &config.model,
        folder,
        examples.labels.clone(),
        length,
        pairs,
        seed,
        &machine.device,
    )?;
    if !new.is_empty() {
        progress.note(&format!("new parameters, drawn from seed {seed}: {}", new.join(", ")));
    }
    classifier.computing_in(machine.policy.compute)
}

fn hub_config(folder: &PretrainedFolder, labels: &[String]) -> HubConfig {
    let mut config =
        HubConfig::new(folder.config.clone(), HeadKind::SequenceClassification, Some(labels.to_vec()));
    config.extra.clone_from(&folder.extra);
    config
}

fn confusion(examples: &Examples, probabilities: &[Vec<f32>]) -> Confusion {
    let predicted: Vec<u32> = probabilities.iter().map(|p| best_class(p) as u32).collect();
    Confusion::of(examples.labels.len(), &examples.eval_ids, &predicted)
}

/// Accuracy, macro F1 and Matthews correlation, by the names that are usual in Python.
fn scores(confusion: &Confusion) -> [(String, f64); 3] {
    [
        ("accuracy", confusion.accuracy()),
        ("f1", confusion.macro_f1()),
        ("matthews_correlation", confusion.matthews()),
    ]
    .map(|(name, value)| (name.to_string(), value))
}

fn write_predictions(path: &Path, examples: &Examples, probabilities: &[Vec<f32>]) -> Result<()> {
    let row = |(example, probabilities): (&Example, &Vec<f32>)| {
        PredictionRow::new(
            example.text.clone(),
            example.text_pair.clone(),
            example.label.clone(),
            &examples.labels,
            probabilities,
        )
    };
    let rows: Vec<PredictionRow> = examples.eval.iter().zip(probabilities).map(row).collect();
    fs::write_atomic(path, |file| write_rows(file, &rows))
}

/// Encoded examples, and where the next step takes its own.
struct TrainingData {
    train: Vec<Encoded>,
    eval: Vec<Encoded>,
    collator: Collator,
    classes: usize,
    cursor: Cursor,
    seed: u64,
    micro_rows: usize,
    rows_per_step: usize,
    eval_rows: usize,
}

impl TrainingData {
    fn encode(
        config: &FinetuneConfig,
        examples: &Examples,
        classifier: &Classifier,
        seed: u64,
        progress: &Progress,
    ) -> Result<Self> {
        let encode = |what: &str, examples: &[Example], ids: &[u32]| {
            let texts: Vec<TextPair> =
                examples.iter().map(|e| (e.text.clone(), e.text_pair.clone())).collect();
            let (encoded, lost) = classifier.encode(&texts, ids)?;
            if lost.examples > 0 {
                let length = config.data.max_seq_length;
                progress.note(&format!(
                    "{} of {} {what} examples were cut at {length} tokens, {} tokens lost",
                    lost.examples,
                    examples.len(),
                    lost.tokens
                ));
            }
            anyhow::Ok(encoded)
        };
        let training: &TrainingConfig = &config.training;
        Ok(Self {
            train: encode("training", &examples.train, &examples.train_ids)?,
            eval: encode("evaluation", &examples.eval, &examples.eval_ids)?,
            collator: classifier.collator,
            classes: examples.labels.len(),
            cursor: Cursor::default(),
            seed,
            micro_rows: training.rows_at_once(),
            rows_per_step: assemble::rows_per_step(training) as usize,
            eval_rows: training.per_device_eval_batch_size,
        })
    }

    /// Updates of an epoch; the last one may have fewer rows.
    fn steps_per_epoch(&self) -> u64 {
        self.train.len().div_ceil(self.rows_per_step) as u64
    }

    fn predict(&self, classifier: &Classifier) -> Result<Vec<Vec<f32>>> {
        let mut probabilities = Vec::with_capacity(self.eval.len());
        for examples in self.eval.chunks(self.eval_rows) {
            probabilities.extend(classifier.probabilities(examples)?);
        }
        Ok(probabilities)
    }

    fn eval_loss(&self, task: &dyn Task) -> Result<Option<(String, f64)>> {
        let mut total = Loss::default();
        for examples in self.eval.chunks(self.eval_rows) {
            total += task.evaluate(&self.collator.batch(examples, 0))?;
        }
        Ok((total.count > 0).then(|| ("loss".to_string(), total.mean())))
    }
}

impl Data for TrainingData {
    fn next_step(&mut self) -> Result<StepBatches> {
        let (epoch, first) = (self.cursor.epoch, self.cursor.index as usize);
        let order = epoch_order(self.train.len(), self.seed, epoch);
        let chosen: Vec<&Encoded> =
            order.skip(first).take(self.rows_per_step).map(|index| &self.train[index]).collect();
        let micro: Vec<_> = chosen
            .chunks(self.micro_rows)
            .enumerate()
            .map(|(number, rows)| {
                self.collator.batch(rows.iter().copied(), (number * self.micro_rows) as u64)
            })
            .collect();
        let next = first + chosen.len();
        self.cursor = if next >= self.train.len() {
            Cursor { epoch: epoch + 1, ..Cursor::default() }
        } else {
            Cursor { epoch, index: next as u64, ..Cursor::default() }
        };
        Ok(StepBatches {
            cursor_after: self.cursor,
            epoch: self.cursor.epoch as f64 + self.cursor.index as f64 / self.train.len() as f64,
            rows: chosen.len(),
            tokens: micro.iter().map(crate::batches::Batch::num_tokens).sum(),
            label_count: chosen.len(),
            micro,
        })
    }

    fn evaluate(&mut self, task: &dyn Task, signals: &Signals) -> Result<Option<Vec<(String, f64)>>> {
        let (mut loss, mut confusion) = (Loss::default(), Confusion::new(self.classes));
        for examples in self.eval.chunks(self.eval_rows) {
            if signals.received().is_some() {
                return Ok(None);
            }
            let batch = self.collator.batch(examples, 0);
            let logits = task.logits(&batch)?.to_device(&Device::Cpu)?.to_dtype(DType::F32)?;
            loss += PendingLoss::of(cross_entropy::forward(&logits, &batch.labels)?, batch.num_labels())
                .read()?;
            for (row, &label) in logits.to_vec2::<f32>()?.iter().zip(&batch.labels) {
                confusion.add(label, best_class(row) as u32);
            }
        }
        Ok(Some(std::iter::once(("loss".to_string(), loss.mean())).chain(scores(&confusion)).collect()))
    }
}
