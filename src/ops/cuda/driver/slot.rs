//! Slot for packets: page-locked host memory, GPU memory, and the events that order accesses to them.
//!
//! | waiting | event | where |
//! |---|---|---|
//! | the host, to write to its buffer | previous copy (`copied`) | host; long done if slots alternate |
//! | the copy | the last read of the GPU buffer (`read`) | copy stream |
//! | the computation | the copy (`copied`) | compute stream |

use std::sync::Arc;

use candle_core::Error;
use candle_core::cuda::cudarc::driver::{
    CudaContext, CudaEvent, CudaSlice, CudaStream, DevicePtr, DriverError, PinnedHostSlice, result,
};

use super::super::Address;
use super::super::slots::Room;
use super::not_allocated;

/// Buffers for one packet at a time.
pub(in super::super) struct Slot {
    host: HostBuffer,
    /// GPU buffer, allocated and freed in the order of the copy stream.
    device: CudaSlice<u8>,
    /// Event after the last copy. Waiting for an event that was never recorded returns at once.
    copied: CudaEvent,
    /// Event after all work that was launched before the last reader of a packet was dropped.
    read: CudaEvent,
    compute: Arc<CudaStream>,
    copies: Arc<CudaStream>,
}

impl Slot {
    /// Allocates a slot of `bytes` bytes, at least one.
    pub(super) fn new(
        compute: &Arc<CudaStream>,
        copies: &Arc<CudaStream>,
        bytes: usize,
    ) -> candle_core::Result<Self> {
        let context = compute.context();
        // SAFETY: kernels read only bytes that a copy has written.
        let device = unsafe { copies.alloc::<u8>(bytes) }
            .map_err(|e| not_allocated(Error::wrap(e), compute, bytes))?;
        let event = || context.new_event(None).map_err(Error::wrap);
        Ok(Self {
            host: HostBuffer::new(context, bytes).map_err(Error::wrap)?,
            device,
            copied: event()?,
            read: event()?,
            compute: compute.clone(),
            copies: copies.clone(),
        })
    }

    pub(in super::super) fn address(&self) -> Address {
        // Event tracking is off: the guard does nothing.
        let (start, _guard) = self.device.device_ptr(&self.copies);
        Address(start)
    }

    pub(in super::super) fn is_page_locked(&self) -> bool {
        matches!(self.host, HostBuffer::PageLocked(_))
    }

    /// Lets `write` fill the first `bytes` bytes of the host buffer, then copies them to the GPU. Work that
    /// is launched from now on finds them at [`Slot::address`].
    pub(in super::super) fn send(
        &mut self,
        bytes: usize,
        write: impl FnOnce(&mut [u8]),
    ) -> candle_core::Result<()> {
        self.try_send(bytes, write).map_err(Error::wrap)
    }

    fn try_send(&mut self, bytes: usize, write: impl FnOnce(&mut [u8])) -> Result<(), DriverError> {
        self.copied.synchronize()?;
        let to = self.address().0;
        let from = &mut self.host.as_mut_slice()?[..bytes];
        write(from);
        if bytes == 0 {
            return Ok(());
        }
        self.copies.wait(&self.read)?;
        // SAFETY: both buffers have `bytes` bytes. The host buffer is not touched again before the wait for
        // `copied` above, and `drop` keeps both alive until the copy is done.
        unsafe { result::memcpy_htod_async(to, from, self.copies.cu_stream()) }?;
        self.copied.record(&self.copies)?;
        self.compute.wait(&self.copied)
    }

    /// Records that all work that reads the packet has been launched.
    pub(in super::super) fn retire(&mut self) -> candle_core::Result<()> {
        self.read.record(&self.compute).map_err(Error::wrap)
    }
}

impl Room for Slot {
    fn bytes(&self) -> usize {
        self.device.len()
    }
}

impl Drop for Slot {
    /// Waits for the copy before the host buffer is freed; the GPU buffer is freed after all work that may
    /// read it, in the order of its stream. A failure cannot be reported from here.
    fn drop(&mut self) {
        let _ = self.copies.synchronize();
        let _ = self.read.record(&self.compute).and_then(|()| self.copies.wait(&self.read));
    }
}

/// Host memory in which packets are assembled.
enum HostBuffer {
    /// Page-locked memory: the GPU reads it asynchronously while the host continues.
    PageLocked(PinnedHostSlice<u8>),
    /// Ordinary memory, used if the system does not allow more page-locked memory: the driver first copies it
    /// to its own buffer, and the host waits for that.
    Pageable(Vec<u8>),
}

impl HostBuffer {
    fn new(context: &Arc<CudaContext>, bytes: usize) -> Result<Self, DriverError> {
        // No flags: memory that is cached as usual.
        // SAFETY: the memory is initialised in the next lines.
        let Ok(mut locked) = (unsafe { context.alloc_pinned_with_flags::<u8>(bytes, 0) }) else {
            return Ok(Self::Pageable(vec![0; bytes]));
        };
        let start = locked.as_mut_ptr()?;
        // SAFETY: the memory was just allocated with `bytes` bytes.
        unsafe { start.write_bytes(0, bytes) };
        Ok(Self::PageLocked(locked))
    }

    fn as_mut_slice(&mut self) -> Result<&mut [u8], DriverError> {
        match self {
            // This waits for an event of the slice itself, which is never recorded.
            Self::PageLocked(locked) => locked.as_mut_slice(),
            Self::Pageable(bytes) => Ok(bytes),
        }
    }
}
