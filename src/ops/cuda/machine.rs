//! Opening and querying of the GPU.

use candle_core::Device;

use super::driver;
use super::gpu::{Memory, Properties, Unavailable};

/// Opens GPU `ordinal` with a stream of its own, on which all work runs in order.
pub fn open(ordinal: usize) -> Result<Device, Unavailable> {
    driver::open(ordinal)
}

/// Loads NCCL, which is needed for runs on several GPUs, from the folder where it is installed.
#[cfg(feature = "nccl")]
pub fn load_nccl() -> Result<(), Unavailable> {
    driver::load_nccl()
}

/// Returns the properties of an open GPU; `None` for the CPU.
pub fn properties(device: &Device) -> Option<Properties> {
    driver::properties(device)
}

/// Returns the memory use of an open GPU; `None` for the CPU.
pub fn memory(device: &Device) -> Option<Memory> {
    driver::memory(device)
}

/// Reserves `bytes` of GPU memory for the coming steps at once, so that no step has to request more from the
/// system. Returns the number of free bytes if fewer than that are free. Returns `None` if the reservation
/// succeeded, and for the CPU, whose memory is allocated when it is first touched.
pub fn reserve(device: &Device, bytes: u64) -> candle_core::Result<Option<u64>> {
    driver::reserve(device, bytes)
}

/// Allows f32 products to round their operands to TF32 (10 bits of mantissa), which is at least three times
/// as fast on Ampere and newer.
pub fn set_tf32(on: bool) {
    driver::set_tf32(on);
}
