//! Shards that lie in a bucket and come here when they are wanted; a few of them stay.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;

use anyhow::Result;

use crate::fs;
use crate::shards::ShardEntry;
use crate::shards::held::Held;
use crate::stores;

/// How many are open at once when nothing else is said: a run that touches all of them keeps all.
const ALL: usize = usize::MAX;

/// The shards that are here, the first to come first.
#[derive(Debug)]
pub(super) struct Shelf {
    most: usize,
    here: Mutex<VecDeque<Arc<Slot>>>,
}

/// A shard that may be here.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) path: PathBuf,
    entry: ShardEntry,
    held: Mutex<Option<Arc<Held>>>,
}

impl Slot {
    pub(super) fn new(path: PathBuf, entry: ShardEntry) -> Arc<Self> {
        Arc::new(Self { path, entry, held: Mutex::new(None) })
    }
}

impl Shelf {
    /// Room for `most` shards, or for all.
    pub(super) fn new(most: Option<usize>) -> Self {
        Self { most: most.unwrap_or(ALL), here: Mutex::new(VecDeque::new()) }
    }

    /// The shard of a slot: brought here and compared with the manifest where that was not done yet. What
    /// came first goes when there are too many.
    pub(super) fn held(&self, slot: &Arc<Slot>) -> Result<Arc<Held>> {
        let held = {
            // Whoever wants the same shard meanwhile waits for this one.
            let mut place = locked(&slot.held);
            if let Some(held) = &*place {
                return Ok(Arc::clone(held));
            }
            if !fs::exists(&slot.path) {
                stores::bring(std::slice::from_ref(&slot.path))?;
            }
            let held = Arc::new(Held::open(&slot.path, &slot.entry)?);
            *place = Some(Arc::clone(&held));
            held
        };
        locked(&self.here).push_back(Arc::clone(slot));
        self.let_go(self.most)?;
        Ok(held)
    }

    /// Lets those go that came first, until there are at most `most`.
    fn let_go(&self, most: usize) -> Result<()> {
        let mut here = locked(&self.here);
        while here.len() > most {
            let Some(first) = here.pop_front() else { break };
            *locked(&first.held) = None;
            stores::release(&first.path)?;
        }
        Ok(())
    }

    /// Brings several here, at once.
    pub(super) fn bring(&self, slots: &[Arc<Slot>]) -> Result<()> {
        let missing: Vec<PathBuf> =
            slots.iter().map(|slot| slot.path.clone()).filter(|path| !fs::exists(path)).collect();
        if !missing.is_empty() {
            // First, so that their room can be taken.
            self.let_go(self.most.saturating_sub(missing.len()))?;
            stores::bring(&missing)?;
        }
        slots.iter().try_for_each(|slot| self.held(slot).map(drop))
    }
}

/// A panic of another thread leaves nothing half done here.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
