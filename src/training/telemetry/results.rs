//! Writes `train_results.json`, `eval_results.json` and `all_results.json`, like the Hugging Face Trainer.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;
use serde_json::Value;

use crate::telemetry::json_number;
use base::error::Problem;
use base::fs;

const CAP_BYTES: u64 = 16 << 20;

/// Writes `<split>_results.json` into `folder` and adds its values to `all_results.json`.
pub fn write_results(folder: &Path, split: &str, values: &[(String, f64)]) -> Result<()> {
    let values: BTreeMap<String, Value> =
        values.iter().map(|(name, value)| (name.clone(), json_number(*value))).collect();
    write(&folder.join(format!("{split}_results.json")), &values)?;
    let all_path = folder.join("all_results.json");
    let mut all: BTreeMap<String, Value> = BTreeMap::new();
    if fs::exists(&all_path) {
        let bytes = fs::read_capped(&all_path, CAP_BYTES)?;
        all = serde_json::from_slice(&bytes)
            .map_err(|e| Problem::new(format!("is not a JSON object: {e}")).at(all_path.display()))?;
    }
    all.extend(values);
    write(&all_path, &all)
}

fn write(path: &Path, values: &BTreeMap<String, Value>) -> Result<()> {
    let mut text = serde_json::to_string_pretty(values)?;
    text.push('\n');
    fs::write_bytes(path, text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_split_has_its_own_file_and_one_file_has_all() {
        let folder = tempfile::tempdir().unwrap();
        write_results(folder.path(), "train", &values(&[("train_loss", 2.5), ("epoch", 1.0)])).unwrap();
        write_results(folder.path(), "eval", &values(&[("eval_loss", f64::INFINITY), ("epoch", 2.0)]))
            .unwrap();
        let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
        assert_eq!(read("train_results.json"), "{\n  \"epoch\": 1.0,\n  \"train_loss\": 2.5\n}\n");
        let all = "{\n  \"epoch\": 2.0,\n  \"eval_loss\": \"Infinity\",\n  \"train_loss\": 2.5\n}\n";
        assert_eq!(read("all_results.json"), all);
        std::fs::write(folder.path().join("all_results.json"), "[1]").unwrap();
        let message = write_results(folder.path(), "eval", &[]).unwrap_err().to_string();
        assert!(message.contains("all_results.json"), "{message}");
    }

    fn values(pairs: &[(&str, f64)]) -> Vec<(String, f64)> {
        pairs.iter().map(|(name, value)| ((*name).to_string(), *value)).collect()
    }
}
