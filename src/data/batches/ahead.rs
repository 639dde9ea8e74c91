//! Values that a consumer of a batch computes in advance, such as plans for a device and copies on it.
//!
//! A batch only carries such a value from the thread that made the batch to the thread that trains on it,
//! without knowing its type.

use std::any::Any;
use std::fmt;

/// An optional value of any type. It is not a part of the batch's content: it is not compared, saved or
/// copied.
#[derive(Default)]
pub struct Ahead(Option<Box<dyn Any + Send + Sync>>);

impl Ahead {
    /// Stores `thing`, replacing an earlier value.
    pub fn set<T: Any + Send + Sync>(&mut self, thing: T) {
        self.0 = Some(Box::new(thing));
    }

    /// Returns the stored value if it has this type.
    pub fn get<T: Any>(&self) -> Option<&T> {
        self.0.as_deref()?.downcast_ref()
    }

    /// Drops the stored value.
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
