//! Whether tensors of one shape lie at equal distances in memory, so that one product can take them all.

use candle_core::DType;
use candle_core::Result;

use super::Address;

/// Addresses at equal distances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Apart<const N: usize> {
    /// The lowest.
    pub(crate) first: Address,
    /// Values from each to the next.
    pub(crate) stride: usize,
    /// Which one each of them is, counted from the lowest.
    pub(crate) ranks: [usize; N],
}

impl<const N: usize> Apart<N> {
    /// Of the addresses of several things; `None` where distances differ, or are no whole values of `dtype`.
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
        let rank = |address: Address| sorted.iter().filter(|&&other| other < address.0).count();
        Some(Self { first: Address(sorted[0]), stride: (bytes / size) as usize, ranks: addresses.map(rank) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_distances_of_whole_values_are_found_in_any_order() {
        let of = |addresses: [u64; 3]| Apart::of_addresses(addresses.map(Address), DType::F32);
        assert_eq!(of([300, 100, 500]), Some(Apart { first: Address(100), stride: 50, ranks: [1, 0, 2] }));
        assert_eq!([of([0, 8, 12]), of([8, 8, 8]), of([0, 6, 12])], [None; 3]);
        assert_eq!(Apart::of_addresses([Address(4)], DType::F32), None);
    }
}
