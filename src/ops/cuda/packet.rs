//! Upload of integer arrays to the GPU: all arrays of a batch are packed one after the other into one packet,
//! which one copy transfers.
//!
//! A packet is stored in a slot: a host buffer (page-locked on a real GPU) and a buffer on the GPU. The copy
//! runs on a stream of its own, concurrently with the GPU's computation on earlier packets; work that is
//! launched afterwards waits for it on the GPU. The slot is free again when the last array of its packet is
//! dropped. The GPU may still be using the packet by then, so the next copy into the slot waits for that on
//! its stream. The host itself waits only before it writes to a host buffer whose own last copy is not
//! finished.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use candle_core::{DType, Device, Result, Tensor, bail};

use super::driver::{Driver, Slot};
use super::slots::{Room, Slots, slot_bytes};
use super::{Address, Gpu};

/// Alignment of every array in a packet, in bytes: the same as that of memory allocated for a single tensor.
const ALIGNMENT_BYTES: usize = 256;

/// Array on the host.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Values<'a> {
    /// Token ids, labels, segment bounds and plans of kernels.
    U32(&'a [u32]),
    /// Dropout keys.
    U64(&'a [u64]),
}

/// Type of an array's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    U32,
    U64,
}

impl Values<'_> {
    fn kind(self) -> Kind {
        match self {
            Self::U32(_) => Kind::U32,
            Self::U64(_) => Kind::U64,
        }
    }

    fn bytes(self) -> usize {
        match self {
            Self::U32(values) => size_of_val(values),
            Self::U64(values) => size_of_val(values),
        }
    }

    /// Writes the values in little-endian order, which every GPU uses.
    fn write(self, to: &mut [u8]) {
        match self {
            Self::U32(values) => to
                .chunks_exact_mut(4)
                .zip(values)
                .for_each(|(to, value)| to.copy_from_slice(&value.to_le_bytes())),
            Self::U64(values) => to
                .chunks_exact_mut(8)
                .zip(values)
                .for_each(|(to, value)| to.copy_from_slice(&value.to_le_bytes())),
        }
    }
}

/// Array on the GPU. Its memory is reused for other numbers once all arrays of its packet are dropped: keep
/// it until the kernel that reads it is launched.
#[derive(Debug, Clone)]
pub struct Array {
    start: Address,
    kind: Kind,
    /// Owner of the memory: the packet of the array, or the tensor it was made from.
    _memory: Arc<dyn Any + Send + Sync>,
}

impl Array {
    /// Wraps a contiguous u32 tensor, which a kernel has written or will write.
    pub(crate) fn of(gpu: &Gpu, numbers: &Tensor) -> Result<Self> {
        let start = gpu.input(numbers, DType::U32)?;
        Ok(Self { start, kind: Kind::U32, _memory: Arc::new(numbers.clone()) })
    }

    /// Copies keys into a tensor of their own, for keys that are used longer than one batch.
    pub(crate) fn of_keys(gpu: &Gpu, keys: &[u64]) -> Result<Self> {
        // candle has no unsigned type of 64 bits.
        let keys = gpu.upload(&keys.iter().map(|&key| key as i64).collect::<Vec<i64>>())?;
        let start = gpu.input(&keys, DType::I64)?;
        Ok(Self { start, kind: Kind::U64, _memory: Arc::new(keys) })
    }

    /// Returns the start address, for a kernel that reads values of type `kind`; fails if the array has
    /// another type.
    pub(crate) fn address(&self, kind: Kind) -> Result<Address> {
        if self.kind != kind {
            bail!("an array of {:?} was passed on as one of {kind:?}", self.kind);
        }
        Ok(self.start)
    }
}

/// Packet: the contents of a slot.
struct Packet {
    driver: Driver,
    start: Address,
    /// Slot of the packet; `None` only while the packet is being dropped.
    slot: Option<Slot>,
}

impl fmt::Debug for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "packet at {:#x}", self.start.0)
    }
}

impl Packet {
    /// Uploads arrays that begin at these offsets of a packet of `bytes` bytes.
    fn send(driver: &Driver, arrays: &[Values<'_>], offsets: &[usize], bytes: usize) -> Result<Self> {
        let mut slot = free_slot(driver, bytes)?;
        slot.send(bytes, |host| {
            for (array, &offset) in arrays.iter().zip(offsets) {
                array.write(&mut host[offset..offset + array.bytes()]);
            }
        })?;
        Ok(Self { driver: driver.clone(), start: slot.address(), slot: Some(slot) })
    }
}

impl Drop for Packet {
    fn drop(&mut self) {
        let Some(mut slot) = self.slot.take() else { return };
        // If even this call to the driver fails, the slot is not reused, and the next call to the driver
        // reports why.
        if slot.retire().is_ok() {
            // A superfluous slot is dropped after the lock on the free slots is released, since dropping it
            // may wait for the GPU.
            let _superfluous = self.driver.with_slots(|slots| slots.give_back(slot));
        }
    }
}

/// Returns a slot with room for a packet. A free slot that is too small is dropped.
fn free_slot(driver: &Driver, bytes: usize) -> Result<Slot> {
    let slot = driver.with_slots(Slots::take).filter(|slot| slot.bytes() >= bytes);
    slot.map_or_else(|| driver.new_slot(slot_bytes(bytes)), Ok)
}

/// Returns the offset of each array in the packet, and the size of the packet in bytes.
fn layout(arrays: &[Values<'_>]) -> (Vec<usize>, usize) {
    let mut end = 0;
    let mut offsets = Vec::with_capacity(arrays.len());
    for array in arrays {
        let start = usize::next_multiple_of(end, ALIGNMENT_BYTES);
        end = start + array.bytes();
        offsets.push(start);
    }
    (offsets, end)
}

impl Gpu {
    /// Uploads arrays as one packet and returns them on the GPU, in the same order.
    pub(crate) fn send(&self, arrays: &[Values<'_>]) -> Result<Vec<Array>> {
        let (offsets, bytes) = layout(arrays);
        let packet = Arc::new(Packet::send(&self.0, arrays, &offsets, bytes)?);
        let placed = arrays.iter().zip(offsets).map(|(array, offset)| Array {
            start: packet.start.plus(offset),
            kind: array.kind(),
            _memory: packet.clone(),
        });
        Ok(placed.collect())
    }

    /// Uploads a single array.
    pub(crate) fn send_one(&self, array: Values<'_>) -> Result<Array> {
        Ok(self.send(&[array])?.remove(0))
    }
}

/// Returns true if batches are copied to this GPU from page-locked memory, from which the copy runs
/// asynchronously; `None` for the CPU.
pub fn locks_pages(device: &Device) -> Result<Option<bool>> {
    let Some(gpu) = Gpu::of_device(device)? else { return Ok(None) };
    let packet = Packet::send(&gpu.0, &[], &[], 0)?;
    Ok(packet.slot.as_ref().map(Slot::is_page_locked))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_begin_at_multiples_of_256_bytes_and_empty_ones_take_no_room() {
        let ids = [1u32; 65];
        let keys = [2u64; 3];
        let arrays = [
            Values::U32(&[]),
            Values::U32(&ids),
            Values::U64(&keys),
            Values::U32(&[]),
            Values::U32(&ids[..1]),
        ];
        assert_eq!(layout(&arrays), (vec![0, 0, 512, 768, 768], 772));
        assert_eq!(layout(&[]), (vec![], 0));
        assert_eq!(layout(&[Values::U64(&[])]), (vec![0], 0));
    }

    #[cfg(all(feature = "cuda-on-host", not(feature = "cuda")))]
    mod on_host {
        use super::*;
        use crate::cuda::on_host;

        fn gpu() -> Gpu {
            Gpu::of_device(&Device::Cpu).unwrap().expect("inside of `on_host`")
        }

        fn numbers(array: &Array, count: usize) -> Vec<u32> {
            let start = array.address(Kind::U32).unwrap().0 as *const u32;
            // SAFETY: the array is alive, and the tests read no more numbers than it has.
            (0..count).map(|index| unsafe { *start.add(index) }).collect()
        }

        #[test]
        fn every_array_arrives_aligned() {
            on_host(|| {
                let a = [7u32, 8, 9];
                let b = [1u64 << 40, 5];
                let c = [6u32];
                let sent = gpu()
                    .send(&[Values::U32(&a), Values::U64(&b), Values::U32(&[]), Values::U32(&c)])
                    .unwrap();
                assert_eq!((numbers(&sent[0], 3), numbers(&sent[3], 1)), (a.to_vec(), c.to_vec()));
                let keys = sent[1].address(Kind::U64).unwrap().0;
                // SAFETY: two keys were sent, and their array is alive.
                assert_eq!(unsafe { [*(keys as *const u64), *(keys as *const u64).add(1)] }, b);
                let starts = [(0, Kind::U32), (1, Kind::U64), (2, Kind::U32), (3, Kind::U32)];
                assert!(
                    starts.iter().all(|&(index, kind)| sent[index]
                        .address(kind)
                        .unwrap()
                        .0
                        .is_multiple_of(256))
                );
                let error = sent[1].address(Kind::U32).unwrap_err().to_string();
                assert!(error.contains("an array of U64 was passed on as one of U32"), "{error}");
            });
        }

        #[test]
        fn packets_alive_at_once_keep_their_numbers() {
            on_host(|| {
                let send = |value: u32| gpu().send_one(Values::U32(&[value; 100])).unwrap();
                let sent: Vec<Array> = (0..6).map(send).collect();
                for (value, array) in (0..).zip(&sent) {
                    assert_eq!(numbers(array, 100), [value; 100]);
                }
                // A single array keeps the whole packet alive.
                let [first, last] =
                    gpu().send(&[Values::U32(&[50]), Values::U32(&[60; 9])]).unwrap().try_into().unwrap();
                drop((sent, first));
                let others: Vec<Array> = (70..80).map(send).collect();
                assert_eq!((numbers(&last, 9), numbers(&others[9], 100)), (vec![60; 9], vec![79; 100]));
            });
        }

        #[test]
        fn two_slots_serve_one_packet_after_the_other_and_grow() {
            on_host(|| {
                let start = |count: usize| {
                    gpu().send_one(Values::U32(&vec![3; count])).unwrap().address(Kind::U32).unwrap().0
                };
                let starts: Vec<u64> = (0..6).map(|_| start(10)).collect();
                assert_ne!(starts[0], starts[1]);
                assert!(starts.chunks(2).all(|pair| pair == &starts[..2]), "{starts:?}");
                // Larger than the smallest size of a slot.
                let large: Vec<u64> = (0..6).map(|_| start(1 << 19)).collect();
                assert!(large.chunks(2).all(|pair| pair == &large[..2]), "{large:?}");
                let small: Vec<u64> = (0..2).map(|_| start(10)).collect();
                assert_eq!(small, large[..2]);
            });
        }

        #[test]
        fn memory_of_a_dropped_packet_is_overwritten_here() {
            on_host(|| {
                let array = gpu().send_one(Values::U32(&[4; 3])).unwrap();
                let start = array.address(Kind::U32).unwrap().0 as *const u32;
                drop(array);
                // SAFETY: the free slot still owns its memory.
                assert_eq!(unsafe { *start }, u32::MAX);
            });
        }

        #[test]
        fn the_host_counts_as_page_locked() {
            assert_eq!(locks_pages(&Device::Cpu).unwrap(), None);
            assert_eq!(on_host(|| locks_pages(&Device::Cpu).unwrap()), Some(true));
        }
    }
}
