//! Whole numbers that ops read: ids, positions, labels, segment bounds, dropout keys.
//!
//! They are made on the host, where they are checked and where the CPU's code reads them. For a GPU all of a
//! batch are uploaded at once, together with what its kernels want to know of them beforehand; whoever does
//! not do so (a test, say) passes a plain slice, and each op uploads it for itself.

use std::ops::Deref;

use crate::ops::attention::Tiles;
use crate::ops::cuda::Array;
use crate::ops::cuda::scatter::Scatter;

/// A slice on the host and its copy on the GPU, if there is one. Made by `into()` from a slice alone.
#[derive(Debug)]
pub struct Indices<'a, T = u32> {
    host: &'a [T],
    uploaded: Option<&'a Uploaded>,
}

/// The copy on the GPU.
#[derive(Debug, Clone)]
pub struct Uploaded {
    /// The same numbers.
    pub numbers: Array,
    /// What a kernel wants to know of them; which one it is, is the business of the op that takes them.
    pub plan: Option<Plan>,
}

/// What was worked out on the host for a kernel.
#[derive(Debug, Clone)]
pub enum Plan {
    /// For ids whose rows are added up.
    Scatter(Scatter),
    /// For the bounds of segments: what each block of attention works on.
    Tiles(Tiles),
}

impl<'a, T> Indices<'a, T> {
    /// The numbers and their copy, which must hold the same.
    pub fn uploaded(host: &'a [T], uploaded: &'a Uploaded) -> Self {
        Self { host, uploaded: Some(uploaded) }
    }

    /// The numbers on the host.
    pub fn host(&self) -> &'a [T] {
        self.host
    }

    /// Their copy on the GPU.
    pub fn on_gpu(&self) -> Option<&'a Uploaded> {
        self.uploaded
    }
}

// Derived implementations would ask that `T` is `Clone`, too.
impl<T> Clone for Indices<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Indices<'_, T> {}

impl<T> Deref for Indices<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        self.host
    }
}

impl<'a, T> From<&'a [T]> for Indices<'a, T> {
    fn from(host: &'a [T]) -> Self {
        Self { host, uploaded: None }
    }
}

impl<'a, T> From<&'a Vec<T>> for Indices<'a, T> {
    fn from(host: &'a Vec<T>) -> Self {
        host.as_slice().into()
    }
}

impl<'a, T, const N: usize> From<&'a [T; N]> for Indices<'a, T> {
    fn from(host: &'a [T; N]) -> Self {
        host.as_slice().into()
    }
}
