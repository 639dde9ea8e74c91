//! Reads kept documents in portions on a separate thread, ahead of their use.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use anyhow::Result;

use crate::corpus::{KeptDocuments, Side, Split, StoredDocument};

/// Text in a portion, in bytes; the last document of a portion may exceed it.
const PORTION_BYTES: usize = 2 << 20;

/// Portions that are prefetched.
const PORTIONS_AHEAD: usize = 2;

/// A kept document, its index in the corpus and its side of the split.
pub(super) struct Kept {
    pub(super) index: u64,
    pub(super) side: Side,
    pub(super) document: StoredDocument,
}

/// Calls `work` with portions of the kept documents from index `first` onwards, in order, until `work` fails.
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
    let mut portion = Vec::new();
    let mut bytes = 0;
    for document in kept.from_index(split, first) {
        match document {
            Ok((index, side, document)) => {
                bytes += document.text.len();
                portion.push(Kept { index, side, document });
            }
            Err(e) => {
                // If the receiver is gone, the error need not be reported.
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
