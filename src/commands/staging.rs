//! URLs in the place of paths, on a command line or in a configuration: what they name is brought into the
//! cache before anything else runs, and all that comes after knows paths only.

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::path::Path;
use std::path::PathBuf;

use anyhow::Context;
use anyhow::Result;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::commands::terminal;
use crate::config;
use crate::config::CacheConfig;
use crate::config::FinetuneConfig;
use crate::config::InitialEmbeddings;
use crate::config::NamedTask;
use crate::config::Override;
use crate::config::PretrainConfig;
use crate::error::Problem;
use crate::fs;
use crate::shards::MANIFEST_JSON;
use crate::shards::Manifest;
use crate::stores;
use crate::stores::Event;
use crate::tasks::labelled;
use crate::telemetry::Progress;
use crate::telemetry::Stage;
use crate::telemetry::Unit;
use crate::tokenizer::COMPANIONS;
use crate::tokenizer::TOKENIZER_JSON;

/// The files of a model folder beside those of its tokenizer.
const MODEL_FILES: [&str; 4] =
    ["config.json", "manifest.json", "model.safetensors", "model.safetensors.index.json"];

/// How much of a configuration is wanted here.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Corpus {
    /// All of it.
    Whole,
    /// All but the text, of which nothing is read.
    Left,
}

/// A configuration with paths in the place of its URLs. Shards that are there already need no text.
pub(super) fn pretraining(mut config: PretrainConfig, corpus: Corpus) -> Result<PretrainConfig> {
    let cache = config.cache.clone();
    if let Some(url) = config.data.prepared_dir.as_ref().and_then(|path| path.to_str())
        && stores::is_url(url)
    {
        config.data.prepared_dir = Some(prepared(url, &config, corpus)?);
    }
    let folder = config.prepared_dir();
    let is_prepared =
        fs::exists(&folder.join("shards").join(MANIFEST_JSON)) && fs::is_folder(&folder.join("tokenizer"));
    if corpus == Corpus::Whole && !is_prepared {
        return staged(config, &cache);
    }
    let mut rest = config;
    let sources = std::mem::take(&mut rest.data.sources);
    let mut rest = staged(rest, &cache)?;
    rest.data.sources = sources;
    Ok(rest)
}

/// The folder of a tokenizer and shards that lie behind `url`. Where training reads them in windows, those for
/// training come when they are wanted.
fn prepared(url: &str, config: &PretrainConfig, corpus: Corpus) -> Result<PathBuf> {
    let of = |name: &str| format!("{}/{name}", url.trim_end_matches('/'));
    let shards = |name: &str| of(&format!("shards/{name}"));
    if config.data.shuffle_window_shards.is_some() {
        let refuse = |key: &str, message: &str, hint: &str| {
            let message = format!("{message}, and `data.prepared_dir` lies in a bucket");
            Err(Problem::usage(message).at(key).hint(hint).into())
        };
        if config.training.max_steps < 0 {
            let message = "is not given: counting the rows of an epoch reads all shards";
            return refuse("training.max_steps", message, "give a number of steps");
        }
        if config.model.initial_embeddings == InitialEmbeddings::Cooccurrence {
            let hint = "leave it out, or leave out `data.shuffle_window_shards`";
            return refuse("model.initial_embeddings", "counts in all shards", hint);
        }
    }
    let paths = stage(&[of("settings.json"), of("tokenizer/"), shards(MANIFEST_JSON)], &config.cache)
        .context(
            "of a URL, `data.prepared_dir` is what `mlmtrain prepare` made on a disk, and was copied there",
        )?;
    let folder = fs::parent_of(&paths[0]);
    if corpus == Corpus::Whole {
        let manifest = Manifest::read(&folder.join("shards"))?;
        let is_read_ahead = config.data.shuffle_window_shards.is_some();
        let train = manifest.train.shards.iter().filter(|_| !is_read_ahead);
        let wanted = manifest.validation.shards.iter().chain(train);
        stage(&wanted.map(|shard| shards(&shard.file)).collect::<Vec<_>>(), &config.cache)?;
    }
    config::moved(url, &folder.to_string_lossy());
    Ok(folder)
}

/// As [`pretraining`].
pub(super) fn finetuning(config: FinetuneConfig) -> Result<FinetuneConfig> {
    let cache = config.cache.clone();
    staged(config, &cache)
}

/// The tasks of a file, as [`finetuning`].
pub(super) fn tasks(path: &Path, overrides: &[Override]) -> Result<Vec<NamedTask>> {
    let mut tasks = config::load_tasks(path, overrides)?;
    for task in &mut tasks {
        task.config = finetuning(task.config.clone())?;
    }
    Ok(tasks)
}

/// The path of what a command line names, which may be a URL.
pub(super) fn path(named: &Path) -> Result<PathBuf> {
    staged(named.to_path_buf(), &CacheConfig::default())
}

/// As [`path`], of a file that is read: one that is missing is an error. `-` is standard input.
pub(super) fn input(named: &Path) -> Result<PathBuf> {
    let path = path(named)?;
    let is_pattern = path.to_string_lossy().contains(['*', '?', '[']);
    if path == Path::new("-") || is_pattern || fs::exists(&path) {
        return Ok(path);
    }
    Err(labelled::missing(&path).into())
}

/// The same with a path in the place of each text that is a URL.
pub(super) fn staged<T: Serialize + DeserializeOwned>(whole: T, cache: &CacheConfig) -> Result<T> {
    // A path that is no UTF-8 is no URL either.
    let Ok(mut json) = serde_json::to_value(&whole) else { return Ok(whole) };
    let mut urls = BTreeSet::new();
    each_url(&mut json, &mut |url| {
        urls.insert(url.clone());
    });
    if urls.is_empty() {
        return Ok(whole);
    }
    let urls = Vec::from_iter(urls);
    let paths = stage(&urls, cache)?;
    each_url(&mut json, &mut |url| {
        if let Ok(at) = urls.binary_search(url) {
            let path = paths[at].to_string_lossy().into_owned();
            config::moved(url, &path);
            *url = path;
        }
    });
    Ok(serde_json::from_value(json)?)
}

/// Shows every URL to `what`, but those of `run`, where a run leaves things.
fn each_url(value: &mut Value, what: &mut dyn FnMut(&mut String)) {
    match value {
        Value::String(text) if stores::is_url(text) => what(text),
        Value::Array(items) => items.iter_mut().for_each(|item| each_url(item, what)),
        Value::Object(table) => {
            table.iter_mut().filter(|(key, _)| *key != "run").for_each(|(_, value)| each_url(value, what));
        }
        _ => {}
    }
}

fn stage(urls: &[String], config: &CacheConfig) -> Result<Vec<PathBuf>> {
    let progress = Progress::detect(terminal::is_quiet());
    let cache = stores::cache(&config.folder(), config.max_bytes)?;
    let bar: OnceCell<Stage> = OnceCell::new();
    let model_files = [&MODEL_FILES[..], &[TOKENIZER_JSON], &COMPANIONS].concat();
    let paths = cache.stage(urls, &model_files, &|event| match event {
        Event::Note(text) => progress.note(&text),
        Event::Total(bytes) => {
            let start = || progress.stage("downloading", Unit::Bytes, Some(bytes));
            bar.get_or_init(start);
        }
        Event::Got(bytes) => bar.get().into_iter().for_each(|bar| bar.advance(bytes)),
    })?;
    if let Some(bar) = bar.into_inner() {
        bar.finish("done");
    }
    Ok(paths)
}
