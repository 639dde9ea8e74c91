//! Algorithms that a GPU has chosen for its products, as data that a run can store and a resumed run can use
//! again: algorithms sum in different orders, so the same algorithms give the same bits.
//!
//! Nothing here opens a file, and nothing interprets the bytes of an algorithm: only cuBLASLt does.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Bytes of an algorithm, `cublasLtMatmulAlgo_t`. NVIDIA's documentation allows storing them and using them
/// again with the same version of the library.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Algorithm(pub(super) [u64; 8]);

/// Hexadecimal digits of an algorithm.
const DIGITS: usize = 128;

impl From<Algorithm> for String {
    fn from(algorithm: Algorithm) -> Self {
        algorithm.0.map(|word| format!("{word:016x}")).concat()
    }
}

/// The message about a text that has another form.
fn malformed(text: &str) -> String {
    format!("`{text}` is not an algorithm: {DIGITS} hexadecimal digits are wanted")
}

impl TryFrom<String> for Algorithm {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if text.len() != DIGITS || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(malformed(&text));
        }
        let mut words = [0; 8];
        for (word, digits) in words.iter_mut().zip(text.as_bytes().chunks(DIGITS / 8)) {
            let digits = std::str::from_utf8(digits).map_err(|_| malformed(&text))?;
            *word = u64::from_str_radix(digits, 16).map_err(|_| malformed(&text))?;
        }
        Ok(Self(words))
    }
}

/// Algorithms of one GPU, with what they are valid for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Algorithms {
    /// Name of the GPU as the driver reports it.
    pub device: String,
    /// Name and version of the library.
    pub library: String,
    /// Algorithm of each kind of product, by its description. A kind contains all products whose numbers of
    /// rows round up to the same multiple of 128.
    pub chosen: BTreeMap<String, Algorithm>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn algorithms_are_stored_and_read_back_bit_by_bit() {
        let algorithm = Algorithm([1, u64::MAX, 0, 0x0123_4567_89ab_cdef, 4, 5, 6, 1 << 63]);
        let whole = Algorithms {
            device: "NVIDIA H200".to_string(),
            library: "cuBLASLt 130002".to_string(),
            chosen: BTreeMap::from([("a product".to_string(), algorithm)]),
        };
        let text = serde_json::to_string(&whole).unwrap();
        assert_eq!(serde_json::from_str::<Algorithms>(&text).unwrap(), whole);
    }

    #[test]
    fn anything_but_128_hexadecimal_digits_is_refused() {
        let whole = String::from(Algorithm([7; 8]));
        Algorithm::try_from(whole.clone()).unwrap();
        let signed = whole.replacen("00", "+0", 1);
        let wide = whole.replacen("00", "ä", 1);
        for text in [&whole[1..], &format!("{whole}0"), &signed, &wide, ""] {
            let message = Algorithm::try_from(text.to_string()).unwrap_err();
            assert!(message.contains("128 hexadecimal digits are wanted"), "{message}");
        }
    }
}
