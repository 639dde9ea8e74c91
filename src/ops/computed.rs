//! Whole numbers that one op computes and another one takes: the ids that a generator drew, say.
//!
//! On a GPU they stay there. The host has not seen them, because it would have to wait for the GPU; so it
//! cannot check them, and the op that computes them has to see to it that they are what its contract says.
//! Most ops want [`Indices`], which the host has; those that can do without take [`AnyIndices`].

use candle_core::Result;
use candle_core::Tensor;
use candle_core::bail;

use crate::cuda::Address;
use crate::cuda::Array;
use crate::cuda::Gpu;
use crate::cuda::Kind;
use crate::indices::Indices;

/// The numbers, where they were computed. Only ops make them.
#[derive(Debug, Clone)]
pub struct Computed(Place);

#[derive(Debug, Clone)]
enum Place {
    Host(Vec<u32>),
    /// u32 and contiguous.
    Gpu(Tensor),
}

impl Computed {
    /// Numbers that were computed on the CPU.
    pub(crate) fn on_host(numbers: Vec<u32>) -> Self {
        Self(Place::Host(numbers))
    }

    /// Numbers that a kernel writes, u32 and contiguous. No op checks them: they must be what the op that
    /// computes them promises.
    pub(crate) fn on_gpu(numbers: Tensor) -> Self {
        Self(Place::Gpu(numbers))
    }

    /// The numbers, waiting for the GPU.
    #[cfg(test)]
    pub(crate) fn read(&self) -> Vec<u32> {
        match &self.0 {
            Place::Host(numbers) => numbers.clone(),
            Place::Gpu(numbers) => numbers.to_vec1().unwrap(),
        }
    }
}

/// Numbers that the host may not have: [`Indices`], or what an op has computed. Made by `into()`.
#[derive(Debug, Clone, Copy)]
pub struct AnyIndices<'a>(Source<'a>);

#[derive(Debug, Clone, Copy)]
enum Source<'a> {
    Known(Indices<'a>),
    /// u32 and contiguous.
    Gpu(&'a Tensor),
}

impl<'a> AnyIndices<'a> {
    /// How many numbers.
    pub fn len(&self) -> usize {
        match self.0 {
            Source::Known(numbers) => numbers.len(),
            Source::Gpu(numbers) => numbers.elem_count(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The numbers where the host has them: for checks, and plans that are made on the host.
    pub(crate) fn known(&self) -> Option<Indices<'a>> {
        match self.0 {
            Source::Known(numbers) => Some(numbers),
            Source::Gpu(_) => None,
        }
    }

    /// The numbers, for the CPU's code; an error where only the GPU has them.
    pub fn host(&self) -> Result<&'a [u32]> {
        match self.known() {
            Some(numbers) => Ok(numbers.host()),
            None => bail!("{} numbers are on the GPU alone, the CPU's code cannot read them", self.len()),
        }
    }

    /// Where the numbers begin on the GPU. The array keeps them there; it must live until the kernel is
    /// launched.
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
            Place::Host(numbers) => numbers.into(),
            Place::Gpu(numbers) => Self(Source::Gpu(numbers)),
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
    fn what_only_the_gpu_has_is_no_empty_slice_to_the_cpu() {
        let numbers = Computed::on_gpu(Tensor::new(&[3u32, 4], &Device::Cpu).unwrap());
        let numbers = AnyIndices::from(&numbers);
        assert_eq!((numbers.len(), numbers.known().is_none()), (2, true));
        assert!(numbers.host().unwrap_err().to_string().contains("2 numbers are on the GPU alone"));
        let numbers = Computed::on_host(vec![3, 4]);
        assert_eq!(AnyIndices::from(&numbers).host().unwrap(), [3, 4]);
    }
}
