//! DELTA_BYTE_ARRAY: each value is the beginning of the one before it and an end of its own.
//!
//! It becomes PLAIN here, within bounds: a value may repeat all of the one before it, so that a small page
//! could hold any amount of text, and the crate's own decoder would build all of it.

/// The most values of a page: what they cost beside their text is 12 bytes each.
const VALUES_MAX: u32 = 1 << 22;

/// The values of a page as PLAIN has them, each with its length before it, in at most `bytes_max` bytes.
pub(super) fn to_plain(mut values: &[u8], num_values: u32, bytes_max: u64) -> Result<Vec<u8>, String> {
    let most = num_values.min(VALUES_MAX);
    let prefixes = lengths(&mut values, most)?;
    let suffixes = lengths(&mut values, most)?;
    if prefixes.len() != suffixes.len() {
        return Err("a page has not as many beginnings of values as ends".to_string());
    }
    let (mut plain, mut last) = (Vec::new(), 0..0);
    for (prefix, suffix) in prefixes.into_iter().zip(suffixes) {
        let (prefix, suffix) = (prefix as usize, suffix as usize);
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
        (last, values) = (start..plain.len(), rest);
    }
    Ok(plain)
}

/// Numbers in DELTA_BINARY_PACKED, none of them negative or beyond 31 bits, at most `most`; they are taken
/// off `bytes`.
fn lengths(bytes: &mut &[u8], most: u32) -> Result<Vec<u32>, String> {
    let (block, miniblocks, total) = (varint(bytes)?, varint(bytes)?, varint(bytes)?);
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
    let push = |value: i64, found: &mut Vec<u32>| match u32::try_from(value) {
        Ok(length) if i32::try_from(length).is_ok() => {
            found.push(length);
            Ok(())
        }
        _ => Err(format!("a value has the length {value}")),
    };
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

/// `width` bits from bit `start` on, the lowest first.
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

    /// Lengths in blocks of 128 and 4 parts, each as wide as it need be.
    fn packed(numbers: &[i64]) -> Vec<u8> {
        let unsigned = |mut value: u64, out: &mut Vec<u8>| {
            while value >= 0x80 {
                out.push(value as u8 | 0x80);
                value >>= 7;
            }
            out.push(value as u8);
        };
        let signed =
            |value: i64, out: &mut Vec<u8>| unsigned((value << 1 ^ value >> 63).cast_unsigned(), out);
        let mut out = Vec::new();
        for number in [128, 4, numbers.len() as u64] {
            unsigned(number, &mut out);
        }
        signed(numbers.first().copied().unwrap_or(0), &mut out);
        let deltas: Vec<i64> = numbers.windows(2).map(|pair| pair[1] - pair[0]).collect();
        for block in deltas.chunks(128) {
            let least = *block.iter().min().unwrap();
            signed(least, &mut out);
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

    fn encoded(texts: &[String]) -> Vec<u8> {
        let shared = |a: &str, b: &str| a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count();
        let prefixes: Vec<usize> =
            (0..texts.len()).map(|n| if n == 0 { 0 } else { shared(&texts[n - 1], &texts[n]) }).collect();
        let suffixes: Vec<&[u8]> = texts.iter().zip(&prefixes).map(|(t, p)| &t.as_bytes()[*p..]).collect();
        let numbers = |lengths: Vec<usize>| packed(&lengths.iter().map(|n| *n as i64).collect::<Vec<_>>());
        let ends = numbers(suffixes.iter().map(|suffix| suffix.len()).collect());
        [numbers(prefixes), ends, suffixes.concat()].concat()
    }

    fn plain(texts: &[String]) -> Vec<u8> {
        texts.iter().flat_map(|text| [&(text.len() as u32).to_le_bytes(), text.as_bytes()].concat()).collect()
    }

    #[test]
    fn a_page_that_unfolds_too_far_is_refused() {
        let texts = vec!["x".repeat(1000); 5000];
        let page = encoded(&texts);
        assert!(page.len() < 3000 && to_plain(&page, 5000, 1 << 30).unwrap() == plain(&texts));
        assert!(to_plain(&page, 5000, 1 << 20).unwrap_err().contains("more than 1048576 bytes"));
        assert!(to_plain(&page, 4999, 1 << 30).unwrap_err().contains("claims the lengths of 5000"));
    }

    proptest! {
        #[test]
        fn what_is_encoded_comes_back(texts in proptest::collection::vec("[ab]{0,12}", 0..300)) {
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
