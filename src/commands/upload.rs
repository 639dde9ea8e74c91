//! `run.upload_to`: restores the checkpoints of an earlier machine from a bucket before a run, and uploads
//! the run folder during it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::checkpoint::CheckpointStore;
use crate::config::defaults::Derived;
use crate::config::{RunSection, compare_for_resume, for_seed_folder, saved, with_former_defaults};
use crate::error::{Class, Problem, class_of};
use crate::fs;
use crate::fs::FolderLock;
use crate::quantity::{format_duration, parse_duration};
use crate::stores::{
    Claim, Mirror, Objects, Remote, Uploaded, checkpoint_of, is_kept, name_in_seed, sealed_folder,
};
use crate::telemetry::{Progress, Unit};
use crate::train::checkpoint_files::{CONFIG, INPUTS};
use crate::train::resume::Start;

const HINT: &str = "choose another `run.upload_to`; nothing was changed there";

/// The bucket of a run, and the rules for uploading.
pub(super) struct Bucket {
    remote: Remote,
    /// The claim of an earlier process, a file in the bucket.
    earlier_claim: Option<Claim>,
    /// The configuration, as it is saved in checkpoints.
    config: Value,
    /// Key `training.save_total_limit`.
    limit: usize,
    /// Key `run.stop_within`.
    stop_within: Duration,
}

/// Downloads the checkpoints in the bucket of a run that are newer than the local ones, and returns the
/// bucket; `None` if the run has none.
///
/// # Errors
/// Returns an error if the bucket has another run.
pub(super) fn restore_newer<C: Serialize + DeserializeOwned>(
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
    // Complete checkpoints by step, for each folder that has some: the run itself, or the folder of each
    // seed.
    let mut found: BTreeMap<&str, BTreeMap<u64, &str>> = BTreeMap::new();
    for folder in objects.keys().filter_map(|name| sealed_folder(name, &objects)) {
        if let Some((above, step)) = checkpoint_of(folder) {
            found.entry(above).or_default().insert(step, folder);
        }
    }
    if *start == Start::Fresh && !found.is_empty() {
        return Err(Problem::usage("holds checkpoints of another run").at(remote.shown()).hint(HINT).into());
    }
    let earlier_claim = Claim::read(&remote)?;
    let has_run_here = !CheckpointStore::new(&run.output_dir).steps()?.is_empty();
    if found.is_empty() && earlier_claim.is_none() && !has_run_here {
        refuse_results(&remote, &objects)?;
    }
    if let Some(claim) = earlier_claim.as_ref().filter(|_| found.is_empty()) {
        require_resumable(claim.config.clone(), config, derived, "").with_context(|| {
            format!("`{}` is claimed by {claim}; where it is gone, delete `claim.json` there", remote.shown())
        })?;
    }
    for (above, checkpoints) in &found {
        let store = CheckpointStore::new(&run.output_dir.join(above));
        let here = store.steps()?.last().copied();
        let Some((&step, folder)) = checkpoints.last_key_value() else { continue };
        let own = here.map(|step| store.path_of(step));
        require_same_run(&remote, folder, config, derived, own.as_deref())
            .with_context(|| format!("`{}` holds another run: {HINT}", remote.shown()))?;
        if *start == Start::Auto && here.is_none_or(|here| here < step) {
            restore(&remote, &objects, run, above, here, progress)?;
        }
    }
    let config = saved(config);
    let limit = config["training"]["save_total_limit"].as_u64().map_or(usize::MAX, |limit| limit as usize);
    let stop_within =
        parse_duration(&run.stop_within).map_err(|e| Problem::usage(e.to_string()).at("run.stop_within"))?;
    Ok(Some(Bucket { remote, earlier_claim, config, limit, stop_within }))
}

/// Refuses a bucket with results but without checkpoints. A finished run of mlmtrain has a checkpoint, here
/// or in the bucket, so these are the results of another run.
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

/// Reads a JSON file of a checkpoint in the bucket.
fn remote_json(remote: &Remote, folder: &str, name: &str) -> Result<Value> {
    let name = format!("{folder}/{name}");
    let bytes = remote
        .read(&name)?
        .ok_or_else(|| Problem::new("is missing").at(format!("{}/{name}", remote.shown())))?;
    serde_json::from_slice(&bytes).with_context(|| format!("{}/{name}: is not valid JSON", remote.shown()))
}

/// Refuses a checkpoint in the bucket that this configuration cannot resume, or that was trained on other
/// data than the local checkpoint `own`.
fn require_same_run<C: Serialize + DeserializeOwned>(
    remote: &Remote,
    folder: &str,
    config: &C,
    derived: &[Derived],
    own: Option<&Path>,
) -> Result<()> {
    let (run_folder, _) = folder.rsplit_once('/').unwrap_or_default();
    require_resumable(remote_json(remote, folder, CONFIG)?, config, derived, run_folder)?;
    let Some(own) = own.map(|own| own.join(INPUTS)).filter(|own| fs::exists(own)) else { return Ok(()) };
    let own: Option<Value> = serde_json::from_slice(&fs::read_capped(&own, 1 << 20)?).ok();
    if own == Some(remote_json(remote, folder, INPUTS)?) {
        return Ok(());
    }
    Err(Problem::usage("its checkpoints learnt from other data than those of `run.output_dir`").into())
}

/// True if the sections of a configuration that [`require_resumable`] reads by name are tables or absent.
fn has_sections(config: &Value) -> bool {
    let Some(sections) = config.as_object() else { return false };
    let named = ["training", "data", "precision"].into_iter().filter_map(|name| sections.get(name));
    named.into_iter().all(|section| section.is_object() || section.is_null())
}

/// Refuses a configuration that cannot resume `before`, the configuration of the run in the folder
/// `run_folder` of the bucket, which may be that of one of several seeds.
fn require_resumable<C: Serialize + DeserializeOwned>(
    before: Value,
    config: &C,
    derived: &[Derived],
    run_folder: &str,
) -> Result<()> {
    if !has_sections(&before) {
        return Err(Problem::new("is not a configuration of this command").at(CONFIG).into());
    }
    let run_folder = Path::new(run_folder);
    let mut before = for_seed_folder(with_former_defaults(before), run_folder);
    let config: &C = &serde_json::from_value(for_seed_folder(serde_json::to_value(config)?, run_folder))?;
    // Keys that are `auto` or not given, and the shuffle, are no difference: they are taken from the
    // checkpoint later.
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

/// The path for a file or folder while it is downloaded. The next save removes such leftovers.
fn partial_path(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".tmp-restored-{name}"))
}

/// Returns the files of the folder `above` to download, grouped by step and folder: checkpoints newer than
/// the step `here`, other complete folders that do not exist in `output`, and single files.
fn files_to_restore<'a>(
    objects: &'a Objects,
    output: &Path,
    above: &str,
    here: Option<u64>,
) -> BTreeMap<(u64, &'a str), Vec<&'a String>> {
    let mut folders: BTreeMap<(u64, &str), Vec<&String>> = BTreeMap::new();
    for name in objects.keys().filter(|name| is_kept(name)) {
        let Some(rest) = name.strip_prefix(above) else { continue };
        if !above.is_empty() && !rest.starts_with('/') {
            continue;
        }
        let Some(folder) = sealed_folder(name, objects) else {
            if !name.contains("checkpoint-") {
                folders.entry((0, "")).or_default().push(name);
            }
            continue;
        };
        let step = checkpoint_of(folder).map(|(_, step)| step);
        let is_newer = match step {
            Some(step) => here.is_none_or(|here| here < step),
            None => !folder.contains("diverged-") && !fs::exists(&output.join(folder)),
        };
        if is_newer {
            folders.entry((step.unwrap_or(0), folder)).or_default().push(name);
        }
    }
    folders
}

/// Downloads the checkpoints of the folder `above` that are newer than the step `here`, and the files that
/// belong to them.
fn restore(
    remote: &Remote,
    objects: &Objects,
    run: &RunSection,
    above: &str,
    here: Option<u64>,
    progress: &Progress,
) -> Result<()> {
    let output = &run.output_dir;
    let _lock = FolderLock::take(output)?;
    // The newest checkpoint comes last, so that an interrupted download is resumed the next time.
    let folders = files_to_restore(objects, output, above, here);
    let total: u64 = folders.values().flatten().map(|name| objects[*name].size).sum();
    fs::require_space(output, total, "there is no room for the checkpoints in the bucket")?;
    let bar = progress.stage("restoring", Unit::Bytes, Some(total));
    for ((_, folder), files) in &folders {
        let target = output.join(folder);
        if folder.is_empty() {
            for &name in files {
                let path = output.join(name);
                let partial = partial_path(&path);
                fs::remove_file(&partial)?;
                remote.fetch(&objects[name], &partial, &|bytes| bar.advance(bytes))?;
                fs::rename(&partial, &path)?;
            }
            continue;
        }
        let partial = partial_path(&target);
        fs::remove_folder(&partial)?;
        for &name in files {
            let below = name.strip_prefix(folder).unwrap_or(name).trim_start_matches('/');
            remote.fetch(&objects[name], &partial.join(below), &|bytes| bar.advance(bytes))?;
        }
        fs::remove_folder(&target)?;
        fs::publish_folder(&partial, &target)?;
    }
    bar.finish(&format!("{} folders of `{}`", folders.len(), remote.shown()));
    Ok(())
}

/// Calls `run` while the folder is uploaded into the bucket, then waits until all files are uploaded.
pub(super) fn while_uploading<R>(
    bucket: Option<Bucket>,
    folder: &Path,
    progress: &Progress,
    run: impl FnOnce() -> Result<R>,
) -> Result<R> {
    let Some(Bucket { remote, earlier_claim, config, limit, stop_within }) = bucket else { return run() };
    let shown = remote.shown().to_string();
    let warnings = progress.clone();
    let uploaded = Uploaded { folder, claim: Claim::new(config), seen: earlier_claim, limit };
    let mirror = Mirror::start(remote, uploaded, Box::new(move |text| warnings.warn(text)))?;
    let ran = run();
    progress.note(&format!("uploading what is left to `{shown}`"));
    // After a signal there is little time. Files that are missing in the bucket are on this disk.
    let is_stopped = ran.as_ref().err().is_some_and(|e| matches!(class_of(e), Class::Interrupted(_)));
    let within = is_stopped.then_some(stop_within);
    let finished = mirror.finish(within, || match within {
        None => progress.note(&format!("`{shown}` takes its time, and is waited for")),
        Some(within) => {
            let within = format_duration(within);
            progress.note(&format!(
                "`{shown}` takes its time, and is waited for {within} at most (`run.stop_within`)"
            ));
        }
    });
    let Err(error) = finished else {
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

/// Refuses the key `run.upload_to` for commands that train many runs.
pub(super) fn refuse_for_many_runs(run: &RunSection) -> Result<()> {
    if run.upload_to.is_none() {
        return Ok(());
    }
    let message = "is of one run, and these are many";
    Err(Problem::usage(message)
        .at("run.upload_to")
        .hint("leave it out, and copy the folder of the table")
        .into())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::config::FinetuneConfig;

    #[test]
    fn a_seed_in_the_bucket_is_compared_with_the_configuration_of_this_seed() {
        let files = json!({"train_file": "a.csv", "eval_file": "b.csv"});
        let config = json!({"model": "a", "seeds": [1, 2], "data": files});
        let config: FinetuneConfig = serde_json::from_value(config).unwrap();
        let seed = saved(&config.with_seed(2));
        // Earlier versions saved the configuration of all seeds with each of them.
        for before in [&seed, &saved(&config)] {
            require_resumable(before.clone(), &config, &[], "seed-2").unwrap();
        }
        require_resumable(saved(&config), &config, &[], "").unwrap();
        let other = require_resumable(seed, &config, &[], "seed-1").unwrap_err().to_string();
        assert!(other.contains("seeds: was `[2]`"), "{other}");
    }
}
