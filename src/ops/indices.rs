//! Integers that ops read: token ids, positions, labels, segment bounds, dropout keys.
//!
//! CPU code reads them on the host; a kernel reads their copy on the GPU. For a GPU, all integers of a batch
//! are uploaded at once, each array with a plan: data that the host computed from the array for the kernel of
//! its op. Only the op knows the type of its plan. If there is no copy (in a test, say), each op uploads the
//! numbers itself. The host always has these numbers; `computed.rs` has those that may be on the GPU only.

use std::any::Any;
use std::sync::OnceLock;

use candle_core::{Device, Result, Tensor};

use crate::cuda::{Address, Array, Gpu, Kind, Values};

/// A slice on the host and its copy on the GPU, if there is one. `into()` makes it from a slice, without a
/// copy.
#[derive(Debug)]
pub struct Indices<'a, T = u32> {
    host: &'a [T],
    uploaded: Option<&'a Uploaded>,
}

/// A copy of an array on the GPU, with its plan.
#[derive(Debug)]
pub struct Uploaded {
    /// The same numbers as on the host.
    pub numbers: Array,
    /// Data that the host computed from the numbers for a kernel; the op that reads the numbers defines its
    /// type.
    pub plan: Option<Box<dyn Any + Send + Sync>>,
}

/// Dropout keys that are the same in every pass of a model, and their copy on the first GPU that needs them.
#[derive(Debug)]
pub struct KeptKeys {
    host: Vec<u64>,
    copy: OnceLock<(Device, Uploaded)>,
}

impl KeptKeys {
    /// Keeps these keys; nothing is copied to a GPU yet.
    pub fn new(host: Vec<u64>) -> Self {
        Self { host, copy: OnceLock::new() }
    }

    /// The keys for an op on tensor `t`, with a copy on its GPU. The first GPU's copy is kept; for any other
    /// GPU the result has no copy, and the op uploads the keys itself.
    pub fn on_device_of(&self, t: &Tensor) -> Result<Indices<'_, u64>> {
        let Some(gpu) = Gpu::of(t)? else { return Ok(self.host.as_slice().into()) };
        if self.copy.get().is_none() {
            let numbers = Array::of_keys(&gpu, &self.host)?;
            // Another thread may have stored its copy first; both copies are equal.
            let _ = self.copy.set((gpu.device().clone(), Uploaded { numbers, plan: None }));
        }
        match self.copy.get() {
            Some((device, copy)) if device.same_device(gpu.device()) => {
                Ok(Indices::uploaded(&self.host, copy))
            }
            _ => Ok(self.host.as_slice().into()),
        }
    }
}

impl<'a, T> Indices<'a, T> {
    /// Pairs the numbers with their copy on the GPU, which must have the same values.
    pub fn uploaded(host: &'a [T], uploaded: &'a Uploaded) -> Self {
        Self { host, uploaded: Some(uploaded) }
    }

    /// Number of integers.
    pub fn len(&self) -> usize {
        self.host.len()
    }

    /// Returns true if there are no integers.
    pub fn is_empty(&self) -> bool {
        self.host.is_empty()
    }

    /// The numbers on the host: for CPU code, for checks, and for making a plan if the copy has none.
    pub fn host(&self) -> &'a [T] {
        self.host
    }

    /// The plan that was uploaded with the copy; `None` if there is no plan of type `P`.
    pub(crate) fn plan<P: Any>(&self) -> Option<&'a P> {
        self.uploaded?.plan.as_deref()?.downcast_ref()
    }

    fn copy(
        &self,
        gpu: &Gpu,
        kind: Kind,
        values: impl FnOnce(&'a [T]) -> Values<'a>,
    ) -> Result<(Address, Array)> {
        let array = match self.uploaded {
            Some(uploaded) => uploaded.numbers.clone(),
            None => gpu.send_one(values(self.host))?,
        };
        Ok((array.address(kind)?, array))
    }
}

impl Indices<'_> {
    /// The address of the first number on the GPU, and the array that owns this memory. Keep the array until
    /// the kernel is launched. Uploads the numbers if there is no copy.
    pub(crate) fn on_gpu(&self, gpu: &Gpu) -> Result<(Address, Array)> {
        self.copy(gpu, Kind::U32, Values::U32)
    }
}

impl Indices<'_, u64> {
    /// The address of the first key on the GPU, and the array that owns this memory, as for u32.
    pub(crate) fn on_gpu(&self, gpu: &Gpu) -> Result<(Address, Array)> {
        self.copy(gpu, Kind::U64, Values::U64)
    }
}

// `derive` would require that `T` is `Clone`, which is not needed.
impl<T> Clone for Indices<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Indices<'_, T> {}

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{fresh, on_each_device};

    #[test]
    fn kept_keys_are_copied_once() {
        on_each_device(|| {
            let keys = KeptKeys::new(vec![1 << 40, 7]);
            let x = fresh(1, 1);
            assert_eq!(keys.on_device_of(&x).unwrap().host(), [1 << 40, 7]);
            let Some(gpu) = Gpu::of(&x).unwrap() else { return };
            let [first, second] = [(), ()].map(|()| keys.on_device_of(&x).unwrap().on_gpu(&gpu).unwrap().0);
            assert_eq!(first, second);
        });
    }
}
