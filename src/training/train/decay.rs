//! `decay_from`: a run that brings the learning rate of another run or model down to its minimum.
//!
//! From a checkpoint of a run it takes everything but the schedule; from any other model folder, the weights.

use std::path::Path;

use anyhow::Result;

use crate::train::checkpoint_files::{CONFIG, Resumed, STATE};
use crate::train::resume::Start;
use base::error::Problem;
use base::fs;
use config::defaults::Derived;
use config::{
    ComputeChoice, DecayFrom, ModelSection, PretrainConfig, TokenizerConfig, compare_for_decay, defaults,
    portable, with_variables,
};
use data::tokenizer::Tokenizer;
use model::checkpoint::{Checkpoint, CheckpointStore};
use model::interop::read_folder;
use model::optim::schedule::{Schedule, Stage};

/// The config key that names the checkpoint.
const KEY: &str = "decay_from.checkpoint";

/// File with the hashes of all files of a checkpoint; its own hash identifies the checkpoint.
const MANIFEST_JSON: &str = "manifest.json";

const CONFIG_CAP_BYTES: u64 = 16 << 20;

/// Completes `config` from its `decay_from`: schedule, `data.prepared_dir`, hash, and for the keys of
/// `derived` the values of the parent run. Returns the checkpoint if the run begins with its state: `None` if
/// the run has begun already or takes weights only.
pub fn resolve(config: &mut PretrainConfig, start: &Start, derived: &[Derived]) -> Result<Option<Resumed>> {
    let Some(given) = config.decay_from.clone() else { return Ok(None) };
    if let Some(begun) = begun(config, start)? {
        config.decay_from = begun.decay_from;
        config.data.prepared_dir = config.data.prepared_dir.take().or(begun.data.prepared_dir);
        if begun.model.path.is_some() {
            config.model = begun.model;
        }
        config.settle_decay()?;
        return Ok(None);
    }
    let path = given.checkpoint.clone();
    if fs::exists(&path.join(STATE)) {
        return resolve_from_run(config, given, derived).map(Some);
    }
    if !fs::exists(&path.join("config.json")) {
        return Err(neither(&path)?.into());
    }
    resolve_from_folder(config, given)?;
    Ok(None)
}

/// A summary of the decay, for people; `None` if the resolved `config` has no `decay_from`.
pub fn told(config: &PretrainConfig) -> Option<String> {
    let DecayFrom { checkpoint, step, .. } = config.decay_from.as_ref()?;
    let place = checkpoint.display();
    let training = &config.training;
    let curve = serde_json::to_value(training.decay_type).ok()?;
    let falls = format!(
        "the learning rate {} falls to {} over {} steps ({})",
        training.learning_rate,
        training.learning_rate * training.min_lr_ratio,
        training.lr_decay_steps,
        curve.as_str().unwrap_or_default()
    );
    Some(match step {
        Some(step) => {
            format!(
                "`{place}`: {falls} from step {step} on; weights, moments and the place in the data go on"
            )
        }
        None => {
            format!("`{place}`: {falls}; it has weights only: moments are fresh, and the data begin anew")
        }
    })
}

/// The configuration saved with the newest checkpoint of this run, if the run has begun and decays from the
/// same checkpoint.
fn begun(config: &PretrainConfig, start: &Start) -> Result<Option<PretrainConfig>> {
    let folders = match start {
        Start::Fresh => Vec::new(),
        Start::At(path) => vec![path.clone()],
        Start::Auto | Start::Again => {
            let store = CheckpointStore::new(&config.run.output_dir);
            store.steps()?.into_iter().rev().map(|step| store.path_of(step)).collect()
        }
    };
    // Checkpoints are compared by their saved name, which for one from a bucket is its URL.
    let saved = folders.iter().find_map(|folder| read_config(folder));
    Ok(saved.filter(|saved| checkpoint_name(saved) == checkpoint_name(config)))
}

/// The configuration saved with a checkpoint. A damaged checkpoint is skipped (`None`); it is reported when the
/// run resumes from another one.
fn read_config(folder: &Path) -> Option<PretrainConfig> {
    let bytes = fs::read_capped(&folder.join(CONFIG), CONFIG_CAP_BYTES).ok()?;
    let saved = with_variables(serde_json::from_slice(&bytes).ok()?);
    serde_json::from_value(saved).ok()
}

/// The saved name of the checkpoint that `config` decays from.
fn checkpoint_name(config: &PretrainConfig) -> Option<String> {
    config.decay_from.as_ref().map(|from| portable(&from.checkpoint.to_string_lossy()))
}

/// Completes `config` from a checkpoint of a run, and returns that checkpoint.
fn resolve_from_run(config: &mut PretrainConfig, given: DecayFrom, derived: &[Derived]) -> Result<Resumed> {
    let path = &given.checkpoint;
    let resumed = Resumed::read(Checkpoint::open(path)?)?;
    let parent: PretrainConfig =
        serde_json::from_value(with_variables(resumed.config.clone())).map_err(|e| {
            Problem::usage(format!("`{}` is not a checkpoint of pretraining: {e}", path.display())).at(KEY)
        })?;
    let step = resumed.state.step;
    let learning_rate = stable_rate(&Schedule::new(&parent.training, resumed.log.max_steps), step, path)?;
    let sha256 = agreed(&given, fs::sha256_of_file(&path.join(MANIFEST_JSON))?)?;
    config.decay_from =
        Some(DecayFrom { step: Some(step), initial_learning_rate: Some(learning_rate), sha256, ..given });
    config.settle_decay()?;
    if config.data.prepared_dir.is_none() {
        let folder = parent.prepared_dir();
        if !fs::exists(&folder.join("shards").join(MANIFEST_JSON)) {
            let message = "the tokenizer and the shards of the checkpoint's run are not there";
            let hint = "set `data.prepared_dir` to where they lie, or to a folder to make them again";
            return Err(Problem::new(message).at(folder.display()).hint(hint).into());
        }
        config.data.prepared_dir = Some(folder);
    }
    if config.precision.compute == ComputeChoice::Auto {
        config.precision.compute = parent.precision.compute;
    }
    config.data.shuffle = config.data.shuffle.or(parent.data.shuffle);
    defaults::keep_derived(&mut config.training, derived, &resumed.config);
    compare_for_decay(&parent, config, step)?;
    Ok(resumed)
}

/// Returns the learning rate after `step` steps; an error if it is still rising or already falling.
fn stable_rate(schedule: &Schedule, step: u64, path: &Path) -> Result<f64, Problem> {
    let (why, hint) = match schedule.stage_after(step) {
        Stage::Stable(learning_rate) => return Ok(learning_rate),
        Stage::Warmup => ("its learning rate still rises", "take a checkpoint from behind the warm-up"),
        Stage::Decay => (
            "its learning rate has fallen already",
            "`--decay-from` wants a checkpoint from the stable part of `warmup_stable_decay` or \
             `constant_with_warmup`",
        ),
    };
    Err(Problem::usage(format!("`{}`: {why} after step {step}", path.display())).at(KEY).hint(hint))
}

/// Completes `config` from a model folder, of which only the weights are used.
fn resolve_from_folder(config: &mut PretrainConfig, given: DecayFrom) -> Result<()> {
    if let Some(path) = config.model.path.as_ref().filter(|path| **path != given.checkpoint) {
        let message = format!("is `{}`, and `{KEY}` names weights as well", path.display());
        return Err(Problem::usage(message).at("model.path").hint("keep one of the two").into());
    }
    let folder = read_folder(&given.checkpoint)?;
    let sha256 = agreed(&given, folder.sha256()?)?;
    if config.tokenizer != TokenizerConfig::default() {
        let own = config.tokenizer.path.as_deref().map(Tokenizer::load).transpose()?;
        let is_same = match own {
            Some(own) => own.fingerprint() == Tokenizer::load(&folder.path)?.fingerprint(),
            None => false,
        };
        if !is_same {
            let message =
                format!("is another one than that of `{}`, whose weights go on", given.checkpoint.display());
            let hint =
                "leave `tokenizer` out to take the folder's; with another one, train on with `--model`";
            return Err(Problem::usage(message).at("tokenizer").hint(hint).into());
        }
    }
    config.model = ModelSection { path: Some(given.checkpoint.clone()), ..ModelSection::default() };
    config.decay_from = Some(DecayFrom { sha256, step: None, initial_learning_rate: None, ..given });
    config.settle_decay()?;
    Ok(())
}

/// Returns the computed hash; an error if `given` names a different one.
fn agreed(given: &DecayFrom, found: String) -> Result<Option<String>, Problem> {
    match &given.sha256 {
        Some(sha256) if *sha256 != found => {
            let message = format!("is `{sha256}`, and that of `{}` is `{found}`", given.checkpoint.display());
            Err(Problem::usage(message)
                .at("decay_from.sha256")
                .hint("restore the checkpoint, or leave it out"))
        }
        _ => Ok(Some(found)),
    }
}

/// The error for a folder that is neither a checkpoint nor a model folder.
fn neither(path: &Path) -> Result<Problem> {
    let problem =
        Problem::usage(format!("`{}` is neither a checkpoint nor a model folder", path.display())).at(KEY);
    let store = CheckpointStore::new(path);
    let newest = if fs::is_folder(path) { store.steps()?.last().copied() } else { None };
    Ok(match newest {
        Some(step) => problem.hint(format!("did you mean `{}`?", store.path_of(step).display())),
        None => problem.hint("name a folder such as `runs/mine/checkpoint-1000`"),
    })
}
