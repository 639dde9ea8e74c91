//! Driver for real GPUs: CUDA through cudarc. Memory and launches are on the stream of candle's device, the
//! copies of packets on a stream of their own.
//!
//! State of a device that candle does not keep (loaded kernels, cuBLASLt's algorithms and plans) is stored
//! once per device and looked up by the device's id.

mod gemm_plan;
mod kernels;
mod memory;
mod open;
mod products;
mod slot;

use std::collections::{BTreeMap, HashMap};
use std::ffi::c_void;
use std::fmt::Debug;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use candle_core::cuda::cudarc::driver::{CudaStream, DevicePtr, DeviceRepr, result};
use candle_core::cuda::{CudaDType, DeviceId};
use candle_core::op::BackpropOp;
use candle_core::{CudaDevice, CudaStorage, DType, Device, Result, Shape, Storage, Tensor, bail};
use half::{bf16, f16};

use super::algorithms::{Algorithm, Algorithms};
use super::gemm::Gemm;
use super::slots::Slots;
use super::{Address, Grid, Kernel};
use kernels::Kernels;
use products::Products;

pub(super) use gemm_plan::set_tf32;
pub(super) use memory::{memory, reserve};
#[cfg(feature = "nccl")]
pub(super) use open::load_nccl;
pub(super) use open::{open, properties};
pub(super) use slot::Slot;

/// Device together with the state that mlmtrain keeps for it.
#[derive(Clone)]
pub(super) struct Driver {
    device: Device,
    state: Arc<State>,
}

impl Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.device.location())
    }
}

struct State {
    cuda: CudaDevice,
    capability: (u32, u32),
    stream: Arc<CudaStream>,
    /// Stream of copies; it does not synchronise with the compute stream by itself.
    copies: Arc<CudaStream>,
    kernels: Mutex<Kernels>,
    products: Mutex<Products>,
    slots: Mutex<Slots<Slot>>,
}

static STATES: LazyLock<Mutex<HashMap<DeviceId, Arc<State>>>> = LazyLock::new(Mutex::default);

impl State {
    fn of(cuda: &CudaDevice) -> Result<Arc<Self>> {
        let mut states = STATES.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(state) = states.get(&cuda.id()) {
            return Ok(state.clone());
        }
        let stream = cuda.cuda_stream();
        let (major, minor) = stream.context().compute_capability().map_err(candle_core::Error::wrap)?;
        let state = Arc::new(Self {
            cuda: cuda.clone(),
            capability: (major as u32, minor as u32),
            kernels: Mutex::new(Kernels::new(stream.context().clone())),
            products: Mutex::new(Products::new(&stream)?),
            slots: Mutex::default(),
            copies: stream.context().new_stream().map_err(candle_core::Error::wrap)?,
            stream,
        });
        states.insert(cuda.id(), state.clone());
        Ok(state)
    }

    /// Allocates a tensor. A tensor without elements gets memory for one, since the driver refuses to
    /// allocate zero bytes.
    fn allocate<T: CudaDType + DeviceRepr>(&self, shape: Shape) -> Result<Tensor> {
        let count = shape.elem_count().max(1);
        // SAFETY: the memory is not read before a kernel has written it, which is the contract of
        // `Gpu::uninitialised`.
        let slice = unsafe { self.cuda.alloc::<T>(count) }
            .map_err(|e| not_allocated(e, &self.stream, count * size_of::<T>()))?;
        let storage = Storage::Cuda(CudaStorage::wrap_cuda_slice(slice, self.cuda.clone()));
        Ok(Tensor::from_storage(storage, shape, BackpropOp::none(), false))
    }
}

/// Returns the driver's error; if it reports that memory ran out, adds how much was requested and how much is
/// free. Other errors stay as they are: a kernel's error surfaces at the next call to the driver and must not
/// be reported as one of memory.
fn not_allocated(e: candle_core::Error, stream: &CudaStream, bytes: usize) -> candle_core::Error {
    if !super::is_out_of_memory(&e.to_string()) {
        return e;
    }
    let (free, total) = stream.context().mem_get_info().unwrap_or_default();
    let mib = |bytes: usize| bytes >> 20;
    candle_core::Error::msg(format!(
        "{}: {} MiB were asked for, {} of {} MiB are free: {e}",
        super::gpu::OUT_OF_MEMORY,
        mib(bytes),
        mib(free),
        mib(total)
    ))
}

impl Driver {
    pub(super) fn of(device: &Device) -> Result<Option<Self>> {
        match device {
            Device::Cpu => Ok(None),
            Device::Cuda(cuda) => {
                let state = State::of(cuda)?;
                // Launches through cudarc's unsafe functions need the context to be current on this thread.
                state.stream.context().bind_to_thread().map_err(candle_core::Error::wrap)?;
                Ok(Some(Self { device: device.clone(), state }))
            }
            Device::Metal(_) => bail!("this build of mlmtrain has no code for {:?}", device.location()),
        }
    }

    pub(super) fn capability(&self) -> (u32, u32) {
        self.state.capability
    }

    pub(super) fn device(&self) -> &Device {
        &self.device
    }

    pub(super) fn algorithms(&self) -> Result<Algorithms> {
        self.products().algorithms()
    }

    pub(super) fn use_algorithms(&self, chosen: &BTreeMap<String, Algorithm>) {
        self.products().use_algorithms(chosen);
    }

    fn products(&self) -> MutexGuard<'_, Products> {
        self.state.products.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn uninitialised(&self, shape: Shape, dtype: DType) -> Result<Tensor> {
        match dtype {
            DType::F32 => self.state.allocate::<f32>(shape),
            DType::BF16 => self.state.allocate::<bf16>(shape),
            DType::F16 => self.state.allocate::<f16>(shape),
            DType::F64 => self.state.allocate::<f64>(shape),
            DType::U32 => self.state.allocate::<u32>(shape),
            DType::I64 => self.state.allocate::<i64>(shape),
            other => bail!("no kernel writes {other:?}"),
        }
    }

    pub(super) fn input(&self, t: &Tensor) -> Result<Address> {
        match t.dtype() {
            DType::F32 => self.address::<f32>(t),
            DType::BF16 => self.address::<bf16>(t),
            DType::F16 => self.address::<f16>(t),
            DType::F64 => self.address::<f64>(t),
            DType::U32 => self.address::<u32>(t),
            DType::I64 => self.address::<i64>(t),
            other => bail!("no kernel reads {other:?}"),
        }
    }

    /// Kernels write to the memory without taking candle's lock, in the order of the stream.
    pub(super) fn output(&self, t: &Tensor) -> Result<Address> {
        self.input(t)
    }

    fn address<T: CudaDType + DeviceRepr>(&self, t: &Tensor) -> Result<Address> {
        let (storage, layout) = t.storage_and_layout();
        let Storage::Cuda(storage) = &*storage else {
            bail!(
                "tensor {:?} is on {:?}, the other operands are on {:?}",
                t.dims(),
                t.device().location(),
                self.device.location()
            );
        };
        let slice = storage.as_cuda_slice::<T>()?;
        // Event tracking is off, so the guard does nothing. All work is on one stream, so launches from now
        // on run before the memory is freed.
        let (start, _guard) = slice.device_ptr(&self.state.stream);
        Ok(Address(start).plus(layout.start_offset() * size_of::<T>()))
    }

    pub(super) unsafe fn clear(&self, start: Address, bytes: usize) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: the caller promises the memory, and the stream keeps the order.
        unsafe { result::memset_d8_async(start.0, 0, bytes, self.state.stream.cu_stream()) }
            .map_err(candle_core::Error::wrap)
    }

    pub(super) unsafe fn copy(&self, from: Address, to: Address, bytes: usize) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: as in `clear`.
        unsafe { result::memcpy_dtod_async(to.0, from.0, bytes, self.state.stream.cu_stream()) }
            .map_err(candle_core::Error::wrap)
    }

    #[expect(clippy::unused_self, reason = "as the other drivers have it")]
    pub(super) fn read(&self, t: &Tensor) -> Result<Vec<f64>> {
        t.to_vec1()
    }

    pub(super) unsafe fn launch<A: Copy>(
        &self,
        kernel: Kernel,
        suffix: &'static str,
        grid: Grid,
        args: &A,
    ) -> Result<()> {
        let function = self.state.kernels.lock().unwrap_or_else(PoisonError::into_inner).function(
            kernel,
            suffix,
            grid.shared_bytes,
        )?;
        let mut args = *args;
        let mut parameters = [std::ptr::from_mut(&mut args).cast::<c_void>()];
        let [x, y, z] = grid.blocks;
        let stream = self.state.stream.cu_stream();
        // SAFETY: the caller promises that the arguments are the kernel's and point to memory as large as the
        // kernel uses.
        unsafe {
            result::launch_kernel(
                function,
                (x, y, z),
                (grid.threads, 1, 1),
                grid.shared_bytes,
                stream,
                &mut parameters,
            )
        }
        .map_err(|e| {
            candle_core::Error::msg(format!(
                "{}: cannot launch `{}{suffix}` with {grid:?}: {e:?}",
                kernel.op, kernel.name
            ))
        })
    }

    pub(super) unsafe fn gemm(&self, gemm: &Gemm, sums: Option<Address>) -> Result<bool> {
        // SAFETY: the caller's promise.
        let done = unsafe { self.products().run(gemm, sums) };
        done.map_err(|e| {
            let Gemm { m, n, k, dtype, out_dtype, .. } = gemm;
            candle_core::Error::msg(format!(
                "product [{m}, {k}] [{k}, {n}] of {dtype:?} to {out_dtype:?}: {e}"
            ))
        })
    }

    pub(super) fn with_slots<R>(&self, f: impl FnOnce(&mut Slots<Slot>) -> R) -> R {
        f(&mut self.state.slots.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn new_slot(&self, bytes: usize) -> Result<Slot> {
        Slot::new(&self.state.stream, &self.state.copies, bytes)
    }
}
