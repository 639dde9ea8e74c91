//! `run.upload_to`: what a run finds in the bucket of an earlier machine, and what it leaves there.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::path::Path;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use anyhow::Result;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::checkpoint::CheckpointStore;
use crate::config::RunSection;
use crate::config::compare_for_resume;
use crate::config::defaults::Derived;
use crate::config::saved;
use crate::config::with_former_defaults;
use crate::error::Class;
use crate::error::Problem;
use crate::error::class_of;
use crate::fs;
use crate::fs::FolderLock;
use crate::quantity::format_duration;
use crate::quantity::parse_duration;
use crate::stores::Claim;
use crate::stores::Mirror;
use crate::stores::Objects;
use crate::stores::Remote;
use crate::stores::Uploaded;
use crate::stores::checkpoint_of;
use crate::stores::is_kept;
use crate::stores::name_in_seed;
use crate::stores::sealed_folder;
use crate::telemetry::Progress;
use crate::telemetry::Unit;
use crate::train::resume::Start;
use crate::train::saved::CONFIG;
use crate::train::saved::INPUTS;

const HINT: &str = "choose another `run.upload_to`; nothing was changed there";

/// The bucket of a run and its rules for uploading.
pub(super) struct Bucket {
    remote: Remote,
    /// The claim of an earlier process.
    seen: Option<Claim>,
    /// The configuration, as checkpoints hold it.
    config: Value,
    /// `training.save_total_limit`.
    limit: usize,
    /// `run.stop_within`.
    stop_within: Duration,
}

/// The bucket of a run, if it has one, after its checkpoints that are newer than those here were brought
/// here. One that holds another run is refused.
pub(super) fn take_back<C: Serialize + DeserializeOwned>(
    config: &C,
    derived: &[Derived],
    run: &RunSection,
    start: &Start,
    progress: &Progress,
) -> Result<Option<Bucket>> {
    let Some(url) = &run.upload_to else { return Ok(None) };
    let remote = Remote::open(url)?;
    let mut objects = remote.objects()?;
    remote.left_out().iter().for_each(|text| progress.warn(text));
    let checkpoints: BTreeSet<String> = objects
        .keys()
        .filter_map(|name| sealed_folder(name, &objects))
        .filter(|folder| checkpoint_of(folder).is_some())
        .map(str::to_string)
        .collect();
    for folder in checkpoints {
        if !remote.is_complete(&folder, &objects)? {
            progress.warn(&format!("{}/{folder}: lacks files, and is left where it is", remote.shown()));
            objects.retain(|name, _| !name.starts_with(&format!("{folder}/")));
        }
    }
    // The whole checkpoints of each folder that has some: the run's own, or one for each seed.
    let mut found: BTreeMap<&str, BTreeMap<u64, &str>> = BTreeMap::new();
    for folder in objects.keys().filter_map(|name| sealed_folder(name, &objects)) {
        if let Some((above, step)) = checkpoint_of(folder) {
            found.entry(above).or_default().insert(step, folder);
        }
    }
    if *start == Start::Fresh && !found.is_empty() {
        return Err(Problem::usage("holds checkpoints of another run").at(remote.shown()).hint(HINT).into());
    }
    let seen = Claim::read(&remote)?;
    let has_run_here = !CheckpointStore::new(&run.output_dir).steps()?.is_empty();
    if found.is_empty() && seen.is_none() && !has_run_here {
        refuse_results(&remote, &objects)?;
    }
    if let Some(claim) = seen.as_ref().filter(|_| found.is_empty()) {
        require_resumable(claim.config.clone(), config, derived).with_context(|| {
            format!("`{}` is claimed by {claim}; where it is gone, delete `claim.json` there", remote.shown())
        })?;
    }
    for (above, checkpoints) in &found {
        let store = CheckpointStore::new(&run.output_dir.join(above));
        let here = store.steps()?.last().copied();
        let Some((&step, folder)) = checkpoints.last_key_value() else { continue };
        let own = here.map(|step| store.path_of(step));
        is_of_this_run(&remote, folder, config, derived, own.as_deref())
            .with_context(|| format!("`{}` holds another run: {HINT}", remote.shown()))?;
        if *start == Start::Auto && here.is_none_or(|here| here < step) {
            restore(&remote, &objects, run, (above, here), progress)?;
        }
    }
    let config = saved(config);
    let limit = config["training"]["save_total_limit"].as_u64().map_or(usize::MAX, |limit| limit as usize);
    let stop_within =
        parse_duration(&run.stop_within).map_err(|e| Problem::usage(e.to_string()).at("run.stop_within"))?;
    Ok(Some(Bucket { remote, seen, config, limit, stop_within }))
}

/// Refuses a bucket with results. A run that has ended leaves a checkpoint too; without one here or in the bucket, the
/// results are those of another run.
fn refuse_results(remote: &Remote, objects: &Objects) -> Result<(), Problem> {
    for name in objects.keys() {
        let own = name_in_seed(name);
        if own.starts_with("final/") || own == "all_results.json" {
            let message = format!("holds `{name}` of another run");
            return Err(Problem::usage(message).at(remote.shown()).hint(HINT));
        }
    }
    Ok(())
}

/// Refuses a checkpoint in the bucket whose configuration does not go on with this one, or that learnt from
/// other data than the one here.
fn is_of_this_run<C: Serialize + DeserializeOwned>(
    remote: &Remote,
    folder: &str,
    config: &C,
    derived: &[Derived],
    own: Option<&Path>,
) -> Result<()> {
    let json = |name: &str| {
        let name = format!("{folder}/{name}");
        let missing = || Problem::new("is missing").at(format!("{}/{name}", remote.shown()));
        let bytes = remote.read(&name)?.ok_or_else(missing)?;
        serde_json::from_slice::<Value>(&bytes)
            .with_context(|| format!("{}/{name}: is not valid JSON", remote.shown()))
    };
    require_resumable(json(CONFIG)?, config, derived)?;
    let Some(own) = own.map(|own| own.join(INPUTS)).filter(|own| fs::exists(own)) else { return Ok(()) };
    let own: Option<Value> = serde_json::from_slice(&fs::read_capped(&own, 1 << 20)?).ok();
    if own == Some(json(INPUTS)?) {
        return Ok(());
    }
    Err(Problem::usage("its checkpoints learnt from other data than those of `run.output_dir`").into())
}

/// Returns true if the sections of a configuration that are read by name below are tables or absent.
fn has_sections(config: &Value) -> bool {
    let Some(sections) = config.as_object() else { return false };
    let named = ["training", "data", "precision"].into_iter().filter_map(|name| sections.get(name));
    named.into_iter().all(|section| section.is_object() || section.is_null())
}

/// Refuses a configuration that cannot resume `before`, the configuration of a run in the bucket.
fn require_resumable<C: Serialize + DeserializeOwned>(
    before: Value,
    config: &C,
    derived: &[Derived],
) -> Result<()> {
    if !has_sections(&before) {
        return Err(Problem::new("is not a configuration of this command").at(CONFIG).into());
    }
    let mut before = with_former_defaults(before);
    // Values for `auto`, the shuffle and keys that are not given are taken from the checkpoint later.
    for Derived { key, .. } in derived {
        before["training"][key] = saved(config)["training"][key].clone();
    }
    if let Some(shuffle) = before["data"].get_mut("shuffle")
        && saved(config)["data"]["shuffle"].is_null()
    {
        *shuffle = Value::Null;
    }
    if saved(config)["precision"]["compute"] == "auto" {
        before["precision"]["compute"] = "auto".into();
    }
    let before: C = serde_json::from_value(before)
        .map_err(|e| Problem::new(format!("is not a configuration of this command: {e}")).at(CONFIG))?;
    compare_for_resume(&before, config)?;
    Ok(())
}

/// Brings here what belongs to the checkpoints of the folder `above` that are newer than `here`, and them.
fn restore(
    remote: &Remote,
    objects: &Objects,
    run: &RunSection,
    (above, here): (&str, Option<u64>),
    progress: &Progress,
) -> Result<()> {
    let output = &run.output_dir;
    let _lock = FolderLock::take(output)?;
    let is_newer = |folder: &str| match checkpoint_of(folder) {
        Some((_, step)) => here.is_none_or(|here| here < step),
        None => !folder.contains("diverged-") && !fs::exists(&output.join(folder)),
    };
    // The newest last: what is cut off goes on the next time.
    let mut folders: BTreeMap<(u64, &str), Vec<&String>> = BTreeMap::new();
    let is_below = |name: &&String| {
        is_kept(name)
            && name.strip_prefix(above).is_some_and(|rest| above.is_empty() || rest.starts_with('/'))
    };
    for name in objects.keys().filter(is_below) {
        match sealed_folder(name, objects) {
            Some(folder) if is_newer(folder) => {
                folders
                    .entry((checkpoint_of(folder).map_or(0, |(_, step)| step), folder))
                    .or_default()
                    .push(name);
            }
            None if !name.contains("checkpoint-") => folders.entry((0, "")).or_default().push(name),
            _ => {}
        }
    }
    let total: u64 = folders.values().flatten().map(|name| objects[*name].size).sum();
    fs::require_space(output, total, "there is no room for the checkpoints in the bucket")?;
    let bar = progress.stage("restoring", Unit::Bytes, Some(total));
    // Under a name that the next save tidies away, until a folder is whole.
    let aside = |path: &Path| -> PathBuf {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        path.with_file_name(format!(".tmp-restored-{name}"))
    };
    let fetch = |name: &String, path: &Path| remote.fetch(&objects[name], path, &|bytes| bar.advance(bytes));
    for ((_, folder), files) in &folders {
        let target = output.join(folder);
        if folder.is_empty() {
            for name in files {
                let path = output.join(name);
                fs::remove_file(&aside(&path))?;
                fetch(name, &aside(&path))?;
                fs::rename(&aside(&path), &path)?;
            }
            continue;
        }
        fs::remove_folder(&aside(&target))?;
        for name in files {
            let below = name.strip_prefix(folder).unwrap_or(name).trim_start_matches('/');
            fetch(name, &aside(&target).join(below))?;
        }
        fs::remove_folder(&target)?;
        fs::publish_folder(&aside(&target), &target)?;
    }
    bar.finish(&format!("{} folders of `{}`", folders.len(), remote.shown()));
    Ok(())
}

/// Does `run` while the folder is copied into the bucket, and waits until all that it left is there.
pub(super) fn along<R>(
    bucket: Option<Bucket>,
    folder: &Path,
    progress: &Progress,
    run: impl FnOnce() -> Result<R>,
) -> Result<R> {
    let Some(Bucket { remote, seen, config, limit, stop_within }) = bucket else { return run() };
    let (shown, warnings) = (remote.shown().to_string(), progress.clone());
    let uploaded = Uploaded { folder, claim: Claim::new(config), seen, limit };
    let mirror = Mirror::start(remote, uploaded, Box::new(move |text| warnings.warn(text)))?;
    let ran = run();
    progress.note(&format!("uploading what is left to `{shown}`"));
    // Who stops a run has little time; what is missing in the bucket is on this disk.
    let is_stopped = ran.as_ref().err().is_some_and(|e| matches!(class_of(e), Class::Interrupted(_)));
    let within = is_stopped.then_some(stop_within);
    let waiting = || match within {
        None => progress.note(&format!("`{shown}` takes its time, and is waited for")),
        Some(within) => {
            let within = format_duration(within);
            progress.note(&format!(
                "`{shown}` takes its time, and is waited for {within} at most (`run.stop_within`)"
            ));
        }
    };
    let Err(error) = mirror.finish(within, waiting) else {
        progress.note("uploaded");
        return ran;
    };
    let error =
        error.context(format!("the upload to `{shown}` is incomplete; the same command uploads the rest"));
    if ran.is_err() {
        progress.warn(&format!("{error:#}"));
        return ran;
    }
    Err(error)
}

/// Refuses the key where many runs are one.
pub(super) fn refuse(run: &RunSection) -> Result<()> {
    if run.upload_to.is_none() {
        return Ok(());
    }
    let message = "is of one run, and these are many";
    Err(Problem::usage(message)
        .at("run.upload_to")
        .hint("leave it out, and copy the folder of the table")
        .into())
}
