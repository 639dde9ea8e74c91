//! Reads text in another encoding as UTF-8.

use std::io::Read;

/// Number of bytes read from the source at once.
const BLOCK_BYTES: usize = 32 << 10;

/// Converts text piece by piece. Bytes that are not text of the encoding become bytes that are not UTF-8
/// either, so readers treat them like any other invalid bytes.
pub(super) trait Converter {
    /// Appends the characters of `bytes` to `output`. `is_last` is true if no bytes follow.
    fn convert(&mut self, bytes: &[u8], is_last: bool, output: &mut Vec<u8>);
}

/// Reader of the converted text.
pub(super) struct AsUtf8<R, C> {
    source: R,
    converter: C,
    output: Vec<u8>,
    used: usize,
    is_over: bool,
}

impl<R: Read, C: Converter> AsUtf8<R, C> {
    pub(super) fn new(source: R, converter: C) -> Self {
        Self { source, converter, output: Vec::new(), used: 0, is_over: false }
    }

    /// Fills the output buffer, which stays empty only at the end of the source.
    fn fill(&mut self) -> std::io::Result<()> {
        self.output.clear();
        self.used = 0;
        let mut block = vec![0; BLOCK_BYTES];
        while self.output.is_empty() && !self.is_over {
            let count = self.source.read(&mut block)?;
            self.is_over = count == 0;
            self.converter.convert(&block[..count], self.is_over, &mut self.output);
        }
        Ok(())
    }
}

impl<R: Read, C: Converter> Read for AsUtf8<R, C> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.used == self.output.len() {
            self.fill()?;
        }
        let count = buffer.len().min(self.output.len() - self.used);
        buffer[..count].copy_from_slice(&self.output[self.used..self.used + count]);
        self.used += count;
        Ok(count)
    }
}

#[cfg(test)]
pub(super) mod testing {
    use super::*;

    /// Reader that returns at most three bytes at a time.
    struct Drops<'a>(&'a [u8]);

    impl Read for Drops<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let count = buffer.len().min(self.0.len()).min(3);
            buffer[..count].copy_from_slice(&self.0[..count]);
            self.0 = &self.0[count..];
            Ok(count)
        }
    }

    /// Converts `bytes` in pieces of at most three.
    pub(in super::super) fn converted(bytes: &[u8], converter: impl Converter) -> Vec<u8> {
        let mut text = Vec::new();
        AsUtf8::new(Drops(bytes), converter).read_to_end(&mut text).unwrap();
        text
    }
}
