//! Checks one model folder: hashes, tensors, shapes, and the state of its run.

use std::path::{Path, PathBuf};

use anyhow::Error;
use serde_json::{Value, json};

use crate::checkpoint::{Checkpoint, Unverified};
use crate::commands::checkpoint::step_of_name;
use crate::error::{Class, Problem, class_of};
use crate::interop::{DISCRIMINATOR, GENERATOR, PretrainedFolder, holds_pair, open_folder};
use crate::models::PairBlueprint;
use crate::quantity::format_bytes;
use crate::sealed::verify_sealed;
use crate::{fs, train};

/// The result of the checks of a folder.
pub(super) struct Verdict {
    pub(super) path: PathBuf,
    /// Step in the manifest.
    step: Option<u64>,
    /// Number of files that were compared with a hash.
    hashed_files: usize,
    tensors: usize,
    bytes: u64,
    pub(super) faults: Vec<Error>,
}

/// Estimated number of bytes that [`Verdict::read`] reads from a folder.
pub(super) fn bytes_to_read(folder: &Path) -> u64 {
    let hashed = Unverified::find(folder).ok().flatten().map_or(0, |manifest| manifest.bytes());
    let files = fs::files_below(folder).unwrap_or_default();
    let tensors = files
        .iter()
        .filter(|path| path.extension().is_some_and(|end| end == "safetensors"))
        .filter_map(|path| fs::len_bytes(path).ok());
    tensors.fold(hashed, u64::saturating_add)
}

impl Verdict {
    /// Reads and checks all of `folder`. `read` is called with the number of bytes after each part that was
    /// read.
    pub(super) fn read(folder: &Path, read: &dyn Fn(u64)) -> Self {
        let mut verdict = Self {
            path: folder.to_path_buf(),
            step: None,
            hashed_files: 0,
            tensors: 0,
            bytes: 0,
            faults: vec![],
        };
        verdict.bytes = fs::bytes_below(folder).unwrap_or_else(|e| {
            verdict.faults.push(e);
            0
        });
        let checkpoint = verdict.hashes(read);
        let models = verdict.models(read);
        if let Some(checkpoint) = checkpoint.filter(train::inspect::is_of_run) {
            verdict.faults.extend(train::inspect::faults(checkpoint, values_of_run(&models), read));
        }
        verdict
    }

    /// Compares the files with the hashes in their manifest, if there is one.
    fn hashes(&mut self, read: &dyn Fn(u64)) -> Option<Checkpoint> {
        let manifest = match Unverified::find(&self.path) {
            Ok(Some(manifest)) => manifest,
            Ok(None) => {
                self.without_manifest();
                return None;
            }
            Err(e) => {
                self.faults.push(e);
                return None;
            }
        };
        self.step = Some(manifest.step());
        self.hashed_files = manifest.files();
        if let Some(name) = step_of_name(&self.path).filter(|&step| step != manifest.step()) {
            let message = format!("holds step {}, and is called checkpoint-{name}", manifest.step());
            self.faults.push(Problem::new(message).at(self.path.display()).into());
        }
        manifest.verify(read).map_err(|faults| self.faults.extend(faults)).ok()
    }

    /// Checks a folder without a manifest. A checkpoint with a folder `trainer` must have one. A model inside
    /// a checkpoint is compared with the manifest of the folder above; models of other programs have no
    /// hashes.
    fn without_manifest(&mut self) {
        if fs::is_folder(&self.path.join("trainer")) {
            let message = "there is no `manifest.json`, so this is no complete checkpoint";
            self.faults.push(Problem::new(message).at(self.path.display()).into());
        } else {
            self.faults.extend(verify_sealed(&self.path, |_| true).err());
        }
    }

    /// Checks every tensor of the model, or of the generator and the discriminator.
    fn models(&mut self, read: &dyn Fn(u64)) -> Vec<PretrainedFolder> {
        let places = if holds_pair(&self.path) {
            vec![self.path.join(GENERATOR), self.path.join(DISCRIMINATOR)]
        } else {
            vec![self.path.clone()]
        };
        let mut models = Vec::new();
        for place in places {
            match open_folder(&place) {
                Ok(model) => {
                    self.faults.extend(model.faults(read));
                    self.tensors += model.num_tensors();
                    models.push(model);
                }
                Err(e) => self.faults.push(e),
            }
        }
        models
    }

    pub(super) fn is_right(&self) -> bool {
        self.faults.is_empty()
    }

    /// True if its files are damaged, and not only unsupported by this program.
    pub(super) fn is_damaged(&self) -> bool {
        self.faults.iter().any(|fault| !is_unsupported(fault))
    }

    /// One line about a folder without faults.
    pub(super) fn summary(&self) -> String {
        let step = self.step.map(|step| format!("step {step}, ")).unwrap_or_default();
        let hashes = match self.hashed_files {
            0 => "no manifest".to_string(),
            files => format!("{files} hashes"),
        };
        format!("{step}{} tensors, {hashes}, {}", self.tensors, format_bytes(self.bytes))
    }

    /// Returns the result as a JSON object.
    pub(super) fn to_json(&self) -> Value {
        json!({
            "path": self.path.display().to_string(),
            "valid": self.is_right(),
            "damaged": self.is_damaged(),
            "step": self.step,
            "tensors": self.tensors,
            "hashed_files": self.hashed_files,
            "bytes": self.bytes,
            "faults": self.faults.iter().map(|fault| format!("{fault:#}")).collect::<Vec<_>>(),
        })
    }
}

/// Returns true if a fault is not a damaged file: a run refuses such a folder like a wrong configuration.
pub(super) fn is_unsupported(fault: &Error) -> bool {
    class_of(fault) == Class::Usage
}

/// Number of elements of each AdamW moment in a run of these models; `None` if it is not known.
fn values_of_run(models: &[PretrainedFolder]) -> Option<usize> {
    match models {
        [model] => Some(model.layout()?.len()),
        [generator, discriminator] => {
            let names = discriminator.config.family.replaced_tokens?;
            // A model with impossible sizes has no layout, and is a fault already.
            generator.layout().and(discriminator.layout())?;
            Some(PairBlueprint::new(&generator.config, &discriminator.config, names).layout.len())
        }
        _ => None,
    }
}
