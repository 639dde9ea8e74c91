//! Writes and reads `metrics.jsonl`: one JSON object per line with `step`, `epoch` and every tag.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use anyhow::Result;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::telemetry::append_log::AppendLog;
use crate::telemetry::record::Record;
use crate::telemetry::sink::Sink;
use base::fs;

/// Longest line that is read; mlmtrain never writes longer ones.
const LINE_CAP_BYTES: u64 = 1 << 20;

/// The sink that writes `metrics.jsonl`.
#[derive(Debug)]
pub struct MetricsLog {
    log: AppendLog,
}

impl MetricsLog {
    /// Opens the file at `path`: emptied for a new run (`None`), or with the records of the first
    /// `resumed_step` updates.
    ///
    /// Records that an interrupted process wrote after its last checkpoint are dropped, because those steps
    /// will be computed again.
    pub fn open(path: &Path, resumed_step: Option<u64>) -> Result<Self> {
        match resumed_step {
            Some(step) if fs::exists(path) => keep_until(path, step)?,
            _ => fs::write_bytes(path, b"")?,
        }
        Ok(Self { log: AppendLog::open(path)? })
    }

    /// Returns the numbers in all lines of `step` of the file at `path`, the last value of each tag; no
    /// numbers if the file is missing.
    pub fn values_at(path: &Path, step: u64) -> Result<BTreeMap<String, f64>> {
        let mut values = BTreeMap::new();
        if fs::exists(path) {
            fs::each_line(path, LINE_CAP_BYTES, &mut |line| {
                if step_of(line) == Some(step) {
                    let object: Map<String, Value> = serde_json::from_slice(line).unwrap_or_default();
                    values.extend(object.into_iter().filter_map(|(tag, value)| Some((tag, value.as_f64()?))));
                }
                Ok(())
            })?;
        }
        Ok(values)
    }

    /// Calls `visit` with the step and the numbers of each record of the file at `path`, in order. Returns
    /// the number of lines that are not records.
    pub fn each_record(path: &Path, mut visit: impl FnMut(u64, &[(String, f64)])) -> Result<u64> {
        let mut damaged = 0;
        fs::each_line(path, LINE_CAP_BYTES, &mut |line| {
            let object: Option<Map<String, Value>> = serde_json::from_slice(line).ok();
            let step = object.as_ref().and_then(|object| object.get("step")?.as_u64());
            let (Some(object), Some(step)) = (object, step) else {
                damaged += 1;
                return Ok(());
            };
            let numbers = object.into_iter().filter_map(|(tag, value)| Some((tag, value.as_f64()?)));
            visit(step, &numbers.collect::<Vec<_>>());
            Ok(())
        })?;
        Ok(damaged)
    }
}

impl Sink for MetricsLog {
    fn write(&mut self, record: &Record) -> Result<()> {
        let mut line = serde_json::to_vec(&record.to_json())?;
        line.push(b'\n');
        self.log.append(&line)
    }

    fn sync(&mut self) -> Result<()> {
        self.log.sync()
    }

    fn finish(&mut self) -> Result<()> {
        self.log.sync()
    }
}

/// Removes the lines after `step` and those that are not records.
fn keep_until(path: &Path, step: u64) -> Result<()> {
    fs::write_atomic(path, |writer| {
        fs::each_line(path, LINE_CAP_BYTES, &mut |line| {
            if step_of(line).is_some_and(|found| found <= step) {
                writer.write_all(line)?;
            }
            Ok(())
        })
    })
}

/// Returns the step of a line; `None` for a line that a crash cut off.
fn step_of(line: &[u8]) -> Option<u64> {
    #[derive(Deserialize)]
    struct Line {
        step: u64,
    }
    serde_json::from_slice::<Line>(line).ok().map(|line| line.step)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(step: u64, loss: f64) -> Record {
        Record {
            step,
            epoch: 0.5,
            values: vec![("train/loss".to_string(), loss), ("train/grad_norm".to_string(), 1.0)],
        }
    }

    #[test]
    fn a_resumed_run_writes_each_step_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        let mut log = MetricsLog::open(&path, None).unwrap();
        for step in 1..=4 {
            log.write(&record(step, step as f64)).unwrap();
        }
        log.finish().unwrap();
        drop(log);
        std::fs::OpenOptions::new()
            .append(true)
            .open(&path)
            .unwrap()
            .write_all(b"{\"step\":2,\"tra")
            .unwrap();
        let mut log = MetricsLog::open(&path, Some(2)).unwrap();
        log.write(&record(3, f64::NAN)).unwrap();
        log.write(&record(4, f64::NEG_INFINITY)).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(
            text,
            "{\"step\":1,\"epoch\":0.5,\"train/loss\":1.0,\"train/grad_norm\":1.0}\n\
             {\"step\":2,\"epoch\":0.5,\"train/loss\":2.0,\"train/grad_norm\":1.0}\n\
             {\"step\":3,\"epoch\":0.5,\"train/loss\":null,\"train/grad_norm\":1.0}\n\
             {\"step\":4,\"epoch\":0.5,\"train/loss\":\"-Infinity\",\"train/grad_norm\":1.0}\n"
        );
        MetricsLog::open(&path, None).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"");
    }

    #[test]
    fn a_removed_file_is_written_anew_and_reported_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        let mut log = MetricsLog::open(&path, None).unwrap();
        log.write(&record(1, 1.0)).unwrap();
        std::fs::remove_file(&path).unwrap();
        let message = log.write(&record(2, 2.0)).unwrap_err().to_string();
        assert!(message.contains("metrics.jsonl: was removed or replaced"), "{message}");
        log.write(&record(3, 3.0)).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().filter_map(|line| step_of(line.as_bytes())).collect::<Vec<_>>(), [2, 3]);
    }

    #[test]
    fn a_link_in_the_place_of_the_file_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        let victim = folder.path().join("victim");
        std::fs::write(&victim, "untouched").unwrap();
        let mut log = MetricsLog::open(&path, None).unwrap();
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(&victim, &path).unwrap();
        let message = format!("{:#}", log.write(&record(1, 1.0)).unwrap_err());
        assert!(message.contains("metrics.jsonl"), "{message}");
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "untouched");
        std::fs::remove_file(&path).unwrap();
        log.write(&record(2, 2.0)).unwrap_err();
        log.write(&record(3, 3.0)).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().filter_map(|line| step_of(line.as_bytes())).collect::<Vec<_>>(), [1, 2, 3]);
    }

    #[test]
    fn a_full_disk_is_an_error_that_names_the_file() {
        if !Path::new("/dev/full").exists() {
            return;
        }
        let mut log = MetricsLog { log: AppendLog::open(Path::new("/dev/full")).unwrap() };
        let message = format!("{:#}", log.write(&record(1, 1.0)).unwrap_err());
        assert!(message.contains("cannot write `/dev/full`"), "{message}");
    }

    #[test]
    fn each_record_is_read_and_other_lines_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        let text = "{\"step\":1,\"train/loss\":2.5,\"x\":\"NaN\"}\n{\"epoch\":1}\nhalf a li\n{\"step\":2}\n{\"step\":3";
        std::fs::write(&path, text).unwrap();
        let mut found = Vec::new();
        let damaged = MetricsLog::each_record(&path, |step, values| found.push((step, values.to_vec())));
        assert_eq!(damaged.unwrap(), 2, "the last line is being written");
        assert_eq!(found[0], (1, vec![("step".to_string(), 1.0), ("train/loss".to_string(), 2.5)]));
        assert_eq!(found[1..], [(2, vec![("step".to_string(), 2.0)])]);
    }

    #[test]
    fn the_values_of_a_step_are_found_and_a_truncated_line_is_ignored() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        assert_eq!(MetricsLog::values_at(&path, 2).unwrap(), BTreeMap::new());
        let mut log = MetricsLog::open(&path, None).unwrap();
        let probed = Record { step: 2, epoch: 0.5, values: vec![("eval/a".to_string(), 0.5)] };
        for record in [record(1, 9.0), record(2, 8.0), probed] {
            log.write(&record).unwrap();
        }
        log.finish().unwrap();
        let mut text = std::fs::read(&path).unwrap();
        text.extend(b"{\"step\":2,\"eval/a\":0.9");
        std::fs::write(&path, text).unwrap();
        let wanted =
            [("epoch", 0.5), ("eval/a", 0.5), ("step", 2.0), ("train/grad_norm", 1.0), ("train/loss", 8.0)];
        let wanted = wanted.map(|(tag, value)| (tag.to_string(), value));
        assert_eq!(MetricsLog::values_at(&path, 2).unwrap(), wanted.into());
    }
}
