//! Reads the pages of one column in one row group, each of bounded size.
//!
//! The reader of the `parquet` crate trusts the sizes that a file claims, and two of its codecs do not check
//! them: a file of a few KiB could allocate any amount of memory.

use std::io::{BufReader, Read};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parquet::basic::{Compression, Encoding, Type};
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::errors::ParquetError;
use parquet::file::metadata::ColumnChunkMetaData;

use crate::records::parquet::codecs::decompress;
use crate::records::parquet::header::Header;
use crate::records::parquet::{NOT_READ, delta};
use base::fs::File;

/// Limit on a page, in bytes, compressed or not: 1 MiB is usual, DuckDB writes up to 100 MB.
const PAGE_BYTES_MAX: u64 = 128 << 20;

/// Limit on the values of a dictionary, each of which needs 32 bytes of memory in addition to the page
/// itself.
const DICTIONARY_VALUES_MAX: u32 = 1 << 20;

/// Limit on the values in a page whose lengths are all decoded at once, 4 bytes each.
const DELTA_VALUES_MAX: u32 = 1 << 24;

/// Limit on the list values that are read for one batch of rows, since a page of a few bytes can claim a list
/// of any length.
const LIST_VALUES_MAX: u64 = 1 << 24;

/// Limit on a header, which may contain the minimum and maximum of a page.
const HEADER_BYTES_MAX: u64 = 16 << 20;

/// Types of pages in parquet.thrift.
const DATA_PAGE: i64 = 0;
const INDEX_PAGE: i64 = 1;
const DICTIONARY_PAGE: i64 = 2;
const DATA_PAGE_V2: i64 = 3;
/// Field of `PageHeader` with the header of a data page.
const DATA: i16 = 5;
/// Field of `PageHeader` with the header of a dictionary page.
const DICTIONARY: i16 = 7;
/// Field of `PageHeader` with the header of a data page of version 2.
const DATA_V2: i16 = 8;

/// Reads pages in sequence.
pub(crate) struct Pages {
    file: Arc<File>,
    codec: Compression,
    offset: u64,
    end: u64,
    /// True if values may be null: then definition levels come before the values.
    is_optional: bool,
    /// True if the column has lists: then repetition levels come before the definition levels.
    is_list: bool,
    kind: Type,
    /// Number of list values that were read, since the reader of the column last set it to 0.
    list_values: Arc<AtomicU64>,
}

impl Pages {
    pub(crate) fn new(
        file: Arc<File>,
        size_bytes: u64,
        column: &ColumnChunkMetaData,
    ) -> Result<Self, String> {
        // If there is no dictionary, some writers set its offset to 0, where the magic bytes of the file are.
        let start =
            column.dictionary_page_offset().filter(|offset| *offset > 0).unwrap_or(column.data_page_offset());
        let range = u64::try_from(start).ok().zip(u64::try_from(column.compressed_size()).ok());
        let range = range
            .and_then(|(start, length)| Some((start, start.checked_add(length)?)))
            .filter(|(_, end)| *end <= size_bytes);
        let (offset, end) = range.ok_or("a column lies outside of the file")?;
        let descriptor = column.column_descr();
        Ok(Self {
            file,
            codec: column.compression(),
            offset,
            end,
            is_optional: descriptor.max_def_level() > 0,
            is_list: descriptor.max_rep_level() > 0,
            kind: descriptor.physical_type(),
            list_values: Arc::default(),
        })
    }

    /// Returns the number of list values that were read, which the caller can reset.
    pub(crate) fn list_values(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.list_values)
    }

    /// Counts the values of a page; fails if the current batch has too many list values.
    fn count_values(&self, num_values: u32) -> Result<(), String> {
        let before = self.list_values.fetch_add(u64::from(num_values), Ordering::Relaxed);
        if self.is_list && before + u64::from(num_values) > LIST_VALUES_MAX {
            return Err(format!("a few rows have lists of more than {LIST_VALUES_MAX} values"));
        }
        Ok(())
    }

    fn next_page(&mut self) -> Result<Option<Page>, String> {
        while self.offset < self.end {
            let (header, header_bytes) = self.header()?;
            let compressed_size = u64::from(header.count(3, 0, "size")?);
            let size = u64::from(header.count(2, 0, "uncompressed size")?);
            let start = self.offset + header_bytes;
            if compressed_size > self.end.saturating_sub(start) {
                return Err(format!("a page of {compressed_size} bytes goes beyond the end of its column"));
            }
            self.offset = start + compressed_size;
            let kind = header.get(1, 0).ok_or("a page has no type")?;
            if kind == INDEX_PAGE {
                continue;
            }
            if compressed_size.max(size) > PAGE_BYTES_MAX {
                return Err(format!(
                    "a page has {} bytes, at most {PAGE_BYTES_MAX} are read",
                    compressed_size.max(size)
                ));
            }
            let mut content = vec![0; compressed_size as usize];
            read_exact_at(&self.file, start, &mut content)?;
            return match kind {
                DATA_PAGE => self.data_page(&header, &content, size as usize),
                DATA_PAGE_V2 => self.data_page_v2(&header, &content, size as usize),
                DICTIONARY_PAGE => self.dictionary_page(&header, &content, size as usize),
                other => Err(format!("a page is of the unknown type {other}")),
            }
            .map(Some);
        }
        Ok(None)
    }

    /// Reads the header at the current offset; returns it with its length.
    fn header(&self) -> Result<(Header, u64), String> {
        let limit = HEADER_BYTES_MAX.min(self.end - self.offset);
        let mut reader = Counted(
            BufReader::with_capacity(512, At { file: &self.file, offset: self.offset }).take(limit),
            0,
        );
        Ok((Header::read(&mut reader)?, reader.1))
    }

    fn data_page(&self, header: &Header, content: &[u8], size: usize) -> Result<Page, String> {
        let mut buf = decompress(self.codec, content, size)?;
        let num_values = header.count(DATA, 1, "number of values")?;
        self.count_values(num_values)?;
        let encoding = encoding(header.get(DATA, 2), self.kind)?;
        let mut values = buf.as_slice();
        for _ in 0..usize::from(self.is_list) + usize::from(self.is_optional) {
            let Some((length, rest)) = values.split_first_chunk::<4>() else {
                return Err("a page is too short for its levels".to_string());
            };
            values = rest.get(u32::from_le_bytes(*length) as usize..).unwrap_or_default();
        }
        check_values(encoding, values, num_values)?;
        let levels = buf.len() - values.len();
        let encoding = undelta(encoding, &mut buf, levels, num_values)?;
        Ok(Page::DataPage {
            buf: Bytes::from(buf),
            num_values,
            encoding,
            def_level_encoding: level_encoding(header.get(DATA, 3)),
            rep_level_encoding: level_encoding(header.get(DATA, 4)),
            statistics: None,
        })
    }

    fn data_page_v2(&self, header: &Header, content: &[u8], size: usize) -> Result<Page, String> {
        let def_levels_byte_len = header.count(DATA_V2, 5, "length of levels")?;
        let rep_levels_byte_len = header.count(DATA_V2, 6, "length of levels")?;
        let levels = def_levels_byte_len as usize + rep_levels_byte_len as usize;
        if levels > size || levels > content.len() {
            return Err("a page is too short for its levels".to_string());
        }
        let is_compressed = header.get(DATA_V2, 7) != Some(0);
        let mut buf = content.to_vec();
        // A page of nulls has no data after its levels, not even an empty compressed block.
        if is_compressed && size > levels {
            buf.truncate(levels);
            buf.extend(decompress(self.codec, &content[levels..], size - levels)?);
        }
        let num_values = header.count(DATA_V2, 1, "number of values")?;
        self.count_values(num_values)?;
        let encoding = encoding(header.get(DATA_V2, 4), self.kind)?;
        check_values(encoding, &buf[levels..], num_values)?;
        let encoding = undelta(encoding, &mut buf, levels, num_values)?;
        Ok(Page::DataPageV2 {
            buf: Bytes::from(buf),
            num_values,
            encoding,
            num_nulls: header.count(DATA_V2, 2, "number of nulls")?,
            num_rows: header.count(DATA_V2, 3, "number of rows")?,
            def_levels_byte_len,
            rep_levels_byte_len,
            is_compressed,
            statistics: None,
        })
    }

    fn dictionary_page(&self, header: &Header, content: &[u8], size: usize) -> Result<Page, String> {
        let buf = decompress(self.codec, content, size)?;
        let num_values = header.count(DICTIONARY, 1, "number of values")?;
        // Each value is preceded by its length, in four bytes.
        if u64::from(num_values) > buf.len() as u64 / 4 || num_values > DICTIONARY_VALUES_MAX {
            return Err(format!("a dictionary of {} bytes claims {num_values} values", buf.len()));
        }
        let encoding = encoding(header.get(DICTIONARY, 2), self.kind)?;
        Ok(Page::DictionaryPage {
            buf: Bytes::from(buf),
            num_values,
            encoding,
            is_sorted: header.get(DICTIONARY, 3) == Some(1),
        })
    }
}

fn encoding(number: Option<i64>, kind: Type) -> Result<Encoding, String> {
    match number {
        Some(0) => Ok(Encoding::PLAIN),
        Some(2) => Ok(Encoding::PLAIN_DICTIONARY),
        Some(3) if kind == Type::BOOLEAN => Ok(Encoding::RLE),
        Some(5) if matches!(kind, Type::INT32 | Type::INT64) => Ok(Encoding::DELTA_BINARY_PACKED),
        Some(6) => Ok(Encoding::DELTA_LENGTH_BYTE_ARRAY),
        Some(7) if kind == Type::BYTE_ARRAY => Ok(Encoding::DELTA_BYTE_ARRAY),
        Some(8) => Ok(Encoding::RLE_DICTIONARY),
        Some(other) => Err(format!("the column has encoding {other}, {NOT_READ}")),
        None => Err("a page has no encoding".to_string()),
    }
}

/// Converts the values after the levels of a page to PLAIN, if each repeats a part of the previous one.
fn undelta(
    encoding: Encoding,
    buf: &mut Vec<u8>,
    levels: usize,
    num_values: u32,
) -> Result<Encoding, String> {
    if encoding != Encoding::DELTA_BYTE_ARRAY {
        return Ok(encoding);
    }
    let plain = delta::to_plain(&buf[levels..], num_values, PAGE_BYTES_MAX)?;
    buf.truncate(levels);
    buf.extend(plain);
    Ok(Encoding::PLAIN)
}

/// Returns the encoding of levels. All files use `RLE` (3), except for old ones; a column without levels may
/// claim any.
fn level_encoding(number: Option<i64>) -> Encoding {
    match number {
        #[expect(deprecated, reason = "old files have it")]
        Some(4) => Encoding::BIT_PACKED,
        _ => Encoding::RLE,
    }
}

/// Checks the number of lengths that a page claims: the decoder of this encoding allocates memory for all of
/// them.
fn check_values(encoding: Encoding, values: &[u8], num_values: u32) -> Result<(), String> {
    if encoding != Encoding::DELTA_LENGTH_BYTE_ARRAY {
        return Ok(());
    }
    // The block begins with three numbers: values per block, miniblocks per block, number of all values.
    let mut ends = values.iter().enumerate().filter(|(_, byte)| **byte < 0x80).map(|(index, _)| index);
    let second = ends.nth(1);
    let third = ends.next();
    let (Some(second), Some(third)) = (second, third) else {
        return Err("a page is too short for its values".to_string());
    };
    let claimed =
        values[second + 1..=third].iter().rev().fold(0u64, |value, byte| value << 7 | u64::from(byte & 0x7f));
    if third - second > 9 || claimed > u64::from(num_values.min(DELTA_VALUES_MAX)) {
        return Err(format!("a page of {num_values} values claims the lengths of {claimed}"));
    }
    Ok(())
}

impl Iterator for Pages {
    type Item = Result<Page, ParquetError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

impl PageReader for Pages {
    fn get_next_page(&mut self) -> Result<Option<Page>, ParquetError> {
        self.next_page().map_err(ParquetError::General)
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>, ParquetError> {
        Err(ParquetError::NYI("pages are read in order".to_string()))
    }

    /// Returns true at the end of the column: before that, a row of lists may continue in the next page.
    fn at_record_boundary(&mut self) -> Result<bool, ParquetError> {
        Ok(self.offset >= self.end)
    }

    fn skip_next_page(&mut self) -> Result<(), ParquetError> {
        Err(ParquetError::NYI("pages are read in order".to_string()))
    }
}

/// Fills `buffer` with the bytes from `offset` onwards.
pub(crate) fn read_exact_at(file: &File, offset: u64, buffer: &mut [u8]) -> Result<(), String> {
    file.read_exact_at(buffer, offset).map_err(|e| format!("cannot be read at byte {offset}: {e}"))
}

/// Reads a file from its own offset, which is independent of the position of the file.
struct At<'a> {
    file: &'a File,
    offset: u64,
}

impl Read for At<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.file.read_at(buffer, self.offset)?;
        self.offset += count as u64;
        Ok(count)
    }
}

/// Reader that counts the bytes read.
struct Counted<R>(R, u64);

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.0.read(buffer)?;
        self.1 += count as u64;
        Ok(count)
    }
}
