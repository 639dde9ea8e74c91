//! Shards in a bucket, which are downloaded when they are needed. A limited number of them stays on this
//! disk.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Result;

use crate::shards::ShardEntry;
use crate::shards::held::OpenShard;
use base::fs;

/// Limit if no other is set: a run that reads all shards keeps all of them.
const ALL: usize = usize::MAX;

/// The shards that are on this disk, in the order in which they were opened.
#[derive(Debug)]
pub(super) struct ShardCache {
    most: usize,
    here: Mutex<VecDeque<Arc<DistantShard>>>,
}

/// A shard that may be on this disk.
#[derive(Debug)]
pub(super) struct DistantShard {
    pub(super) path: PathBuf,
    entry: ShardEntry,
    open: Mutex<Option<Arc<OpenShard>>>,
}

impl DistantShard {
    pub(super) fn new(path: PathBuf, entry: ShardEntry) -> Arc<Self> {
        Arc::new(Self { path, entry, open: Mutex::new(None) })
    }
}

impl ShardCache {
    /// A cache of at most `most` shards, or of all.
    pub(super) fn new(most: Option<usize>) -> Self {
        Self { most: most.unwrap_or(ALL), here: Mutex::new(VecDeque::new()) }
    }

    /// Opens a shard. If it is not open yet, it is downloaded and compared with the manifest. If there are
    /// too many shards then, those that came first are released.
    pub(super) fn open(&self, shard: &Arc<DistantShard>) -> Result<Arc<OpenShard>> {
        let opened = {
            // Other readers of the same shard wait here until it is open.
            let mut place = locked(&shard.open);
            if let Some(open) = &*place {
                return Ok(Arc::clone(open));
            }
            if !fs::exists(&shard.path) {
                stores::bring(std::slice::from_ref(&shard.path))?;
            }
            let open = Arc::new(OpenShard::open(&shard.path, &shard.entry)?);
            *place = Some(Arc::clone(&open));
            open
        };
        locked(&self.here).push_back(Arc::clone(shard));
        self.release(self.most)?;
        Ok(opened)
    }

    /// Releases the shards that came first, until at most `most` are left.
    fn release(&self, most: usize) -> Result<()> {
        let mut here = locked(&self.here);
        while here.len() > most {
            let Some(first) = here.pop_front() else { break };
            *locked(&first.open) = None;
            stores::release(&first.path)?;
        }
        Ok(())
    }

    /// Downloads several shards at the same time, and opens them.
    pub(super) fn bring(&self, shards: &[Arc<DistantShard>]) -> Result<()> {
        let missing: Vec<PathBuf> =
            shards.iter().map(|shard| shard.path.clone()).filter(|path| !fs::exists(path)).collect();
        if !missing.is_empty() {
            // Other shards are released first, so that their space can be used.
            self.release(self.most.saturating_sub(missing.len()))?;
            stores::bring(&missing)?;
        }
        shards.iter().try_for_each(|shard| self.open(shard).map(drop))
    }
}

/// Locks a mutex. A panic in another thread leaves no half-done change in these mutexes.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
