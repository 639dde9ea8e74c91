//! Driver that runs the kernels as C++ on the CPU, for tests: tensors stay in host memory, and ops called
//! inside [`on_host`] take their GPU code path.

mod kernels;
mod library;
mod products;
mod record;
mod slot;
mod valueless;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use candle_core::{DType, Device, Shape, Tensor, bail};
use half::{bf16, f16};

use super::algorithms::{Algorithm, Algorithms};
use super::described::Description;
use super::gemm::Gemm;
use super::slots::Slots;
use super::{Address, Grid, Kernel, Memory, Properties, Unavailable};
use crate::element::Element;
use crate::tensor::{from_vec, values, with_values_mut};
use products::Places;

pub use kernels::{Turns, take_turns};
pub use library::with_candidates;
pub use record::{Event, recorded, take};
pub(super) use slot::Slot;

thread_local! {
    static ACTIVE: Cell<bool> = const { Cell::new(false) };
    /// Slots of this thread: each thread simulates a GPU of its own, so that tests do not share slots.
    static SLOTS: RefCell<Slots<Slot>> = RefCell::default();
}

/// Runs `f`; ops that it calls on this thread with CPU tensors run their kernels as C++.
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

/// Driver that simulates a GPU on the CPU.
#[derive(Debug, Clone)]
pub(super) struct Driver;

impl Driver {
    pub(super) fn of(device: &Device) -> candle_core::Result<Option<Self>> {
        match device {
            Device::Cpu => Ok(ACTIVE.get().then_some(Self)),
            other => bail!("this build of mlmtrain has no code for {:?}", other.location()),
        }
    }

    /// Returns the compute capability of Hopper, so that the kernels of every generation can be used.
    #[expect(clippy::unused_self, reason = "as the other drivers have it")]
    pub(super) fn capability(&self) -> (u32, u32) {
        (9, 0)
    }

    #[expect(clippy::unused_self, reason = "as the other drivers have it")]
    pub(super) fn device(&self) -> &Device {
        &Device::Cpu
    }

    #[expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "as the other drivers have it")]
    pub(super) fn algorithms(&self) -> candle_core::Result<Algorithms> {
        Ok(library::algorithms())
    }

    #[expect(clippy::unused_self, reason = "as the other drivers have it")]
    pub(super) fn use_algorithms(&self, chosen: &BTreeMap<String, Algorithm>) {
        library::use_algorithms(chosen);
    }

    /// Returns a tensor of NaN, or of zeros in types without NaN, so that values that a kernel fails to write
    /// show up. Tensors of more than a gibibyte are zeros, too, since pages that are never written take no
    /// memory.
    #[expect(clippy::unused_self, reason = "as the other drivers have it")]
    pub(super) fn uninitialised(&self, shape: Shape, dtype: DType) -> candle_core::Result<Tensor> {
        let len = shape.elem_count();
        if record::is_on() {
            return valueless::tensor(shape, dtype);
        }
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
        if record::is_on() {
            return valueless::named(t);
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

    /// Returns the address of a tensor that a kernel writes. As on a GPU, the kernel writes without taking
    /// candle's lock; it does so on one thread, while no one reads.
    pub(super) fn output(&self, t: &Tensor) -> candle_core::Result<Address> {
        fn of<T: Element>(t: &Tensor) -> candle_core::Result<Address> {
            with_values_mut::<T, _>(t, |values| Address(values.as_mut_ptr() as u64))
        }
        if record::is_on() {
            return valueless::named(t);
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
        if !record::write(|| Event::Clear(bytes as u64)) {
            // SAFETY: the caller's promise.
            unsafe { (start.0 as *mut u8).write_bytes(0, bytes) };
        }
        Ok(())
    }

    #[expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "as the other drivers have it")]
    pub(super) unsafe fn copy(&self, from: Address, to: Address, bytes: usize) -> candle_core::Result<()> {
        if !record::write(|| Event::Move(bytes as u64)) {
            // SAFETY: the caller's promise.
            unsafe { std::ptr::copy_nonoverlapping(from.0 as *const u8, to.0 as *mut u8, bytes) };
        }
        Ok(())
    }

    #[expect(clippy::unused_self, reason = "as the other drivers have it")]
    pub(super) fn read(&self, t: &Tensor) -> candle_core::Result<Vec<f64>> {
        if record::write(|| Event::Read) { Ok(vec![0.0; t.elem_count()]) } else { t.to_vec1() }
    }

    #[expect(clippy::unused_self, reason = "as the other drivers have it")]
    pub(super) unsafe fn launch<A: Copy>(
        &self,
        kernel: Kernel,
        suffix: &'static str,
        grid: Grid,
        args: &A,
    ) -> candle_core::Result<()> {
        if record::launch(kernel.name, suffix, args) {
            return Ok(());
        }
        // SAFETY: the caller's promise.
        unsafe { kernels::launch(kernel, suffix, grid, args) }
    }

    #[expect(clippy::unused_self, reason = "as the other drivers have it")]
    pub(super) unsafe fn gemm(&self, gemm: &Gemm, sums: Option<Address>) -> candle_core::Result<bool> {
        // In backwards order, the library behaves as if it had no epilogues and no batches, so that every
        // test covers the fallbacks, too.
        let product = Description::of(gemm, sums);
        if product.may_be_refused() && kernels::turns() == Turns::Backwards {
            return Ok(false);
        }
        products::check(&product)?;
        if !record::write(|| Event::Product(product)) {
            // SAFETY: the caller's promise.
            unsafe { products::run(&product, Places::of(gemm, sums), library::algorithm(gemm, sums)) }?;
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
