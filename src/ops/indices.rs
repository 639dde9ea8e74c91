//! Whole numbers that ops read: ids, positions, labels, segment bounds, dropout keys.
//!
//! The CPU's code reads them on the host, a kernel their copy on the GPU. For a GPU all of a batch are
//! uploaded at once, each with a plan: what the kernel of its op wants to know of them beforehand. What a
//! plan is, the op alone knows. Without a copy (in a test, say) each op uploads the numbers for itself. The
//! host always has them; numbers that it may not have are in `computed.rs`.

use std::any::Any;
use std::sync::OnceLock;

use candle_core::Device;
use candle_core::Result;
use candle_core::Tensor;

use crate::cuda::Address;
use crate::cuda::Array;
use crate::cuda::Gpu;
use crate::cuda::Kind;
use crate::cuda::Values;

/// A slice on the host and its copy on the GPU, if there is one. Made by `into()` from a slice alone.
#[derive(Debug)]
pub struct Indices<'a, T = u32> {
    host: &'a [T],
    uploaded: Option<&'a Uploaded>,
}

/// The copy on the GPU.
#[derive(Debug)]
pub struct Uploaded {
    /// The same numbers.
    pub numbers: Array,
    /// What was worked out on the host for a kernel; its type is that of the op which takes the numbers.
    pub plan: Option<Box<dyn Any + Send + Sync>>,
}

/// Dropout keys that are the same in every pass of a model, and their copy on the first GPU that asks for
/// them.
#[derive(Debug)]
pub struct KeptKeys {
    host: Vec<u64>,
    copy: OnceLock<(Device, Uploaded)>,
}

impl KeptKeys {
    /// These keys.
    pub fn new(host: Vec<u64>) -> Self {
        Self { host, copy: OnceLock::new() }
    }

    /// The keys for an op on this tensor.
    pub fn on_device_of(&self, t: &Tensor) -> Result<Indices<'_, u64>> {
        let Some(gpu) = Gpu::of(t)? else { return Ok(self.host.as_slice().into()) };
        if self.copy.get().is_none() {
            let numbers = Array::of_keys(&gpu, &self.host)?;
            // Another thread may have been faster; its copy is as good.
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
    /// The numbers and their copy, which must hold the same.
    pub fn uploaded(host: &'a [T], uploaded: &'a Uploaded) -> Self {
        Self { host, uploaded: Some(uploaded) }
    }

    /// How many numbers.
    pub fn len(&self) -> usize {
        self.host.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.host.is_empty()
    }

    /// The numbers on the host: for the CPU's code, checks, and plans that did not come with the copy.
    pub fn host(&self) -> &'a [T] {
        self.host
    }

    /// The plan that came with the copy, if it is one of this kind.
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
    /// Where the numbers begin on the GPU. The array keeps them there; it must live until the kernel is
    /// launched.
    pub(crate) fn on_gpu(&self, gpu: &Gpu) -> Result<(Address, Array)> {
        self.copy(gpu, Kind::U32, Values::U32)
    }
}

impl Indices<'_, u64> {
    /// As for u32.
    pub(crate) fn on_gpu(&self, gpu: &Gpu) -> Result<(Address, Array)> {
        self.copy(gpu, Kind::U64, Values::U64)
    }
}

// Derived implementations would ask that `T` is `Clone`, too.
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
    use crate::testing::fresh;
    use crate::testing::on_each_device;

    #[test]
    fn kept_keys_are_copied_once() {
        on_each_device(|| {
            let (keys, x) = (KeptKeys::new(vec![1 << 40, 7]), fresh(1, 1));
            let of_a_pass = || keys.on_device_of(&x).unwrap();
            assert_eq!(of_a_pass().host(), [1 << 40, 7]);
            let Some(gpu) = Gpu::of(&x).unwrap() else { return };
            let place = || of_a_pass().on_gpu(&gpu).unwrap().0;
            assert_eq!(place(), place());
        });
    }
}
