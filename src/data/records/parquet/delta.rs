//! DELTA_BYTE_ARRAY: each value is stored as the length of the prefix that it shares with the previous value,
//! and the rest.
//!
//! The values are converted to PLAIN here, with a limit: a value may repeat all of the previous one, so that
//! a small page could expand to any amount of text, and the decoder of the crate would build all of it.

/// Most values of a page; each needs 12 bytes in addition to its text.
const VALUES_MAX: u32 = 1 << 22;

/// Converts the values of a page to PLAIN, where each has its length before it, in at most `bytes_max` bytes.
pub(super) fn to_plain(mut values: &[u8], num_values: u32, bytes_max: u64) -> Result<Vec<u8>, String> {
    let most = num_values.min(VALUES_MAX);
    let prefixes = lengths(&mut values, most)?;
    let suffixes = lengths(&mut values, most)?;
    if prefixes.len() != suffixes.len() {
        return Err("a page has not as many beginnings of values as ends".to_string());
    }
    let mut plain = Vec::new();
    let mut last = 0..0;
    for (prefix, suffix) in prefixes.into_iter().zip(suffixes) {
        let prefix = prefix as usize;
        let suffix = suffix as usize;
        let length = prefix + suffix;
        if prefix > last.len() {
            return Err("a value repeats more than the one before it has".to_string());
        }
        let Some((own, rest)) = values.split_at_checked(suffix) else {
            return Err("a page is too short for its values".to_string());
        };
        if (plain.len() + length + 4) as u64 > bytes_max {
            return Err(format!("the values of a page have more than {bytes_max} bytes"));
        }
        plain.extend_from_slice(&(length as u32).to_le_bytes());
        let start = plain.len();
        plain.extend_from_within(last.start..last.start + prefix);
        plain.extend_from_slice(own);
        last = start..plain.len();
        values = rest;
    }
    Ok(plain)
}

/// Reads DELTA_BINARY_PACKED numbers from the start of `bytes`, and advances `bytes` past them. There may be
/// at most `most` of them, and none may be negative or need more than 31 bits.
fn lengths(bytes: &mut &[u8], most: u32) -> Result<Vec<u32>, String> {
    let block = varint(bytes)?;
    let miniblocks = varint(bytes)?;
    let total = varint(bytes)?;
    let first = zigzag(varint(bytes)?);
    let per_miniblock = block.checked_div(miniblocks).unwrap_or(0);
    if miniblocks > 1 << 10
        || per_miniblock == 0
        || per_miniblock > 1 << 16
        || !per_miniblock.is_multiple_of(8)
    {
        return Err(format!("a page has blocks of {block} lengths in {miniblocks} parts"));
    }
    if total > u64::from(most) {
        return Err(format!("a page claims the lengths of {total} values, {most} are read at most"));
    }
    let mut found = Vec::new();
    let mut value = first;
    if total > 0 {
        push(value, &mut found)?;
    }
    while (found.len() as u64) < total {
        let least = zigzag(varint(bytes)?);
        let Some((widths, rest)) = bytes.split_at_checked(miniblocks as usize) else {
            return Err(too_short());
        };
        *bytes = rest;
        for width in widths {
            let left = total - found.len() as u64;
            if left == 0 {
                break;
            }
            let width = usize::from(*width);
            let size = (per_miniblock as usize).checked_mul(width).map(|bits| bits / 8);
            let packed = size.filter(|_| width <= 64).and_then(|size| bytes.split_at_checked(size));
            let Some((packed, rest)) = packed else { return Err(too_short()) };
            *bytes = rest;
            for index in 0..left.min(per_miniblock) as usize {
                let delta = bits(packed, index * width, width).cast_signed();
                value = value.wrapping_add(least).wrapping_add(delta);
                push(value, &mut found)?;
            }
        }
    }
    Ok(found)
}

fn push(value: i64, found: &mut Vec<u32>) -> Result<(), String> {
    match u32::try_from(value) {
        Ok(length) if i32::try_from(length).is_ok() => {
            found.push(length);
            Ok(())
        }
        _ => Err(format!("a value has the length {value}")),
    }
}

/// Returns the `width` bits from bit `start` onwards, the lowest first.
fn bits(bytes: &[u8], start: usize, width: usize) -> u64 {
    (0..width).fold(0, |value, bit| {
        let at = start + bit;
        value | u64::from(bytes[at / 8] >> (at % 8) & 1) << bit
    })
}

fn varint(bytes: &mut &[u8]) -> Result<u64, String> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first().ok_or_else(too_short)?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if *byte < 0x80 {
            return Ok(value);
        }
    }
    Err("a page has a number of more than 64 bits".to_string())
}

fn zigzag(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ -((value & 1).cast_signed())
}

fn too_short() -> String {
    "a page is too short for its values".to_string()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Packs numbers into blocks of 128 in 4 miniblocks, each as wide as necessary.
    fn packed(numbers: &[i64]) -> Vec<u8> {
        let mut out = Vec::new();
        for number in [128, 4, numbers.len() as u64] {
            push_unsigned(number, &mut out);
        }
        push_signed(numbers.first().copied().unwrap_or(0), &mut out);
        let deltas: Vec<i64> = numbers.windows(2).map(|pair| pair[1] - pair[0]).collect();
        for block in deltas.chunks(128) {
            let least = *block.iter().min().unwrap();
            push_signed(least, &mut out);
            let widths: Vec<usize> = block
                .chunks(32)
                .map(|part| part.iter().map(|d| 64 - (d - least).leading_zeros() as usize).max().unwrap())
                .collect();
            out.extend((0..4).map(|part| widths.get(part).copied().unwrap_or(0) as u8));
            for (part, width) in block.chunks(32).zip(widths) {
                let mut bytes = vec![0u8; 4 * width];
                for (index, delta) in part.iter().enumerate() {
                    for bit in (0..width).filter(|bit| (delta - least) >> bit & 1 == 1) {
                        let at = index * width + bit;
                        bytes[at / 8] |= 1 << (at % 8);
                    }
                }
                out.extend(bytes);
            }
        }
        out
    }

    fn push_unsigned(mut value: u64, out: &mut Vec<u8>) {
        while value >= 0x80 {
            out.push(value as u8 | 0x80);
            value >>= 7;
        }
        out.push(value as u8);
    }

    fn push_signed(value: i64, out: &mut Vec<u8>) {
        push_unsigned((value << 1 ^ value >> 63).cast_unsigned(), out);
    }

    fn encoded(texts: &[String]) -> Vec<u8> {
        let mut prefixes = Vec::new();
        let mut lengths = Vec::new();
        let mut suffixes = Vec::new();
        let mut previous = "";
        for text in texts {
            let shared = previous.bytes().zip(text.bytes()).take_while(|(a, b)| a == b).count();
            prefixes.push(shared as i64);
            lengths.push((text.len() - shared) as i64);
            suffixes.extend_from_slice(&text.as_bytes()[shared..]);
            previous = text;
        }
        [packed(&prefixes), packed(&lengths), suffixes].concat()
    }

    fn plain(texts: &[String]) -> Vec<u8> {
        texts.iter().flat_map(|text| [&(text.len() as u32).to_le_bytes(), text.as_bytes()].concat()).collect()
    }

    #[test]
    fn a_page_that_expands_too_far_is_refused() {
        let texts = vec!["x".repeat(1000); 5000];
        let page = encoded(&texts);
        assert!(page.len() < 3000 && to_plain(&page, 5000, 1 << 30).unwrap() == plain(&texts));
        assert!(to_plain(&page, 5000, 1 << 20).unwrap_err().contains("more than 1048576 bytes"));
        assert!(to_plain(&page, 4999, 1 << 30).unwrap_err().contains("claims the lengths of 5000"));
    }

    proptest! {
        #[test]
        fn encoded_values_round_trip(texts in proptest::collection::vec("[ab]{0,12}", 0..300)) {
            prop_assert_eq!(to_plain(&encoded(&texts), texts.len() as u32, 1 << 20).unwrap(), plain(&texts));
        }

        #[test]
        fn damage_never_panics(texts in proptest::collection::vec("[ab]{0,12}", 0..100), at: usize, byte: u8) {
            let mut page = encoded(&texts);
            let length = page.len();
            page[at % length] = byte;
            let _ = to_plain(&page, 1000, 1 << 20);
            let _ = to_plain(&page[..at % length], 1000, 1 << 20);
        }
    }
}
