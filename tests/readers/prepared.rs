//! What `prepare` leaves and reads again: its settings and its report, and what is there of it when it was
//! interrupted.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use mlmtrain::config::{PretrainConfig, load_pretrain};
use mlmtrain::prepare::{ensure_prepared, read_report};
use mlmtrain::processes::Processes;
use serde_json::{Value, json};

use super::compressed::zstd;
use super::{Compress, Input, Outcome, Runs, copy_tree};

const TARGET: &str = "prepared";

/// Files of kept text, and the journal of the shards made from it.
const UNFINISHED: [&str; 4] = [
    "documents/part-00000.json",
    "documents/part-00000.zst",
    "documents/part-00000.sketch",
    "shards/progress.json",
];

pub(super) fn all(folder: &Path, runs: &Runs) -> Result<Vec<Input>> {
    let mut inputs = Vec::new();
    for (name, read) in [("settings.json", None), ("report.json", Some(report as fn(&Path) -> Outcome))] {
        let own = folder.join(format!("prepared-{name}"));
        copy_tree(&runs.pretrained("data"), &own)?;
        let config = config(runs, &own)?;
        let read = move |path: &Path| read.map_or_else(|| prepared(&config), |read| read(path));
        let input = Input::of_file(TARGET, &format!("prepared {name}"), own.join(name), read)?;
        inputs.push(input.named(own.display().to_string()));
    }
    for name in UNFINISHED {
        let stem = name.replace('/', "-");
        let (own, whole) = (folder.join(format!("unfinished-{stem}")), folder.join(format!("whole-{stem}")));
        copy_tree(&runs.pretrained("data"), &whole)?;
        let manifest = whole.join("shards/manifest.json");
        if name == UNFINISHED[3] {
            let journal = journal(&serde_json::from_slice(&fs::read(&manifest)?)?);
            fs::write(whole.join(name), journal.to_string())?;
        }
        fs::remove_file(manifest)?;
        copy_tree(&whole, &own)?;
        let (config, root) = (config(runs, &own)?, own.clone());
        let read = move |path: &Path| {
            // The run before has made a whole one of it.
            let damaged = fs::read(path)?;
            fs::remove_dir_all(&root)?;
            copy_tree(&whole, &root)?;
            fs::write(path, damaged)?;
            vouch(path)?;
            prepared(&config)
        };
        let input = Input::of_file(TARGET, &format!("unfinished {stem}"), own.join(name), read)?;
        let is_packed = name == UNFINISHED[1];
        let plain = is_packed.then(|| zstd::decode_all(input.bytes.as_slice())).transpose()?;
        let inside = plain.map(|plain| (plain, zstd as Compress));
        inputs.push(Input { inside, ..input }.named(own.display().to_string()));
    }
    Ok(inputs)
}

/// Makes what vouches for a file say what it is now: other damage would hardly be read.
fn vouch(path: &Path) -> Result<()> {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("zst") => {
            let entry = path.with_extension("json");
            let mut value: Value = serde_json::from_slice(&fs::read(&entry)?)?;
            value["file_bytes"] = fs::metadata(path)?.len().into();
            fs::write(entry, value.to_string())?;
        }
        // The checksum of what follows the header, and that of the header.
        Some("sketch") => {
            let mut bytes = fs::read(path)?;
            if let Some((header, sketches)) = bytes.split_at_mut_checked(48) {
                header[40..44].copy_from_slice(&crc32c::crc32c(sketches).to_le_bytes());
                let own = crc32c::crc32c(&header[..44]);
                header[44..].copy_from_slice(&own.to_le_bytes());
            }
            fs::write(path, bytes)?;
        }
        _ => {}
    }
    Ok(())
}

fn config(runs: &Runs, folder: &Path) -> Result<PretrainConfig> {
    let mut config = load_pretrain(&runs.pretrained("config.yaml"), &[])?.config;
    config.data.prepared_dir = Some(PathBuf::from(folder));
    Ok(config)
}

fn prepared(config: &PretrainConfig) -> Outcome {
    ensure_prepared(Processes::ALONE, config, &mut |_| {})?;
    Ok(1)
}

fn report(path: &Path) -> Outcome {
    let report = read_report(path.parent().context("it lies in a folder")?)?;
    report.context("it is there")?.to_html();
    Ok(1)
}

/// The journal of shards that are all written.
fn journal(manifest: &Value) -> Value {
    let side = |name: &str| {
        let counts = json!({"texts": 1, "bytes": 1, "words": 1, "tokens": 1, "unknown": 0});
        let (end, written) = (u64::MAX, &manifest[name]);
        json!({"next_document": end, "written": written, "without_tokens": 0, "fertility": [counts]})
    };
    let (settings, tokenizer) = (&manifest["settings_sha256"], &manifest["tokenizer"]);
    let (train, validation) = (side("train"), side("validation"));
    json!({"settings_sha256": settings, "tokenizer": tokenizer, "train": train, "validation": validation})
}
