//! Tensors for recorded runs (`record.rs`): they have a type, a shape and an address, but no values.
//!
//! A candle operation that would launch a kernel on a GPU finds no values and panics. One that reads memory
//! without a bounds check (a product) returns a tensor that has values, and so does whatever candle makes
//! from nothing; once the record is strict, such a tensor is refused as operand of a kernel. Views touch no
//! values, and a copy of a whole tensor, which is not a kernel on a GPU either, has none.

use candle_core::op::BackpropOp;
use candle_core::{CpuStorage, DType, InplaceOp1, Layout, Result, Shape, Storage, Tensor, bail};

use super::super::Address;
use super::record;

/// Returns a tensor of this shape without values. Pages that are never written take no memory.
pub(super) fn tensor(shape: Shape, dtype: DType) -> Result<Tensor> {
    // A tensor without elements gets its own address, too.
    let room = shape.elem_count().max(1);
    let storage = match dtype {
        DType::F32 => CpuStorage::F32(Vec::with_capacity(room)),
        DType::BF16 => CpuStorage::BF16(Vec::with_capacity(room)),
        DType::F16 => CpuStorage::F16(Vec::with_capacity(room)),
        DType::F64 => CpuStorage::F64(Vec::with_capacity(room)),
        DType::U32 => CpuStorage::U32(Vec::with_capacity(room)),
        DType::I64 => CpuStorage::I64(Vec::with_capacity(room)),
        other => bail!("no kernel writes {other:?}"),
    };
    Ok(Tensor::from_storage(Storage::Cpu(storage), shape, BackpropOp::none(), false))
}

/// Records a tensor that a kernel or product uses, and returns its address. If the tensor has values, because
/// it was made before the first step, they are removed; in a strict record they are an error.
pub(super) fn named(t: &Tensor) -> Result<Address> {
    let (start, has_values) = place(t)?;
    if has_values && record::is_strict() {
        bail!(
            "a step named a tensor {:?} of {:?} that candle made in it: on a GPU, a kernel of candle's",
            t.dims(),
            t.dtype()
        );
    }
    if has_values {
        t.inplace_op1(&TakeValues)?;
    }
    let size = t.dtype().size_in_bytes();
    let start = start.plus(t.layout().start_offset() * size);
    record::tensor(start.0, t.elem_count() * size);
    Ok(start)
}

/// Returns the start address of a tensor's storage, and true if the storage has values.
fn place(t: &Tensor) -> Result<(Address, bool)> {
    fn of<T>(values: &[T]) -> (Address, bool) {
        (Address(values.as_ptr() as u64), !values.is_empty())
    }
    let (storage, _) = t.storage_and_layout();
    match &*storage {
        Storage::Cpu(CpuStorage::F32(values)) => Ok(of(values)),
        Storage::Cpu(CpuStorage::BF16(values)) => Ok(of(values)),
        Storage::Cpu(CpuStorage::F16(values)) => Ok(of(values)),
        Storage::Cpu(CpuStorage::F64(values)) => Ok(of(values)),
        Storage::Cpu(CpuStorage::U32(values)) => Ok(of(values)),
        Storage::Cpu(CpuStorage::I64(values)) => Ok(of(values)),
        _ => bail!("no kernel reads {:?} on {:?}", t.dtype(), t.device().location()),
    }
}

/// Operation that removes the values of a storage but keeps its memory.
struct TakeValues;

impl InplaceOp1 for TakeValues {
    fn name(&self) -> &'static str {
        "take values"
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, _: &Layout) -> Result<()> {
        match storage {
            CpuStorage::F32(values) => values.clear(),
            CpuStorage::BF16(values) => values.clear(),
            CpuStorage::F16(values) => values.clear(),
            CpuStorage::F64(values) => values.clear(),
            CpuStorage::U32(values) => values.clear(),
            CpuStorage::I64(values) => values.clear(),
            other => bail!("no kernel reads {:?}", candle_core::backend::BackendStorage::dtype(other)),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;
    use crate::cuda::{Gpu, recorded, take};
    use base::quietly::quietly;

    fn gpu() -> Gpu {
        Gpu::of_device(&Device::Cpu).unwrap().expect("inside of `recorded`")
    }

    fn room() -> Tensor {
        gpu().uninitialised((4, 4), DType::F32).unwrap()
    }

    /// Control of every recorded step.
    #[test]
    fn whatever_launches_a_kernel_of_candles_is_found() {
        type Launch = fn(&Tensor) -> Result<Tensor>;
        let launches: [(&str, Launch); 9] = [
            ("a number for each", |t| t.affine(2.0, 1.0)),
            ("another type", |t| t.to_dtype(DType::BF16)),
            ("a sum of two", |t| t + t),
            ("a sum of all", Tensor::sum_all),
            ("a transpose in order", |t| t.t()?.contiguous()),
            ("zeros in place", |t| t.zero_set().map(|()| t.clone())),
            ("rows in place", |t| {
                t.slice_set(&Tensor::zeros((1, 4), DType::F32, &Device::Cpu)?, 0, 2)?;
                Ok(t.clone())
            }),
            ("rows side by side", |t| Tensor::cat(&[t, t], 0)),
            ("zeros from nothing", Tensor::zeros_like),
        ];
        recorded(|| {
            take();
            for (what, launch) in launches {
                let found = quietly(|| gpu().input(&launch(&room())?, DType::F32));
                assert!(found.is_err(), "{what}");
            }
        });
    }

    #[test]
    fn what_candle_made_in_a_step_is_named_and_views_are_not() {
        recorded(|| {
            let before = Tensor::ones((4, 4), DType::F32, &Device::Cpu).unwrap();
            let start = gpu().input(&before, DType::F32).unwrap();
            take();
            assert_eq!(gpu().input(&before, DType::F32).unwrap(), start);
            let made = Tensor::zeros((2, 3), DType::F32, &Device::Cpu).unwrap();
            let error = gpu().input(&made, DType::F32).unwrap_err().to_string();
            assert!(error.contains("[2, 3] of F32 that candle made"), "{error}");
            let view = before.narrow(0, 1, 2).unwrap().reshape(8).unwrap();
            assert_eq!(gpu().output(&view, DType::F32).unwrap(), start.plus(4 * size_of::<f32>()));
        });
    }
}
