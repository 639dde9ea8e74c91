//! URLs in the place of paths, on a command line or in a configuration: what they name is brought into the
//! cache before anything else runs, and all that comes after knows paths only.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::PoisonError;

use anyhow::Result;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::commands::terminal;
use crate::config;
use crate::config::CacheConfig;
use crate::config::FinetuneConfig;
use crate::config::PretrainConfig;
use crate::fs;
use crate::shards::MANIFEST_JSON;
use crate::stores;
use crate::stores::Cache;
use crate::stores::Event;
use crate::telemetry::Progress;
use crate::telemetry::Stage;
use crate::telemetry::Unit;
use crate::tokenizer::COMPANIONS;
use crate::tokenizer::TOKENIZER_JSON;

/// Kept to the end of the process: what is in use must not be deleted by another one.
static OPEN: Mutex<BTreeMap<PathBuf, Cache>> = Mutex::new(BTreeMap::new());

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
pub(super) fn pretraining(config: PretrainConfig, corpus: Corpus) -> Result<PretrainConfig> {
    let folder = config.prepared_dir();
    let is_prepared =
        fs::exists(&folder.join("shards").join(MANIFEST_JSON)) && fs::is_folder(&folder.join("tokenizer"));
    let cache = config.cache.clone();
    if corpus == Corpus::Whole && !is_prepared {
        return staged(config, &cache);
    }
    let mut rest = config;
    let sources = std::mem::take(&mut rest.data.sources);
    let mut rest = staged(rest, &cache)?;
    rest.data.sources = sources;
    Ok(rest)
}

/// As [`pretraining`].
pub(super) fn finetuning(config: FinetuneConfig) -> Result<FinetuneConfig> {
    let cache = config.cache.clone();
    staged(config, &cache)
}

/// The path of what a command line names, which may be a URL.
pub(super) fn path(named: &Path) -> Result<PathBuf> {
    staged(named.to_path_buf(), &CacheConfig::default())
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
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = config.folder();
    if !open.contains_key(&folder) {
        open.insert(folder.clone(), Cache::open(&folder, config.max_bytes)?);
    }
    let bar: OnceCell<Stage> = OnceCell::new();
    let model_files = [&MODEL_FILES[..], &[TOKENIZER_JSON], &COMPANIONS].concat();
    let paths = open[&folder].stage(urls, &model_files, &|event| match event {
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
