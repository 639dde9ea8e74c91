//! Where a tile of a product goes, and what is added on the way.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::_MM_HINT_T0;
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::_mm_prefetch;
use std::mem::MaybeUninit;

use super::Output;
use crate::element::Element;

/// Where a tile goes: `(sum + partial) * scale + bias`, or that added to what is there.
pub(super) struct Target<O> {
    /// First element.
    pub(super) data: *mut O,
    /// Distance between rows in elements.
    pub(super) row_stride: usize,
    /// Whether to add to what is there.
    pub(super) accumulate: bool,
    /// Factor of the sum.
    pub(super) scale: f32,
    /// Added to each row; may be null.
    pub(super) bias: *const f32,
    /// The sum of the depth before, may be null.
    pub(super) partial: *const f32,
    /// Distance between rows of `partial`.
    pub(super) partial_stride: usize,
}

impl<O: Element> Target<O> {
    /// The sum over some pieces of the depth, in f32.
    pub(super) fn partial(data: *mut O, row_stride: usize, accumulate: bool) -> Self {
        let (bias, partial) = (std::ptr::null(), std::ptr::null());
        Self { data, row_stride, accumulate, scale: 1.0, bias, partial, partial_stride: 0 }
    }

    /// The result from (row, col) on.
    ///
    /// # Safety
    /// The element must lie inside `out`.
    pub(super) unsafe fn at(out: Output<'_, O>, (row, col): (usize, usize), scale: f32) -> Self {
        Self {
            // SAFETY: the caller promises that the element exists.
            data: unsafe { out.data.add(row * out.row_stride + col) },
            row_stride: out.row_stride,
            accumulate: out.accumulate,
            scale,
            bias: out.bias.map_or(std::ptr::null(), |bias| bias[col..].as_ptr()),
            partial: std::ptr::null(),
            partial_stride: 0,
        }
    }

    /// The result when the pieces before this one were summed elsewhere.
    pub(super) fn after(self, partial: *const f32, partial_stride: usize) -> Self {
        Self { partial, partial_stride, ..self }
    }

    /// The result when the pieces before this one are in it already.
    pub(super) fn piece(self, index: usize) -> Self {
        if index == 0 { self } else { Self { accumulate: true, bias: std::ptr::null(), ..self } }
    }

    /// Has so many rows and columns on their way to the caches: gradients come from main memory.
    #[inline(always)]
    pub(super) fn prefetch(&self, rows: usize, cols: usize) {
        #[cfg(target_arch = "x86_64")]
        for row in 0..rows {
            // SAFETY: the row is in the target; a prefetch reads nothing.
            unsafe {
                let row = self.data.add(row * self.row_stride).cast::<i8>();
                _mm_prefetch::<_MM_HINT_T0>(row);
                _mm_prefetch::<_MM_HINT_T0>(row.add((cols - 1) * size_of::<O>()));
            }
        }
    }

    /// Stores the sums of a row; for code that is compiled for the machine's instructions.
    ///
    /// # Safety
    /// The target, and what is added to it, covers the row and as many columns as there are sums.
    #[inline(always)]
    pub(super) unsafe fn store_row(&self, row: usize, sums: &[f32]) {
        // SAFETY: the caller's promise.
        unsafe {
            let there = |data: *const f32, offset: usize| {
                (!data.is_null()).then(|| std::slice::from_raw_parts(data.add(offset), sums.len()))
            };
            let (partial, bias) = (there(self.partial, row * self.partial_stride), there(self.bias, 0));
            let out = self.data.add(row * self.row_stride).cast::<MaybeUninit<O>>();
            let out = std::slice::from_raw_parts_mut(out, sums.len());
            for (i, out) in out.iter_mut().enumerate() {
                // What is added to holds values, as the caller of the product promises.
                let start = if self.accumulate {
                    out.assume_init_read().widen()
                } else {
                    bias.map_or(0.0, |bias| bias[i])
                };
                let sum = sums[i] + partial.map_or(0.0, |partial| partial[i]);
                out.write(O::narrow(sum.mul_add(self.scale, start)));
            }
        }
    }
}
