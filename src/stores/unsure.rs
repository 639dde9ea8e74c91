//! Objects that were downloaded twice with the same bytes, which do not match the checksum in their tag.
//! Objects that a store encrypts with its own key are like this: their tags are not checksums.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

/// Names of such objects in one store.
#[derive(Debug, Default)]
pub(super) struct Unsure(Mutex<BTreeSet<String>>);

impl Unsure {
    pub(super) fn add(&self, name: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_string());
    }

    /// A note about these objects, if there are any.
    pub(super) fn note(&self) -> Option<String> {
        let names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let first = names.first()?;
        Some(format!(
            "{first}: the store's tag is not the checksum of what came, twice the same ({} such objects): where the store \
             does not encrypt them by a key of its own, they are damaged there",
            names.len()
        ))
    }
}
