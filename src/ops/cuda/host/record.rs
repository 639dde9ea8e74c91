//! Recording of the work that a GPU would be given, without doing it: counts the launches and bytes of whole
//! steps and lists their products, in sizes that the CPU could not compute. The tensors have no values
//! (`valueless.rs`), so nothing but the recording happens.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};

use super::super::described::Description;

/// Recorded request to the GPU.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// Launch of one of mlmtrain's kernels.
    Launch {
        /// Name of the kernel with the suffix of its number type.
        kernel: String,
        /// Bytes of the tensors whose start addresses are among its arguments, and of packets from the
        /// addresses inside them to their ends, each address counted once.
        bytes: u64,
    },
    /// Product by cuBLASLt.
    Product(Description),
    /// Zeros written to this number of bytes.
    Clear(u64),
    /// Copy of this number of bytes on the device.
    Move(u64),
    /// Copy of this number of bytes from the host.
    Copy(u64),
    /// Copy to the host, which waits for all earlier requests.
    Read,
}

#[derive(Debug, Default)]
struct Record {
    events: Vec<Event>,
    /// Size in bytes of each tensor seen so far, by its start address.
    tensors: HashMap<u64, u64>,
    /// Size in bytes of each packet seen so far, by its start address. A packet contains many tensors.
    packets: BTreeMap<u64, u64>,
    /// True if from now on every tensor that is used must be allocated by the driver or have been used
    /// before.
    strict: bool,
}

thread_local! {
    static RECORD: RefCell<Option<Record>> = const { RefCell::new(None) };
}

/// Runs `f` as [`super::on_host`] does, but only records kernels and products: tensors have no values, and
/// values read back are 0. [`take`] returns the events recorded so far.
pub fn recorded<R>(f: impl FnOnce() -> R) -> R {
    struct Reset;
    impl Drop for Reset {
        fn drop(&mut self) {
            RECORD.set(None);
        }
    }
    RECORD.set(Some(Record::default()));
    let _reset = Reset;
    super::on_host(f)
}

/// Returns the events recorded on this thread since the last call. From the first call on, a tensor that
/// candle itself has made is refused as operand of a kernel or product, unless one has used it before.
pub fn take() -> Vec<Event> {
    let taken = |record: &mut Record| {
        record.strict = true;
        std::mem::take(&mut record.events)
    };
    RECORD.with_borrow_mut(|record| record.as_mut().map(taken)).unwrap_or_default()
}

pub(super) fn is_on() -> bool {
    RECORD.with_borrow(Option::is_some)
}

pub(super) fn is_strict() -> bool {
    RECORD.with_borrow(|record| record.as_ref().is_some_and(|record| record.strict))
}

/// Records an event. Returns false if recording is off and the work has to be done.
pub(super) fn write(event: impl FnOnce() -> Event) -> bool {
    RECORD.with_borrow_mut(|record| record.as_mut().map(|record| record.events.push(event())).is_some())
}

/// Records the address and size of a tensor that a launch will use.
pub(super) fn tensor(start: u64, bytes: usize) {
    RECORD.with_borrow_mut(|record| {
        if let Some(record) = record {
            record.tensors.insert(start, bytes as u64);
        }
    });
}

/// Records the address and size of a packet that launches will use, and forgets tensors that were there before.
pub(super) fn packet(start: u64, bytes: usize) {
    RECORD.with_borrow_mut(|record| {
        if let Some(record) = record {
            let bytes = bytes as u64;
            record.tensors.retain(|tensor, _| !(start..start + bytes).contains(tensor));
            record.packets.insert(start, bytes);
        }
    });
}

impl Record {
    /// Returns the number of bytes from the address `word` to the end of the tensor or packet that contains it;
    /// `None` if `word` is no address. Of a tensor, only the start is accepted: two small numbers in one word, or
    /// bytes of padding, can look like an address inside a large tensor.
    fn bytes_at(&self, word: u64) -> Option<u64> {
        self.tensors.get(&word).copied().or_else(|| {
            let (start, bytes) = self.packets.range(..=word).next_back()?;
            (start + bytes).checked_sub(word).filter(|rest| *rest > 0)
        })
    }
}

/// Records a launch. Returns false if recording is off.
pub(super) fn launch<A: Copy>(kernel: &str, suffix: &str, args: &A) -> bool {
    RECORD.with_borrow_mut(|record| {
        let Some(record) = record else { return false };
        let words = std::ptr::from_ref(args).cast::<u64>();
        let mut named = BTreeMap::new();
        for index in 0..size_of::<A>() / size_of::<u64>() {
            // SAFETY: the arguments of kernels consist of plain words.
            let word = unsafe { words.add(index).read_unaligned() };
            if let Some(bytes) = record.bytes_at(word) {
                named.insert(word, bytes);
            }
        }
        let kernel = format!("{kernel}{suffix}");
        record.events.push(Event::Launch { kernel, bytes: named.values().sum() });
        true
    })
}
