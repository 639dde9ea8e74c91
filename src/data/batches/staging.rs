//! Allocation and reuse of the host arrays of batches.
//!
//! This is the interface for GPUs: a build that copies batches to a device page-locks the arrays of a batch
//! when it is made, which pays off because the same arrays are reused.

use std::sync::{Arc, Mutex, PoisonError};

use crate::batches::Batch;

/// Computes something from a batch, on the thread that made the batch, and stores it in [`Batch::ahead`].
pub type Planner = Arc<dyn Fn(&mut Batch) + Send + Sync>;

/// Hands out empty batches with reserved memory and takes back used ones.
pub trait Staging: Send + Sync {
    /// Returns an empty batch whose token arrays have capacity for `tokens`.
    fn take(&self, tokens: usize) -> Batch;

    /// Called with a batch that was just made, by the thread that made it.
    fn made(&self, _batch: &mut Batch) {}

    /// Takes back a batch that is no longer needed.
    fn give_back(&self, batch: Batch);
}

/// Plain memory that is reused.
#[derive(Default)]
pub struct HostMemory {
    spare: Mutex<Vec<Batch>>,
    planner: Option<Planner>,
}

impl HostMemory {
    /// Memory whose batches are processed in advance by `planner`, if there is one.
    pub fn planned(planner: Option<Planner>) -> Self {
        Self { planner, ..Self::default() }
    }
}

impl Staging for HostMemory {
    fn take(&self, tokens: usize) -> Batch {
        // A thread that panicked cannot have left a broken list: the list is only pushed to and popped from.
        let mut batch = self.spare.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default();
        batch.clear();
        batch.reserve(tokens);
        batch
    }

    fn made(&self, batch: &mut Batch) {
        if let Some(planner) = &self.planner {
            planner(batch);
        }
    }

    fn give_back(&self, mut batch: Batch) {
        // Cleared here and not when the memory is reused: copies on a device are dropped by the thread that
        // used them.
        batch.ahead.clear();
        self.spare.lock().unwrap_or_else(PoisonError::into_inner).push(batch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_come_back_empty_and_in_place() {
        let memory = HostMemory::default();
        let mut batch = memory.take(100);
        batch.ids.extend(0..100);
        batch.sample_ids.push(7);
        let address = batch.ids.as_ptr();
        memory.give_back(batch);
        let again = memory.take(50);
        assert_eq!((again.ids.as_ptr(), &again), (address, &Batch::default()));
        assert!(again.ids.capacity() >= 100 && again.token_keys.capacity() >= 100);
        assert_eq!(memory.take(1).ids.capacity().min(1), 1);
    }
}
