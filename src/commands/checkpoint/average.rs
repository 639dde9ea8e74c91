//! `mlmtrain checkpoint average`: the mean of the weights of several checkpoints of a run, as a model folder.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::Result;
use candle_core::{DType, Device, Tensor};
use serde_json::Value;

use crate::checkpoint::{Checkpoint, CheckpointStore, Part, Snapshot, TensorFile, Unverified};
use crate::commands::checkpoint::args::AverageArgs;
use crate::commands::checkpoint::is_run;
use crate::commands::terminal;
use crate::error::Problem;
use crate::fs;
use crate::interop::TOKENIZER_FILES;
use crate::ops::tensor::with_slice;
use crate::sealed::write_sealed;
use crate::telemetry::{Progress, Unit};
use crate::train::checkpoint_files::{CONFIG, INPUTS, MODEL};

/// Largest size of a file next to the weights.
const FILE_CAP_BYTES: u64 = 256 << 20;

pub(super) fn run(args: &AverageArgs) -> Result<()> {
    if fs::exists(&args.output) {
        let place = format!("--output {}", args.output.display());
        return Err(Problem::usage("exists already, and is not replaced")
            .at(place)
            .hint("name a folder that does not exist")
            .into());
    }
    let checkpoints = verified(newest(named(&args.folders)?, args.last)?)?;
    let snapshot = mean(&checkpoints)?;
    fs::require_space(&args.output, snapshot.size_bytes(), "the averaged model does not fit")?;
    publish(&args.output, &snapshot)?;
    let steps: Vec<String> = checkpoints.iter().map(|checkpoint| checkpoint.step().to_string()).collect();
    let line = format!(
        "average of {} checkpoints (steps {}): {}",
        steps.len(),
        steps.join(", "),
        args.output.display()
    );
    terminal::stdout_line(&terminal::printable(&line))
}

/// The folders that the user names, a run folder standing for its checkpoints.
fn named(folders: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut named = Vec::new();
    for folder in folders {
        if is_run(folder)? {
            let store = CheckpointStore::new(folder);
            named.extend(store.steps()?.into_iter().map(|step| store.path_of(step)));
        } else {
            named.push(folder.clone());
        }
    }
    let mut known = BTreeSet::new();
    match named.iter().find(|folder| !known.insert(fs::canonical(folder))) {
        Some(twice) => Err(Problem::usage("is named twice").at(twice.display()).into()),
        None => Ok(named),
    }
}

/// A folder before its files are read.
struct Found {
    folder: PathBuf,
    manifest: Unverified,
}

/// The folders by ascending steps: the `last` newest of them, or all.
fn newest(folders: Vec<PathBuf>, last: Option<u32>) -> Result<Vec<Found>> {
    let mut found = Vec::new();
    for folder in folders {
        let Some(manifest) = Unverified::find(&folder)? else {
            return Err(Problem::usage("is no checkpoint and no final model of a run: it has no manifest")
                .at(folder.display())
                .hint("name run folders, their checkpoints or their final models")
                .into());
        };
        found.push(Found { folder, manifest });
    }
    found.sort_by_key(|found| found.manifest.step());
    let count = last.map_or(found.len(), |last| last as usize);
    if count < 2 || count > found.len() {
        let message = format!("{} checkpoints are named, a mean needs {}", found.len(), count.max(2));
        return Err(Problem::usage(message)
            .hint("name more of them; a run keeps as many as `training.save_total_limit`")
            .into());
    }
    Ok(found.split_off(found.len() - count))
}

/// Compares every file with its hash.
fn verified(all: Vec<Found>) -> Result<Vec<Checkpoint>> {
    let bytes = all.iter().map(|found| found.manifest.bytes()).sum();
    let bar = Progress::detect(terminal::is_quiet()).stage("verifying", Unit::Bytes, Some(bytes));
    let mut checkpoints = Vec::new();
    for Found { folder, manifest } in all {
        match manifest.verify(&|bytes| bar.advance(bytes)) {
            Ok(checkpoint) => checkpoints.push(checkpoint),
            Err(faults) => {
                let first = faults.into_iter().next();
                return Err(first.unwrap_or_else(|| Problem::new("is damaged").at(folder.display()).into()));
            }
        }
    }
    bar.finish("done");
    Ok(checkpoints)
}

/// The model folder with the mean weights, and with the files that all folders have in common.
fn mean(checkpoints: &[Checkpoint]) -> Result<Snapshot> {
    let (newest, others) = checkpoints.split_last().expect("there are two or more checkpoints");
    let mut files = files_of(newest)?;
    for other in others {
        require_same_run(newest, other)?;
        let its = files_of(other)?;
        require_same_model(newest, &files, other, &its)?;
        files.retain(|name, bytes| is_config(name) || its.get(name).is_some_and(|its| its == bytes));
    }
    let mut parts = Vec::new();
    for name in newest.names().filter(|name| is_weights(name)) {
        let sources = checkpoints.iter().map(|checkpoint| TensorFile::open(&checkpoint.path().join(name)));
        parts.push((name.to_string(), Part::Tensors(mean_tensors(&sources.collect::<Result<Vec<_>>>()?)?)));
    }
    if parts.is_empty() {
        return Err(Problem::usage("holds no model").at(newest.path().display()).into());
    }
    parts.extend(files.into_iter().map(|(name, bytes)| (name, Part::Bytes(bytes))));
    Ok(Snapshot { step: newest.step(), parts })
}

/// True for the weights of a model, of which a folder with a generator and a discriminator has two.
fn is_weights(name: &str) -> bool {
    is_of_model(name) && file_name(name) == MODEL
}

/// False for the state of the trainer.
fn is_of_model(name: &str) -> bool {
    !name.starts_with("trainer/") && name != "trainer_state.json"
}

fn is_config(name: &str) -> bool {
    file_name(name) == "config.json"
}

fn file_name(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

/// The files of the models of a folder, without weights.
fn files_of(checkpoint: &Checkpoint) -> Result<BTreeMap<String, Vec<u8>>> {
    let names = checkpoint.names().filter(|name| is_of_model(name) && !is_weights(name));
    names.map(|name| Ok((name.to_string(), checkpoint.bytes(name, FILE_CAP_BYTES)?))).collect()
}

/// Refuses two checkpoints whose runs differ in their seed or in their data. A final model has no record of
/// its run.
fn require_same_run(newest: &Checkpoint, other: &Checkpoint) -> Result<()> {
    if [newest, other].iter().any(|checkpoint| !checkpoint.names().any(|name| name == CONFIG)) {
        return Ok(());
    }
    let seeds = (newest.json(CONFIG)?["run"]["seed"].clone(), other.json(CONFIG)?["run"]["seed"].clone());
    let inputs = (newest.json(INPUTS)?, other.json(INPUTS)?);
    let what = match (seeds.0 == seeds.1, inputs.0 == inputs.1) {
        (true, true) => return Ok(()),
        (false, _) => "`run.seed`",
        _ => "data",
    };
    Err(refused(other, &format!("is of another run than `{}`: its {what} differs", newest.path().display())))
}

/// Refuses two folders with models of different shapes, or with different tokenizers.
fn require_same_model(
    newest: &Checkpoint,
    files: &BTreeMap<String, Vec<u8>>,
    other: &Checkpoint,
    its: &BTreeMap<String, Vec<u8>>,
) -> Result<()> {
    let place = newest.path().display();
    let names: BTreeSet<&String> = files.keys().chain(its.keys()).collect();
    for name in names.into_iter().filter(|name| files.get(*name) != its.get(*name)) {
        if is_config(name)
            && let Some(key) = differing_key(files.get(name), its.get(name))
        {
            return Err(refused(other, &format!("holds another model than `{place}`: {key}")));
        }
        if TOKENIZER_FILES.contains(&file_name(name)) {
            return Err(refused(other, &format!("holds another tokenizer than `{place}`: `{name}` differs")));
        }
    }
    Ok(())
}

/// The first key in which two `config.json` differ, with both values; `None` if they differ in their layout
/// alone.
fn differing_key(newest: Option<&Vec<u8>>, other: Option<&Vec<u8>>) -> Option<String> {
    let parsed = [newest, other].map(|bytes| serde_json::from_slice::<Value>(bytes?).ok());
    let [Some(Value::Object(newest)), Some(Value::Object(other))] = parsed else {
        return Some("there is no `config.json` in one of them".to_string());
    };
    let keys: BTreeSet<&String> = newest.keys().chain(other.keys()).collect();
    let key = keys.into_iter().find(|key| newest.get(*key) != other.get(*key))?;
    let [is, was] = [&other, &newest].map(|keys| keys.get(key).map_or("absent".into(), Value::to_string));
    Some(format!("`{key}` is {is}, there it is {was}"))
}

fn refused(checkpoint: &Checkpoint, message: &str) -> anyhow::Error {
    Problem::usage(message)
        .at(checkpoint.path().display())
        .hint("average checkpoints of one run; weights of different models have no meaningful mean")
        .into()
}

/// The mean of each tensor over files that have the same tensors.
fn mean_tensors(files: &[TensorFile]) -> Result<Vec<(String, Tensor)>> {
    let names = files[0].names();
    if let Some(other) = files.iter().find(|file| file.names() != names) {
        let message = format!("has not the tensors of `{}`", files[0].path().display());
        return Err(Problem::new(message).at(other.path().display()).into());
    }
    names.into_iter().map(|name| Ok((name.clone(), mean_tensor(files, &name)?))).collect()
}

/// The mean of one tensor, added up in f64 and rounded once.
fn mean_tensor(files: &[TensorFile], name: &str) -> Result<Tensor> {
    let first = files[0].info(name);
    let mut sums: Vec<f64> = Vec::new();
    for file in files {
        let tensor = file.tensor(name)?;
        if tensor.dtype() != DType::F32 || file.info(name) != first {
            return Err(problem(
                file,
                name,
                "has another type or shape in another checkpoint, or is not F32",
            ));
        }
        sums.resize(tensor.elem_count(), 0.0);
        with_slice(&tensor, |values| {
            sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += f64::from(*value));
        })?;
        if sums.iter().any(|sum| !sum.is_finite()) {
            return Err(problem(file, name, "holds values that are not finite"));
        }
    }
    let mean: Vec<f32> = sums.iter().map(|sum| (sum / files.len() as f64) as f32).collect();
    Ok(Tensor::from_vec(mean, first.map(|info| info.shape).unwrap_or_default(), &Device::Cpu)?)
}

fn problem(file: &TensorFile, name: &str, what: &str) -> anyhow::Error {
    Problem::new(format!("tensor `{name}` {what}")).at(file.path().display()).into()
}

/// Writes the folder under a temporary name, and renames it when it is complete.
fn publish(output: &Path, snapshot: &Snapshot) -> Result<()> {
    let name = output.file_name().unwrap_or_default().to_string_lossy();
    let temporary = fs::parent_of(output).join(format!(".tmp-{}-{name}", std::process::id()));
    let written = write_sealed(&temporary, snapshot.step, &snapshot.parts)
        .and_then(|()| fs::publish_folder(&temporary, output));
    written.inspect_err(|_| drop(fs::remove_folder(&temporary)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::write_tensors;
    use crate::rng::{Purpose, Stream};

    #[test]
    fn the_mean_is_exact_to_half_a_unit_in_the_last_place() {
        let folder = tempfile::tempdir().unwrap();
        let stream = Stream::new(5, Purpose::Test, 0);
        let values = |file: u64| -> Vec<f32> {
            (0..1000u64)
                .map(|i| (stream.normal(1000 * file + i) * 10f64.powi(i as i32 % 9 - 4)) as f32)
                .collect()
        };
        let files: Vec<TensorFile> = (0..3)
            .map(|file| {
                let tensor = Tensor::from_vec(values(file), (10, 100), &Device::Cpu).unwrap();
                let mut bytes = Vec::new();
                write_tensors(&mut bytes, &[("a".to_string(), tensor)]).unwrap();
                let path = folder.path().join(format!("{file}.safetensors"));
                std::fs::write(&path, bytes).unwrap();
                TensorFile::open(&path).unwrap()
            })
            .collect();
        let mean = mean_tensors(&files).unwrap().remove(0).1;
        assert_eq!(mean.dims(), [10, 100]);
        let [a, b, c] = [0, 1, 2].map(values);
        let mean = mean.flatten_all().unwrap().to_vec1::<f32>().unwrap();
        for (index, mean) in mean.iter().enumerate() {
            // Whole multiples of 2^-80, in which every sum is exact.
            let exact =
                [a[index], b[index], c[index]].map(|value| (f64::from(value) * 2f64.powi(80)) as i128);
            let sum: i128 = exact.iter().sum();
            let found = 3 * (f64::from(*mean) * 2f64.powi(80)) as i128;
            let unit = 3 * (f64::from(mean.abs().next_up() - mean.abs()) * 2f64.powi(80)) as i128;
            assert!(2 * (found - sum).abs() <= unit, "{index}: {mean}");
        }
    }

    #[test]
    fn the_first_key_that_differs_is_named() {
        let [one, same, other] = ["{\"a\": 1, \"b\": 2}", "{\"b\":2,\"a\":1}", "{\"a\": 1, \"b\": 3}"]
            .map(|text| text.as_bytes().to_vec());
        assert_eq!(differing_key(Some(&one), Some(&same)), None);
        assert_eq!(differing_key(Some(&one), Some(&other)).unwrap(), "`b` is 3, there it is 2");
        assert!(differing_key(Some(&one), None).unwrap().contains("no `config.json`"));
    }
}
