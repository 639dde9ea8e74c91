//! Test whether a kernel may read and write 16 bytes at a time.

use candle_core::DType;

use super::Address;

/// Number of values of a type in 16 bytes.
pub(crate) fn values(dtype: DType) -> usize {
    16 / dtype.size_in_bytes()
}

/// Number of neighbouring values that a lane processes, by the result of [`flag`].
pub(crate) fn lane_values(flag: u32, dtype: DType) -> usize {
    if flag == 0 { 1 } else { values(dtype) }
}

/// Returns 1 if all rows of `cols` values at all these addresses begin and end at multiples of 16 bytes, else
/// 0.
pub(crate) fn flag(cols: usize, dtype: DType, addresses: &[Address]) -> u32 {
    let fits =
        cols.is_multiple_of(values(dtype)) && addresses.iter().all(|address| address.0.is_multiple_of(16));
    u32::from(fits)
}
