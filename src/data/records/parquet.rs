//! Apache Parquet: `objects.rs` reads all columns of plain values and of lists, the corpus the columns that it wants.
//!
//! The `parquet` crate decodes the footer and the values; `pages.rs` reads the pages and limits their size.
//! The crate may panic on a broken file, so it is only called inside `quietly`.

use std::ops::Range;
use std::path::Path;

use anyhow::Result;
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader};

use base::error::Problem;
use base::fs;
use base::fs::File;
use base::quietly::quietly;

mod class_names;
mod codecs;
mod delta;
mod header;
pub(super) mod objects;
pub(crate) mod pages;

/// Values that are decoded at a time; they share the memory of their page.
pub(crate) const BATCH_VALUES: usize = 256;

/// End of an error about an intact file that uses a feature which is not supported.
const NOT_READ: &str = "which is not read here";

/// Limit on the footer, in bytes: a thousand row groups of ten columns need about two megabytes.
const FOOTER_BYTES_MAX: u64 = 8 << 20;

/// Opens a file; returns it with its length in bytes and the metadata in its footer.
pub(crate) fn open_file(path: &Path) -> Result<(File, u64, ParquetMetaData)> {
    let place = path.display().to_string();
    let file = fs::open(path)?;
    let size_bytes = fs::len_bytes(path)?;
    let footer = check_footer(&file, size_bytes).map_err(|message| Problem::new(message).at(&place))?;
    let metadata = quietly(|| ParquetMetaDataReader::new().parse_and_finish(&file)).map_err(|message| {
        broken(&format!("in its index, bytes {} to {}: {message}", footer.start, footer.end), &place)
    })?;
    Ok((file, size_bytes, metadata))
}

pub(crate) fn broken(message: &str, place: &str) -> anyhow::Error {
    let hint = if message.contains(NOT_READ) {
        "the file is whole: write it again in the usual way, such as with `pyarrow.parquet.write_table`"
    } else {
        "is the file whole?"
    };
    Problem::new(format!("is not a Parquet file that can be read: {message}")).at(place).hint(hint).into()
}

/// Checks the last eight bytes of a file before anything is allocated for the size that they claim; returns
/// the range of the footer before them.
fn check_footer(file: &File, size_bytes: u64) -> Result<Range<u64>, String> {
    let mut tail = [0; 8];
    let start = size_bytes
        .checked_sub(8)
        .ok_or_else(|| format!("is too short for a Parquet file: it has {size_bytes} bytes"))?;
    pages::read_exact_at(file, start, &mut tail)?;
    let length = u64::from(u32::from_le_bytes([tail[0], tail[1], tail[2], tail[3]]));
    let magic = &tail[4..];
    match magic {
        b"PAR1" if length > start => {
            Err(format!("is not whole: its index has {length} bytes, the file {size_bytes}"))
        }
        b"PAR1" if length > FOOTER_BYTES_MAX => {
            Err(format!("has an index of {length} bytes, at most {FOOTER_BYTES_MAX} are read"))
        }
        b"PAR1" => Ok(start - length..start),
        b"PARE" => Err("is an encrypted Parquet file: it ends in `PARE`".to_string()),
        _ => Err("is not a Parquet file, or has been cut off: it does not end in `PAR1`".to_string()),
    }
}
