//! Decompresses a page to exactly the size in its header, never to more, so that a damaged page cannot
//! exhaust memory.

use std::io::Read;

use parquet::basic::Compression;

use crate::records::parquet::NOT_READ;

/// Returns the decompressed content of a page, which must have `size` bytes.
pub(super) fn decompress(codec: Compression, compressed: &[u8], size: usize) -> Result<Vec<u8>, String> {
    let content = match codec {
        Compression::UNCOMPRESSED => Ok(compressed.to_vec()),
        Compression::GZIP(_) => read_up_to(flate2::read::MultiGzDecoder::new(compressed), size),
        Compression::BROTLI(_) => read_up_to(brotli::Decompressor::new(compressed, 4096), size),
        // Allocates only the requested size; a stream would allocate its window too.
        Compression::ZSTD(_) => zstd::bulk::decompress(compressed, size).map_err(|e| e.to_string()),
        Compression::SNAPPY => snappy(compressed, size),
        Compression::LZ4_RAW => lz4(compressed, size),
        Compression::LZ4 => hadoop_lz4(compressed, size).or_else(|_| lz4(compressed, size)),
        Compression::LZO => Err(format!("it is compressed by LZO, {NOT_READ}")),
    };
    let content = content.map_err(|message| format!("a page cannot be decompressed: {message}"))?;
    if content.len() != size {
        return Err(format!("a page has {} bytes or more, its header says {size}", content.len()));
    }
    Ok(content)
}

fn read_up_to(reader: impl Read, size: usize) -> Result<Vec<u8>, String> {
    let mut content = Vec::with_capacity(size.min(1 << 20));
    reader.take(size as u64 + 1).read_to_end(&mut content).map_err(|e| e.to_string())?;
    Ok(content)
}

fn snappy(compressed: &[u8], size: usize) -> Result<Vec<u8>, String> {
    let claimed = snap::raw::decompress_len(compressed).map_err(|e| e.to_string())?;
    if claimed != size {
        return Err(format!("it has {claimed} bytes, its header says {size}"));
    }
    snap::raw::Decoder::new().decompress_vec(compressed).map_err(|e| e.to_string())
}

fn lz4(compressed: &[u8], size: usize) -> Result<Vec<u8>, String> {
    lz4_flex::block::decompress(compressed, size).map_err(|e| e.to_string())
}

/// Decompresses Hadoop's framing, the first meaning of the codec `LZ4`: blocks after their decompressed and
/// compressed sizes, both big-endian.
fn hadoop_lz4(mut compressed: &[u8], size: usize) -> Result<Vec<u8>, String> {
    let mut content = Vec::with_capacity(size.min(1 << 20));
    while let Some((sizes, rest)) = compressed.split_at_checked(8) {
        let block_size = u32::from_be_bytes([sizes[0], sizes[1], sizes[2], sizes[3]]) as usize;
        let length = u32::from_be_bytes([sizes[4], sizes[5], sizes[6], sizes[7]]) as usize;
        let (block, after) = rest.split_at_checked(length).ok_or("a block is cut off")?;
        if block_size > size - content.len() {
            return Err("the blocks are larger than the page".to_string());
        }
        content.extend(lz4(block, block_size)?);
        compressed = after;
    }
    Ok(content)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn no_codec_returns_more_than_the_size_in_the_header() {
        let zeros = vec![0; 1 << 20];
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&zeros).unwrap();
        let mut brotli = brotli::CompressorWriter::new(Vec::new(), 4096, 1, 20);
        brotli.write_all(&zeros).unwrap();
        let block = lz4_flex::block::compress(&zeros);
        let hadoop =
            [&(1u32 << 20).to_be_bytes(), &(block.len() as u32).to_be_bytes(), block.as_slice()].concat();
        for (codec, compressed) in [
            (Compression::GZIP(parquet::basic::GzipLevel::default()), gzip.finish().unwrap()),
            (Compression::BROTLI(parquet::basic::BrotliLevel::default()), brotli.into_inner()),
            (
                Compression::ZSTD(parquet::basic::ZstdLevel::default()),
                zstd::encode_all(zeros.as_slice(), 1).unwrap(),
            ),
            (Compression::SNAPPY, snap::raw::Encoder::new().compress_vec(&zeros).unwrap()),
            (Compression::LZ4_RAW, block),
            (Compression::LZ4, hadoop),
            (Compression::UNCOMPRESSED, zeros.clone()),
        ] {
            assert!(decompress(codec, &compressed, 1 << 20).unwrap() == zeros, "{codec:?}");
            for wrong in [0, 1000, (1 << 20) - 1, (1 << 20) + 1] {
                assert!(decompress(codec, &compressed, wrong).is_err(), "{codec:?} {wrong}");
            }
        }
    }
}
