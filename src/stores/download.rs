//! Downloads one object to the disk. A download continues where an earlier attempt stopped, and never mixes
//! two versions.

use std::cell::Cell;
use std::io::{Read, Write};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use futures_util::StreamExt;
use md5::{Digest, Md5};
use object_store::{Error, GetOptions, GetRange, ObjectMeta};

use crate::address::Address;
use crate::failure::explained;
use base::error::Problem;
use base::fs;
use base::fs::File;

/// Number of attempts without any new byte, after which a download fails.
const ATTEMPTS: u32 = 5;

/// Reason why a download failed.
pub(super) enum Broken {
    /// The object was replaced during the download.
    Changed,
    Failed(anyhow::Error),
}

impl From<anyhow::Error> for Broken {
    fn from(error: anyhow::Error) -> Self {
        Self::Failed(error)
    }
}

/// Returns true if the store distinguishes versions of the object, by a tag or by a modification time.
pub(super) fn is_versioned(meta: &ObjectMeta) -> bool {
    meta.e_tag.is_some() || meta.last_modified.timestamp() > 0
}

/// Downloads an object to `part`, checks its size and, if the store has one, its checksum, and syncs the
/// file. Bytes that are in `part` already are of the same version. `got` is called with the number of new
/// bytes.
pub(super) async fn download(
    address: &Address,
    meta: &ObjectMeta,
    part: &Path,
    got: &dyn Fn(u64),
) -> Result<(), Broken> {
    let shown = address.shown_of(&meta.location);
    let mut file = fs::append(part)?;
    if !is_versioned(meta) || fs::len_bytes(part)? > meta.size {
        empty(&file, part)?;
    }
    // Bytes that are downloaded twice are reported once.
    let reported = Cell::new(fs::len_bytes(part)?);
    let mut best = reported.get();
    let mut failures = 0;
    let mut sums = Vec::new();
    loop {
        let (result, sum) = fill(address, meta, part, &mut file, &|have| {
            got(have.saturating_sub(reported.get()));
            reported.set(have.max(reported.get()));
        })
        .await;
        let have = fs::len_bytes(part)?;
        let error = match result {
            Ok(()) if have == meta.size => {
                match expected_md5(address, meta).filter(|wanted| *wanted != sum) {
                    // The tag of an object that the store encrypts with its own key is not the checksum of
                    // its bytes: the same bytes twice are accepted.
                    Some(_) if !sums.contains(&sum) => {
                        sums.push(sum);
                        empty(&file, part)?;
                        Problem::new("what came has another checksum than the store says")
                            .at(&shown)
                            .hint("try again; if it stays, the object or the way to it is damaged")
                            .into()
                    }
                    Some(_) => {
                        address.unsure.add(&shown);
                        break;
                    }
                    None => break,
                }
            }
            Ok(()) => Problem::new(format!("ends after {have} bytes, the store says {}", meta.size))
                .at(&shown)
                .hint("see to the network and the store; the same command goes on where this one stopped")
                .into(),
            Err(Broken::Changed) => return Err(Broken::Changed),
            Err(Broken::Failed(error)) => error,
        };
        failures = if have > best { 0 } else { failures + 1 };
        best = best.max(have);
        if failures >= ATTEMPTS || is_final(&error) {
            return Err(Broken::Failed(error));
        }
        if !is_versioned(meta) {
            empty(&file, part)?;
        }
        tokio::time::sleep(Duration::from_millis(100 << (2 * failures))).await;
    }
    file.sync_all().with_context(|| format!("cannot write `{}`", part.display()))?;
    Ok(())
}

/// Returns true if another attempt cannot help: after an error of the disk or a refusal.
fn is_final(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.downcast_ref::<Refused>().is_some_and(|refused| refused.0) || cause.is::<std::io::Error>()
    })
}

/// A failed request, and true if another request must fail, too.
#[derive(Debug, thiserror::Error)]
#[error("{1}")]
struct Refused(bool, Problem);

/// Sends one request for the missing bytes, and appends those that arrive. The second value is the MD5 of the
/// whole file; empty if the store has no checksum.
async fn fill(
    address: &Address,
    meta: &ObjectMeta,
    part: &Path,
    file: &mut File,
    have: &dyn Fn(u64),
) -> (Result<(), Broken>, Vec<u8>) {
    let mut sum = expected_md5(address, meta).map(|_| Md5::new());
    let filled = fill_and_sum(address, meta, part, file, have, &mut sum).await;
    (filled, sum.map(|sum| sum.finalize().to_vec()).unwrap_or_default())
}

async fn fill_and_sum(
    address: &Address,
    meta: &ObjectMeta,
    part: &Path,
    file: &mut File,
    have: &dyn Fn(u64),
    sum: &mut Option<Md5>,
) -> Result<(), Broken> {
    let shown = address.shown_of(&meta.location);
    let mut start = fs::len_bytes(part)?;
    if start >= meta.size {
        return Ok(read_into(part, sum)?);
    }
    let answer = match address.store.get_opts(&meta.location, request_from(start, meta)).await {
        // A server that does not send ranges sends the whole object.
        Err(Error::NotSupported { .. }) if start > 0 => {
            empty(file, part)?;
            start = 0;
            address.store.get_opts(&meta.location, request_from(0, meta)).await
        }
        other => other,
    };
    let answer = match answer {
        Err(Error::Precondition { .. } | Error::NotFound { .. }) => return Err(Broken::Changed),
        Err(e) => {
            let is_final = matches!(e, Error::PermissionDenied { .. } | Error::Unauthenticated { .. });
            return Err(Broken::Failed(Refused(is_final, explained(&e, &shown)).into()));
        }
        Ok(answer) => answer,
    };
    let is_same = (&answer.meta.e_tag, answer.meta.last_modified, answer.meta.size)
        == (&meta.e_tag, meta.last_modified, meta.size);
    // The listings of some stores have times with fewer digits than their answers have.
    if !is_same && (meta.e_tag.is_none() || answer.meta.e_tag != meta.e_tag || answer.meta.size != meta.size)
    {
        return Err(Broken::Changed);
    }
    if start > 0 {
        read_into(part, sum)?;
    }
    let mut stream = answer.into_stream();
    while let Some(bytes) = stream.next().await {
        let bytes = bytes.map_err(|e| anyhow::Error::from(Refused(false, explained(&e, &shown))))?;
        // A server that sends more than it announced could fill the disk.
        if start + bytes.len() as u64 > meta.size {
            return Err(Broken::Changed);
        }
        file.write_all(&bytes).with_context(|| format!("cannot write `{}`", part.display()))?;
        if let Some(sum) = sum.as_mut() {
            sum.update(&bytes);
        }
        start += bytes.len() as u64;
        have(start);
    }
    Ok(())
}

/// A request for this version of an object, from byte `start` on.
fn request_from(start: u64, meta: &ObjectMeta) -> GetOptions {
    let range = (start > 0).then_some(GetRange::Bounded(start..meta.size));
    GetOptions { range, if_match: meta.e_tag.clone(), ..GetOptions::default() }
}

/// Adds the content of `part` to a checksum.
fn read_into(part: &Path, sum: &mut Option<Md5>) -> Result<()> {
    let Some(sum) = sum else { return Ok(()) };
    let mut file = fs::open(part)?;
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer).with_context(|| format!("cannot read `{}`", part.display()))? {
            0 => return Ok(()),
            count => sum.update(&buffer[..count]),
        }
    }
}

fn empty(file: &File, part: &Path) -> Result<()> {
    file.set_len(0).with_context(|| format!("cannot write `{}`", part.display()))
}

/// The MD5 of an object: its tag in S3, unless it was uploaded in parts.
fn expected_md5(address: &Address, meta: &ObjectMeta) -> Option<Vec<u8>> {
    let tag = meta.e_tag.as_deref().filter(|_| address.scheme == "s3")?.trim_matches('"').as_bytes();
    let bytes = tag.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok());
    bytes.collect::<Option<Vec<u8>>>().filter(|sum| sum.len() == 16)
}
