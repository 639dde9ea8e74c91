//! A build without NCCL: nothing is added up on GPUs.

use anyhow::Result;
use candle_core::Device;

use crate::distributed::transport::Carrier;
use crate::error::Problem;

pub(super) fn new_id() -> Result<Vec<u8>> {
    Err(missing().into())
}

/// Nothing that carries, ever.
pub(super) fn join(_: &Device, _: usize, _: usize, _: &[u8]) -> Result<Box<dyn Carrier>> {
    Err(missing().into())
}

fn missing() -> Problem {
    Problem::new("this build has no NCCL")
}
