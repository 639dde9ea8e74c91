//! Damage, as disks, networks and attackers do it. All of it is a function of the stream.

use mlmtrain::rng::Stream;

/// Numbers that overflow what multiplies or allocates by them.
const HUGE: [&[u8]; 6] = [
    b"18446744073709551615",
    b"9223372036854775807",
    b"4294967296",
    b"-1",
    b"1e999",
    b"99999999999999999999999",
];

/// What formats give a meaning to.
const WORDS: [&[u8]; 28] = [
    b"null",
    b"true",
    b"{}",
    b"[]",
    b"{",
    b"[",
    b"\"",
    b"\\ud800",
    b"\\u0000",
    b"\\",
    b",",
    b":",
    b"\n",
    b"\r\n",
    b"\t",
    b"\0",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b"&a ",
    b"*a",
    b"!!binary ",
    b"<<: ",
    b"---\n",
    b"- ",
    b"<doc id=",
    b"</script",
    b"&#x0;",
    "\u{301}\u{200d}".as_bytes(),
];

/// `bytes` with one to three kinds of damage.
pub(crate) fn mutate(bytes: &[u8], stream: Stream) -> Vec<u8> {
    let mut mutated = bytes.to_vec();
    for round in 0..=stream.below(2, 3) {
        damage(&mut mutated, &mut Draw { stream, index: 1 + round * 10_000 });
    }
    mutated
}

/// Draws one number after the other.
struct Draw {
    stream: Stream,
    index: u64,
}

impl Draw {
    fn below(&mut self, bound: usize) -> usize {
        self.index += 1;
        self.stream.below(self.index, bound.max(1) as u64) as usize
    }
}

fn damage(bytes: &mut Vec<u8>, draw: &mut Draw) {
    let at = draw.below(bytes.len());
    match draw.below(9) {
        0 => flip_bits(bytes, draw),
        1 => drop(bytes.drain(at..(at + 1 + draw.below(16)).min(bytes.len()))),
        2 => {
            let inserted: Vec<u8> = (0..=draw.below(16)).map(|_| draw.below(256) as u8).collect();
            bytes.splice(at..at, inserted);
        }
        3 => bytes.truncate(at),
        4 => {
            let block = bytes[at..(at + 1 + draw.below(1 << 12)).min(bytes.len())].to_vec();
            let copies = block.repeat(1 + draw.below(4));
            bytes.splice(at..at, copies);
        }
        5 => replace_number(bytes, draw),
        6 => drop(bytes.splice(at..at, WORDS[draw.below(WORDS.len())].iter().copied())),
        7 => {
            let other = draw.below(bytes.len());
            let length = 1 + draw.below(64);
            let part = bytes[other..(other + length).min(bytes.len())].to_vec();
            bytes.splice(at..(at + part.len()).min(bytes.len()), part);
        }
        // As a length field of a binary format.
        _ => {
            let end = (at + 1 + draw.below(8)).min(bytes.len());
            bytes[at..end].fill(0xff);
        }
    }
}

fn flip_bits(bytes: &mut [u8], draw: &mut Draw) {
    for _ in 0..=draw.below(8) {
        let at = draw.below(bytes.len());
        if let Some(byte) = bytes.get_mut(at) {
            *byte ^= 1 << draw.below(8);
        }
    }
}

/// A run of digits becomes a huge number; where there is none, bits are flipped.
fn replace_number(bytes: &mut Vec<u8>, draw: &mut Draw) {
    let starts: Vec<usize> = (0..bytes.len())
        .filter(|&i| bytes[i].is_ascii_digit() && (i == 0 || !bytes[i - 1].is_ascii_digit()))
        .collect();
    let Some(&start) = starts.get(draw.below(starts.len())) else { return flip_bits(bytes, draw) };
    let end = start + bytes[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    bytes.splice(start..end, HUGE[draw.below(HUGE.len())].iter().copied());
}
