//! The caches that this process has open. Each is opened once and stays open until the process ends, so that
//! no other process deletes objects in use.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;

use crate::Cache;
use base::error::Problem;
use base::fs;

static OPEN: Mutex<BTreeMap<PathBuf, Arc<Cache>>> = Mutex::new(BTreeMap::new());

/// The cache in `folder`. If it is not open yet, opens it with this limit.
pub fn cache(folder: &Path, max_bytes: u64) -> Result<Arc<Cache>> {
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(cache) = open.get(folder) {
        return Ok(Arc::clone(cache));
    }
    let cache = Arc::new(Cache::open(folder, max_bytes)?);
    open.insert(folder.to_path_buf(), Arc::clone(&cache));
    Ok(cache)
}

/// Returns true if a cache of this process returned this path or a folder above it. If the file is missing,
/// [`bring`] can download it.
pub fn is_distant(path: &Path) -> bool {
    cache_of(path).is_some()
}

/// Downloads the objects of these paths, which belong to one cache.
pub fn bring(paths: &[PathBuf]) -> Result<()> {
    let Some(first) = paths.first() else { return Ok(()) };
    let cache = cache_of(first)
        .ok_or_else(|| Problem::new("is not there, and is of no bucket").at(first.display()))?;
    let urls: Vec<String> = paths.iter().filter_map(|path| cache.url_of(path)).collect();
    cache.stage(&urls, &[], &|_| ()).map(drop)
}

/// Marks the object at this path as no longer in use: the cache deletes it when it needs the room.
pub fn release(path: &Path) -> Result<()> {
    if is_distant(path) { fs::remove_file(path) } else { Ok(()) }
}

fn cache_of(path: &Path) -> Option<Arc<Cache>> {
    let open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    open.values().find(|cache| cache.url_of(path).is_some()).map(Arc::clone)
}
