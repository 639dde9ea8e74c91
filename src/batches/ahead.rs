//! What is worked out of a batch before its step, by whoever computes with it: plans for a device, copies
//! there.
//!
//! A batch only carries it, from the thread that made the batch to the one that trains on it; it knows not
//! what it is.

use std::any::Any;
use std::fmt;

/// One thing of any type, or nothing. No part of what a batch is: it is not compared, saved or copied.
#[derive(Default)]
pub struct Ahead(Option<Box<dyn Any + Send + Sync>>);

impl Ahead {
    /// Puts something in the place of what was there.
    pub fn set<T: Any + Send + Sync>(&mut self, thing: T) {
        self.0 = Some(Box::new(thing));
    }

    /// What is there, if it is of this type.
    pub fn get<T: Any>(&self) -> Option<&T> {
        self.0.as_deref()?.downcast_ref()
    }

    /// Drops what is there.
    pub fn clear(&mut self) {
        self.0 = None;
    }
}

impl Clone for Ahead {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl PartialEq for Ahead {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Ahead {}

impl fmt::Debug for Ahead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "something" } else { "nothing" })
    }
}
