//! Integers that one op computes and another op reads, for example the token ids that a generator sampled.
//!
//! Numbers computed on a GPU stay on the GPU, because the host would have to wait for the GPU to read them.
//! So the host cannot check them: the op that computes them must guarantee what its contract promises. Most
//! ops take [`Indices`], which the host has; ops that work without a host copy take [`AnyIndices`].

use candle_core::{Result, Tensor, bail};

use crate::cuda::{Address, Array, Gpu, Kind};
use crate::indices::Indices;

/// Integers in the memory of the device that computed them. Only ops create this type.
#[derive(Debug, Clone)]
pub struct Computed(Storage);

#[derive(Debug, Clone)]
enum Storage {
    Host(Vec<u32>),
    /// u32 and contiguous.
    Gpu(Tensor),
}

impl Computed {
    /// Wraps numbers that were computed on the CPU.
    pub(crate) fn on_host(numbers: Vec<u32>) -> Self {
        Self(Storage::Host(numbers))
    }

    /// Wraps numbers that a kernel writes, u32 and contiguous. No reader checks them: they must satisfy the
    /// contract of the op that computes them.
    pub(crate) fn on_gpu(numbers: Tensor) -> Self {
        Self(Storage::Gpu(numbers))
    }

    /// Returns the numbers; waits for the GPU if they are there.
    #[cfg(test)]
    pub(crate) fn read(&self) -> Vec<u32> {
        match &self.0 {
            Storage::Host(numbers) => numbers.clone(),
            Storage::Gpu(numbers) => numbers.to_vec1().unwrap(),
        }
    }
}

/// Integers of which the host may have no copy: either [`Indices`], or the [`Computed`] result of an op.
/// Created with `into()`.
#[derive(Debug, Clone, Copy)]
pub struct AnyIndices<'a>(Source<'a>);

#[derive(Debug, Clone, Copy)]
enum Source<'a> {
    Known(Indices<'a>),
    /// u32 and contiguous.
    Gpu(&'a Tensor),
}

impl<'a> AnyIndices<'a> {
    /// Number of integers.
    pub fn len(&self) -> usize {
        match self.0 {
            Source::Known(numbers) => numbers.len(),
            Source::Gpu(numbers) => numbers.elem_count(),
        }
    }

    /// Returns true if there are no integers.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The numbers if the host has them, else `None`. For checks, and for plans that are made on the host.
    pub(crate) fn known(&self) -> Option<Indices<'a>> {
        match self.0 {
            Source::Known(numbers) => Some(numbers),
            Source::Gpu(_) => None,
        }
    }

    /// The numbers for CPU code; an error if only the GPU has them.
    pub fn host(&self) -> Result<&'a [u32]> {
        match self.known() {
            Some(numbers) => Ok(numbers.host()),
            None => bail!("{} numbers are on the GPU alone, the CPU's code cannot read them", self.len()),
        }
    }

    /// The address of the first number on the GPU, and the array that owns this memory. Keep the array until
    /// the kernel is launched.
    pub(crate) fn on_gpu(&self, gpu: &Gpu) -> Result<(Address, Array)> {
        match self.0 {
            Source::Known(numbers) => numbers.on_gpu(gpu),
            Source::Gpu(numbers) => {
                let array = Array::of(gpu, numbers)?;
                Ok((array.address(Kind::U32)?, array))
            }
        }
    }
}

impl<'a> From<&'a Computed> for AnyIndices<'a> {
    fn from(computed: &'a Computed) -> Self {
        match &computed.0 {
            Storage::Host(numbers) => numbers.into(),
            Storage::Gpu(numbers) => Self(Source::Gpu(numbers)),
        }
    }
}

impl<'a> From<Indices<'a>> for AnyIndices<'a> {
    fn from(numbers: Indices<'a>) -> Self {
        Self(Source::Known(numbers))
    }
}

impl<'a> From<&'a [u32]> for AnyIndices<'a> {
    fn from(host: &'a [u32]) -> Self {
        Indices::from(host).into()
    }
}

impl<'a> From<&'a Vec<u32>> for AnyIndices<'a> {
    fn from(host: &'a Vec<u32>) -> Self {
        Indices::from(host).into()
    }
}

impl<'a, const N: usize> From<&'a [u32; N]> for AnyIndices<'a> {
    fn from(host: &'a [u32; N]) -> Self {
        Indices::from(host).into()
    }
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;

    #[test]
    fn reading_numbers_of_the_gpu_on_the_cpu_is_an_error() {
        let numbers = Computed::on_gpu(Tensor::new(&[3u32, 4], &Device::Cpu).unwrap());
        let numbers = AnyIndices::from(&numbers);
        assert_eq!((numbers.len(), numbers.known().is_none()), (2, true));
        assert!(numbers.host().unwrap_err().to_string().contains("2 numbers are on the GPU alone"));
        let numbers = Computed::on_host(vec![3, 4]);
        assert_eq!(AnyIndices::from(&numbers).host().unwrap(), [3, 4]);
    }
}
