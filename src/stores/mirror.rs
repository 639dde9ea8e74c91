//! Copies a run folder into a bucket during the run, in a thread that looks at the folder at intervals.
//!
//! The run does not know about this thread: it publishes whole folders by renaming them, and deletes them at
//! any time. The files of a checkpoint are kept open until all are in the bucket, and the manifest is
//! uploaded last, so that an incomplete checkpoint is never taken for a complete one. If saving is faster
//! than uploading, some checkpoints are skipped; once the bucket has a complete checkpoint, it always has
//! one. The only exception is at the end of a run that has replaced its only checkpoint. A failed upload does
//! not stop the run: the failure is reported once, and the upload is tried again, unless another process has
//! claimed the folder in the bucket.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, SystemTime};

use anyhow::Result;

use crate::claim::{CLAIM, Claim};
use crate::remote::{MANIFEST, Remote, checkpoint_of, is_complete, name_in_seed, sealed_folder};
use base::error::Problem;
use base::fs;
use base::fs::File;

/// Time between two looks at the folder.
const INTERVAL: Duration = Duration::from_millis(250);

/// Time between a failure and the next attempt. Before a failure, requests were repeated for a minute.
const AFTER_FAILURE: Duration = Duration::from_secs(10);

/// Time after which a note says that the end of the run waits for the bucket.
const QUIET: Duration = Duration::from_secs(10);

/// Number of attempts at the end of the run.
const LAST_ATTEMPTS: u32 = 3;

const MANIFEST_CAP_BYTES: u64 = 16 << 20;

/// Length and modification time of a file, which distinguish two contents of it.
type Stamp = (u64, SystemTime);

/// The stamp of an object that differs from the file here, or may do so.
const UNSURE: Stamp = (0, SystemTime::UNIX_EPOCH);

/// Names of files with their stamps.
type Files = BTreeMap<String, Stamp>;

/// Receiver of warnings.
type Warn = Box<dyn Fn(&str) + Send>;

/// A run folder and the rules for copying it.
pub struct Uploaded<'a> {
    /// The run folder.
    pub folder: &'a Path,
    /// The claim of this process.
    pub claim: Claim,
    /// The claim that was found in the bucket.
    pub seen: Option<Claim>,
    /// Number of checkpoints that stay in the bucket, for each folder with checkpoints.
    pub limit: usize,
}

/// A run folder that is being copied, until [`Mirror::finish`].
pub struct Mirror {
    end: Sender<()>,
    /// Receives the result of the copying, once it has ended.
    ended: Receiver<Result<()>>,
}

impl Mirror {
    /// Claims the folder in the bucket and starts to copy. Objects that have the same bytes already are not
    /// uploaded again. The rest of an interrupted upload is deleted or completed.
    ///
    /// # Errors
    /// Returns an error if another process claims the folder at the same moment, or if the store refuses.
    pub fn start(remote: Remote, uploaded: Uploaded<'_>, warn: Warn) -> Result<Self> {
        let Uploaded { folder, claim, seen, limit } = uploaded;
        claim.take(&remote, seen.as_ref())?;
        if let Some(earlier) = &seen {
            warn(&format!(
                "{}: is taken over from {earlier}, which did not end as it should",
                remote.shown()
            ));
        }
        let mut uploader = Uploader {
            folder: folder.to_path_buf(),
            remote,
            claim,
            limit,
            known: BTreeMap::new(),
            older: BTreeMap::new(),
            is_continued: seen.is_some(),
            is_lost: false,
            is_first: true,
        };
        uploader.compare()?;
        let (end, ended) = mpsc::channel();
        let (sender, result) = mpsc::channel();
        std::thread::spawn(move || {
            let _ = sender.send(Self::copy(uploader, &ended, &warn));
        });
        Ok(Self { end, ended: result })
    }

    /// Copies until the run has ended, and then copies the rest.
    fn copy(mut uploader: Uploader, ended: &Receiver<()>, warn: &Warn) -> Result<()> {
        let mut wait = Duration::ZERO;
        let mut was_reported = false;
        while ended.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
            let result = uploader.bring_up_to_date(false);
            wait = if result.is_ok() { INTERVAL } else { AFTER_FAILURE };
            match &result {
                Err(e) if uploader.is_lost => {
                    warn(&format!("the run goes on without its bucket: {e:#}"));
                    return result;
                }
                Err(e) if !was_reported => {
                    warn(&format!("the run goes on, but is not uploaded until this gets better: {e:#}"));
                }
                _ => {}
            }
            was_reported = result.is_err();
        }
        let mut result = uploader.bring_up_to_date(true);
        for _ in 1..LAST_ATTEMPTS {
            if result.is_ok() || uploader.is_lost {
                break;
            }
            std::thread::sleep(AFTER_FAILURE / 10);
            result = uploader.bring_up_to_date(true);
        }
        result?;
        // A claim that stays is taken over by the next process.
        if let Err(e) = uploader.claim.release(&uploader.remote) {
            warn(&format!("{e:#}"));
        }
        Ok(())
    }

    /// Waits until everything that the run left is in the bucket, for at most `within` if that is given.
    /// Calls `waiting` once if it takes some seconds.
    pub fn finish(self, within: Option<Duration>, waiting: impl FnOnce()) -> Result<()> {
        drop(self.end);
        let first = within.map_or(QUIET, |within| within.min(QUIET));
        let mut result = self.ended.recv_timeout(first);
        if result.as_ref().err() == Some(&RecvTimeoutError::Timeout) {
            waiting();
            result = match within {
                None => self.ended.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(within) => self.ended.recv_timeout(within.saturating_sub(first)),
            };
        }
        match result {
            Ok(result) => result,
            Err(RecvTimeoutError::Disconnected) => {
                Err(Problem::new("the thread that uploads panicked").into())
            }
            Err(RecvTimeoutError::Timeout) => {
                let seconds = within.unwrap_or_default().as_secs();
                Err(Problem::new(format!("the store has not taken what is left within {seconds} s")).into())
            }
        }
    }
}

/// The state of the thread that uploads.
struct Uploader {
    folder: PathBuf,
    remote: Remote,
    claim: Claim,
    /// True if an earlier process left its claim.
    is_continued: bool,
    /// True if another process has the claim.
    is_lost: bool,
    /// Number of checkpoints that stay in the bucket, for each folder with checkpoints.
    limit: usize,
    /// The files in the bucket, with their stamps here when they were uploaded.
    known: Files,
    /// Complete checkpoints in the bucket that do not exist here any more, with the names of their files, by
    /// the folder above them and by step. A lost machine left them in the bucket.
    older: BTreeMap<String, BTreeMap<u64, Vec<String>>>,
    is_first: bool,
}

impl Uploader {
    /// Finds out which files are in the bucket already.
    fn compare(&mut self) -> Result<()> {
        let here = self.files()?;
        let there = self.remote.objects()?;
        let mut is_same: BTreeMap<String, bool> = BTreeMap::new();
        for (name, meta) in &there {
            let folder = sealed_folder(name, &there);
            let manifest = folder.map(|folder| format!("{folder}/{MANIFEST}"));
            if let Some(manifest) =
                manifest.filter(|name| here.contains_key(name) && !is_same.contains_key(name))
            {
                let own = fs::read_capped(&self.folder.join(&manifest), MANIFEST_CAP_BYTES)?;
                is_same.insert(manifest.clone(), Some(own) == self.remote.read(&manifest)?);
            }
            match folder.map(|folder| is_same.get(&format!("{folder}/{MANIFEST}"))) {
                Some(Some(true)) if here.get(name).is_some_and(|stamp| stamp.0 == meta.size) => {
                    self.known.insert(name.clone(), here[name]);
                }
                // A checkpoint that is not here is older, or of another branch of this run.
                Some(None) => self.note_older(folder.unwrap_or_default(), name, &here),
                // An incomplete checkpoint is ours only after an interrupted upload, which leaves its claim.
                None if !part_of_checkpoint(name) || !self.is_continued => {}
                // The object differs, or is useless without its manifest: it is replaced or deleted.
                _ => {
                    self.known.insert(name.clone(), UNSURE);
                }
            }
        }
        Ok(())
    }

    /// Remembers a file of a checkpoint in the bucket that is older than the newest one here.
    fn note_older(&mut self, folder: &str, name: &str, here: &Files) {
        let Some((above, step)) = checkpoint_of(folder) else { return };
        let mut checkpoints = here.keys().filter_map(|name| checkpoint_of(sealed_folder(name, here)?));
        if checkpoints.any(|(other_above, other_step)| other_above == above && other_step > step) {
            let steps = self.older.entry(above.to_string()).or_default();
            steps.entry(step).or_default().push(name.to_string());
        }
    }

    /// Returns an error if another process has claimed the folder.
    fn require_claim(&mut self) -> Result<()> {
        if let Some(other) = self.claim.taken_by(&self.remote)? {
            self.is_lost = true;
            return Err(other.in_the_way(&self.remote).into());
        }
        Ok(())
    }

    /// Uploads new files and deletes those that are gone. Files without a manifest, such as records, are
    /// uploaded before a checkpoint and only together with one, so that a checkpoint that is fetched back has
    /// all records up to it.
    fn bring_up_to_date(&mut self, is_last: bool) -> Result<()> {
        let here = self.files()?;
        let mut sealed: BTreeMap<&str, Vec<&String>> = BTreeMap::new();
        let mut others = Vec::new();
        for (name, stamp) in &here {
            match sealed_folder(name, &here) {
                Some(folder) => sealed.entry(folder).or_default().push(name),
                None if self.known.get(name) != Some(stamp) => others.push(name),
                None => {}
            }
        }
        sealed.retain(|folder, files| {
            files.iter().any(|name| self.known.get(*name) != here.get(*name))
                && (is_last || !self.must_wait(folder, files, &here))
        });
        if self.is_first || is_last || !sealed.is_empty() {
            self.require_claim()?;
            for name in others {
                if let Some(mut file) = self.open(name)? {
                    self.put(name, &mut file, here[name])?;
                }
            }
            self.is_first = false;
        }
        let mut newest_first: Vec<(&str, Vec<&String>)> = sealed.into_iter().collect();
        newest_first
            .sort_by_key(|(_, files)| std::cmp::Reverse(files.iter().map(|name| here[*name].1).max()));
        for (folder, mut files) in newest_first {
            let manifest_name = format!("{folder}/{MANIFEST}");
            files.retain(|name| **name != manifest_name && self.known.get(*name) != here.get(*name));
            // It is too late for a checkpoint that the run has deleted in the meantime.
            let Some(file) = self.open(&manifest_name)? else { continue };
            let manifest = fs::read_open_capped(Path::new(&manifest_name), file, MANIFEST_CAP_BYTES)?;
            let opened: Vec<Option<File>> =
                files.iter().map(|name| self.open(name)).collect::<Result<_>>()?;
            // Without other changes, the manifest is replaced as a whole.
            if !files.is_empty() {
                self.forget(&manifest_name)?;
            }
            for (name, file) in files.into_iter().zip(opened) {
                if let Some(mut file) = file {
                    self.put(name, &mut file, here[name])?;
                }
            }
            // If some of the files that the manifest names are missing, the run was deleting the checkpoint.
            if is_complete(folder, &manifest, &self.known) {
                self.require_claim()?;
                // A store may have taken it even if its answer is lost.
                self.known.insert(manifest_name.clone(), UNSURE);
                self.put(&manifest_name, &mut manifest.as_slice(), here[&manifest_name])?;
            }
        }
        self.delete_gone()?;
        self.delete_older()
    }

    /// True if these files of a checkpoint replace another version of it that is the only complete checkpoint
    /// in the bucket: without it there would be none until the upload ends. The next checkpoint comes first.
    fn must_wait(&self, folder: &str, files: &[&String], here: &Files) -> bool {
        let Some((above, step)) = checkpoint_of(folder) else { return false };
        let manifest = format!("{folder}/{MANIFEST}");
        let are_all_known = files.iter().all(|name| self.known.contains_key(*name));
        let differs = files.iter().any(|name| **name != manifest && self.known.get(*name) != here.get(*name));
        let has_other = self.older.get(above).is_some_and(|steps| !steps.is_empty())
            || whole(&self.known).any(|(of, other)| of == above && other != step);
        are_all_known && differs && !has_other
    }

    /// Opens a file of the run; `None` if it was deleted in the meantime.
    fn open(&self, name: &str) -> Result<Option<File>> {
        let path = self.folder.join(name);
        match fs::open(&path) {
            Err(_) if !fs::exists(&path) => Ok(None),
            opened => opened.map(Some),
        }
    }

    fn put(&mut self, name: &str, file: &mut impl Read, stamp: Stamp) -> Result<()> {
        self.remote.put(name, file)?;
        self.known.insert(name.to_string(), stamp);
        Ok(())
    }

    /// Deletes in the bucket the files that this run has uploaded and then deleted here, manifests first. If
    /// there is no checkpoint here at all, they were lost in another way, and nothing is deleted.
    fn delete_gone(&mut self) -> Result<()> {
        let here = self.files()?;
        if !here.keys().any(|name| part_of_checkpoint(name)) {
            return Ok(());
        }
        let gone = gone(&here, &self.known);
        if !gone.is_empty() {
            self.require_claim()?;
        }
        for name in gone {
            // The file may have been deleted here just now, while its manifest is still in the bucket.
            if let Some(folder) = sealed_folder(&name, &self.known) {
                self.forget(&format!("{folder}/{MANIFEST}"))?;
            }
            self.forget(&name)?;
        }
        Ok(())
    }

    /// Deletes the oldest of the checkpoints that a lost machine left, until there are no more than the
    /// limit.
    fn delete_older(&mut self) -> Result<()> {
        let whole: Vec<(&str, u64)> = whole(&self.known).collect();
        let mut gone = Vec::new();
        for (above, steps) in &mut self.older {
            let uploaded = whole.iter().filter(|(of, _)| of == above).count();
            // Nothing is deleted before this process has uploaded a checkpoint: until then, theirs is the
            // newest.
            while uploaded > 0 && uploaded + steps.len() > self.limit {
                let Some((_, files)) = steps.pop_first() else { break };
                gone.extend(files);
            }
        }
        if !gone.is_empty() {
            self.require_claim()?;
            // Manifests are deleted first, as for all checkpoints.
            gone.sort_by_key(|name| !name.ends_with("/manifest.json"));
        }
        gone.iter().try_for_each(|name| self.remote.delete(name))
    }

    /// Deletes an object that this run has uploaded.
    fn forget(&mut self, name: &str) -> Result<()> {
        if self.known.contains_key(name) {
            self.remote.delete(name)?;
            self.known.remove(name);
        }
        Ok(())
    }

    /// All files of the folder that belong in the bucket, with their stamps.
    fn files(&self) -> Result<Files> {
        let mut files = BTreeMap::new();
        for path in fs::files_below(&self.folder)? {
            let name = path.strip_prefix(&self.folder).ok().and_then(Path::to_str);
            // A file that is being deleted at this moment is left out.
            if let Some(name) = name.filter(|name| is_kept(name))
                && let (Ok(bytes), Ok(modified)) = (fs::len_bytes(&path), fs::modified(&path))
            {
                files.insert(name.to_string(), (bytes, modified));
            }
        }
        Ok(files)
    }
}

/// Returns true if a file of a run folder belongs in the bucket. Shards, which can be made again, and the
/// files of probes do not. In a run with several seeds, each seed has its own folder.
pub fn is_kept(name: &str) -> bool {
    let own = name_in_seed(name);
    match own.split_once('/') {
        None => own != CLAIM,
        Some((folder, _)) => {
            ["final", "runs"].contains(&folder)
                || ["checkpoint-", "diverged-"].iter().any(|start| folder.starts_with(start))
        }
    }
}

/// The complete checkpoints among these objects, each as the folder above it and its step.
fn whole(known: &Files) -> impl Iterator<Item = (&str, u64)> {
    let manifests = known.iter().filter(|(_, stamp)| **stamp != UNSURE);
    manifests.filter_map(|(name, _)| checkpoint_of(name.strip_suffix("/manifest.json")?))
}

/// The objects of files that the run has deleted. `here` are the files of the run, `known` those in the
/// bucket.
fn gone(here: &Files, known: &Files) -> Vec<String> {
    let gone = known.keys().filter(|name| {
        let folder = sealed_folder(name, known);
        !here.contains_key(*name) && !folder.is_some_and(|folder| is_last_resort(folder, here, known))
    });
    gone.cloned().collect()
}

/// True if `folder` is a checkpoint, and the bucket has none that is complete and that the run still has:
/// without `folder`, a machine that is lost now might leave no checkpoint at all.
fn is_last_resort(folder: &str, here: &Files, known: &Files) -> bool {
    let Some((above, _)) = folder.rsplit_once("checkpoint-") else { return false };
    !here.keys().any(|name| {
        file_in_checkpoint(name, above) == Some(MANIFEST)
            && is_unchanged(&name[..name.len() - MANIFEST.len()], here, known)
    })
}

/// True if the bucket has exactly the files of the run whose names begin with `start`, which includes a
/// manifest. The files of a checkpoint that the run is deleting are no longer all here.
fn is_unchanged(start: &str, here: &Files, known: &Files) -> bool {
    let [here, known] = [here, known]
        .map(|files| files.range(start.to_string()..).take_while(|(name, _)| name.starts_with(start)));
    here.eq(known)
}

/// The path of a file within its checkpoint, if it is in a checkpoint directly below `above`.
fn file_in_checkpoint<'a>(name: &'a str, above: &str) -> Option<&'a str> {
    let step_and_file = name.strip_prefix(above)?.strip_prefix("checkpoint-")?;
    step_and_file.split_once('/').map(|(_, file)| file)
}

fn part_of_checkpoint(name: &str) -> bool {
    name.split('/').rev().skip(1).any(|folder| folder.starts_with("checkpoint-"))
}

#[cfg(test)]
mod tests;
