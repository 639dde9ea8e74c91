//! A pretraining run: tokenizer and shards, masked-LM model, loop, final model and its scores.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use anyhow::Result;

use crate::batches::BatchPlan;
use crate::batches::Cursor;
use crate::batches::EvaluationBatches;
use crate::batches::Frame;
use crate::batches::Loader;
use crate::batches::LoaderOptions;
use crate::batches::Masking;
use crate::batches::Order;
use crate::batches::Packing;
use crate::batches::PackingReport;
use crate::batches::StepBatches;
use crate::batches::packing_report;
use crate::batches::rows_per_epoch;
use crate::checkpoint::CheckpointStore;
use crate::config::ModelConfig;
use crate::config::PretrainConfig;
use crate::config::to_yaml;
use crate::error::Problem;
use crate::fs;
use crate::fs::FolderLock;
use crate::interop::HeadKind;
use crate::interop::HubConfig;
use crate::models::Model;
use crate::ops::memory;
use crate::optim::schedule::Schedule;
use crate::prepare::Prepared;
use crate::scores::unigram_entropy;
use crate::shards::ShardSet;
use crate::tasks::Task;
use crate::tasks::fill_mask::Candidate;
use crate::tasks::fill_mask::fill_mask;
use crate::tasks::mlm::MaskedLm;
use crate::telemetry::Progress;
use crate::tokenizer::Tokenizer;
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
use crate::train::evaluate::evaluate;
use crate::train::evaluate::mlm_scores;
use crate::train::meter::Meter;
use crate::train::run_folder::FINAL;
use crate::train::run_folder::RunFolder;
use crate::train::run_folder::RunFolderOptions;
use crate::train::run_folder::load_parameters;
use crate::train::signals::Signals;
use crate::train::state::TrainState;
use crate::train::stopping::Better;

/// What a run came to.
#[derive(Debug)]
pub struct Outcome {
    /// Why it ended; `None` when it was complete already.
    pub end: Option<End>,
    /// Updates done.
    pub step: u64,
    /// Final scores by the Trainer's names (`eval_loss`, `train_tokens_per_second`, ...).
    pub results: BTreeMap<String, f64>,
    /// Folder of the final model.
    pub model: PathBuf,
    /// The candidates of each mask of the sample text.
    pub filled: Vec<Vec<Candidate>>,
}

/// The model that a configuration and a tokenizer make: a vocabulary of 0 is the tokenizer's.
pub fn model_config(config: &PretrainConfig, prepared: &Prepared) -> Result<ModelConfig> {
    let mut model = config.model().context("validation lets only one model family pass")?;
    let (size, tokenizer) = (model.encoder.vocab_size, &prepared.tokenizer);
    if size == 0 {
        model.encoder.vocab_size = tokenizer.vocab_size();
    } else if size < tokenizer.vocab_size() {
        return Err(Problem::usage(format!(
            "is {size}, the tokenizer has {} entries",
            tokenizer.vocab_size()
        ))
        .at(format!("model.{}.vocab_size", crate::models::families::prefix(model.family)))
        .hint("leave the key out to take the tokenizer's number")
        .into());
    }
    model.encoder.pad_token_id = tokenizer.special().pad;
    Ok(model)
}

/// The data side of a pretraining run.
struct Corpus {
    loader: Loader,
    validation: Validation,
}

/// The fixed batches that a run is evaluated on.
struct Validation {
    shards: Arc<ShardSet>,
    frame: Frame,
    masking: Masking,
    rows_per_batch: usize,
}

impl Validation {
    fn batches(&self) -> Result<EvaluationBatches> {
        EvaluationBatches::new(&self.shards, self.frame, self.masking.clone(), self.rows_per_batch)
    }
}

impl Data for Corpus {
    fn next_step(&mut self) -> Result<StepBatches> {
        self.loader.next_step()
    }

    fn give_back(&mut self, step: StepBatches) {
        self.loader.give_back(step);
    }

    fn evaluate(&mut self, task: &dyn Task, signals: &Signals) -> Result<Option<Vec<(String, f64)>>> {
        Ok(evaluate(task, self.validation.batches()?, signals)?.map(|loss| mlm_scores(&loss)))
    }
}

/// Trains as `config` says, from where `start` says, on data that is ready.
pub fn run(
    config: &PretrainConfig,
    prepared: Prepared,
    start: &Start,
    machine: &Machine,
    progress: &Progress,
    signals: &Signals,
) -> Result<Outcome> {
    let output = &config.run.output_dir;
    let _lock = FolderLock::take(output)?;
    let store = CheckpointStore::new(output);
    let resumed = resume::find(start, &store, config, progress)?;
    let model = model_config(config, &prepared)?;
    let given = config;
    let shapes = shapes(config, &model);
    let config = &PretrainConfig {
        training: batch_size::fitted(&config.training, shapes, machine, progress)?,
        ..config.clone()
    };
    // From here to the end every step needs the memory of the one before.
    let _keeping = memory::keep_freed_blocks();
    let policy = &machine.policy;
    let mut task = MaskedLm {
        model: Model::masked_lm(&model, config.run.seed, &machine.device)?.computing_in(policy.compute)?,
    };
    task.model.encoder.gradient_checkpointing = config.training.gradient_checkpointing;
    let mut stepper = assemble::stepper(task.parameters(), &config.training, policy, config.run.seed)?;
    let baseline = unigram_loss(&prepared.validation)?;
    let (tokenizer, train, validation) =
        (prepared.tokenizer, Arc::new(prepared.train), Arc::new(prepared.validation));
    // Evaluation is always packed in segments, so that runs with other packings can be compared.
    let eval_frame = Frame::new(&tokenizer, config.data.max_seq_length)?;
    let frame = eval_frame.with_packing(Packing::new(&config.data.packing));
    let order = order(config);
    let total_steps = total_steps(config, &train, &order, frame)?;

    let mut state = TrainState::new(Cursor::default(), Better::Lower);
    if let Some((resumed, complete)) = &resumed {
        resumed.restore(task.parameters(), &mut stepper.optimizer)?;
        state = resumed.state.clone();
        let results = results::read(output)?;
        if (*complete || state.step >= total_steps) && results::are_whole(&results) {
            let filled = sample(config, &task, &tokenizer)?;
            let results = results::read(output)?;
            return Ok(Outcome { end: None, step: state.step, results, model: output.join(FINAL), filled });
        }
        state.finished = false;
        progress.note(&format!(
            "resuming after step {} of `{}`",
            state.step,
            resumed.checkpoint.path().display()
        ));
    }
    let plan = BatchPlan::new(&config.training, config.data.max_seq_length);
    batch_size::reserve(plan.most_tokens_at_once(), &config.training, shapes, machine, progress)?;
    // A text that cannot be filled in is better told now than after hours of training.
    sample(config, &task, &tokenizer)?;
    fs::write_bytes(&output.join("config.yaml"), to_yaml(given).as_bytes())?;
    // Written last when a run is complete: where they are missing, it is not.
    results::forget(output)?;
    let options = RunFolderOptions {
        path: output,
        model_files: assemble::model_files(
            &HubConfig::new(model.clone(), HeadKind::MaskedLm, None),
            &tokenizer,
        ),
        config: serde_json::to_value(given)?,
        training: &config.training,
        total_steps,
        tensorboard: config.run.tensorboard,
    };
    let mut folder = RunFolder::open(options, resumed.as_ref().map(|(r, _)| &r.checkpoint), progress)?;
    folder.require_space(task.parameters())?;
    let loader_options = LoaderOptions {
        order,
        first_step: state.step,
        total_steps,
        workers: config.data.loader_workers,
        ..LoaderOptions::new(config.run.seed, plan)
    };
    let masking = Masking::new(&config.mlm, &tokenizer)?;
    let loader = Loader::start(train, frame, masking, loader_options, state.cursor)?;
    let masking = Masking::for_evaluation(&tokenizer)?;
    let rows_per_batch = config.training.per_device_eval_batch_size;
    let mut corpus = Corpus {
        loader,
        validation: Validation { shards: validation, frame: eval_frame, masking, rows_per_batch },
    };
    let mut trainer = Trainer {
        meter: Meter::new(machine, config.precision.tf32, config.run.usd_per_hour),
        task: &task,
        stepper,
        schedule: Schedule::new(&config.training, total_steps),
        cadence: Cadence::new(&config.training, total_steps),
        rules: assemble::stop_rules(&config.training, signals)?,
        best_metric: "loss",
        keep_best: config.training.load_best_model_at_end,
        data: &mut corpus,
        folder: &mut folder,
    };
    let trained = trainer.run(&mut state);
    let (end, rates) = trained.map_err(|e| batch_size::explain(e, &config.training, shapes, machine))?;
    let mut outcome = Outcome {
        end: Some(end),
        step: state.step,
        results: BTreeMap::new(),
        model: output.join(FINAL),
        filled: Vec::new(),
    };
    if matches!(end, End::Signal(_)) {
        return Ok(outcome);
    }
    match finish(config, &task, &mut folder, &state, &corpus, signals)? {
        Some(scores) => outcome.results.extend(scores),
        None => return Ok(Outcome { end: signals.received().map(End::Signal), ..outcome }),
    }
    outcome.results.insert("eval_unigram_loss".into(), baseline);
    outcome.results.extend(results::of_training(&state, rates));
    results::save(output, &outcome.results)?;
    outcome.filled = sample(config, &task, &tokenizer)?;
    Ok(outcome)
}

/// The largest steps of a run.
pub fn shapes<'a>(config: &PretrainConfig, model: &'a ModelConfig) -> Shapes<'a> {
    let longest = config
        .training
        .phases
        .iter()
        .map(|phase| phase.max_seq_length)
        .chain([config.data.max_seq_length])
        .max();
    Shapes {
        model,
        length: longest.unwrap_or(config.data.max_seq_length),
        masked_share: config.mlm.mlm_probability.max(config.mlm.mlm_probability_end.unwrap_or(0.0)),
    }
}

/// The order of training: each source as often as its weight says.
pub fn order(config: &PretrainConfig) -> Order {
    Order::Weighted {
        seed: config.run.seed,
        weights: config.data.sources.iter().map(|source| source.weight).collect(),
    }
}

/// How well packing as configured fills the rows of an epoch of `train`, at the length of the last phase.
pub fn packing(config: &PretrainConfig, tokenizer: &Tokenizer, train: &ShardSet) -> Result<PackingReport> {
    let frame =
        Frame::new(tokenizer, config.data.max_seq_length)?.with_packing(Packing::new(&config.data.packing));
    packing_report(train, &order(config), frame)
}

/// Steps of a run. Where they are given, no epoch has to be played through.
fn total_steps(config: &PretrainConfig, train: &ShardSet, order: &Order, frame: Frame) -> Result<u64> {
    let rows = if config.training.max_steps > 0 { 0 } else { rows_per_epoch(train, order, frame)? };
    Ok(assemble::total_steps(&config.training, rows))
}

/// Writes the final model, the best one's weights if that is wanted, and gives its scores; `None` when a
/// signal came in.
fn finish(
    config: &PretrainConfig,
    task: &MaskedLm,
    folder: &mut RunFolder,
    state: &TrainState,
    corpus: &Corpus,
    signals: &Signals,
) -> Result<Option<Vec<(String, f64)>>> {
    let mut scores = state.last_eval.clone();
    let best = state.best.step().filter(|&step| config.training.load_best_model_at_end && step != state.step);
    match best.map(|step| folder.checkpoint(step)) {
        None => {}
        Some(Ok(checkpoint)) => {
            load_parameters(&checkpoint, task.parameters())?;
            let Some(loss) = evaluate(task, corpus.validation.batches()?, signals)? else { return Ok(None) };
            scores = mlm_scores(&loss);
        }
        // It was never saved where `load_best_model_at_end` was set only after it.
        Some(Err(e)) => folder
            .warn(&format!("the best checkpoint cannot be used, so the last model is the final one: {e:#}")),
    }
    folder.finish(task.parameters())?;
    Ok(Some(scores.into_iter().map(|(name, value)| (format!("eval_{name}"), value)).collect()))
}

/// The loss of the best model that knows only how frequent each token of the validation set is.
fn unigram_loss(validation: &ShardSet) -> Result<f64> {
    let mut counts = vec![0u64; validation.vocab_size()];
    for index in 0..validation.num_documents() {
        for id in validation.document(index)? {
            counts[id as usize] += 1;
        }
    }
    Ok(unigram_entropy(&counts))
}

fn sample(config: &PretrainConfig, task: &MaskedLm, tokenizer: &Tokenizer) -> Result<Vec<Vec<Candidate>>> {
    match &config.run.sample_text {
        Some(text) => fill_mask(task, tokenizer, text, 5, "run.sample_text"),
        None => Ok(Vec::new()),
    }
}
