//! Stand-in for `nccl.rs` in a build without NCCL: adding up on GPUs is an error.

use anyhow::Result;
use candle_core::Device;

use crate::distributed::transport::Carrier;
use base::error::Problem;

pub(super) fn new_id() -> Result<Vec<u8>> {
    Err(missing().into())
}

/// Always fails.
pub(super) fn join(_: &Device, _: usize, _: usize, _: &[u8]) -> Result<Box<dyn Carrier>> {
    Err(missing().into())
}

fn missing() -> Problem {
    Problem::new("this build has no NCCL")
}
