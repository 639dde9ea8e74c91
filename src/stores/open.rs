//! The caches that this process has open, each once and to its end: what is in use must not be deleted by
//! another process.

use std::collections::BTreeMap;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;

use anyhow::Result;

use crate::error::Problem;
use crate::fs;
use crate::stores::Cache;

static OPEN: Mutex<BTreeMap<PathBuf, Arc<Cache>>> = Mutex::new(BTreeMap::new());

/// The cache in `folder`; opened with this limit where it is not open yet.
pub fn cache(folder: &Path, max_bytes: u64) -> Result<Arc<Cache>> {
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(cache) = open.get(folder) {
        return Ok(Arc::clone(cache));
    }
    let cache = Arc::new(Cache::open(folder, max_bytes)?);
    open.insert(folder.to_path_buf(), Arc::clone(&cache));
    Ok(cache)
}

/// Whether a path is one that a cache of this process gave, or lies in a folder that it gave: what is not
/// there can be brought.
pub fn is_distant(path: &Path) -> bool {
    cache_of(path).is_some()
}

/// Brings what belongs at these paths of one cache.
pub fn bring(paths: &[PathBuf]) -> Result<()> {
    let Some(first) = paths.first() else { return Ok(()) };
    let of_no_bucket = || Problem::new("is not there, and is of no bucket").at(first.display());
    let cache = cache_of(first).ok_or_else(of_no_bucket)?;
    let urls: Vec<String> = paths.iter().filter_map(|path| cache.url_of(path)).collect();
    cache.stage(&urls, &[], &|_| ()).map(drop)
}

/// What lies at this path is not in use any more: it goes when its room is needed.
pub fn release(path: &Path) -> Result<()> {
    if is_distant(path) { fs::remove_file(path) } else { Ok(()) }
}

fn cache_of(path: &Path) -> Option<Arc<Cache>> {
    let open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    open.values().find(|cache| cache.url_of(path).is_some()).map(Arc::clone)
}
