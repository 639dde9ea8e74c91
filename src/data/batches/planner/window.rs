//! Rows of best fit: the documents of a window are placed together, and its rows have a separate order.

use anyhow::Result;

use crate::batches::Cursor;
use crate::batches::best_fit::{Piece, Window};
use crate::batches::documents::Documents;
use crate::batches::planner::units::Unit;
use crate::batches::planner::{Planner, ROW_BITS, SPECIAL};
use base::error::Problem;
use base::rng::{Purpose, Stream};

/// Ids of the streams that shuffle the rows of windows are above those of the epochs.
const WINDOWS: u64 = 1 << 54;

/// A window ends when its tokens would fill this many rows, so that very long documents do not make it huge.
const WINDOW_ROWS_MAX: u64 = 1 << 16;

impl<D: Documents> Planner<D> {
    /// Plans a row of the current window, or of the next one.
    pub(super) fn row_of_window(&mut self, window_documents: u64) -> Result<()> {
        while self.pieces.is_empty() && self.cursor.index < self.places(Unit::Document) {
            let window = match self.window.take() {
                Some(window) => window,
                None => self.plan_window(window_documents)?,
            };
            if let Some(pieces) = window.row(self.cursor.window_row) {
                self.pieces.extend_from_slice(pieces);
                self.cursor.window_row += 1;
            }
            if self.cursor.window_row < window.len() {
                self.window = Some(window);
            } else {
                self.cursor.index += window.documents;
                self.cursor.positions = std::mem::take(&mut self.positions_after_window);
                self.cursor.window_row = 0;
                self.cursor.window_seq_length = 0;
            }
        }
        Ok(())
    }

    /// Plans the current window unless it is planned already; returns its number of documents and rows.
    pub(super) fn open_window(&mut self, window_documents: u64) -> Result<(u64, u64)> {
        let window = match self.window.take() {
            Some(window) => window,
            None => self.plan_window(window_documents)?,
        };
        let window = self.window.insert(window);
        Ok((window.documents, window.len()))
    }

    fn plan_window(&mut self, window_documents: u64) -> Result<Window<D::Place>> {
        let Cursor { epoch, index: first, .. } = self.cursor;
        let mut positions = self.cursor.positions.clone();
        if self.cursor.window_seq_length == 0 {
            self.cursor.window_seq_length = self.max_seq_length;
        }
        let length = self.cursor.window_seq_length;
        if length <= SPECIAL || length > self.max_seq_length {
            let message = format!(
                "the position to continue from is of rows of {length} tokens, these have {}",
                self.max_seq_length
            );
            return Err(Problem::new(message).hint("the checkpoint is of a run with longer rows").into());
        }
        let end = self.places(Unit::Document).min(first.saturating_add(window_documents));
        let mut whole = Vec::new();
        let mut tokens = 0;
        while first + (whole.len() as u64) < end && tokens < WINDOW_ROWS_MAX * length {
            let found = self.find(first + whole.len() as u64, &positions)?;
            if let Some((source, position)) = found.moves {
                positions[source] = position;
            }
            tokens += found.count;
            whole.push(Piece {
                place: found.place,
                document_tokens: found.tokens,
                from: found.from,
                count: found.count,
            });
        }
        self.positions_after_window = positions;
        let id = WINDOWS | (epoch & 0x3fff) << ROW_BITS | first & ((1 << ROW_BITS) - 1);
        let shuffle = self.first.documents.seed().map(|seed| Stream::new(seed, Purpose::Order, id));
        Ok(Window::plan(&whole, length, shuffle))
    }
}
