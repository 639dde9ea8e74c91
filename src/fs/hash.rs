//! SHA-256 in hexadecimal, of bytes in memory and of what a reader gives.

use std::fmt::Write;
use std::io::Read;

use sha2::Digest;
use sha2::Sha256;

/// SHA-256 of `parts` one after the other, in hexadecimal.
pub fn sha256_of(parts: &[&[u8]]) -> String {
    hexadecimal(parts.iter().fold(Sha256::new(), Digest::chain_update))
}

/// SHA-256 of everything that `reader` still gives, in hexadecimal.
pub fn sha256_of_reader(mut reader: impl Read) -> std::io::Result<String> {
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        match reader.read(&mut buffer)? {
            0 => return Ok(hexadecimal(hash)),
            count => hash.update(&buffer[..count]),
        }
    }
}

fn hexadecimal(hash: Sha256) -> String {
    hash.finalize().iter().fold(String::with_capacity(64), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to a string cannot fail");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_known_answer_of_fips_180_comes_out() {
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha256_of(&[b"a", b"bc"]), expected);
        assert_eq!(sha256_of_reader(b"abc".as_slice()).unwrap(), expected);
    }
}
