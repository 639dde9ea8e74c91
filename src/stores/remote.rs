//! A run folder in a bucket: finds out which of its folders are complete, and reads, writes and deletes
//! objects.
//!
//! A folder with a manifest is complete if the manifest exists: it is written last and deleted first.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result};
use futures_util::TryStreamExt;
use object_store::path::Path as Key;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, WriteMultipart};
use serde_json::Value;

use crate::address::Address;
use crate::download::{Broken, download};
use crate::failure::explained;
use crate::runtime;
use base::error::Problem;
use base::fs;

/// File that is written last in a complete folder.
pub(super) const MANIFEST: &str = "manifest.json";

/// The most bytes that are read of a small object: a claim, a manifest or a configuration.
const MOST_READ_BYTES: usize = 64 << 20;

/// Size of the parts in which larger files are uploaded.
const PART_BYTES: usize = 16 << 20;

/// Number of parts that are uploaded at the same time.
const PARTS_AT_ONCE: usize = 4;

/// All objects of a folder, by their paths below it.
pub type Objects = BTreeMap<String, ObjectMeta>;

/// A folder in a bucket.
pub struct Remote {
    address: Address,
}

impl Remote {
    /// The folder that `url` names. It need not exist yet.
    pub fn open(url: &str) -> Result<Self> {
        Ok(Self { address: Address::parse(url)? })
    }

    /// URL of the folder, for messages.
    pub fn shown(&self) -> &str {
        &self.address.shown
    }

    /// A note about the objects that listings left out; `None` if all were listed.
    pub fn left_out(&self) -> Option<String> {
        let left_out = &self.address.left_out;
        (!left_out.is_empty()).then(|| format!("{}: {left_out}", self.shown()))
    }

    /// All objects, by their paths below the folder.
    pub fn objects(&self) -> Result<Objects> {
        let all = runtime::block_on(self.address.below(self.prefix()))?;
        let all = all.map_err(|e| explained(&e, self.shown()))?.into_iter();
        let objects = all.filter_map(|meta| {
            let name =
                meta.location.as_ref().strip_prefix(self.prefix())?.trim_start_matches('/').to_string();
            Some((name, meta))
        });
        Ok(objects.collect())
    }

    /// Returns true if all files that the manifest of `folder` names are among `objects`.
    pub fn is_complete(&self, folder: &str, objects: &Objects) -> Result<bool> {
        let manifest = self.read(&format!("{folder}/{MANIFEST}"))?;
        Ok(manifest.is_some_and(|manifest| is_complete(folder, &manifest, objects)))
    }

    /// Reads a small object; `None` if it does not exist, or is larger than any object that mlmtrain reads
    /// this way.
    pub fn read(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let key = self.key(name)?;
        let read = async {
            match self.address.store.get(&key).await {
                Err(object_store::Error::NotFound { .. }) => Ok(None),
                Err(e) => Err(e),
                // The size that a store reports may be wrong, so the bytes are counted.
                Ok(got) => {
                    let mut bytes = Vec::new();
                    let mut stream = got.into_stream();
                    while let Some(piece) = stream.try_next().await? {
                        bytes.extend_from_slice(&piece);
                        if bytes.len() > MOST_READ_BYTES {
                            return Ok(None);
                        }
                    }
                    Ok(Some(bytes))
                }
            }
        };
        Ok(runtime::block_on(read)?.map_err(|e| explained(&e, &self.address.shown_of(&key)))?)
    }

    /// Downloads an object to `path` and syncs the file. `got` is called with the number of new bytes.
    pub fn fetch(&self, meta: &ObjectMeta, path: &Path, got: &dyn Fn(u64)) -> Result<()> {
        fs::create_folder(&fs::parent_of(path))?;
        runtime::block_on(download(&self.address, meta, path, got))?.map_err(|broken| match broken {
            Broken::Failed(error) => error,
            Broken::Changed => Problem::new("was replaced while it was read")
                .at(self.address.shown_of(&meta.location))
                .hint("does another run upload to the same place?")
                .into(),
        })
    }

    /// Writes an object with the content of `file`.
    pub(super) fn put(&self, name: &str, file: &mut impl Read) -> Result<()> {
        let key = self.key(name)?;
        let shown = self.address.shown_of(&key);
        let put = async {
            let mut bytes = next_part(file, name)?;
            if bytes.len() < PART_BYTES {
                self.address.store.put(&key, bytes.into()).await.map_err(|e| explained(&e, &shown))?;
                return Ok(());
            }
            let parts = self.address.store.put_multipart(&key).await.map_err(|e| explained(&e, &shown))?;
            let mut parts = WriteMultipart::new_with_chunk_size(parts, PART_BYTES);
            while !bytes.is_empty() {
                parts.wait_for_capacity(PARTS_AT_ONCE).await.map_err(|e| explained(&e, &shown))?;
                parts.put(bytes.into());
                bytes = next_part(file, name)?;
            }
            parts.finish().await.map_err(|e| explained(&e, &shown))?;
            anyhow::Ok(())
        };
        runtime::block_on(put)?
    }

    /// Writes a small object if no object has its name, and returns false if one has. A store that does not
    /// support this condition replaces the object.
    pub(super) fn put_new(&self, name: &str, bytes: &[u8]) -> Result<bool> {
        let key = self.key(name)?;
        let only_new = self.address.store.put_opts(&key, bytes.to_vec().into(), PutMode::Create.into());
        match runtime::block_on(only_new)? {
            Ok(_) => Ok(true),
            Err(object_store::Error::AlreadyExists { .. }) => Ok(false),
            Err(e) if is_unknown_request(&e) => self.put(name, &mut &*bytes).map(|()| true),
            Err(e) => Err(explained(&e, &self.address.shown_of(&key)).into()),
        }
    }

    /// Deletes an object; a missing object is not an error.
    pub(super) fn delete(&self, name: &str) -> Result<()> {
        let key = self.key(name)?;
        match runtime::block_on(self.address.store.delete(&key))? {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(e) => Err(explained(&e, &self.address.shown_of(&key)).into()),
        }
    }

    fn prefix(&self) -> &str {
        self.address.key.trim_end_matches('/')
    }

    fn key(&self, name: &str) -> Result<Key> {
        let name = format!("{}/{name}", self.prefix());
        Key::parse(name.trim_start_matches('/'))
            .with_context(|| format!("`{name}` cannot be the name of an object"))
    }
}

/// Reads the next part of a file; empty at its end.
fn next_part(file: &mut impl Read, name: &str) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = file.take(PART_BYTES as u64).read_to_end(&mut bytes);
    read.with_context(|| format!("cannot read `{name}`"))?;
    Ok(bytes)
}

/// Returns true for the answer of a store that does not know a kind of request (501).
fn is_unknown_request(error: &object_store::Error) -> bool {
    matches!(error, object_store::Error::NotImplemented { .. })
        || error.to_string().contains("501 Not Implemented")
}

/// Returns true if all files that the manifest of `folder` names are among `files`.
pub(super) fn is_complete<V>(folder: &str, manifest: &[u8], files: &BTreeMap<String, V>) -> bool {
    let manifest: Value = serde_json::from_slice(manifest).unwrap_or_default();
    let names =
        manifest["files"].as_array().map(|files| files.iter().filter_map(|file| file["name"].as_str()));
    names.is_some_and(|mut names| names.all(|name| files.contains_key(&format!("{folder}/{name}"))))
}

/// The folder above a checkpoint's folder, and its step; `None` if `folder` is not a checkpoint.
pub fn checkpoint_of(folder: &str) -> Option<(&str, u64)> {
    let (above, name) = folder.rsplit_once('/').unwrap_or(("", folder));
    Some((above, name.strip_prefix("checkpoint-")?.parse().ok()?))
}

/// The name of a file within the folder of its seed, if a run has several, else within the folder of the run.
pub fn name_in_seed(name: &str) -> &str {
    match name.split_once('/') {
        Some((seed, rest)) if seed.starts_with("seed-") => rest,
        _ => name,
    }
}

/// The outermost folder above a file that has a manifest among `files`; `None` if there is no such folder.
pub fn sealed_folder<'a, V>(name: &'a str, files: &BTreeMap<String, V>) -> Option<&'a str> {
    let ends = name.match_indices('/').map(|(at, _)| &name[..at]);
    ends.into_iter().find(|folder| files.contains_key(&format!("{folder}/{MANIFEST}")))
}

#[cfg(test)]
impl Remote {
    /// A folder of a bucket in the memory of this process.
    pub(super) fn in_memory() -> Self {
        let address = Address {
            store: std::sync::Arc::new(object_store::memory::InMemory::new()),
            scheme: "s3",
            place: "bucket".to_string(),
            key: "run".to_string(),
            query_hash: String::new(),
            shown: "s3://bucket/run".to_string(),
            left_out: crate::listing::LeftOut::default(),
            unsure: crate::unsure::Unsure::default(),
        };
        Self { address }
    }
}
