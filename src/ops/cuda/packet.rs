//! Whole numbers on their way to the GPU: all arrays of a batch lie one behind the other in one packet, and
//! one copy takes it there.
//!
//! A packet lies in a slot: a host buffer, page-locked on a real GPU, and a buffer of the GPU. The copy runs
//! on a stream of its own, beside what the GPU computes from earlier packets; what is launched from now on
//! waits for it there. The slot is free again when the last array of its packet is dropped. The GPU may not
//! have come so far by then, so the next copy into the slot waits for it, on its stream: the host waits for
//! nothing but to write to a host buffer whose own last copy is not done.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use candle_core::DType;
use candle_core::Device;
use candle_core::Result;
use candle_core::Tensor;
use candle_core::bail;

use super::Address;
use super::Gpu;
use super::driver::Driver;
use super::driver::Slot;
use super::slots::Room;
use super::slots::Slots;
use super::slots::slot_bytes;

/// Every array begins at a multiple of so many bytes, as memory that is allocated for itself does.
const ALIGNMENT_BYTES: usize = 256;

/// An array on the host.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Values<'a> {
    /// Ids, labels, bounds, plans.
    U32(&'a [u32]),
    /// Dropout keys.
    U64(&'a [u64]),
}

/// What an array holds.
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

    /// Little-endian, as every GPU is.
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

/// An array on the GPU. Its memory is used for other numbers once all arrays of its packet are dropped:
/// keep it until the kernel that reads it is launched.
#[derive(Debug, Clone)]
pub struct Array {
    start: Address,
    kind: Kind,
    /// Its packet, or the tensor that it is.
    _memory: Arc<dyn Any + Send + Sync>,
}

impl Array {
    /// The numbers of a contiguous u32 tensor, which a kernel has written or will write.
    pub(crate) fn of(gpu: &Gpu, numbers: &Tensor) -> Result<Self> {
        let start = gpu.input(numbers, DType::U32)?;
        Ok(Self { start, kind: Kind::U32, _memory: Arc::new(numbers.clone()) })
    }

    /// A copy of keys in a tensor of its own, for those that outlive every batch.
    pub(crate) fn of_keys(gpu: &Gpu, keys: &[u64]) -> Result<Self> {
        // candle has no unsigned type of 64 bits.
        let keys = gpu.upload(&keys.iter().map(|&key| key as i64).collect::<Vec<i64>>())?;
        let start = gpu.input(&keys, DType::I64)?;
        Ok(Self { start, kind: Kind::U64, _memory: Arc::new(keys) })
    }

    /// Where it begins, for a kernel that reads values of this kind.
    pub(crate) fn address(&self, kind: Kind) -> Result<Address> {
        if self.kind != kind {
            bail!("an array of {:?} was passed on as one of {kind:?}", self.kind);
        }
        Ok(self.start)
    }
}

/// What lies in a slot.
struct Packet {
    driver: Driver,
    start: Address,
    /// Empty only while it is being dropped.
    slot: Option<Slot>,
}

impl fmt::Debug for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "packet at {:#x}", self.start.0)
    }
}

impl Packet {
    /// Sends arrays that begin at these offsets of `bytes` bytes.
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
        // Where the driver cannot even be told, the slot is not used again, and the next call to it says
        // why.
        if slot.retire().is_ok() {
            // What comes back is dropped after the list of free slots is let go: that may wait for the GPU.
            let _superfluous = self.driver.with_slots(|slots| slots.give_back(slot));
        }
    }
}

/// A slot with room for a packet. One that packets have outgrown is dropped.
fn free_slot(driver: &Driver, bytes: usize) -> Result<Slot> {
    let slot = driver.with_slots(Slots::take).filter(|slot| slot.bytes() >= bytes);
    slot.map_or_else(|| driver.new_slot(slot_bytes(bytes)), Ok)
}

/// Where each array begins, and the bytes of them all.
fn layout(arrays: &[Values<'_>]) -> (Vec<usize>, usize) {
    let mut end = 0;
    let place = |array: &Values<'_>| {
        let start = usize::next_multiple_of(end, ALIGNMENT_BYTES);
        end = start + array.bytes();
        start
    };
    (arrays.iter().map(place).collect(), end)
}

impl Gpu {
    /// Sends arrays as one packet; they come back in their order.
    pub(crate) fn send(&self, arrays: &[Values<'_>]) -> Result<Vec<Array>> {
        let (offsets, bytes) = layout(arrays);
        let packet = Arc::new(Packet::send(&self.0, arrays, &offsets, bytes)?);
        let array = |(array, offset): (&Values<'_>, usize)| Array {
            start: packet.start.plus(offset),
            kind: array.kind(),
            _memory: packet.clone(),
        };
        Ok(arrays.iter().zip(offsets).map(array).collect())
    }

    /// Sends one array by itself.
    pub(crate) fn send_one(&self, array: Values<'_>) -> Result<Array> {
        Ok(self.send(&[array])?.remove(0))
    }
}

/// Whether batches are copied to this GPU from page-locked memory, which the copy can read by itself; `None`
/// for the CPU.
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
        let (ids, keys) = ([1u32; 65], [2u64; 3]);
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
            // SAFETY: the array lives, and the tests ask for as many numbers as it has.
            (0..count).map(|index| unsafe { *start.add(index) }).collect()
        }

        #[test]
        fn every_array_arrives_aligned() {
            on_host(|| {
                let (a, b, c) = ([7u32, 8, 9], [1u64 << 40, 5], [6u32]);
                let sent = gpu()
                    .send(&[Values::U32(&a), Values::U64(&b), Values::U32(&[]), Values::U32(&c)])
                    .unwrap();
                assert_eq!((numbers(&sent[0], 3), numbers(&sent[3], 1)), (a.to_vec(), c.to_vec()));
                let keys = sent[1].address(Kind::U64).unwrap().0;
                // SAFETY: two keys were sent, and their array lives.
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
                // One array keeps the whole packet.
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
                // More than the least size of a slot.
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
                // SAFETY: the free slot keeps its memory.
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
