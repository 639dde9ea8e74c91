//! Memory of a GPU: the driver's pool, from which all tensors are allocated in the order of the stream.
//!
//! The pool serves as arena of the activations. Memory that a step frees stays in it for the next step, and
//! [`reserve`] fills it before the first step with the predicted need of the largest step. Tensors free their
//! own memory into it, since candle's storage supports no other owner; on the CPU the global allocator is the
//! arena in the same way (`ops/memory`).

use candle_core::cuda::cudarc::driver::sys::CUmemPool_attribute as Attribute;
use candle_core::cuda::cudarc::driver::{DriverError, result, sys};
use candle_core::{CudaDevice, Device, Error};

use super::super::Memory;

/// Keeps freed memory in the pool. By default the pool returns memory to the system at every synchronisation,
/// and every step would have to request it again.
pub(super) fn keep_freed_memory(cuda: &CudaDevice) -> Result<(), DriverError> {
    write(cuda, Attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, u64::MAX)
}

fn pool(cuda: &CudaDevice) -> Result<sys::CUmemoryPool, DriverError> {
    let stream = cuda.cuda_stream();
    // SAFETY: the device is open.
    unsafe { result::device::get_default_mem_pool(stream.context().cu_device()) }
}

/// Requests `bytes` from the system in one piece and leaves them in the pool, from which the steps take them
/// in smaller pieces. Returns the number of free bytes if fewer than that are free; `None` on success, and
/// for a device that is not a GPU.
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
    // The reserved memory was not really used, so the peak restarts at the current use.
    write(cuda, Attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH, 0)?;
    Ok(None)
}

/// Bytes that tensors can still allocate: the free memory of the GPU plus the unused memory in the pool.
fn free_bytes(cuda: &CudaDevice) -> Result<u64, DriverError> {
    let (free, _) = cuda.cuda_stream().context().mem_get_info()?;
    let reserved = read(cuda, Attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)?;
    let used = read(cuda, Attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT)?;
    Ok(free as u64 + reserved.saturating_sub(used))
}

/// Reads an attribute of the pool that is a number of bytes.
fn read(cuda: &CudaDevice, attribute: Attribute) -> Result<u64, DriverError> {
    let mut value = 0u64;
    // SAFETY: the pool is that of an open device, and the callers' attributes are 64 bits.
    unsafe {
        result::mem_pool::get_attribute(pool(cuda)?, attribute, std::ptr::from_mut(&mut value).cast())
    }?;
    Ok(value)
}

/// Sets an attribute of the pool that is a number of bytes.
fn write(cuda: &CudaDevice, attribute: Attribute, mut value: u64) -> Result<(), DriverError> {
    // SAFETY: as in `read`.
    unsafe { result::mem_pool::set_attribute(pool(cuda)?, attribute, std::ptr::from_mut(&mut value).cast()) }
}

/// Returns the current and the peak memory use of this process on an open GPU; `None` for another device.
pub(in super::super) fn memory(device: &Device) -> Option<Memory> {
    let Device::Cuda(cuda) = device else { return None };
    let used_bytes = read(cuda, Attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT).ok()?;
    // Memory that has been in use since before the peak was reset belongs to the peak.
    let peak_bytes = read(cuda, Attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH).ok()?.max(used_bytes);
    Some(Memory { used_bytes, peak_bytes })
}
