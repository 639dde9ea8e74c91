//! The claim of a process on a folder of a bucket: an object that names the process that uploads there.
//!
//! A process claims the folder before it uploads anything, and checks before each checkpoint that it still
//! has the claim. If two processes find no claim, the store lets only one of them write it. An existing claim
//! may be that of a lost machine, so a later process takes it over. An earlier process that still runs
//! notices this before its next checkpoint and stops uploading, so that the files of two runs do not mix.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use chrono::DateTime;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::remote::Remote;
use base::error::Problem;
use base::fs;

/// The object that holds the claim.
pub(super) const CLAIM: &str = "claim.json";

/// A process that uploads a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Claim {
    /// Id that is different for each process that ever claims a folder.
    id: String,
    host: String,
    /// Time of the claim, in the format of RFC 3339.
    since: String,
    /// The configuration of its run.
    pub config: Value,
}

impl Claim {
    /// The claim of this process, for a run with this configuration.
    pub fn new(config: Value) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let host = fs::host_name().unwrap_or_default();
        let unique = format!("{host} {} {}", std::process::id(), now.as_nanos());
        let since = DateTime::from_timestamp(now.as_secs() as i64, 0).unwrap_or_default().to_rfc3339();
        Self { id: fs::sha256_of(&[unique.as_bytes()]), host, since, config }
    }

    /// Reads the claim in a bucket; `None` without a readable one.
    ///
    /// # Errors
    /// Returns an error if the store gives no answer.
    pub fn read(remote: &Remote) -> Result<Option<Self>> {
        let bytes = remote.read(CLAIM)?;
        Ok(bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
    }

    /// Writes the claim. It replaces `seen`, the claim that was there when the bucket was first read.
    ///
    /// # Errors
    /// Returns an error if the store refuses, or if another process has claimed the folder since.
    pub(super) fn take(&self, remote: &Remote, seen: Option<&Self>) -> Result<()> {
        let bytes = serde_json::to_vec_pretty(self)?;
        match (Self::read(remote)?, seen) {
            (Some(now), Some(seen)) if now.id == seen.id => remote.put(CLAIM, &mut bytes.as_slice()),
            (Some(now), _) => Err(now.in_the_way(remote).into()),
            (None, _) if remote.put_new(CLAIM, &bytes)? => Ok(()),
            // The claim may be that of this process, if the answer to a first attempt was lost.
            (None, _) => match self.taken_by(remote)? {
                Some(other) => Err(other.in_the_way(remote).into()),
                None => Ok(()),
            },
        }
    }

    /// The claim of another process, if there is one now. If there is no claim any more, writes this one
    /// again.
    pub(super) fn taken_by(&self, remote: &Remote) -> Result<Option<Self>> {
        let now = Self::read(remote)?;
        if now.is_none() {
            remote.put(CLAIM, &mut serde_json::to_vec_pretty(self)?.as_slice())?;
        }
        Ok(now.filter(|now| now.id != self.id))
    }

    /// Deletes the claim if it still is that of this process.
    pub(super) fn release(&self, remote: &Remote) -> Result<()> {
        match Self::read(remote)? {
            Some(now) if now.id == self.id => remote.delete(CLAIM),
            _ => Ok(()),
        }
    }

    /// The error of a process that does not have this claim.
    pub(super) fn in_the_way(&self, remote: &Remote) -> Problem {
        Problem::usage(format!("{self} uploads there: nothing more is uploaded from here"))
            .at(remote.shown())
            .hint("give one of the two another `run.upload_to`; `run.output_dir` has all of this one")
    }
}

impl std::fmt::Display for Claim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let host = if self.host.is_empty() { "an unknown machine" } else { &self.host };
        write!(f, "a run on {} since {}", host.escape_debug(), self.since.escape_debug())
    }
}
