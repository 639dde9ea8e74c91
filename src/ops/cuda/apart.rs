//! Detects tensors of one shape that are stored at equal distances in memory, so that one batched product can
//! read or write them all.

use candle_core::{DType, Result};

use super::Address;

/// Start addresses at equal distances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Apart<const N: usize> {
    /// Lowest of the addresses.
    pub(crate) first: Address,
    /// Distance from each address to the next, in values of the type.
    pub(crate) stride: usize,
    /// Index of each input in the order of addresses, 0 for the lowest.
    pub(crate) ranks: [usize; N],
}

impl<const N: usize> Apart<N> {
    /// Returns the distances between the addresses of several things; `None` if the distances differ or are
    /// not a whole number of values of `dtype`.
    pub(crate) fn of<T>(
        things: &[T; N],
        dtype: DType,
        address: impl Fn(&T) -> Result<Address>,
    ) -> Result<Option<Self>> {
        let mut addresses = [Address::NULL; N];
        for (place, thing) in addresses.iter_mut().zip(things) {
            *place = address(thing)?;
        }
        Ok(Self::of_addresses(addresses, dtype))
    }

    fn of_addresses(addresses: [Address; N], dtype: DType) -> Option<Self> {
        let mut sorted = addresses.map(|address| address.0);
        sorted.sort_unstable();
        let bytes = sorted.windows(2).map(|pair| pair[1] - pair[0]).next()?;
        let are_equal = sorted.windows(2).all(|pair| pair[1] - pair[0] == bytes);
        let size = dtype.size_in_bytes() as u64;
        if bytes == 0 || !are_equal || !bytes.is_multiple_of(size) {
            return None;
        }
        let ranks = addresses.map(|address| sorted.iter().filter(|&&other| other < address.0).count());
        Some(Self { first: Address(sorted[0]), stride: (bytes / size) as usize, ranks })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_distances_of_whole_values_are_found_in_any_order() {
        let equal = Apart { first: Address(100), stride: 50, ranks: [1, 0, 2] };
        for (addresses, want) in
            [([300, 100, 500], Some(equal)), ([0, 8, 12], None), ([8, 8, 8], None), ([0, 6, 12], None)]
        {
            assert_eq!(Apart::of_addresses(addresses.map(Address), DType::F32), want);
        }
        assert_eq!(Apart::of_addresses([Address(4)], DType::F32), None);
    }
}
