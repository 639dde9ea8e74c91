//! Everything that can be said of one model folder: hashes, tensors, shapes, and the state of its run.

use std::path::Path;
use std::path::PathBuf;

use anyhow::Error;
use serde_json::Value;
use serde_json::json;

use crate::checkpoint::Checkpoint;
use crate::checkpoint::Unverified;
use crate::checkpoint::verify_sealed;
use crate::commands::checkpoint::step_of_name;
use crate::error::Class;
use crate::error::Problem;
use crate::error::class_of;
use crate::fs;
use crate::interop::DISCRIMINATOR;
use crate::interop::GENERATOR;
use crate::interop::PretrainedFolder;
use crate::interop::holds_pair;
use crate::interop::open_folder;
use crate::models::PairBlueprint;
use crate::quantity::format_bytes;
use crate::train;

/// What was found of a folder.
pub(super) struct Verdict {
    pub(super) path: PathBuf,
    /// Of the manifest.
    step: Option<u64>,
    /// Files that were held against a hash.
    hashed_files: usize,
    tensors: usize,
    bytes: u64,
    pub(super) faults: Vec<Error>,
}

/// Bytes that [`Verdict::of`] reads of a folder, about.
pub(super) fn bytes_to_read(folder: &Path) -> u64 {
    let hashed = Unverified::find(folder).ok().flatten().map_or(0, |manifest| manifest.bytes());
    let is_tensors = |path: &&PathBuf| path.extension().is_some_and(|end| end == "safetensors");
    let files = fs::files_below(folder).unwrap_or_default();
    let tensors = files.iter().filter(is_tensors).filter_map(|path| fs::len_bytes(path).ok());
    tensors.fold(hashed, u64::saturating_add)
}

impl Verdict {
    /// Reads all of `folder`; `read` is told how many more bytes.
    pub(super) fn of(folder: &Path, read: &dyn Fn(u64)) -> Self {
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

    /// Holds the files against their manifest, if there is one.
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

    /// Folders of others have no hashes. Ours has them, if not in it, then in the one above it.
    fn without_manifest(&mut self) {
        if fs::is_folder(&self.path.join("trainer")) {
            let message = "there is no `manifest.json`, so this is no complete checkpoint";
            self.faults.push(Problem::new(message).at(self.path.display()).into());
        } else {
            self.faults.extend(verify_sealed(&self.path, |_| true).err());
        }
    }

    /// Looks at every tensor of the one or two models.
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

    /// What is right with it, in a line.
    pub(super) fn summary(&self) -> String {
        let step = self.step.map(|step| format!("step {step}, ")).unwrap_or_default();
        let hashes = match self.hashed_files {
            0 => "no manifest".to_string(),
            files => format!("{files} hashes"),
        };
        format!("{step}{} tensors, {hashes}, {}", self.tensors, format_bytes(self.bytes))
    }

    /// The same for programs.
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

/// Elements of the moments of a run of these models; `None` where that cannot be told.
fn values_of_run(models: &[PretrainedFolder]) -> Option<usize> {
    match models {
        [model] => Some(model.layout()?.len()),
        [generator, discriminator] => {
            let names = discriminator.config.family.replaced_tokens?;
            // Sizes that no real model has are told already.
            generator.layout().and(discriminator.layout())?;
            Some(PairBlueprint::new(&generator.config, &discriminator.config, names).layout.len())
        }
        _ => None,
    }
}
