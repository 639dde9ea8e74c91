//! Writes `MLflow`'s file store: a folder for each run, a file for each parameter and each metric.
//!
//! The layout is that of `mlflow.store.tracking.file_store` of MLflow 3.17. A resumed run keeps its id.
//! Values that it logged after its last checkpoint are dropped, because those steps will be computed again.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use serde_json::{Value, json};

use crate::telemetry::append_log::AppendLog;
use crate::telemetry::record::Record;
use crate::telemetry::sink::Sink;
use base::error::Problem;
use base::fs;

/// The experiment of all runs, unless `MLFLOW_EXPERIMENT_NAME` names another.
const EXPERIMENT: &str = "mlmtrain";
const CAP_BYTES: u64 = 1 << 20;
/// First parts of the program's own tags.
const GROUPS: [&str; 7] = ["train", "eval", "perf", "cost", "data", "tokens", "weights"];
/// Number of characters that are kept of a key that is too long or not plain. At four bytes each, they fit
/// into the name of a file.
const MOST_KEY_CHARS: usize = 48;
/// Longest key that MLflow accepts.
const MOST_KEY_BYTES: usize = 250;
/// Largest number of runs that start one after the other in one run folder; further ones share the last id.
const MOST_RUNS: usize = 10_000;
/// Largest file of one metric that is read, which has room for the values of tens of millions of records.
const METRIC_CAP_BYTES: u64 = 1 << 30;

/// Numbers of `mlflow.entities.RunStatus`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Status {
    Running = 1,
    Finished = 3,
    Killed = 5,
}

/// The sink that writes `mlruns/<experiment>/<run>`.
#[derive(Debug)]
pub(super) struct Mlflow {
    folder: PathBuf,
    experiment: String,
    id: String,
    name: String,
    started_ms: u64,
    status: Status,
    metrics: BTreeMap<String, AppendLog>,
}

/// Returns the folder of the store, from the variable `MLFLOW_TRACKING_URI` that MLflow itself reads. The
/// address of a server is an error.
pub(super) fn store() -> Result<PathBuf, Problem> {
    let Some(uri) = std::env::var("MLFLOW_TRACKING_URI").ok().filter(|uri| !uri.is_empty()) else {
        return Ok(PathBuf::from("mlruns"));
    };
    let path = uri.strip_prefix("file://").or(uri.strip_prefix("file:")).unwrap_or(&uri);
    if path.contains("://") {
        return Err(Problem::usage("names a server, and only a folder is written")
            .at("MLFLOW_TRACKING_URI")
            .hint("unset it to write `mlruns`, and bring that to the server by `mlflow migrate-filestore`"));
    }
    Ok(PathBuf::from(path))
}

impl Mlflow {
    /// Creates the MLflow run of `run_folder` in `store`, or reopens it and drops the values after
    /// `resumed_step`.
    pub(super) fn create(
        store: &Path,
        run_folder: &Path,
        config: &Value,
        resumed_step: Option<u64>,
    ) -> Result<Self> {
        fs::create_folder(store)?;
        let store = fs::canonical(store);
        let name = std::env::var("MLFLOW_EXPERIMENT_NAME").unwrap_or_else(|_| EXPERIMENT.to_string());
        let experiment = experiment(&store, &name)?;
        let place = fs::canonical(run_folder);
        let id = run_id(&store.join(&experiment), &place, resumed_step.is_some());
        let folder = store.join(&experiment).join(&id);
        let earlier = fs::read_text_capped(&folder.join("meta.yaml"), CAP_BYTES).ok();
        let started_ms = earlier.and_then(|text| started(&text)).unwrap_or_else(now_ms);
        let name = run_folder.display().to_string();
        let status = Status::Running;
        let mut run = Self { folder, experiment, id, name, started_ms, status, metrics: BTreeMap::new() };
        for part in ["artifacts", "metrics", "params", "tags"] {
            fs::create_folder(&run.folder.join(part))?;
        }
        for (tag, value) in [
            ("mlflow.runName", run.name.as_str()),
            ("mlflow.source.name", "mlmtrain"),
            ("mlflow.source.type", "LOCAL"),
        ] {
            run.put("tags", tag, value)?;
        }
        let mut values = Vec::new();
        flatten("", config, &mut values);
        values.iter().try_for_each(|(key, value)| run.put("params", key, value))?;
        if let Some(step) = resumed_step {
            run.drop_after(step)?;
        }
        run.set_status(Status::Running)?;
        Ok(run)
    }

    /// Writes a small file with one value. It need not be durable: the next start of the run writes it again.
    fn put(&self, kind: &str, key: &str, value: &str) -> Result<()> {
        let path = self.folder.join(kind).join(file_of(key));
        fs::remove_file(&path)?;
        Ok(fs::append(&path)?.write_all(value.as_bytes())?)
    }

    /// Removes the values after `step` from all metrics.
    fn drop_after(&self, step: u64) -> Result<()> {
        for path in fs::files_below(&self.folder.join("metrics"))? {
            let text = fs::read_text_capped(&path, METRIC_CAP_BYTES)?;
            let kept = text.split_inclusive('\n').filter(|line| {
                let last = line.trim_end().rsplit(' ').next();
                last.and_then(|text| text.parse::<u64>().ok()).is_some_and(|found| found <= step)
            });
            fs::write_bytes(&path, kept.collect::<String>().as_bytes())?;
        }
        Ok(())
    }

    /// Writes `meta.yaml`, with the status and, unless the run continues, the time of its end.
    fn set_status(&mut self, status: Status) -> Result<()> {
        self.status = status;
        let end = if status == Status::Running { json!(null) } else { json!(now_ms()) };
        let Self { experiment, id, name, started_ms, .. } = self;
        let artifacts = json!(format!("file://{}", self.folder.join("artifacts").display()));
        let name = json!(name);
        let status = status as u8;
        // Strings in JSON's notation are valid YAML.
        let text = format!(
            "artifact_uri: {artifacts}\nend_time: {end}\nentry_point_name: ''\nexperiment_id: '{experiment}'\n\
             lifecycle_stage: active\nrun_id: {id}\nrun_name: {name}\nrun_uuid: {id}\nsource_name: ''\n\
             source_type: 4\nsource_version: ''\nstart_time: {started_ms}\nstatus: {status}\ntags: []\n\
             user_id: mlmtrain\n"
        );
        fs::write_bytes(&self.folder.join("meta.yaml"), text.as_bytes())
    }
}

impl Sink for Mlflow {
    fn write(&mut self, record: &Record) -> Result<()> {
        let time_ms = now_ms();
        // NaN means that a value was not measured: the curve gets no point.
        for (tag, value) in record.values.iter().filter(|(_, value)| !value.is_nan()) {
            let log = match self.metrics.entry(tag.clone()) {
                Entry::Occupied(entry) => entry.into_mut(),
                Entry::Vacant(entry) => {
                    let path = self.folder.join("metrics").join(file_of(tag));
                    fs::create_folder(&fs::parent_of(&path))?;
                    entry.insert(AppendLog::open(&path)?)
                }
            };
            log.append(format!("{time_ms} {value} {}\n", record.step).as_bytes())?;
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        self.metrics.values_mut().try_for_each(AppendLog::sync)
    }

    fn finish(&mut self) -> Result<()> {
        self.sync()?;
        self.set_status(Status::Finished)
    }
}

impl Drop for Mlflow {
    /// Marks a run that did not finish as killed; else `mlflow ui` would show it as running for ever.
    fn drop(&mut self) {
        if self.status == Status::Running {
            let _ = self.set_status(Status::Killed);
        }
    }
}

/// Returns the id of a run: a new one if the run starts, that of the last run in the same run folder if it is
/// resumed.
fn run_id(experiment: &Path, run_folder: &Path, is_resumed: bool) -> String {
    let place = run_folder.as_os_str().as_encoded_bytes();
    let begun =
        (0..MOST_RUNS).take_while(|&number| fs::exists(&experiment.join(numbered_id(place, number)))).count();
    numbered_id(place, if is_resumed { begun.saturating_sub(1) } else { begun })
}

/// Returns the id of the run with this number (from 0) in the run folder with the path `place`.
fn numbered_id(place: &[u8], number: usize) -> String {
    match number {
        0 => fs::sha256_of(&[place])[..32].to_string(),
        _ => fs::sha256_of(&[place, format!("\0{number}").as_bytes()])[..32].to_string(),
    }
}

/// Returns the path of a metric or a parameter below the folder of its kind. Keys contain names from data:
/// entity types, columns, tasks, sources. Only a first `/` that ends a group of the program's own tags
/// (`eval/f1`) makes a folder; all else becomes the name of one file, with the characters that MLflow allows
/// in keys. Two keys never share a file.
fn file_of(key: &str) -> PathBuf {
    let (group, name) = key.split_once('/').filter(|(group, _)| GROUPS.contains(group)).unwrap_or(("", key));
    let shown = name.trim_start_matches('.').chars();
    let plain: String =
        shown.map(|c| if c.is_alphanumeric() || "_-. :".contains(c) { c } else { '_' }).collect();
    let is_whole = plain == name && !name.is_empty() && !GROUPS.contains(&name);
    let name = if is_whole && key.len() <= MOST_KEY_BYTES {
        plain
    } else {
        let short: String = plain.chars().take(MOST_KEY_CHARS).collect();
        format!("{short}-{}", &fs::sha256_of(&[key.as_bytes()])[..8])
    };
    Path::new(group).join(name)
}

/// Returns the id of the experiment with this name; creates the experiment if the store lacks it.
fn experiment(store: &Path, name: &str) -> Result<String> {
    let line = format!("name: {}", json!(name));
    for folder in fs::list(store)?.into_iter().filter(|path| fs::is_folder(path)) {
        let meta = fs::read_text_capped(&folder.join("meta.yaml"), CAP_BYTES).unwrap_or_default();
        // MLflow itself quotes only names that need quotes.
        if meta.lines().any(|found| found == line || found == format!("name: {name}"))
            && let Some(id) = folder.file_name()
        {
            return Ok(id.to_string_lossy().into_owned());
        }
    }
    let hash = u64::from_str_radix(&fs::sha256_of(&[name.as_bytes()])[..15], 16).unwrap_or_default();
    let id = format!("{:018}", hash % 1_000_000_000_000_000_000);
    let folder = store.join(&id);
    fs::create_folder(&folder)?;
    let place = json!(format!("file://{}", folder.display()));
    let time_ms = now_ms();
    let text = format!(
        "artifact_location: {place}\ncreation_time: {time_ms}\nexperiment_id: '{id}'\n\
         last_update_time: {time_ms}\nlifecycle_stage: active\n{line}\n"
    );
    fs::write_bytes(&folder.join("meta.yaml"), text.as_bytes())?;
    Ok(id)
}

/// Returns the start time in `meta.yaml`, in milliseconds since 1970.
fn started(meta: &str) -> Option<u64> {
    meta.lines().find_map(|line| line.strip_prefix("start_time: ")?.parse().ok())
}

/// Adds the values of a configuration with their dotted keys to `into`. Lists are shown as JSON, texts as
/// they are; null is left out.
pub(super) fn flatten(path: &str, value: &Value, into: &mut Vec<(String, String)>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                flatten(&if path.is_empty() { key.clone() } else { format!("{path}.{key}") }, value, into);
            }
        }
        Value::Null => {}
        Value::String(text) => into.push((path.to_string(), text.clone())),
        other => into.push((path.to_string(), other.to_string())),
    }
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(step: u64) -> Record {
        Record { step, epoch: 0.0, values: vec![("train/loss".to_string(), 0.5)] }
    }

    #[test]
    fn no_name_from_data_leaves_the_folder_of_the_run() {
        let place = tempfile::tempdir().unwrap();
        let store = place.path().join("mlruns");
        let run = place.path().join("run");
        std::fs::create_dir(&run).unwrap();
        let long = format!("eval/{}_f1", "ä".repeat(300));
        let tags = [
            "eval/x/../../../victim_f1",
            "/etc/victim",
            "../victim",
            "eval/..",
            "eval/.",
            "eval/",
            "",
            "..",
            "eval/a\0b\nc",
            "eval/PER_f1",
            "eval/PER_f1/z_f1",
            "eval/PER_f1_z_f1",
            "victim/../../x",
            "Eval/x",
            "train",
            &long,
        ];
        let config = json!({"filters": {"../../../victim": 1, "a/b": 2, "..": 3}});
        let mut sink = Mlflow::create(&store, &run, &config, None).unwrap();
        for (number, tag) in tags.iter().enumerate() {
            let values = vec![((*tag).to_string(), number as f64)];
            sink.write(&Record { step: 1, epoch: 0.0, values }).unwrap();
        }
        sink.finish().unwrap();
        let entries: Vec<_> =
            std::fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(entries.len(), 2, "{entries:?}");
        let metrics = fs::files_below(&sink.folder.join("metrics")).unwrap();
        assert_eq!(metrics.len(), tags.len(), "each has a file: {metrics:?}");
        for path in metrics {
            assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 1, "{path:?}");
        }
        assert_eq!(fs::files_below(&sink.folder.join("params")).unwrap().len(), 3);
        assert_eq!(file_of("eval/LOC ation:x-1.b_f1"), Path::new("eval/LOC ation:x-1.b_f1"));
        assert_eq!(file_of("training.learning_rate"), Path::new("training.learning_rate"));
    }

    #[test]
    fn a_resumed_run_continues_in_its_folder_without_the_steps_that_are_repeated() {
        let place = tempfile::tempdir().unwrap();
        let store = place.path().join("mlruns");
        let run = place.path().join("run");
        std::fs::create_dir(&run).unwrap();
        let config = json!({"training": {"learning_rate": 0.5, "phases": []}, "run": {"seed": null}});
        let open = |step| Mlflow::create(&store, &run, &config, step).unwrap();
        let mut first = open(None);
        (1..=4).for_each(|step| first.write(&record(step)).unwrap());
        let folder = first.folder.clone();
        let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
        assert!(read("meta.yaml").contains("\nstatus: 1\n"));
        drop(first);
        assert!(read("meta.yaml").contains("\nstatus: 5\n"), "{}", read("meta.yaml"));
        let mut second = open(Some(2));
        assert_eq!(second.folder, folder);
        second.write(&record(3)).unwrap();
        second.finish().unwrap();
        drop(second);
        assert!(read("meta.yaml").contains("\nstatus: 3\n"));
        let steps: Vec<String> =
            read("metrics/train/loss").lines().map(|line| line.rsplit(' ').next().unwrap().into()).collect();
        assert_eq!(steps, ["1", "2", "3"]);
        assert_eq!(read("params/training.learning_rate"), "0.5");
        assert_eq!(read("params/training.phases"), "[]");
        assert!(!folder.join("params/run.seed").exists(), "what is absent has no value");
        // A run that starts anew in the same run folder has another id, also when it is resumed.
        let third = open(None).folder.clone();
        assert!(third != folder && folder.join("metrics/train").exists());
        assert!(!third.join("metrics/train").exists(), "it has no metrics yet");
        assert_eq!(open(Some(1)).folder, third);
    }
}
