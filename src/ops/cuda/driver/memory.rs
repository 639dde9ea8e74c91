//! The memory of a GPU: the driver's pool, from which all tensors are cut in the order of the stream.
//!
//! It is the arena of the activations. What a step frees stays in it for the next one, and [`reserve`] fills
//! it before the first step with what the largest one is predicted to need. Tensors free themselves into it:
//! candle's storage knows no other owner, as on the CPU, where the global allocator is the arena
//! (`ops/memory`).

use candle_core::CudaDevice;
use candle_core::Device;
use candle_core::Error;
use candle_core::cuda::cudarc::driver::DriverError;
use candle_core::cuda::cudarc::driver::result;
use candle_core::cuda::cudarc::driver::sys;
use candle_core::cuda::cudarc::driver::sys::CUmemPool_attribute as Attribute;

use super::super::Memory;

/// By default the pool gives memory back to the system at every synchronisation, and every step would ask for
/// it again.
pub(super) fn keep_freed_memory(cuda: &CudaDevice) -> Result<(), DriverError> {
    write(cuda, Attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, u64::MAX)
}

fn pool(cuda: &CudaDevice) -> Result<sys::CUmemoryPool, DriverError> {
    let stream = cuda.cuda_stream();
    // SAFETY: the device is open.
    unsafe { result::device::get_default_mem_pool(stream.context().cu_device()) }
}

/// Asks the system at once for `bytes` that steps will take bit by bit, and leaves them in the pool; the
/// bytes that are free where these are fewer. `None` where they are there, and for a device that is no GPU.
pub(in super::super) fn reserve(device: &Device, bytes: u64) -> candle_core::Result<Option<u64>> {
    let Device::Cuda(cuda) = device else { return Ok(None) };
    try_reserve(cuda, bytes).map_err(Error::wrap)
}

fn try_reserve(cuda: &CudaDevice, bytes: u64) -> Result<Option<u64>, DriverError> {
    // SAFETY: the block is dropped unread.
    match unsafe { cuda.cuda_stream().alloc::<u8>(bytes as usize) } {
        Ok(block) => drop(block),
        Err(e) if e.0 == sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => return free_bytes(cuda).map(Some),
        Err(e) => return Err(e),
    }
    // What was reserved was not used: the peak begins anew.
    write(cuda, Attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH, 0)?;
    Ok(None)
}

/// What tensors can still take: what is free on the GPU, and what the pool keeps.
fn free_bytes(cuda: &CudaDevice) -> Result<u64, DriverError> {
    let (free, _) = cuda.cuda_stream().context().mem_get_info()?;
    let (reserved, used) = (
        read(cuda, Attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)?,
        read(cuda, Attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT)?,
    );
    Ok(free as u64 + reserved.saturating_sub(used))
}

/// An attribute of the pool that is a number of bytes.
fn read(cuda: &CudaDevice, attribute: Attribute) -> Result<u64, DriverError> {
    let mut value = 0u64;
    // SAFETY: the pool is that of an open device, and the callers' attributes are 64 bits.
    unsafe {
        result::mem_pool::get_attribute(pool(cuda)?, attribute, std::ptr::from_mut(&mut value).cast())
    }?;
    Ok(value)
}

/// Sets such an attribute.
fn write(cuda: &CudaDevice, attribute: Attribute, mut value: u64) -> Result<(), DriverError> {
    // SAFETY: as in `read`.
    unsafe { result::mem_pool::set_attribute(pool(cuda)?, attribute, std::ptr::from_mut(&mut value).cast()) }
}

/// Memory of an open GPU that this process uses and used at most; `None` for another device.
pub(in super::super) fn memory(device: &Device) -> Option<Memory> {
    let Device::Cuda(cuda) = device else { return None };
    let used_bytes = read(cuda, Attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT).ok()?;
    // What is in use since before the peak began anew belongs to it.
    let peak_bytes = read(cuda, Attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH).ok()?.max(used_bytes);
    Some(Memory { used_bytes, peak_bytes })
}
