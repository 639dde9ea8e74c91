//! The kernels as C++ on the CPU, for tests: tensors stay where they are, and ops called inside [`on_host`]
//! take the way of the GPU.

use std::cell::Cell;
use std::cell::RefCell;
use std::ffi::CString;
use std::ffi::c_char;
use std::ffi::c_int;
use std::ffi::c_void;

use candle_core::DType;
use candle_core::Device;
use candle_core::Shape;
use candle_core::Tensor;
use candle_core::bail;
use half::bf16;
use half::f16;

use super::Address;
use super::Grid;
use super::Kernel;
use super::Memory;
use super::Properties;
use super::Unavailable;
use super::gemm::Gemm;
use super::gemm::Operand;
use super::slots::Room;
use super::slots::Slots;
use crate::ops::element::Element;
use crate::ops::tensor::from_vec;
use crate::ops::tensor::values;
use crate::ops::tensor::with_values_mut;

thread_local! {
    static ACTIVE: Cell<bool> = const { Cell::new(false) };
    /// A GPU for each thread, so that tests do not see each other's slots.
    static SLOTS: RefCell<Slots<Slot>> = RefCell::default();
}

unsafe extern "C" {
    fn mlmtrain_host_launch(
        name: *const c_char,
        args: *const c_void,
        args_bytes: usize,
        blocks: *const u32,
        threads: u32,
        shared_bytes: u32,
    ) -> c_int;
    fn mlmtrain_host_backwards(backwards: bool);
}

/// Runs `f`; ops that it calls on this thread with tensors of the CPU run their kernels as C++.
pub fn on_host<R>(f: impl FnOnce() -> R) -> R {
    struct Reset(bool);
    impl Drop for Reset {
        fn drop(&mut self) {
            ACTIVE.set(self.0);
        }
    }
    let _reset = Reset(ACTIVE.replace(true));
    f()
}

/// Whether the threads of a block take their turns on this thread from the last to the first.
pub fn backwards(backwards: bool) {
    // SAFETY: sets a variable of this thread.
    unsafe { mlmtrain_host_backwards(backwards) };
}

/// The CPU in the part of a GPU.
#[derive(Debug, Clone)]
pub(super) struct Driver;

impl Driver {
    pub(super) fn of(device: &Device) -> candle_core::Result<Option<Self>> {
        match device {
            Device::Cpu => Ok(ACTIVE.get().then_some(Self)),
            other => bail!("this build of mlmtrain has no code for {:?}", other.location()),
        }
    }

    #[expect(clippy::unused_self, reason = "as the other drivers have it")]
    pub(super) fn device(&self) -> &Device {
        &Device::Cpu
    }

    /// All NaN, or zeros in types that have none: what a kernel leaves out is seen. More than a gibibyte is
    /// zeros, too: in f32, pages that are never written take no memory.
    #[expect(clippy::unused_self, reason = "as the other drivers have it")]
    pub(super) fn uninitialised(&self, shape: Shape, dtype: DType) -> candle_core::Result<Tensor> {
        let len = shape.elem_count();
        if len * dtype.size_in_bytes() > 1 << 30 {
            return Tensor::zeros(shape, dtype, &Device::Cpu);
        }
        match dtype {
            DType::F32 => from_vec(vec![f32::NAN; len], shape),
            DType::BF16 => from_vec(vec![bf16::NAN; len], shape),
            DType::F16 => from_vec(vec![f16::NAN; len], shape),
            DType::F64 => from_vec(vec![f64::NAN; len], shape),
            other => Tensor::zeros(shape, other, &Device::Cpu),
        }
    }

    #[expect(clippy::unused_self, reason = "as the other drivers have it")]
    pub(super) fn input(&self, t: &Tensor) -> candle_core::Result<Address> {
        fn of<T: candle_core::WithDType>(t: &Tensor) -> candle_core::Result<Address> {
            Ok(Address(values::<T>(t)?.as_ptr() as u64))
        }
        match t.dtype() {
            DType::F32 => of::<f32>(t),
            DType::BF16 => of::<bf16>(t),
            DType::F16 => of::<f16>(t),
            DType::F64 => of::<f64>(t),
            DType::U32 => of::<u32>(t),
            DType::I64 => of::<i64>(t),
            other => bail!("no kernel reads {other:?}"),
        }
    }

    /// Written behind the back of candle's lock, by one thread, while none reads: what a GPU does.
    pub(super) fn output(&self, t: &Tensor) -> candle_core::Result<Address> {
        fn of<T: Element>(t: &Tensor) -> candle_core::Result<Address> {
            with_values_mut::<T, _>(t, |values| Address(values.as_mut_ptr() as u64))
        }
        match t.dtype() {
            DType::F32 => of::<f32>(t),
            DType::BF16 => of::<bf16>(t),
            DType::F16 => of::<f16>(t),
            _ => self.input(t),
        }
    }

    #[expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "as the other drivers have it")]
    pub(super) unsafe fn clear(&self, start: Address, bytes: usize) -> candle_core::Result<()> {
        // SAFETY: the caller's promise.
        unsafe { (start.0 as *mut u8).write_bytes(0, bytes) };
        Ok(())
    }

    #[expect(clippy::unused_self, reason = "as the other drivers have it")]
    pub(super) unsafe fn launch<A: Copy>(
        &self,
        kernel: Kernel,
        suffix: &'static str,
        grid: Grid,
        args: &A,
    ) -> candle_core::Result<()> {
        let name = CString::new(format!("{}{suffix}", kernel.name)).expect("kernels have plain names");
        let args_at = std::ptr::from_ref(args).cast();
        // SAFETY: the caller's promise; the size of the arguments is checked on the other side.
        let outcome = unsafe {
            mlmtrain_host_launch(
                name.as_ptr(),
                args_at,
                size_of::<A>(),
                grid.blocks.as_ptr(),
                grid.threads,
                grid.shared_bytes,
            )
        };
        match outcome {
            0 => Ok(()),
            1 => bail!("{}: no kernel {name:?}", kernel.op),
            _ => bail!(
                "{}: the arguments of {name:?} are {} bytes here and another number there",
                kernel.op,
                size_of::<A>()
            ),
        }
    }

    #[expect(clippy::unused_self, reason = "as the other drivers have it")]
    pub(super) unsafe fn gemm(&self, gemm: &Gemm, sums: Option<Address>) -> candle_core::Result<bool> {
        // As if there were none for a single column, so that tests take the ways around it, too.
        if (sums.is_some() || gemm.bias.is_some()) && gemm.n == 1 {
            return Ok(false);
        }
        // SAFETY: the caller's promise.
        unsafe {
            match (gemm.dtype, gemm.out_dtype) {
                (DType::F32, DType::F32) => product::<f32, f32>(gemm, sums),
                (DType::BF16, DType::BF16) => product::<bf16, bf16>(gemm, sums),
                (DType::BF16, DType::F32) => product::<bf16, f32>(gemm, sums),
                (DType::F16, DType::F16) => product::<f16, f16>(gemm, sums),
                (DType::F16, DType::F32) => product::<f16, f32>(gemm, sums),
                (a, b) => bail!("no product of {a:?} to {b:?}"),
            }
        }
        Ok(true)
    }

    #[expect(clippy::unused_self, reason = "as the other drivers have it")]
    pub(super) fn with_slots<R>(&self, f: impl FnOnce(&mut Slots<Slot>) -> R) -> R {
        SLOTS.with_borrow_mut(f)
    }

    #[expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "as the other drivers have it")]
    pub(super) fn new_slot(&self, bytes: usize) -> candle_core::Result<Slot> {
        Ok(Slot::new(bytes))
    }
}

/// A slot of plain memory; its copy is done when [`Slot::send`] returns.
pub(super) struct Slot {
    host: Vec<u8>,
    /// Longer by what the first multiple of 256 bytes in it may be away.
    device: Vec<u8>,
    /// Where that multiple is.
    start: usize,
    sent: usize,
}

impl Slot {
    const ALIGNMENT_BYTES: usize = 256;

    fn new(bytes: usize) -> Self {
        let device = vec![0; bytes + Self::ALIGNMENT_BYTES];
        let start = device.as_ptr().align_offset(Self::ALIGNMENT_BYTES);
        Self { host: vec![0; bytes], device, start, sent: 0 }
    }

    pub(super) fn address(&self) -> Address {
        Address(self.device[self.start..].as_ptr() as u64)
    }

    #[expect(clippy::unused_self, reason = "as the other drivers have it")]
    pub(super) fn is_page_locked(&self) -> bool {
        true
    }

    #[expect(clippy::unnecessary_wraps, reason = "as the other drivers have it")]
    pub(super) fn send(&mut self, bytes: usize, write: impl FnOnce(&mut [u8])) -> candle_core::Result<()> {
        write(&mut self.host[..bytes]);
        self.device[self.start..self.start + bytes].copy_from_slice(&self.host[..bytes]);
        self.sent = bytes;
        Ok(())
    }

    /// Overwrites what was sent: a kernel that reads it afterwards is seen.
    #[expect(clippy::unnecessary_wraps, reason = "as the other drivers have it")]
    pub(super) fn retire(&mut self) -> candle_core::Result<()> {
        self.device[self.start..self.start + self.sent].fill(u8::MAX);
        Ok(())
    }
}

impl Room for Slot {
    fn bytes(&self) -> usize {
        self.host.len()
    }
}

pub(super) fn open(_: usize) -> Result<Device, Unavailable> {
    Err(Unavailable::NotBuilt)
}

pub(super) fn properties(_: &Device) -> Option<Properties> {
    None
}

pub(super) fn memory(_: &Device) -> Option<Memory> {
    None
}

#[expect(clippy::unnecessary_wraps, reason = "as the other drivers have it")]
pub(super) fn reserve(_: &Device, _: u64) -> candle_core::Result<Option<u64>> {
    Ok(None)
}

pub(super) fn set_tf32(_: bool) {}

/// The definition, element by element.
unsafe fn product<T: Element, O: Element>(gemm: &Gemm, sums: Option<Address>) {
    let at = |operand: &Operand, row: usize, col: usize| {
        let (row, col) = if operand.transposed { (col, row) } else { (row, col) };
        // SAFETY: the caller promises matrices of these sizes.
        unsafe { *(operand.address.0 as *const T).add(row * operand.stride + col) }.widen()
    };
    for row in 0..gemm.m {
        if let Some(sums) = sums {
            // SAFETY: there is a sum for each row.
            unsafe { *(sums.0 as *mut f32).add(row) = (0..gemm.k).map(|k| at(&gemm.a, row, k)).sum() };
        }
        for col in 0..gemm.n {
            // SAFETY: as above.
            let out = unsafe { &mut *(gemm.out.0 as *mut O).add(row * gemm.n + col) };
            // SAFETY: a bias has `n` values of the type of the output.
            let bias = gemm.bias.map_or(0.0, |bias| unsafe { *(bias.0 as *const O).add(col) }.widen());
            let start = if gemm.accumulate { out.widen() } else { bias };
            let sum: f32 = (0..gemm.k).map(|k| at(&gemm.a, row, k) * at(&gemm.b, k, col)).sum();
            *out = O::narrow(start + sum);
        }
    }
}
