//! Downloads the files behind URLs on a command line or in a configuration into the cache, and replaces the
//! URLs by paths. This happens first in a command, so that all other code works with paths only.

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::commands::terminal;
use crate::config::{CacheConfig, FinetuneConfig, InitialEmbeddings, NamedTask, Override, PretrainConfig};
use crate::error::Problem;
use crate::shards::{MANIFEST_JSON, Manifest};
use crate::stores::Event;
use crate::tasks::labelled;
use crate::telemetry::{Progress, Stage, Unit};
use crate::tokenizer::{COMPANIONS, TOKENIZER_JSON};
use crate::{config, fs, stores};

/// The files of a model folder without those of its tokenizer.
const MODEL_FILES: [&str; 4] =
    ["config.json", "manifest.json", "model.safetensors", "model.safetensors.index.json"];

/// The choice whether the text of a configuration is downloaded.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Corpus {
    /// The text is downloaded, too.
    Included,
    /// Everything but the text is downloaded, because the command does not read it.
    Skipped,
}

/// Returns a pretraining configuration with paths instead of URLs. If the shards exist already, the text is
/// not downloaded.
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
    if corpus == Corpus::Included && !is_prepared {
        return staged(config, &cache);
    }
    let mut rest = config;
    let sources = std::mem::take(&mut rest.data.sources);
    let mut rest = staged(rest, &cache)?;
    rest.data.sources = sources;
    Ok(rest)
}

/// Returns an error for settings that read all shards, if training reads shards in windows.
fn refuse_reading_all_shards(config: &PretrainConfig) -> Result<(), Problem> {
    let (key, message, hint) = if config.training.max_steps < 0 {
        let message = "is not given: counting the rows of an epoch reads all shards";
        ("training.max_steps", message, "give a number of steps")
    } else if config.model.initial_embeddings == InitialEmbeddings::Cooccurrence {
        let hint = "leave it out, or leave out `data.shuffle_window_shards`";
        ("model.initial_embeddings", "counts in all shards", hint)
    } else {
        return Ok(());
    };
    let message = format!("{message}, and `data.prepared_dir` lies in a bucket");
    Err(Problem::usage(message).at(key).hint(hint))
}

/// Downloads the tokenizer and the shards of the prepared folder at `url`, and returns the folder in the
/// cache. If training reads shards in windows, the shards for training are downloaded later, when they are
/// needed.
fn prepared(url: &str, config: &PretrainConfig, corpus: Corpus) -> Result<PathBuf> {
    if config.data.shuffle_window_shards.is_some() {
        refuse_reading_all_shards(config)?;
    }
    let url_folder = url.trim_end_matches('/');
    let names = ["settings.json", "tokenizer/", &format!("shards/{MANIFEST_JSON}")];
    let paths = stage(&names.map(|name| format!("{url_folder}/{name}")), &config.cache).context(
        "of a URL, `data.prepared_dir` is what `mlmtrain prepare` made on a disk, and was copied there",
    )?;
    let folder = fs::parent_of(&paths[0]);
    if corpus == Corpus::Included {
        let manifest = Manifest::read(&folder.join("shards"))?;
        let in_windows = config.data.shuffle_window_shards.is_some();
        let train = manifest.train.shards.iter().filter(|_| !in_windows);
        let needed = manifest.validation.shards.iter().chain(train);
        let urls = needed.map(|shard| format!("{url_folder}/shards/{}", shard.file));
        stage(&urls.collect::<Vec<_>>(), &config.cache)?;
    }
    config::moved(url, &folder.to_string_lossy());
    Ok(folder)
}

/// Returns a fine-tuning configuration with paths instead of URLs.
pub(super) fn finetuning(config: FinetuneConfig) -> Result<FinetuneConfig> {
    let cache = config.cache.clone();
    staged(config, &cache)
}

/// Loads the tasks of a file, with paths instead of URLs.
pub(super) fn tasks(path: &Path, overrides: &[Override]) -> Result<Vec<NamedTask>> {
    let mut tasks = config::load_tasks(path, overrides)?;
    for task in &mut tasks {
        task.config = finetuning(task.config.clone())?;
    }
    Ok(tasks)
}

/// Returns the path for an argument of the command line, which may be a URL.
pub(super) fn path(named: &Path) -> Result<PathBuf> {
    staged(named.to_path_buf(), &CacheConfig::default())
}

/// Returns the path of an input file like [`path`]; an error if it does not exist. `-` is standard input.
pub(super) fn input(named: &Path) -> Result<PathBuf> {
    let path = path(named)?;
    let is_pattern = path.to_string_lossy().contains(['*', '?', '[']);
    if path == Path::new("-") || is_pattern || fs::exists(&path) {
        return Ok(path);
    }
    Err(labelled::missing(&path).into())
}

/// Downloads all URLs in a value, and returns the value with paths in their place.
pub(super) fn staged<T: Serialize + DeserializeOwned>(whole: T, cache: &CacheConfig) -> Result<T> {
    // A value with a path that is not UTF-8 cannot be JSON, and is a path on the command line, not a URL.
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

/// Calls `what` with every URL in a value, except those in the section `run`, which name outputs.
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

/// Downloads files into the cache, unless they are there, and returns their paths.
fn stage(urls: &[String], config: &CacheConfig) -> Result<Vec<PathBuf>> {
    let progress = Progress::detect(terminal::is_quiet());
    let cache = stores::cache(&config.folder(), config.max_bytes)?;
    let bar: OnceCell<Stage> = OnceCell::new();
    let model_files = [&MODEL_FILES[..], &[TOKENIZER_JSON], &COMPANIONS].concat();
    let paths = cache.stage(urls, &model_files, &|event| match event {
        Event::Note(text) => progress.note(&text),
        Event::Total(bytes) => {
            bar.get_or_init(|| progress.stage("downloading", Unit::Bytes, Some(bytes)));
        }
        Event::Got(bytes) => bar.get().into_iter().for_each(|bar| bar.advance(bytes)),
    })?;
    if let Some(bar) = bar.into_inner() {
        bar.finish("done");
    }
    Ok(paths)
}
