//! Reads kept documents ahead on a thread of its own and hands them over in portions.

use std::sync::mpsc::Receiver;
use std::sync::mpsc::SyncSender;
use std::sync::mpsc::sync_channel;

use anyhow::Result;

use crate::corpus::KeptDocuments;
use crate::corpus::Side;
use crate::corpus::Split;
use crate::corpus::StoredDocument;

/// Documents are handed to the threads in portions of about this many bytes of text.
const PORTION_BYTES: usize = 2 << 20;

/// Portions that are read ahead.
const PORTIONS_AHEAD: usize = 2;

/// A kept document, its index in the corpus and its side of the split.
pub(super) struct Kept {
    pub(super) index: u64,
    pub(super) side: Side,
    pub(super) document: StoredDocument,
}

/// Calls `work` with all kept documents from index `first` on, in order, until it fails.
pub(super) fn for_each(
    kept: &KeptDocuments,
    split: Split,
    first: u64,
    mut work: impl FnMut(Vec<Kept>) -> Result<()>,
) -> Result<()> {
    std::thread::scope(|scope| {
        let (sender, portions): (_, Receiver<Result<Vec<Kept>>>) = sync_channel(PORTIONS_AHEAD);
        scope.spawn(move || read(kept, split, first, &sender));
        for portion in portions {
            work(portion?)?;
        }
        Ok(())
    })
}

fn read(kept: &KeptDocuments, split: Split, first: u64, sender: &SyncSender<Result<Vec<Kept>>>) {
    let (mut portion, mut bytes) = (Vec::new(), 0);
    for document in kept.from_index(split, first) {
        match document {
            Ok((index, side, document)) => {
                bytes += document.text.len();
                portion.push(Kept { index, side, document });
            }
            Err(e) => {
                // If the receiver is gone, the error has no reader.
                let _ = sender.send(Err(e));
                return;
            }
        }
        if bytes >= PORTION_BYTES || portion.len() >= 4096 {
            bytes = 0;
            if sender.send(Ok(std::mem::take(&mut portion))).is_err() {
                return;
            }
        }
    }
    let _ = sender.send(Ok(portion));
}
