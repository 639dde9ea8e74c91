//! Exchange by NCCL: adds up and shares tensors on GPUs, on a CUDA stream of its own next to the one that
//! computes; and exchanges messages between processes where there is no MPI.
//!
//! An NCCL call returns when its work is queued in the stream. Every 100 to 250 microseconds this module
//! tests if that work is done, so that it does not wait forever for a process that has died. Only the first
//! calls, which connect the processes, may hang; callers of the engine therefore give up after a timeout.

use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicI32;

use anyhow::{Context, Result};
use candle_core::cuda::cudarc::driver::{
    CudaEvent, CudaSlice, CudaStream, DevicePtr, DeviceRepr, DriverError,
};
use candle_core::cuda::cudarc::nccl::sys;
use candle_core::cuda::cudarc::nccl::sys::ncclDataType_t::{ncclFloat32, ncclUint8};
use candle_core::cuda::cudarc::nccl::sys::ncclResult_t;
use candle_core::{DType, Device, Storage, Tensor};
use half::bf16;

use crate::distributed::mark::Mark;
use crate::distributed::transport::{
    Carrier, Ended, Transport, Value, Wait, bytes, one_behind_the_other, values,
};
use base::error::Problem;
use ops::cuda;

/// NCCL's own variable for the address on which rank 0 listens. With it all processes derive the same group
/// id.
pub(super) const ID_VARIABLE: &str = "NCCL_COMM_ID";

/// Joins the group and returns it boxed, as the engine needs it.
pub(super) fn join(device: &Device, rank: usize, size: usize, id: &[u8]) -> Result<Box<dyn Carrier>> {
    Ok(Box::new(Nccl::join(device, rank, size, id)?))
}

/// Makes an id for a new group of processes; one process makes it and sends it to the others.
pub(super) fn new_id() -> Result<Vec<u8>> {
    load()?;
    let mut id = sys::ncclUniqueId { internal: [0; 128] };
    // SAFETY: the call writes the id.
    started("name", unsafe { sys::ncclGetUniqueId(&raw mut id) })?;
    Ok(id.internal.iter().map(|&byte| byte as u8).collect())
}

/// Loads the NCCL library from wherever it is installed.
fn load() -> Result<(), Problem> {
    cuda::load_nccl().map_err(|reason| Problem::usage(reason.to_string()).hint(reason.hint()))
}

fn started(what: &str, result: ncclResult_t) -> Result<()> {
    match result {
        ncclResult_t::ncclSuccess => Ok(()),
        code => Err(Problem::new(format!("NCCL gives no {what}: it says {code:?}"))
            .hint("set `NCCL_DEBUG=INFO` to see why; each process must have a GPU of its own")
            .into()),
    }
}

/// A group of processes, each with a GPU. Must stay on the thread that made it.
pub(super) struct Nccl {
    group: sys::ncclComm_t,
    rank: usize,
    size: usize,
    stream: Arc<CudaStream>,
    done: CudaEvent,
}

impl Nccl {
    /// Joins the group with this id on the GPU `device`, and waits until all processes have joined.
    pub(super) fn join(device: &Device, rank: usize, size: usize, id: &[u8]) -> Result<Self> {
        load()?;
        let Device::Cuda(device) = device else {
            return Err(Problem::new("NCCL was to work on a CPU").into());
        };
        let context = device.cuda_stream().context().clone();
        context.bind_to_thread()?;
        let internal: Vec<_> = id.iter().map(|&byte| byte as std::ffi::c_char).collect();
        let internal = internal.try_into().ok().context("the name of NCCL's group has another length")?;
        let mut group = std::ptr::null_mut();
        // SAFETY: the call writes the group; the context of the GPU is bound to this thread.
        let joined = unsafe {
            sys::ncclCommInitRank(
                &raw mut group,
                size as c_int,
                sys::ncclUniqueId { internal },
                rank as c_int,
            )
        };
        started("group", joined)?;
        let stream = context.new_stream()?;
        let done = context.new_event(None)?;
        Ok(Self { group, rank, size, stream, done })
    }

    /// Makes later work of this stream wait for the work that was launched before `mark`.
    fn wait_behind(&self, mark: &Mark) -> Result<(), Ended> {
        mark.event.iter().try_for_each(|event| self.stream.wait(event)).map_err(driver)
    }

    /// Waits until all work of the stream is done.
    fn finish(&self, wait: &Wait<'_>) -> Result<(), Ended> {
        self.done.record(&self.stream).map_err(driver)?;
        while !self.done.try_is_complete().map_err(driver)? {
            let mut state = ncclResult_t::ncclSuccess;
            // SAFETY: the call writes the state of a live group.
            check(unsafe { sys::ncclCommGetAsyncError(self.group, &raw mut state) })?;
            check(state)?;
            wait.pause()?;
        }
        Ok(())
    }

    /// All-reduce in place of the `count` f32 values at the address `start`.
    ///
    /// # Safety
    /// The values stay in the memory of the GPU until the sum is done.
    unsafe fn add(&self, start: u64, count: usize) -> Result<(), Ended> {
        let start = start as *mut c_void;
        let sum = sys::ncclRedOp_t::ncclSum;
        let stream = self.stream.cu_stream().cast();
        // SAFETY: the caller guarantees it.
        check(unsafe { sys::ncclAllReduce(start, start, count, ncclFloat32, sum, self.group, stream) })
    }

    /// All-gather in place: sends the part of each process to all others. `parts` are byte ranges relative to
    /// `start`.
    ///
    /// # Safety
    /// The values stay in the memory of the GPU until the exchange is done.
    unsafe fn give(&self, start: u64, parts: impl Iterator<Item = Range<usize>>) -> Result<(), Ended> {
        // SAFETY: NCCL treats the calls between start and end as one call.
        check(unsafe { sys::ncclGroupStart() })?;
        for (root, part) in parts.enumerate().filter(|(_, part)| !part.is_empty()) {
            let at = (start + part.start as u64) as *mut c_void;
            let stream = self.stream.cu_stream().cast();
            // SAFETY: the caller guarantees it.
            check(unsafe {
                sys::ncclBroadcast(at, at, part.len(), ncclUint8, root as c_int, self.group, stream)
            })?;
        }
        // SAFETY: the group call was started above.
        check(unsafe { sys::ncclGroupEnd() })
    }

    fn start_of<T>(&self, slice: &CudaSlice<T>) -> u64 {
        // Event tracking is off, so the guard that is dropped here does nothing.
        slice.device_ptr(&self.stream).0
    }

    /// Copies this memory to the host after all work of the stream.
    fn fetched<T: DeviceRepr>(&self, slice: &CudaSlice<T>, wait: &Wait<'_>) -> Result<Vec<T>, Ended> {
        self.finish(wait)?;
        let fetched = self.stream.clone_dtoh(slice).map_err(driver)?;
        self.finish(wait)?;
        Ok(fetched)
    }
}

fn check(result: ncclResult_t) -> Result<(), Ended> {
    match result {
        ncclResult_t::ncclSuccess | ncclResult_t::ncclInProgress => Ok(()),
        code => Err(Ended::Failed(format!("NCCL says {code:?}"))),
    }
}

fn driver(error: DriverError) -> Ended {
    Ended::Failed(format!("CUDA says {error}"))
}

/// GPU address of a contiguous tensor of f32 or bf16.
fn address(tensor: &Tensor, stream: &CudaStream) -> Result<u64, Ended> {
    let (storage, layout) = tensor.storage_and_layout();
    let start = match &*storage {
        Storage::Cuda(storage) if tensor.is_contiguous() => match tensor.dtype() {
            DType::BF16 => storage.as_cuda_slice::<bf16>().ok().map(|slice| slice.device_ptr(stream).0),
            _ => storage.as_cuda_slice::<f32>().ok().map(|slice| slice.device_ptr(stream).0),
        },
        _ => None,
    };
    // All callers pass vectors of gradients or parameters on a GPU, so this fails only on a bug.
    let start = start.ok_or_else(|| Ended::Failed("the tensor is not one of a GPU".to_string()))?;
    Ok(start + (layout.start_offset() * tensor.dtype().size_in_bytes()) as u64)
}

impl Carrier for Nccl {
    fn sum(&mut self, values: &Tensor, after: &Mark, wait: &Wait<'_>) -> Result<(), Ended> {
        self.wait_behind(after)?;
        // SAFETY: the tensor has this number of values, and is kept alive until they are added up.
        unsafe { self.add(address(values, &self.stream)?, values.elem_count()) }?;
        self.finish(wait)
    }

    fn swap(
        &mut self,
        own: &Tensor,
        parts: &[Range<usize>],
        given: &Tensor,
        after: &Mark,
        wait: &Wait<'_>,
    ) -> Result<(), Ended> {
        self.wait_behind(after)?;
        let size = own.dtype().size_in_bytes();
        let from = address(own, &self.stream)?;
        let to = address(given, &self.stream)?;
        let length = parts[self.rank].len() * size;
        let stream = self.stream.cu_stream().cast();
        // SAFETY: NCCL treats the calls between start and end as one call.
        check(unsafe { sys::ncclGroupStart() })?;
        for (other, part) in parts.iter().enumerate() {
            let part_from = (from + (part.start * size) as u64) as *const c_void;
            let part_to = (to + (other * length) as u64) as *mut c_void;
            // SAFETY: the parts are ranges of `own`; `given` has room for a part of this process's length
            // from each process. Both tensors are kept alive until the exchange is done.
            unsafe {
                let sent = part.len() * size;
                let other = other as c_int;
                check(sys::ncclSend(part_from, sent, ncclUint8, other, self.group, stream))?;
                check(sys::ncclRecv(part_to, length, ncclUint8, other, self.group, stream))?;
            }
        }
        // SAFETY: the group call was started above.
        check(unsafe { sys::ncclGroupEnd() })?;
        self.finish(wait)
    }

    fn share(
        &mut self,
        whole: &Tensor,
        parts: &[Range<usize>],
        after: &Mark,
        wait: &Wait<'_>,
    ) -> Result<(), Ended> {
        self.wait_behind(after)?;
        let size = whole.dtype().size_in_bytes();
        let in_bytes = |part: &Range<usize>| part.start * size..part.end * size;
        // SAFETY: the parts are ranges of the tensor, which is kept alive until they are sent.
        unsafe { self.give(address(whole, &self.stream)?, parts.iter().map(in_bytes)) }?;
        self.finish(wait)
    }
}

/// Messages between processes go through the GPU. They are short; training does not use these sums of host
/// values.
impl Transport for Nccl {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    /// Gathers all values of all processes, and keeps those for this process.
    fn all_to_all<V: Value>(
        &mut self,
        own: Vec<V>,
        counts: &[usize],
        wait: &Wait<'_>,
    ) -> Result<Vec<V>, Ended> {
        let all = self.all_gather(own, &vec![counts.iter().sum(); self.size], wait)?;
        let before = counts[..self.rank].iter().sum::<usize>();
        let count = counts[self.rank];
        let of_each = all.chunks(counts.iter().sum::<usize>().max(1));
        Ok(of_each.flat_map(|values| values[before..before + count].to_vec()).collect())
    }

    fn all_gather<V: Value>(
        &mut self,
        own: Vec<V>,
        counts: &[usize],
        wait: &Wait<'_>,
    ) -> Result<Vec<V>, Ended> {
        let lengths: Vec<usize> = counts.iter().map(|count| count * size_of::<V>()).collect();
        Ok(values(&self.gather_bytes(bytes(&own), &lengths, wait)?))
    }

    fn all_reduce(&mut self, own: Vec<f32>, wait: &Wait<'_>) -> Result<Vec<f32>, Ended> {
        if own.is_empty() {
            return Ok(own);
        }
        let on_gpu = self.stream.clone_htod(&own).map_err(driver)?;
        // SAFETY: the buffer has this number of values and lives until the end of this function, which waits
        // for the sum.
        unsafe { self.add(self.start_of(&on_gpu), own.len()) }?;
        self.fetched(&on_gpu, wait)
    }

    /// Copies the bytes to the GPU and gathers them there.
    fn gather_bytes(&mut self, own: Vec<u8>, lengths: &[usize], wait: &Wait<'_>) -> Result<Vec<u8>, Ended> {
        let parts: Vec<Range<usize>> = one_behind_the_other(lengths).collect();
        let mut all = vec![0_u8; lengths.iter().sum()];
        if all.is_empty() {
            return Ok(all);
        }
        all[parts[self.rank].clone()].copy_from_slice(&own);
        let on_gpu = self.stream.clone_htod(&all).map_err(driver)?;
        // SAFETY: the buffer lives until the end of this function, which waits for the exchange.
        unsafe { self.give(self.start_of(&on_gpu), parts.into_iter()) }?;
        self.fetched(&on_gpu, wait)
    }

    /// Does nothing: the others notice by their connections or their timeout that this process has ended.
    fn abort(&mut self, _: i32) {}

    fn leave(mut self) {
        let aborting = AtomicI32::new(0);
        // A process that has already left waits for no other one, so an error here is ignored.
        let _ = self.gather(Vec::new(), &Wait::new(None, &aborting, &|| {}));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::distributed::narrow;
    use ops::testing::{device, fresh, on_each_device};

    /// Uses a group of one process, since a group of two needs two GPUs.
    #[test]
    fn one_process_adds_up_and_shares_what_it_has() {
        on_each_device(|| {
            if device().is_cpu() {
                return;
            }
            let aborting = AtomicI32::new(0);
            let wait = || Wait::new(Some(Duration::from_secs(60)), &aborting, &|| {});
            let mut alone = Nccl::join(&device(), 0, 1, &new_id().unwrap()).unwrap();
            let values = fresh(1003, 1);
            let before = values.to_vec1::<f32>().unwrap();
            let part = values.narrow(0, 3, 900).unwrap();
            alone.sum(&part, &Mark::behind(&part).unwrap(), &wait()).unwrap();
            let whole = Range { start: 0, end: 1003 };
            let mark = Mark::behind(&values).unwrap();
            alone.share(&values, &[whole], &mark, &wait()).unwrap();
            assert_eq!(values.to_vec1::<f32>().unwrap(), before);
            let rounded = values.to_dtype(DType::BF16).unwrap().to_dtype(DType::F32).unwrap();
            narrow::sum(&mut alone, &values, 0, 1, &wait()).unwrap();
            assert_eq!(values.to_vec1::<f32>().unwrap(), rounded.to_vec1::<f32>().unwrap());
            assert_eq!(alone.gather(b"told".to_vec(), &wait()), Ok(vec![b"told".to_vec()]));
            assert_eq!(alone.all_reduce(before.clone(), &wait()), Ok(before.clone()));
            assert_eq!(alone.all_to_all(before.clone(), &[1003], &wait()), Ok(before));
            alone.leave();
        });
    }
}
