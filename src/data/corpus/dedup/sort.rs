//! External sort: sorts more records than fit into memory, as sorted runs on disk that are merged while they
//! are read. Equal records become one.
//!
//! Records are arrays of numbers, compared from the first to the last. The result depends only on the
//! records, not on the memory, the threads, or the order in which records were added.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::Result;
use rayon::slice::ParallelSliceMut;

use crate::corpus::dedup::sketch_file::u64_at;
use base::fs;

/// Least bytes of a run to read at a time: below this, seeks take longer than reading, so that runs are
/// merged in several rounds instead.
const LEAST_READ_BYTES: usize = 16 << 10;
/// Most bytes of a run to read at a time; reading more is not faster.
const MOST_READ_BYTES: usize = 1 << 20;
/// Least records in memory, for any limit.
const LEAST_RECORDS: usize = 64;
/// Least number of runs that are merged at a time, for any limit.
const LEAST_FAN_IN: usize = 4;

/// Collects records in any order.
#[derive(Debug)]
pub(super) struct Sorter<const N: usize> {
    buffer: Vec<[u64; N]>,
    /// Limit on the records in the buffer.
    most: usize,
    /// Byte ranges of the sorted runs in `file`.
    runs: Vec<Range<u64>>,
    file: Option<fs::ScratchFile>,
    scratch: PathBuf,
}

impl<const N: usize> Sorter<N> {
    /// Keeps at most `memory_bytes` of records in memory and the rest in `scratch`.
    pub(super) fn new(scratch: &Path, memory_bytes: usize) -> Self {
        let most = (memory_bytes / (8 * N)).max(LEAST_RECORDS);
        Self { buffer: Vec::new(), most, runs: Vec::new(), file: None, scratch: scratch.to_path_buf() }
    }

    /// Adds a record.
    pub(super) fn push(&mut self, record: [u64; N]) -> Result<()> {
        if self.buffer.len() == self.most {
            self.spill()?;
        }
        if self.buffer.len() == self.buffer.capacity() {
            // Doubling the capacity could take twice the memory limit.
            self.buffer
                .reserve_exact(self.buffer.len().max(LEAST_RECORDS).min(self.most - self.buffer.len()));
        }
        self.buffer.push(record);
        Ok(())
    }

    /// Moves the records in memory to disk and frees the memory.
    pub(super) fn park(&mut self) -> Result<()> {
        self.spill()?;
        self.buffer = Vec::new();
        Ok(())
    }

    /// Returns the records in order, read with about `memory_bytes` of buffers.
    pub(super) fn finish(mut self, memory_bytes: usize) -> Result<Sorted<N>> {
        if self.runs.is_empty() {
            self.sort_buffer();
            return Ok(Sorted { merge: Merge::default(), memory: self.buffer.into_iter() });
        }
        self.park()?;
        let fan_in = (memory_bytes / LEAST_READ_BYTES).max(LEAST_FAN_IN);
        let mut file = self.file.take();
        while self.runs.len() > fan_in {
            file = file.map(|file| self.merge_round(file, fan_in, memory_bytes)).transpose()?;
        }
        Ok(Sorted { merge: Merge::new(file, &self.runs, memory_bytes)?, memory: Vec::new().into_iter() })
    }

    fn sort_buffer(&mut self) {
        self.buffer.par_sort_unstable();
        self.buffer.dedup();
    }

    fn spill(&mut self) -> Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        self.sort_buffer();
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(fs::ScratchFile::create(&self.scratch)?),
        };
        let mut run = RunWriter::new(file);
        self.buffer.iter().try_for_each(|record| run.push(record))?;
        self.runs.push(run.finish()?);
        self.buffer.clear();
        Ok(())
    }

    /// Merges groups of `fan_in` runs of `file` into runs of a new file.
    fn merge_round(
        &mut self,
        file: fs::ScratchFile,
        fan_in: usize,
        memory_bytes: usize,
    ) -> Result<fs::ScratchFile> {
        let mut merged = fs::ScratchFile::create(&self.scratch)?;
        let mut runs = Vec::new();
        let mut file = Some(file);
        for group in self.runs.chunks(fan_in) {
            let mut merge = Merge::<N>::new(file.take(), group, memory_bytes)?;
            let mut run = RunWriter::new(&mut merged);
            while let Some(record) = merge.next()? {
                run.push(&record)?;
            }
            runs.push(run.finish()?);
            file = merge.file;
        }
        self.runs = runs;
        Ok(merged)
    }
}

/// Iterates over the records in order, each once.
#[derive(Debug)]
pub(super) struct Sorted<const N: usize> {
    merge: Merge<N>,
    memory: std::vec::IntoIter<[u64; N]>,
}

impl<const N: usize> Sorted<N> {
    /// Returns the next record.
    pub(super) fn next(&mut self) -> Result<Option<[u64; N]>> {
        match self.memory.next() {
            Some(record) => Ok(Some(record)),
            None => self.merge.next(),
        }
    }
}

/// Merges several runs of one file.
#[derive(Debug)]
struct Merge<const N: usize> {
    file: Option<fs::ScratchFile>,
    runs: Vec<RunReader>,
    /// The next record of each run that is not used up, with the run's number.
    heads: BinaryHeap<Reverse<([u64; N], usize)>>,
    last: Option<[u64; N]>,
}

impl<const N: usize> Default for Merge<N> {
    fn default() -> Self {
        Self { file: None, runs: Vec::new(), heads: BinaryHeap::new(), last: None }
    }
}

impl<const N: usize> Merge<N> {
    fn new(file: Option<fs::ScratchFile>, runs: &[Range<u64>], memory_bytes: usize) -> Result<Self> {
        let Some(file) = file else { return Ok(Self::default()) };
        let share = (memory_bytes / runs.len().max(1)).clamp(1 << 10, MOST_READ_BYTES);
        let mut merge = Self { runs: Vec::new(), heads: BinaryHeap::new(), last: None, file: None };
        for (number, run) in runs.iter().enumerate() {
            let mut run = RunReader {
                left: run.clone(),
                most_bytes: share / (8 * N) * 8 * N,
                block: Vec::new(),
                at: 0,
            };
            if let Some(head) = run.next(&file)? {
                merge.heads.push(Reverse((head, number)));
            }
            merge.runs.push(run);
        }
        merge.file = Some(file);
        Ok(merge)
    }

    fn next(&mut self) -> Result<Option<[u64; N]>> {
        let Some(file) = &self.file else { return Ok(None) };
        while let Some(mut head) = self.heads.peek_mut() {
            let Reverse((record, number)) = *head;
            match self.runs[number].next(file)? {
                Some(following) => *head = Reverse((following, number)),
                None => {
                    PeekMut::pop(head);
                }
            }
            if self.last != Some(record) {
                self.last = Some(record);
                return Ok(Some(record));
            }
        }
        Ok(None)
    }
}

#[derive(Debug)]
struct RunReader {
    left: Range<u64>,
    most_bytes: usize,
    block: Vec<u8>,
    at: usize,
}

impl RunReader {
    fn next<const N: usize>(&mut self, file: &fs::ScratchFile) -> Result<Option<[u64; N]>> {
        if self.at == self.block.len() {
            if self.left.is_empty() {
                self.block = Vec::new();
                self.at = 0;
                return Ok(None);
            }
            let bytes = (self.left.end - self.left.start).min(self.most_bytes as u64);
            self.block.resize(bytes as usize, 0);
            file.read_at(&mut self.block, self.left.start)?;
            self.left.start += bytes;
            self.at = 0;
        }
        let record = std::array::from_fn(|i| u64_at(&self.block, self.at + 8 * i));
        self.at += 8 * N;
        Ok(Some(record))
    }
}

struct RunWriter<'a> {
    file: &'a mut fs::ScratchFile,
    start: u64,
    block: Vec<u8>,
}

impl<'a> RunWriter<'a> {
    fn new(file: &'a mut fs::ScratchFile) -> Self {
        Self { start: file.len_bytes(), file, block: Vec::new() }
    }

    fn push<const N: usize>(&mut self, record: &[u64; N]) -> Result<()> {
        for number in record {
            self.block.extend(number.to_le_bytes());
        }
        if self.block.len() >= BLOCK_WRITE_BYTES {
            self.file.append(&self.block)?;
            self.block.clear();
        }
        Ok(())
    }

    fn finish(self) -> Result<Range<u64>> {
        self.file.append(&self.block)?;
        Ok(self.start..self.file.len_bytes())
    }
}

const BLOCK_WRITE_BYTES: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sorted<const N: usize>(records: &[[u64; N]], memory_bytes: usize, park_at: usize) -> Vec<[u64; N]> {
        let folder = tempfile::tempdir().unwrap();
        let mut sorter = Sorter::new(folder.path(), memory_bytes);
        for (number, record) in records.iter().enumerate() {
            if number == park_at {
                sorter.park().unwrap();
            }
            sorter.push(*record).unwrap();
        }
        let mut sorted = sorter.finish(memory_bytes).unwrap();
        let found = std::iter::from_fn(|| sorted.next().unwrap()).collect();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        found
    }

    fn expected<const N: usize>(records: &[[u64; N]]) -> Vec<[u64; N]> {
        let mut expected = records.to_vec();
        expected.sort_unstable();
        expected.dedup();
        expected
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn the_result_equals_sort_with_any_memory(
            records in prop::collection::vec(prop::array::uniform2(0u64..300), 0..3000),
            memory_bytes in prop::sample::select(vec![0usize, 1 << 10, 5000, 1 << 16, 1 << 22]),
            park_at in 0usize..4000,
        ) {
            prop_assert_eq!(sorted(&records, memory_bytes, park_at), expected(&records));
        }

        #[test]
        fn wide_records_of_any_value_are_sorted(records in prop::collection::vec(any::<[u64; 3]>(), 0..500)) {
            prop_assert_eq!(sorted(&records, 0, usize::MAX), expected(&records));
        }
    }

    #[test]
    fn many_runs_are_merged_in_several_rounds() {
        let records: Vec<[u64; 1]> =
            (0..50_000u64).map(|i| [i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40]).collect();
        assert_eq!(sorted(&records, 0, usize::MAX), expected(&records));
    }
}
