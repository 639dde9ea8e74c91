//! Access to candle tensors as plain slices: reading, writing in place, and construction.
//!
//! It contains no arithmetic except [`accumulate`]. Access needs a contiguous tensor on the CPU and is an
//! error for any other.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::{Deref, Range};

use candle_core::{
    CpuStorage, DType, Device, InplaceOp1, Layout, Result, Shape, Storage, Tensor, WithDType, bail,
};

use crate::element::Element;

/// Returns the values of a contiguous CPU tensor of type `T`, for reading. For a view these are exactly the
/// values of the view, not those of the whole storage.
///
/// The result keeps a read lock on the tensor's storage: see [`with_values_mut`] for the deadlock to avoid.
pub fn values<T: WithDType>(t: &Tensor) -> Result<Values<impl Deref<Target = Storage> + '_, T>> {
    let (storage, layout) = t.storage_and_layout();
    check_place(t, T::DTYPE)?;
    let Some((start, end)) = layout.contiguous_offsets() else {
        bail!("tensor {:?} is not contiguous", t.shape())
    };
    let Storage::Cpu(on_cpu) = &*storage else { bail!("tensor {:?} is not on the CPU", t.shape()) };
    // The type is checked here once; `Values::deref` relies on it.
    on_cpu.as_slice::<T>()?;
    Ok(Values { storage, range: start..end, element: PhantomData })
}

/// Copies a tensor to CPU memory; a tensor that is on the CPU already is copied, too.
pub fn copy_on_host(t: &Tensor) -> Result<Tensor> {
    if t.device().is_cpu() { t.copy() } else { t.to_device(&Device::Cpu) }
}

/// Copies the values of a vector on the CPU; `len` zeros if `t` is `None`.
pub fn values_or_zeros(t: Option<&Tensor>, len: usize) -> Result<Vec<f32>> {
    t.map_or(Ok(vec![0.0; len]), |t| Ok(values::<f32>(t)?.to_vec()))
}

/// The result of [`values`]: a slice together with the read lock of its storage.
pub struct Values<G, T> {
    storage: G,
    range: Range<usize>,
    element: PhantomData<T>,
}

impl<G: Deref<Target = Storage>, T: WithDType> Deref for Values<G, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        let Storage::Cpu(storage) = &*self.storage else {
            unreachable!("`values` saw that the tensor is on the CPU")
        };
        &storage.as_slice::<T>().expect("`values` checked the type")[self.range.clone()]
    }
}

/// Runs `f` on the values of a contiguous f32 CPU tensor.
pub fn with_slice<R>(t: &Tensor, f: impl FnOnce(&[f32]) -> R) -> Result<R> {
    Ok(f(&values(t)?))
}

/// [`with_slice`] for a contiguous u32 CPU tensor.
pub fn with_slice_u32<R>(t: &Tensor, f: impl FnOnce(&[u32]) -> R) -> Result<R> {
    Ok(f(&values(t)?))
}

/// [`with_slice`] for several f32 tensors at once, which may be views of one storage.
pub fn with_slices<const N: usize, R>(tensors: [&Tensor; N], f: impl FnOnce([&[f32]; N]) -> R) -> Result<R> {
    let mut guards = Vec::with_capacity(N);
    for t in tensors {
        guards.push(values::<f32>(t)?);
    }
    let mut slices: [&[f32]; N] = [&[]; N];
    slices.iter_mut().zip(&guards).for_each(|(slice, guard)| *slice = guard);
    Ok(f(slices))
}

/// Runs `f` on the values of a contiguous CPU tensor of type `T` for writing in place.
///
/// `f` gets exactly the range of the tensor's layout: for a view (a `narrow` of a flat buffer) the values are
/// written into the underlying buffer, and are visible in every other view of that buffer.
///
/// The storage is locked for writing while `f` runs. Reading or writing another view *of the same storage*
/// inside `f` is a deadlock: write two ranges of one flat buffer one after the other, never nested. For the
/// same reason do not call this function while a result of [`values`] for the same storage is alive.
pub fn with_values_mut<T: Element, R>(t: &Tensor, f: impl FnOnce(&mut [T]) -> R) -> Result<R> {
    let write = Write { f: RefCell::new(Some(f)), result: RefCell::new(None), element: PhantomData };
    check_place(t, T::DTYPE)?;
    t.inplace_op1(&write)?;
    Ok(write.result.into_inner().expect("candle ran the op, else it returned an error"))
}

/// [`with_values_mut`] for f32, the type of parameters and their gradients.
pub fn with_slice_mut<R>(t: &Tensor, f: impl FnOnce(&mut [f32]) -> R) -> Result<R> {
    with_values_mut(t, f)
}

/// Makes a contiguous CPU tensor of `shape` that owns `values`; the number of values must match.
pub fn from_vec<T: WithDType>(values: Vec<T>, shape: impl Into<Shape>) -> Result<Tensor> {
    Tensor::from_vec(values, shape.into(), &Device::Cpu)
}

/// Reserves room for `len` values in `out`, an empty vector, and returns it uninitialised, which saves the
/// pass that would set them to zero. The caller writes all of it, then sets the vector's length.
pub fn unwritten<T>(out: &mut Vec<T>, len: usize) -> &mut [MaybeUninit<T>] {
    debug_assert!(out.is_empty());
    out.reserve_exact(len);
    &mut out.spare_capacity_mut()[..len]
}

/// Writes `value` to every element of `room` and returns it as initialised.
pub fn filled<T: Copy>(room: &mut [MaybeUninit<T>], value: T) -> &mut [T] {
    room.fill(MaybeUninit::new(value));
    // SAFETY: all of it was just written.
    unsafe { assume_written(room) }
}

/// Returns `room`, of which every element was written, as initialised values.
///
/// # Safety
/// Every element must have been written.
pub unsafe fn assume_written<T>(room: &mut [MaybeUninit<T>]) -> &mut [T] {
    // SAFETY: `MaybeUninit<T>` has the layout of `T`, and the caller promises that each element was written.
    unsafe { std::slice::from_raw_parts_mut(room.as_mut_ptr().cast(), room.len()) }
}

/// Adds `values` to the tensor in place, for example a gradient that was summed elsewhere to its view of the
/// flat gradient buffer.
pub fn accumulate(into: &Tensor, values: &[f32]) -> Result<()> {
    if into.elem_count() != values.len() {
        bail!("accumulate: {:?} cannot take {} values", into.shape(), values.len());
    }
    with_slice_mut(into, |into| into.iter_mut().zip(values).for_each(|(a, v)| *a += v))
}

/// Returns the tensor with this name; an error if it is missing or has another type or shape.
pub fn require_named<'a>(
    tensors: &'a BTreeMap<String, Tensor>,
    name: &str,
    dtype: DType,
    dims: &[usize],
) -> Result<&'a Tensor> {
    match tensors.get(name) {
        None => bail!("tensor `{name}` is missing"),
        Some(t) if t.dtype() != dtype || t.dims() != dims => {
            bail!("tensor `{name}` is {:?} {:?}, {dtype:?} {dims:?} is wanted", t.dtype(), t.dims())
        }
        Some(t) => Ok(t),
    }
}

/// Returns an error unless `t` has exactly the shape `want`; `what` names the op and the tensor in the
/// message.
pub fn check_shape(what: &str, t: &Tensor, want: &[usize]) -> Result<()> {
    if t.dims() == want { Ok(()) } else { bail!("{what} is {:?}, it must be {want:?}", t.dims()) }
}

/// Returns an error that names `op` unless each vector that is not `None` has `len` values.
pub fn check_vectors(op: &str, named: &[(&str, Option<&Tensor>)], len: usize) -> Result<()> {
    for (what, t) in named {
        t.map_or(Ok(()), |t| check_shape(&format!("{op}: {what}"), t, &[len]))?;
    }
    Ok(())
}

/// Returns an error unless all tensors have the dtype of the first; it names `op` and two tensors that
/// differ.
pub fn check_one_dtype(op: &str, named: &[(&str, &Tensor)]) -> Result<()> {
    let Some((first, rest)) = named.split_first() else { return Ok(()) };
    match rest.iter().find(|(_, t)| t.dtype() != first.1.dtype()) {
        Some((name, t)) => bail!(
            "{op}: {name} is {:?}, {} is {:?}: they must be of one type",
            t.dtype(),
            first.0,
            first.1.dtype()
        ),
        None => Ok(()),
    }
}

/// Returns an error unless `len` equals `want`; `what` names the op and the slice in the message.
pub fn check_len(what: &str, len: usize, want: usize) -> Result<()> {
    if len == want { Ok(()) } else { bail!("{what} has {len} values, it must have {want}") }
}

fn check_place(t: &Tensor, dtype: DType) -> Result<()> {
    if !t.device().is_cpu() || t.dtype() != dtype || !t.is_contiguous() {
        let shape = t.dims();
        let stride = t.stride();
        bail!(
            "tensor {shape:?} with strides {stride:?} is {:?} on {:?}: wanted contiguous {dtype:?} on the CPU",
            t.dtype(),
            t.device()
        );
    }
    Ok(())
}

/// An in-place op of candle that passes the slice to a closure and keeps the closure's result. The cells are
/// needed because candle passes `&self`.
struct Write<F, R, T> {
    f: RefCell<Option<F>>,
    result: RefCell<Option<R>>,
    element: PhantomData<T>,
}

impl<T: Element, R, F: FnOnce(&mut [T]) -> R> InplaceOp1 for Write<F, R, T> {
    fn name(&self) -> &'static str {
        "write"
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, layout: &Layout) -> Result<()> {
        let (Some(values), Some((start, end))) = (T::of_storage(storage), layout.contiguous_offsets()) else {
            bail!("write: {:?} is not contiguous {:?}", layout.shape(), T::DTYPE);
        };
        let f = self.f.borrow_mut().take().expect("candle runs an in-place op once");
        *self.result.borrow_mut() = Some(f(&mut values[start..end]));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_is_written_in_exactly_its_own_range() {
        let flat = from_vec((0..10).map(|i| i as f32).collect(), 10).unwrap();
        let view = flat.narrow(0, 3, 4).unwrap().reshape((2, 2)).unwrap();
        let sum = with_slice_mut(&view, |values| {
            assert_eq!(values, [3.0, 4.0, 5.0, 6.0]);
            values.fill(-1.0);
            values.len()
        });
        assert_eq!(sum.unwrap(), 4);
        accumulate(&view, &[1.0, 2.0, 3.0, 4.0]).unwrap();
        assert_eq!(flat.to_vec1::<f32>().unwrap(), [0.0, 1.0, 2.0, 0.0, 1.0, 2.0, 3.0, 7.0, 8.0, 9.0]);
        with_slices([&view, &flat], |[view, flat]| assert_eq!(view, &flat[3..7])).unwrap();
    }

    #[test]
    fn the_wrong_dtype_layout_or_count_is_named() {
        let square = from_vec::<f32>(vec![0.0; 6], (2, 3)).unwrap();
        let error = with_slice(&square.t().unwrap(), |_| ()).unwrap_err().to_string();
        assert!(error.contains("[3, 2]") && error.contains("contiguous"), "{error}");
        assert!(with_slice_mut(&square.t().unwrap(), |_| ()).is_err());
        let ids = Tensor::new(&[1u32, 2], &Device::Cpu).unwrap();
        assert!(with_slice(&ids, |_| ()).unwrap_err().to_string().contains("U32"));
        assert_eq!(with_slice_u32(&ids, <[u32]>::to_vec).unwrap(), [1, 2]);
        assert!(accumulate(&square, &[0.0; 5]).is_err());
        assert!(
            check_shape("op: x", &square, &[3, 2])
                .unwrap_err()
                .to_string()
                .starts_with("op: x is [2, 3], it must be [3, 2]")
        );
    }
}
