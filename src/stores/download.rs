//! One object onto the disk: in pieces of what comes, on from where an earlier attempt stopped, and never a
//! mixture of two versions.

use std::cell::Cell;
use std::io::Read;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use anyhow::Result;
use futures_util::StreamExt;
use md5::Digest;
use md5::Md5;
use object_store::Error;
use object_store::GetOptions;
use object_store::GetRange;
use object_store::ObjectMeta;

use crate::error::Problem;
use crate::fs;
use crate::fs::File;
use crate::stores::address::Address;
use crate::stores::failure::explained;

/// Attempts that bring nothing new before a download is given up.
const ATTEMPTS: u32 = 5;

/// Why there is no object.
pub(super) enum Broken {
    /// It was replaced while it was read.
    Changed,
    Failed(anyhow::Error),
}

impl From<anyhow::Error> for Broken {
    fn from(error: anyhow::Error) -> Self {
        Self::Failed(error)
    }
}

/// Whether a store says of two versions that they are two.
pub(super) fn is_versioned(meta: &ObjectMeta) -> bool {
    meta.e_tag.is_some() || meta.last_modified.timestamp() > 0
}

/// Brings `part` to the size and, where the store tells it, the checksum of the object, and makes it durable.
/// What lies there already is of the same version. `got` is told how many bytes came.
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
    // What comes twice is told once.
    let told = Cell::new(fs::len_bytes(part)?);
    let (mut best, mut failures, mut sums) = (told.get(), 0, Vec::new());
    loop {
        let (result, sum) = fill(address, meta, part, &mut file, &|have| {
            got(have.saturating_sub(told.get()));
            told.set(have.max(told.get()));
        })
        .await;
        let have = fs::len_bytes(part)?;
        let error = match result {
            Ok(()) if have == meta.size => {
                match sum_of(address, meta).filter(|wanted| *wanted != sum) {
                    // Encrypted by a key of its own, an object has another sum than its bytes: twice the
                    // same is right.
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

/// Neither the disk nor a refusal gets better by asking again.
fn is_final(error: &anyhow::Error) -> bool {
    let refused = |e: &Refused| e.0;
    error.chain().any(|cause| cause.downcast_ref().is_some_and(refused) || cause.is::<std::io::Error>())
}

/// A request that did not work out, and whether another one cannot either.
#[derive(Debug, thiserror::Error)]
#[error("{1}")]
struct Refused(bool, Problem);

/// One request for what is missing: adds what comes. The second value is the checksum of the whole, where
/// the store tells one.
async fn fill(
    address: &Address,
    meta: &ObjectMeta,
    part: &Path,
    file: &mut File,
    have: &dyn Fn(u64),
) -> (Result<(), Broken>, Vec<u8>) {
    let mut sum = sum_of(address, meta).map(|_| Md5::new());
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
    let options = |start: u64| {
        let range = (start > 0).then_some(GetRange::Bounded(start..meta.size));
        GetOptions { range, if_match: meta.e_tag.clone(), ..GetOptions::default() }
    };
    let answer = match address.store.get_opts(&meta.location, options(start)).await {
        // A server that sends no parts sends all of it.
        Err(Error::NotSupported { .. }) if start > 0 => {
            empty(file, part)?;
            start = 0;
            address.store.get_opts(&meta.location, options(0)).await
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
    let same =
        |a: &ObjectMeta| (&a.e_tag, a.last_modified, a.size) == (&meta.e_tag, meta.last_modified, meta.size);
    // Listings of some stores know fewer digits of the time than answers do.
    if !same(&answer.meta)
        && (meta.e_tag.is_none() || answer.meta.e_tag != meta.e_tag || answer.meta.size != meta.size)
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

fn read_into(part: &Path, sum: &mut Option<Md5>) -> Result<()> {
    let Some(sum) = sum else { return Ok(()) };
    let (mut file, mut buffer) = (fs::open(part)?, vec![0; 1 << 20]);
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

/// The MD5 of an object: S3's tag, where it was not put together from parts.
fn sum_of(address: &Address, meta: &ObjectMeta) -> Option<Vec<u8>> {
    let tag = meta.e_tag.as_deref().filter(|_| address.scheme == "s3")?.trim_matches('"').as_bytes();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    tag.chunks(2).map(byte).collect::<Option<Vec<u8>>>().filter(|sum| sum.len() == 16)
}
