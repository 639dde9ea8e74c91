//! Folders copied, and manifests that vouch for what was changed.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;
use sha2::{Digest, Sha256};

/// Copies a folder with all below it.
pub(crate) fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| to.display().to_string())?;
    for entry in fs::read_dir(from).with_context(|| from.display().to_string())? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_tree(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), &target).with_context(|| target.display().to_string())?;
        }
    }
    Ok(())
}

/// Makes the manifest of a checkpoint vouch for `name` as it is.
pub(crate) fn reseal(checkpoint: &Path, name: &str) -> Result<()> {
    let bytes = fs::read(checkpoint.join(name))?;
    let path = checkpoint.join("manifest.json");
    let manifest = fs::read(&path).with_context(|| path.display().to_string())?;
    let mut manifest: Value =
        serde_json::from_slice(&manifest).with_context(|| path.display().to_string())?;
    let entries = manifest["files"].as_array_mut().context("a manifest lists files")?;
    let entry = entries.iter_mut().find(|entry| entry["name"] == name).context("the file is listed")?;
    (entry["bytes"], entry["sha256"]) = (bytes.len().into(), sha256(&bytes).into());
    seal(&mut manifest)?;
    Ok(fs::write(&path, serde_json::to_vec_pretty(&manifest)?)?)
}

/// Makes a manifest vouch for itself as it is.
pub(super) fn seal(manifest: &mut Value) -> Result<()> {
    manifest["seal"] = "".into();
    manifest["seal"] = sha256(&serde_json::to_vec_pretty(manifest)?).into();
    Ok(())
}

/// SHA-256 in hexadecimal.
pub(super) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat()
}
