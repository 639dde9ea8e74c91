//! The header of a page: only its numbers are read.
//!
//! Thrift's compact protocol (thrift-compact-protocol.md of Apache Thrift), as far as it is needed for
//! `PageHeader` of parquet.thrift.

use std::collections::BTreeMap;
use std::io::Read;

/// Limit on the nesting; a page header has three levels.
const DEPTH_MAX: u32 = 8;

/// Numbers and truth values of a page header, by (field, 0); those of the structs in it, by (field, field of
/// the struct).
#[derive(Debug, Default)]
pub(super) struct Header {
    numbers: BTreeMap<(i16, i16), i64>,
}

impl Header {
    /// Reads a header; reads at most the bytes that `reader` returns.
    pub(super) fn read(reader: &mut impl Read) -> Result<Self, String> {
        let mut header = Self::default();
        Thrift(reader).structure(0, 0, &mut header.numbers)?;
        Ok(header)
    }

    pub(super) fn get(&self, outer: i16, inner: i16) -> Option<i64> {
        self.numbers.get(&(outer, inner)).copied()
    }

    /// Returns a size or count, which must be present and fit into 32 bits.
    pub(super) fn count(&self, outer: i16, inner: i16, what: &str) -> Result<u32, String> {
        let value = self.get(outer, inner).ok_or_else(|| format!("the header of a page has no {what}"))?;
        u32::try_from(value).map_err(|_| format!("the header of a page says {what} {value}"))
    }
}

struct Thrift<'a, R>(&'a mut R);

impl<R: Read> Thrift<'_, R> {
    /// Reads the fields of a struct; `outer` is the field that contains the struct, 0 at the top level.
    fn structure(
        &mut self,
        outer: i16,
        depth: u32,
        numbers: &mut BTreeMap<(i16, i16), i64>,
    ) -> Result<(), String> {
        let mut field = 0i16;
        loop {
            let byte = self.byte()?;
            let kind = byte & 0x0f;
            if kind == 0 {
                return Ok(());
            }
            field = match byte >> 4 {
                0 => i16::try_from(self.number()?)
                    .map_err(|_| "a page header has an impossible field".to_string())?,
                delta => field.checked_add(i16::from(delta)).ok_or("a page header has too many fields")?,
            };
            let key = if depth == 0 { (field, 0) } else { (outer, field) };
            match kind {
                1 | 2 if depth <= 1 => drop(numbers.insert(key, i64::from(kind == 1))),
                3 if depth <= 1 => drop(numbers.insert(key, i64::from(self.byte()?.cast_signed()))),
                4..=6 if depth <= 1 => drop(numbers.insert(key, self.number()?)),
                12 if depth == 0 => self.structure(field, 1, numbers)?,
                1 | 2 => {}
                _ => self.skip(kind, depth + 1)?,
            }
        }
    }

    fn skip(&mut self, kind: u8, depth: u32) -> Result<(), String> {
        if depth > DEPTH_MAX {
            return Err("a page header is nested too deeply".to_string());
        }
        match kind {
            1..=3 => self.byte().map(drop),
            4..=6 => self.number().map(drop),
            7 => self.skip_bytes(8),
            8 => self.varint().and_then(|length| self.skip_bytes(length)),
            9 | 10 => {
                let byte = self.byte()?;
                let count = if byte >> 4 == 15 { self.varint()? } else { u64::from(byte >> 4) };
                (0..count).try_for_each(|_| self.skip(byte & 0x0f, depth + 1))
            }
            11 => {
                let count = self.varint()?;
                let kinds = if count == 0 { 0 } else { self.byte()? };
                (0..count).try_for_each(|_| {
                    self.skip(kinds >> 4, depth + 1).and_then(|()| self.skip(kinds & 0x0f, depth + 1))
                })
            }
            12 => loop {
                let byte = self.byte()?;
                match byte & 0x0f {
                    0 => return Ok(()),
                    inner => {
                        if byte >> 4 == 0 {
                            self.varint()?;
                        }
                        if inner > 2 {
                            self.skip(inner, depth + 1)?;
                        }
                    }
                }
            },
            _ => Err(format!("a page header has a field of the unknown type {kind}")),
        }
    }

    fn byte(&mut self) -> Result<u8, String> {
        let mut byte = [0];
        self.0.read_exact(&mut byte).map_err(|e| format!("cannot read the header of a page: {e}"))?;
        Ok(byte[0])
    }

    fn skip_bytes(&mut self, count: u64) -> Result<(), String> {
        let skipped = std::io::copy(&mut self.0.by_ref().take(count), &mut std::io::sink())
            .map_err(|e| e.to_string())?;
        if skipped == count { Ok(()) } else { Err("the header of a page is cut off".to_string()) }
    }

    fn varint(&mut self) -> Result<u64, String> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err("a page header has a number of more than 64 bits".to_string())
    }

    /// Reads a signed number in zigzag encoding.
    fn number(&mut self) -> Result<i64, String> {
        let value = self.varint()?;
        Ok((value >> 1).cast_signed() ^ -((value & 1).cast_signed()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_are_found_and_the_rest_is_skipped() {
        // 1: i32 0; 2: i32 100; 3: i32 -1; 5: {1: i32 7, 2: i32 0, 5: {1: binary "ab", 4: list of 2 i32}}; 8:
        // {7: false}.
        let bytes = [
            0x15, 0, 0x15, 0xc8, 1, 0x15, 1, 0x2c, 0x15, 14, 0x15, 0, 0x3c, 0x18, 2, b'a', b'b', 0x39, 0x25,
            2, 4, 0, 0, 0x3c, 0x72, 0, 0,
        ];
        let mut rest = bytes.as_slice();
        let header = Header::read(&mut rest).unwrap();
        assert!(rest.is_empty());
        let found =
            [(1, 0), (2, 0), (3, 0), (5, 1), (5, 2), (8, 7)].map(|(outer, inner)| header.get(outer, inner));
        assert_eq!(found, [Some(0), Some(100), Some(-1), Some(7), Some(0), Some(0)]);
        assert_eq!(header.count(3, 0, "size").unwrap_err(), "the header of a page says size -1");
        assert_eq!(header.count(4, 0, "size").unwrap_err(), "the header of a page has no size");
        for end in 0..bytes.len() {
            assert!(Header::read(&mut &bytes[..end]).is_err());
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Header::read(&mut bytes.as_slice());
        }
    }
}
