//! The checkpoints of one run folder: saves them completely or not at all, finds the newest that verifies,
//! and deletes old ones.
//!
//! A save writes `.tmp-checkpoint-N`, syncs each file, writes the manifest last and renames the folder. If it
//! is interrupted at any point, `newest` finds the checkpoint before it. The store takes no lock; the run
//! does.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::checkpoint::budget::over_budget;
use crate::checkpoint::open::Checkpoint;
use crate::checkpoint::part::Snapshot;
use crate::checkpoint::retention::{Retention, retention};
use base::error::{Class, Problem};
use base::fs;
use base::quantity::format_bytes;
use base::sealed::{Manifest, write_sealed};

const PREFIX: &str = "checkpoint-";
const TEMPORARY_PREFIX: &str = ".tmp-checkpoint-";
/// Prefix of the files and folders that any interrupted write of this program leaves.
const LEFTOVER_PREFIX: &str = ".tmp-";
/// Prefix of a checkpoint that is being replaced by another one of the same step.
const REPLACED_PREFIX: &str = ".old-checkpoint-";

const LESS: &str = "free some space or lower `training.save_total_limit`; older checkpoints were kept";

/// The checkpoints under one run folder.
#[derive(Debug, Clone)]
pub struct CheckpointStore {
    folder: PathBuf,
}

impl CheckpointStore {
    /// The store of a run folder; accesses no file.
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.to_path_buf() }
    }

    /// Path of the checkpoint of `step`, whether it exists or not.
    pub fn path_of(&self, step: u64) -> PathBuf {
        self.folder.join(format!("{PREFIX}{step}"))
    }

    /// Steps of all checkpoint folders, ascending, including those that do not verify.
    pub fn steps(&self) -> Result<Vec<u64>> {
        self.steps_of(PREFIX)
    }

    /// Step of the newest checkpoint that seems whole: its manifest is valid, and its files have the sizes
    /// that the manifest says. Their content is not read, so that this is quick; [`Self::newest`] reads it.
    pub fn newest_step(&self) -> Result<Option<u64>> {
        Ok(self.steps()?.into_iter().rev().find(|&step| seems_whole(&self.path_of(step), step)))
    }

    /// Saves a checkpoint, verifies it by reading everything back, and then deletes those that `keep` does
    /// not want. Returns messages about checkpoints that could not be deleted: the new one is saved all the
    /// same.
    ///
    /// If it fails, all earlier checkpoints still exist; a full or failing disk is a problem of
    /// [`Class::Disk`]. Checkpoints of later steps are left alone: they belong to another branch of the run.
    pub fn save(&self, snapshot: &Snapshot, keep: &Retention) -> Result<Vec<String>> {
        fs::create_folder(&self.folder)?;
        self.tidy()?;
        let needed_bytes = snapshot.size_bytes();
        self.require_space(needed_bytes)?;
        let temporary = self.folder.join(format!("{TEMPORARY_PREFIX}{}", snapshot.step));
        let target = self.path_of(snapshot.step);
        let published = write_sealed(&temporary, snapshot.step, &snapshot.parts)
            .and_then(|()| self.publish(&temporary, &target, snapshot.step));
        if let Err(e) = published {
            // The message names the free space, so it is determined before the cleanup, which frees some.
            let limit = self.room_left(&e);
            let cleaned = fs::remove_folder(&temporary);
            let left = if cleaned.is_ok() {
                "the half-written folder was removed"
            } else {
                "a half-written folder remains"
            };
            return Err(explain(e.context(left), &target, needed_bytes, limit));
        }
        let over_budget = self.keep_within_budget(snapshot.step, keep);
        let older: Vec<u64> = self.steps()?.into_iter().filter(|&step| step <= snapshot.step).collect();
        let unwanted = retention(&older, keep).into_iter();
        Ok(unwanted
            .filter_map(|step| fs::remove_folder(&self.path_of(step)).err())
            .map(|e| format!("an older checkpoint cannot be deleted: {e:#}"))
            .chain(over_budget)
            .collect())
    }

    /// Deletes the checkpoint of `step`, if there is one.
    pub fn remove(&self, step: u64) -> Result<()> {
        fs::remove_folder(&self.path_of(step))
    }

    /// Passes checkpoints that verify to `read`, from the newest on, until it accepts one. Returns its
    /// result, and the reason for each newer checkpoint that was refused.
    pub fn newest<T>(&self, read: impl Fn(Checkpoint) -> Result<T>) -> Result<(Option<T>, Vec<String>)> {
        let mut candidates: Vec<(u64, PathBuf)> =
            self.steps()?.into_iter().map(|step| (step, self.path_of(step))).collect();
        // A crash between the two renames of a replacement leaves the old checkpoint under this name only.
        candidates
            .extend(self.steps_of(REPLACED_PREFIX)?.into_iter().map(|step| (step, self.replaced(step))));
        candidates.sort_by(|(a, left), (b, right)| b.cmp(a).then_with(|| right.cmp(left)));
        let mut refused = Vec::new();
        for (step, path) in candidates {
            match open_as(&path, step).and_then(&read) {
                Ok(found) => return Ok((Some(found), refused)),
                Err(e) => refused.push(format!("{e:#}")),
            }
        }
        Ok((None, refused))
    }

    /// Returns an error if fewer than `needed_bytes` bytes are free for checkpoints.
    pub fn require_space(&self, needed_bytes: u64) -> Result<()> {
        let required = fs::require_space(&self.folder, needed_bytes, "there is no room for a checkpoint");
        Ok(required.map_err(|problem| problem.hint(LESS))?)
    }

    /// Renames a written folder to its final name and verifies it. If that fails, restores what was there
    /// before.
    fn publish(&self, temporary: &Path, target: &Path, step: u64) -> Result<()> {
        let replaced = self.replaced(step);
        let replaces = fs::exists(target);
        if replaces {
            fs::rename(target, &replaced)?;
        }
        let verified = fs::publish_folder(temporary, target).and_then(|()| Checkpoint::open(target));
        match (verified, replaces) {
            (Ok(_), _) => fs::remove_folder(&replaced),
            (Err(e), false) => fs::remove_folder(target).and(Err(e)),
            (Err(e), true) => {
                fs::remove_folder(target).and_then(|()| fs::rename(&replaced, target)).and(Err(e))
            }
        }
    }

    /// Removes what interrupted saves left, and completes or undoes an interrupted replacement.
    fn tidy(&self) -> Result<()> {
        for path in fs::list(&self.folder)? {
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            if is_leftover(&name) {
                if fs::is_folder(&path) { fs::remove_folder(&path)? } else { fs::remove_file(&path)? }
            }
        }
        for step in self.steps_of(REPLACED_PREFIX)? {
            if Checkpoint::open(&self.path_of(step)).is_ok() {
                fs::remove_folder(&self.replaced(step))?;
            } else {
                fs::remove_folder(&self.path_of(step))?;
                fs::rename(&self.replaced(step), &self.path_of(step))?;
            }
        }
        Ok(())
    }

    /// Names the limit that a save reached, or the free bytes if the disk failed in another way; `None` for
    /// other errors.
    fn room_left(&self, error: &anyhow::Error) -> Option<String> {
        let is_of_disk = error.chain().any(<dyn std::error::Error>::is::<std::io::Error>);
        fs::room_left(&self.folder, error).or_else(|| {
            let free = is_of_disk.then(|| fs::free_bytes(&self.folder).ok()).flatten()?;
            Some(format!("{} are free", format_bytes(free)))
        })
    }

    /// Deletes checkpoints up to `step` that exceed the limit of total bytes. Returns messages about those
    /// that cannot be measured or deleted.
    pub(super) fn keep_within_budget(&self, step: u64, keep: &Retention) -> Vec<String> {
        let Some(total_bytes) = keep.total_bytes else { return Vec::new() };
        let stored = self.steps().and_then(|steps| {
            let steps = steps.into_iter().filter(|&found| found <= step);
            steps.map(|step| Ok((step, fs::bytes_below(&self.path_of(step))?))).collect::<Result<Vec<_>>>()
        });
        match stored {
            Ok(stored) => over_budget(&stored, total_bytes, keep)
                .into_iter()
                .filter_map(|step| self.remove(step).err())
                .map(|e| format!("an older checkpoint cannot be deleted: {e:#}"))
                .collect(),
            Err(e) => vec![format!("the checkpoints cannot be measured: {e:#}")],
        }
    }

    /// Path of the checkpoint of `step` while another one replaces it.
    fn replaced(&self, step: u64) -> PathBuf {
        self.folder.join(format!("{REPLACED_PREFIX}{step}"))
    }

    fn steps_of(&self, prefix: &str) -> Result<Vec<u64>> {
        let mut steps: Vec<u64> =
            fs::list(&self.folder)?.iter().filter_map(|path| step_of(path, prefix)).collect();
        steps.sort_unstable();
        Ok(steps)
    }
}

/// The step of a folder whose name is `prefix` and a number.
fn step_of(path: &Path, prefix: &str) -> Option<u64> {
    let digits = path.file_name()?.to_str()?.strip_prefix(prefix)?;
    let step: u64 = digits.parse().ok()?;
    // `checkpoint-007` and `checkpoint-+7` were not written by this program.
    (step.to_string() == digits && fs::is_folder(path)).then_some(step)
}

/// Returns true for the name of a file or folder that a process of this program was writing when it was
/// killed.
fn is_leftover(name: &str) -> bool {
    let Some(rest) = name.strip_prefix(LEFTOVER_PREFIX) else { return false };
    let folders = ["checkpoint-", "diverged-", "restored-", "tokenizer", "final"];
    let writer = rest.split_once('-').and_then(|(pid, _)| pid.parse::<u32>().ok());
    match writer {
        // Another command, or another thread of this process, may still be writing it.
        Some(pid) => program_of(&pid.to_string()) != program_of("self"),
        None => folders.iter().any(|start| rest.starts_with(start)),
    }
}

/// The file of the program that a process runs; another path if there is no such process.
fn program_of(process: &str) -> PathBuf {
    fs::canonical(Path::new(&format!("/proc/{process}/exe")))
}

/// Returns true if the folder at `path` has the manifest of a checkpoint of `step`, and files of its sizes.
fn seems_whole(path: &Path, step: u64) -> bool {
    let Ok(manifest) = Manifest::read(path) else { return false };
    let mut files = manifest.files.iter();
    manifest.step == step
        && files.all(|file| fs::len_bytes(&path.join(&file.name)).is_ok_and(|bytes| bytes == file.bytes))
}

/// Opens the checkpoint at `path`, which must be that of `step`.
fn open_as(path: &Path, step: u64) -> Result<Checkpoint> {
    let checkpoint = Checkpoint::open(path)?;
    if checkpoint.step() == step {
        return Ok(checkpoint);
    }
    let message = format!("holds step {}, against its name", checkpoint.step());
    Err(Problem::new(message).at(path.display()).into())
}

fn explain(error: anyhow::Error, target: &Path, needed_bytes: u64, limit: Option<String>) -> anyhow::Error {
    let Some(limit) = limit else {
        return error.context(format!("cannot save checkpoint `{}`", target.display()));
    };
    let needed = format_bytes(needed_bytes);
    Problem::new(format!("cannot save a checkpoint ({error:#}): {needed} are needed, {limit}"))
        .at(target.display())
        .class(Class::Disk)
        .hint(LESS)
        .into()
}
