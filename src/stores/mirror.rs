//! A run folder that is copied into a bucket while the run goes on, by a thread that looks at it now and
//! then.
//!
//! The run knows nothing of it: it publishes whole folders by renaming them, and deletes them when it likes. Files of
//! a checkpoint are held open until all are in the bucket, and there its manifest goes last, so that half of one is
//! never taken for a whole. Where saving is quicker than uploading, some are left out; once the bucket has a whole one,
//! it has one at any time. A failure stops nothing; it is told once, and tried again.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::path::PathBuf;
use std::sync::mpsc;
use std::sync::mpsc::Receiver;
use std::sync::mpsc::RecvTimeoutError;
use std::sync::mpsc::Sender;
use std::time::Duration;
use std::time::SystemTime;

use anyhow::Result;

use crate::error::Problem;
use crate::fs;
use crate::fs::File;
use crate::stores::remote::MANIFEST;
use crate::stores::remote::Remote;
use crate::stores::remote::is_complete;
use crate::stores::remote::sealed_folder;

/// How often the folder is looked at.
const INTERVAL: Duration = Duration::from_millis(250);

/// How long after a failure the next attempt is made; requests were repeated for a minute before it.
const AFTER_FAILURE: Duration = Duration::from_secs(10);

/// After so long it is told that the end of a run waits for the bucket.
const QUIET: Duration = Duration::from_secs(10);

/// Attempts at the end of the run.
const LAST_ATTEMPTS: u32 = 3;

const MANIFEST_CAP_BYTES: u64 = 16 << 20;

/// What tells two contents of a file apart: its length, and when it was written.
type Stamp = (u64, SystemTime);

/// Where warnings go.
type Warn = Box<dyn Fn(&str) + Send>;

/// The copying of a run folder, until [`Mirror::finish`].
pub struct Mirror {
    end: Sender<()>,
    /// What came of it, once it has ended.
    ended: Receiver<Result<()>>,
}

impl Mirror {
    /// Begins to copy `folder`. What lies in the bucket already with the same bytes is left as it is; what is
    /// left there of an upload that was cut off is deleted or completed.
    pub fn start(remote: Remote, folder: &Path, warn: Warn) -> Result<Self> {
        let mut copy = Copy { known: BTreeMap::new(), folder: folder.to_path_buf(), remote, is_first: true };
        copy.compare()?;
        let (end, ended) = mpsc::channel();
        let (told, result) = mpsc::channel();
        std::thread::spawn(move || {
            let _ = told.send(Self::copy(copy, &ended, &warn));
        });
        Ok(Self { end, ended: result })
    }

    /// Copies until the run has ended, and then what is left.
    fn copy(mut copy: Copy, ended: &Receiver<()>, warn: &Warn) -> Result<()> {
        let (mut wait, mut was_told) = (Duration::ZERO, false);
        while ended.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
            let result = copy.bring_up_to_date(false);
            wait = if result.is_ok() { INTERVAL } else { AFTER_FAILURE };
            if let Err(e) = &result
                && !was_told
            {
                warn(&format!("the run goes on, but is not uploaded until this gets better: {e:#}"));
            }
            was_told = result.is_err();
        }
        for _ in 1..LAST_ATTEMPTS {
            if copy.bring_up_to_date(true).is_ok() {
                return Ok(());
            }
            std::thread::sleep(AFTER_FAILURE / 10);
        }
        copy.bring_up_to_date(true)
    }

    /// Waits until all that the run left is in the bucket, at most `within` where that is given; calls `waiting`
    /// once where it takes some seconds.
    pub fn finish(self, within: Option<Duration>, waiting: impl FnOnce()) -> Result<()> {
        drop(self.end);
        let panicked = || Problem::new("the thread that uploads panicked").into();
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
            Err(RecvTimeoutError::Disconnected) => Err(panicked()),
            Err(RecvTimeoutError::Timeout) => {
                let seconds = within.unwrap_or_default().as_secs();
                Err(Problem::new(format!("the store has not taken what is left within {seconds} s")).into())
            }
        }
    }
}

struct Copy {
    folder: PathBuf,
    remote: Remote,
    /// The files that are in the bucket, as they were here when they got there.
    known: BTreeMap<String, Stamp>,
    is_first: bool,
}

impl Copy {
    /// Finds out what is in the bucket already.
    fn compare(&mut self) -> Result<()> {
        let (here, there) = (self.files()?, self.remote.objects()?);
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
                // What is not here is another branch of this run, or older: it stays.
                Some(None) => {}
                None if !part_of_checkpoint(name) => {}
                // Another content, or without its manifest of no use to anyone: replaced, or deleted.
                _ => {
                    self.known.insert(name.clone(), (0, SystemTime::UNIX_EPOCH));
                }
            }
        }
        Ok(())
    }

    /// Uploads what is new here and deletes what is gone. Files that stand by themselves, such as records, go
    /// along with a checkpoint, before it: one that is taken back has all records up to it.
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
        sealed.retain(|_, files| files.iter().any(|name| self.known.get(*name) != here.get(*name)));
        if self.is_first || is_last || !sealed.is_empty() {
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
            // What the run has deleted since it was seen is too late.
            let Some(file) = self.open(&manifest_name)? else { continue };
            let manifest = fs::read_open_capped(Path::new(&manifest_name), file, MANIFEST_CAP_BYTES)?;
            let opened: Vec<Option<File>> =
                files.iter().map(|name| self.open(name)).collect::<Result<_>>()?;
            self.forget(&manifest_name)?;
            for (name, file) in files.into_iter().zip(opened) {
                if let Some(mut file) = file {
                    self.put(name, &mut file, here[name])?;
                }
            }
            // Without all that it names, the run was deleting it.
            if is_complete(folder, &manifest, &self.known) {
                self.put(&manifest_name, &mut manifest.as_slice(), here[&manifest_name])?;
            }
        }
        self.delete_gone()
    }

    /// A file of the run; none where it was deleted meanwhile.
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

    /// Deletes in the bucket what this run has put there and deleted here, manifests first. A folder without
    /// a single checkpoint has lost them in another way, and takes none along.
    fn delete_gone(&mut self) -> Result<()> {
        let here = self.files()?;
        if !here.keys().any(|name| part_of_checkpoint(name)) {
            return Ok(());
        }
        let gone: Vec<String> = self.known.keys().filter(|name| !here.contains_key(*name)).cloned().collect();
        for name in gone {
            // It may be just deleted here, with its manifest still there.
            if let Some(folder) = sealed_folder(&name, &self.known) {
                if is_last_resort(folder, &here, &self.known) {
                    continue;
                }
                self.forget(&format!("{folder}/{MANIFEST}"))?;
            }
            self.forget(&name)?;
        }
        Ok(())
    }

    /// Deletes an object that this run has put there.
    fn forget(&mut self, name: &str) -> Result<()> {
        if self.known.contains_key(name) {
            self.remote.delete(name)?;
            self.known.remove(name);
        }
        Ok(())
    }

    /// All files of the folder that belong into the bucket.
    fn files(&self) -> Result<BTreeMap<String, Stamp>> {
        let mut files = BTreeMap::new();
        for path in fs::files_below(&self.folder)? {
            let name = path.strip_prefix(&self.folder).ok().and_then(Path::to_str);
            // One that is deleted just now is none.
            if let Some(name) = name.filter(|name| is_kept(name))
                && let (Ok(bytes), Ok(modified)) = (fs::len_bytes(&path), fs::modified(&path))
            {
                files.insert(name.to_string(), (bytes, modified));
            }
        }
        Ok(files)
    }
}

/// Whether a file of a run folder belongs into the bucket: not shards, which are made again, nor what probes
/// leave. Of a run with several seeds each has a folder.
pub fn is_kept(name: &str) -> bool {
    let own = match name.split_once('/') {
        Some((seed, rest)) if seed.starts_with("seed-") => rest,
        _ => name,
    };
    match own.split_once('/') {
        None => true,
        Some((folder, _)) => {
            ["final", "runs"].contains(&folder)
                || ["checkpoint-", "diverged-"].iter().any(|start| folder.starts_with(start))
        }
    }
}

/// Returns true if `folder` is a checkpoint and the bucket has no complete one that followed it, because saving is
/// faster than uploading: without `folder`, a machine that is lost now would leave no checkpoint at all. `here` are
/// the files of the run, `known` those in the bucket.
fn is_last_resort(folder: &str, here: &BTreeMap<String, Stamp>, known: &BTreeMap<String, Stamp>) -> bool {
    let Some((above, _)) = folder.rsplit_once("checkpoint-") else { return false };
    // A follower without a manifest was being deleted while the files were listed.
    let mut has_followers = false;
    for (name, stamp) in here {
        let Some(file) = file_in_checkpoint(name, above) else { continue };
        if file == MANIFEST && known.get(name) == Some(stamp) {
            return false;
        }
        has_followers = true;
    }
    has_followers
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
mod tests {
    use super::*;

    #[test]
    fn the_last_complete_checkpoint_stays_until_a_later_one_is_uploaded() {
        let stamp = (1, SystemTime::UNIX_EPOCH);
        let files = |names: &[&str]| names.iter().map(|name| (name.to_string(), stamp)).collect();
        let is_last =
            |folder: &str, here: &[&str], known: &[&str]| is_last_resort(folder, &files(here), &files(known));
        let old = "checkpoint-1/manifest.json";
        let next = "checkpoint-2/manifest.json";
        assert!(is_last("checkpoint-1", &[next], &[old]), "the next one is on its way");
        assert!(!is_last("checkpoint-1", &[next], &[old, next]), "the next one is in the bucket");
        assert!(
            is_last("checkpoint-1", &["checkpoint-2/model.safetensors"], &[old]),
            "the next one is being deleted"
        );
        assert!(is_last("checkpoint-1", &["checkpoint-2/generator/manifest.json"], &[old]));
        assert!(!is_last("final", &[next], &[old]), "not a checkpoint");
        let other_seed = "seed-2/checkpoint-9/manifest.json";
        assert!(!is_last("seed-1/checkpoint-1", &[other_seed], &["seed-1/checkpoint-1/manifest.json"]));
    }
}
