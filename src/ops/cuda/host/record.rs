//! What a GPU would be asked for, written down instead of done: to count launches and bytes of whole steps,
//! and to see their products, in sizes that the CPU could not compute. Its tensors have no values
//! (`valueless.rs`), so that nothing is done beside what is written down.

use std::cell::RefCell;
use std::collections::BTreeMap;

use super::super::described::Description;

/// One thing that a GPU is asked for.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A kernel of ours.
    Launch {
        /// With its type.
        kernel: String,
        /// Bytes of the tensors that its arguments name, from there to their ends, each counted once.
        bytes: u64,
    },
    /// A product of the library.
    Product(Description),
    /// Zeros in so many bytes.
    Clear(u64),
    /// A copy of so many bytes to another place.
    Move(u64),
    /// A copy of so many bytes from the host.
    Copy(u64),
    /// A copy to the host, which waits for all that was asked for before.
    Read,
}

#[derive(Debug, Default)]
struct Record {
    events: Vec<Event>,
    /// First address and bytes of the tensors that were named so far.
    tensors: BTreeMap<u64, u64>,
    /// Whether all that is named from now on has to be made by the driver, or was named before.
    strict: bool,
}

thread_local! {
    static RECORD: RefCell<Option<Record>> = const { RefCell::new(None) };
}

/// Runs `f` as [`super::on_host`] does, but kernels and products are only written down: tensors have no
/// values, and what is read back of them is 0. [`take`] gives what was written so far.
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

/// What was asked for on this thread since the last call. From the first call on, a tensor that candle has
/// made is refused where a kernel or a product is to take it, unless one has taken it before.
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

/// Writes an event down; false where nothing is recorded, and it is to be done.
pub(super) fn write(event: impl FnOnce() -> Event) -> bool {
    RECORD.with_borrow_mut(|record| record.as_mut().map(|record| record.events.push(event())).is_some())
}

/// A tensor was named for the arguments of a launch to come.
pub(super) fn tensor(start: u64, bytes: usize) {
    RECORD.with_borrow_mut(|record| {
        if let Some(record) = record {
            record.tensors.insert(start, bytes as u64);
        }
    });
}

/// Writes a launch down; false where nothing is recorded.
pub(super) fn launch<A: Copy>(kernel: &str, suffix: &str, args: &A) -> bool {
    RECORD.with_borrow_mut(|record| {
        let Some(record) = record else { return false };
        let words = std::ptr::from_ref(args).cast::<u64>();
        let mut named = BTreeMap::new();
        for index in 0..size_of::<A>() / size_of::<u64>() {
            // SAFETY: the arguments of kernels are plain words; padding in them is not told from a value, and
            // an address that no tensor has counts nothing.
            let word = unsafe { words.add(index).read_unaligned() };
            if let Some((start, bytes)) = record.tensors.range(..=word).next_back()
                && word - start < *bytes
            {
                named.insert(word, start + bytes - word);
            }
        }
        let kernel = format!("{kernel}{suffix}");
        record.events.push(Event::Launch { kernel, bytes: named.values().sum() });
        true
    })
}
