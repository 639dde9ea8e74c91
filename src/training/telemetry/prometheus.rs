//! Writes the newest values of a run as a text file for the textfile collector of Prometheus' node exporter:
//! <https://github.com/prometheus/node_exporter#textfile-collector>

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::telemetry::record::Record;
use crate::telemetry::sink::Sink;
use base::fs;

/// The sink that writes `<folder>/mlmtrain-<run>.prom`. Every record replaces the whole file.
#[derive(Debug)]
pub(super) struct Prometheus {
    path: PathBuf,
    /// The run folder, a label of each value.
    run: String,
    /// The newest value for each name of a metric and, if the tag has characters that a name may not have,
    /// the tag.
    values: BTreeMap<(String, Option<String>), f64>,
}

impl Prometheus {
    /// Creates the sink of the run of `run_folder`, with its file in `folder`.
    pub(super) fn create(folder: &Path, run_folder: &Path) -> Result<Self> {
        fs::create_folder(folder)?;
        let run = run_folder.display().to_string();
        let name: String = run.chars().map(|c| if c.is_alphanumeric() { c } else { '-' }).collect();
        let path = folder.join(format!("mlmtrain-{}.prom", name.trim_matches('-')));
        Ok(Self { path, run, values: BTreeMap::new() })
    }

    fn text(&self) -> String {
        let run = escaped(&self.run);
        let mut text = String::new();
        let mut declared = None;
        for ((name, tag), value) in &self.values {
            let value = match value {
                value if value.is_nan() => "NaN".to_string(),
                value if value.is_infinite() => if *value > 0.0 { "+Inf" } else { "-Inf" }.to_string(),
                value => value.to_string(),
            };
            if declared.replace(name) != Some(name) {
                let _ = writeln!(text, "# TYPE {name} gauge");
            }
            let tag = tag.as_ref().map(|tag| format!(",tag=\"{}\"", escaped(tag))).unwrap_or_default();
            let _ = writeln!(text, "{name}{{run=\"{run}\"{tag}}} {value}");
        }
        text
    }
}

/// Escapes a text for use as the value of a label.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

impl Sink for Prometheus {
    fn write(&mut self, record: &Record) -> Result<()> {
        let own = [("step".to_string(), record.step as f64), ("epoch".to_string(), record.epoch)];
        for (tag, value) in record.values.iter().chain(&own) {
            let name: String = tag.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
            // Tags that contain names from data, such as `eval/f1/Ä`, may become the same name of a metric;
            // the label `tag` keeps them apart.
            let is_own = tag.chars().all(|c| c.is_ascii_alphanumeric() || "/_".contains(c));
            self.values.insert((format!("mlmtrain_{name}"), (!is_own).then(|| tag.clone())), *value);
        }
        fs::write_bytes(&self.path, self.text().as_bytes())
    }

    fn sync(&mut self) -> Result<()> {
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_contains_the_newest_value_of_each_tag() {
        let folder = tempfile::tempdir().unwrap();
        let mut sink = Prometheus::create(folder.path(), Path::new("runs/a \"b\"")).unwrap();
        for (step, tag, value) in [
            (1, "train/loss", 2.5),
            (2, "train/loss", f64::NAN),
            (2, "eval/f1-micro", f64::INFINITY),
            (2, "eval/f1/ä", 1.0),
            (2, "eval/f1/\"", 2.0),
        ] {
            sink.write(&Record { step, epoch: 0.5, values: vec![(tag.to_string(), value)] }).unwrap();
        }
        let text = std::fs::read_to_string(folder.path().join("mlmtrain-runs-a--b.prom")).unwrap();
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            lines,
            [
                "mlmtrain_epoch{run=\"runs/a \\\"b\\\"\"} 0.5",
                "mlmtrain_eval_f1__{run=\"runs/a \\\"b\\\"\",tag=\"eval/f1/\\\"\"} 2",
                "mlmtrain_eval_f1__{run=\"runs/a \\\"b\\\"\",tag=\"eval/f1/ä\"} 1",
                "mlmtrain_eval_f1_micro{run=\"runs/a \\\"b\\\"\",tag=\"eval/f1-micro\"} +Inf",
                "mlmtrain_step{run=\"runs/a \\\"b\\\"\"} 2",
                "mlmtrain_train_loss{run=\"runs/a \\\"b\\\"\"} NaN",
            ]
        );
        for name in ["mlmtrain_train_loss", "mlmtrain_eval_f1__"] {
            assert_eq!(text.matches(&format!("# TYPE {name} gauge\n")).count(), 1);
        }
    }
}
