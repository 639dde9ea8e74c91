//! Destination of a tile of a product, and the values added when the tile is stored.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::_MM_HINT_T0;
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::_mm_prefetch;
use std::mem::MaybeUninit;

use super::Output;
use crate::element::Element;

/// Destination of a tile, which stores `(sum + partial) * scale + bias`, or adds `(sum + partial) * scale` to
/// the previous values.
pub(super) struct Target<O> {
    /// Address of the first element.
    pub(super) data: *mut O,
    /// Distance between rows, in elements.
    pub(super) row_stride: usize,
    /// If true, the result is added to the previous values.
    pub(super) accumulate: bool,
    /// Factor by which the sum is multiplied.
    pub(super) scale: f32,
    /// Bias added to each row; may be null.
    pub(super) bias: *const f32,
    /// Sum over the earlier pieces of the depth; may be null.
    pub(super) partial: *const f32,
    /// Distance between rows of `partial`, in elements.
    pub(super) partial_stride: usize,
}

impl<O: Element> Target<O> {
    /// Makes a target for the f32 sum over some pieces of the depth.
    pub(super) fn partial(data: *mut O, row_stride: usize, accumulate: bool) -> Self {
        Self {
            data,
            row_stride,
            accumulate,
            scale: 1.0,
            bias: std::ptr::null(),
            partial: std::ptr::null(),
            partial_stride: 0,
        }
    }

    /// Makes a target for the part of the product's output that begins at (row, col).
    ///
    /// # Safety
    /// The element must be inside `out`.
    pub(super) unsafe fn new(out: Output<'_, O>, row: usize, col: usize, scale: f32) -> Self {
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

    /// Returns the target with the sum over the earlier pieces taken from `partial`.
    pub(super) fn after(self, partial: *const f32, partial_stride: usize) -> Self {
        Self { partial, partial_stride, ..self }
    }

    /// Returns the target for piece `index` when the output already contains the sum over the earlier pieces.
    pub(super) fn piece(self, index: usize) -> Self {
        if index == 0 { self } else { Self { accumulate: true, bias: std::ptr::null(), ..self } }
    }

    /// Prefetches this many rows and columns into the caches: gradients come from main memory.
    #[inline(always)]
    pub(super) fn prefetch(&self, rows: usize, cols: usize) {
        #[cfg(target_arch = "x86_64")]
        for row in 0..rows {
            // SAFETY: the row is in the target, and a prefetch does not read.
            unsafe {
                let row = self.data.add(row * self.row_stride).cast::<i8>();
                _mm_prefetch::<_MM_HINT_T0>(row);
                _mm_prefetch::<_MM_HINT_T0>(row.add((cols - 1) * size_of::<O>()));
            }
        }
    }

    /// Stores the sums of a row. It is inlined into code that is compiled for the machine's instructions.
    ///
    /// # Safety
    /// The target, and the values that are added to the sums, cover the row and as many columns as there are
    /// sums.
    #[inline(always)]
    pub(super) unsafe fn store_row(&self, row: usize, sums: &[f32]) {
        // SAFETY: the caller's promise.
        unsafe {
            let there = |data: *const f32, offset: usize| {
                (!data.is_null()).then(|| std::slice::from_raw_parts(data.add(offset), sums.len()))
            };
            let partial = there(self.partial, row * self.partial_stride);
            let bias = there(self.bias, 0);
            let out = self.data.add(row * self.row_stride).cast::<MaybeUninit<O>>();
            let out = std::slice::from_raw_parts_mut(out, sums.len());
            for (i, out) in out.iter_mut().enumerate() {
                // The previous values are initialised, as the caller of the product promises.
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
