//! Objects that came twice with the same bytes, and not with the checksum that their tag says. So it is with those that
//! a store encrypts by a key of its own, whose tags are no checksums.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::PoisonError;

/// The names of such objects, of one store.
#[derive(Debug, Default)]
pub(super) struct Unsure(Mutex<BTreeSet<String>>);

impl Unsure {
    pub(super) fn add(&self, name: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_string());
    }

    /// What to tell of them, if there are any.
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
