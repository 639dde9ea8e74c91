//! The layout of one shard: a safetensors file with `offsets` (U64) and `tokens` (U16 or U32), little-endian.
//!
//! Document `i` is `tokens[offsets[i]..offsets[i + 1]]`. The header is written by hand because its bytes must
//! be the same each time; it is read strictly, since a shard comes from outside.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::json;

/// Length of the longest header that is read; this program writes headers of some hundred bytes.
pub(super) const HEADER_BYTES_MAX: u64 = 1 << 16;

/// The header of a shard: everything that a reader needs to find a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    /// Number of documents in the shard.
    pub(super) documents: u64,
    /// Number of tokens in the shard.
    pub(super) tokens: u64,
    /// Bytes per token: 2 or 4.
    pub(super) token_bytes: u64,
    /// Position of the offsets in the file, in bytes; the tokens follow them.
    pub(super) data_start: u64,
}

impl Layout {
    /// Position of the tokens in the file, in bytes.
    pub(super) fn tokens_start(&self) -> u64 {
        self.data_start + 8 * (self.documents + 1)
    }

    /// Length of the whole file in bytes; `None` if the header claims more than a file can have.
    fn file_bytes(&self) -> Option<u64> {
        let offsets = self.documents.checked_add(1)?.checked_mul(8)?;
        self.data_start.checked_add(offsets)?.checked_add(self.tokens.checked_mul(self.token_bytes)?)
    }
}

/// Bytes per token id for a vocabulary of `vocab_size` entries.
pub fn token_bytes_for(vocab_size: usize) -> u64 {
    if vocab_size <= 1 << 16 { 2 } else { 4 }
}

/// The first bytes of a shard file, up to the data.
pub(super) fn encode_header(
    documents: u64,
    tokens: u64,
    token_bytes: u64,
    tokenizer: &str,
    sha256: &str,
) -> Vec<u8> {
    let offsets_bytes = 8 * (documents + 1);
    let dtype = if token_bytes == 2 { "U16" } else { "U32" };
    let header = json!({
        "__metadata__": {"format": "mlmtrain-shard", "version": "1", "tokenizer": tokenizer, "sha256": sha256},
        "offsets": {"dtype": "U64", "shape": [documents + 1], "data_offsets": [0, offsets_bytes]},
        "tokens": {"dtype": dtype, "shape": [tokens], "data_offsets": [offsets_bytes, offsets_bytes + tokens * token_bytes]},
    });
    let mut text = header.to_string();
    // Spaces at the end align the data to 8 bytes, as readers of safetensors that map files into memory
    // require.
    while !text.len().is_multiple_of(8) {
        text.push(' ');
    }
    let mut bytes = (text.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(text.as_bytes());
    bytes
}

/// Reads the header's JSON and checks every size against `file_bytes`. The error message says what is wrong.
pub(super) fn decode_header(json: &[u8], file_bytes: u64) -> Result<Layout, String> {
    let header: Header = serde_json::from_slice(json).map_err(|e| format!("has a broken header: {e}"))?;
    if header.metadata.get("format").map(String::as_str) != Some("mlmtrain-shard") {
        return Err("is a safetensors file, but not a shard of tokens".to_string());
    }
    let token_bytes = match header.tokens.dtype.as_str() {
        "U16" => 2,
        "U32" => 4,
        other => return Err(format!("has tokens of type `{other}`, `U16` or `U32` is wanted")),
    };
    let documents = header.offsets.shape[0].checked_sub(1).ok_or("has no offsets")?;
    let layout =
        Layout { documents, tokens: header.tokens.shape[0], token_bytes, data_start: 8 + json.len() as u64 };
    if layout.file_bytes() != Some(file_bytes) {
        return Err(format!(
            "has {file_bytes} bytes, its header describes another length: it is cut or damaged"
        ));
    }
    let offsets_bytes = layout.tokens_start() - layout.data_start;
    let expected = ([0, offsets_bytes], [offsets_bytes, file_bytes - layout.data_start]);
    if header.offsets.dtype != "U64" || (header.offsets.data_offsets, header.tokens.data_offsets) != expected
    {
        return Err("has a header whose offsets contradict its shapes".to_string());
    }
    Ok(layout)
}

/// Fingerprint of the tokenizer that the header names, if it can be read.
pub(super) fn tokenizer_of(json: &[u8]) -> Option<String> {
    serde_json::from_slice::<Header>(json).ok()?.metadata.remove("tokenizer")
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    #[serde(rename = "__metadata__")]
    metadata: BTreeMap<String, String>,
    offsets: TensorInfo,
    tokens: TensorInfo,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TensorInfo {
    dtype: String,
    shape: [u64; 1],
    data_offsets: [u64; 2],
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_describes_itself_and_is_aligned() {
        let bytes = encode_header(3, 10, 2, "f", "00");
        assert_eq!(bytes.len() % 8, 0);
        let layout = decode_header(&bytes[8..], bytes.len() as u64 + 32 + 20).unwrap();
        assert_eq!(
            (layout.documents, layout.tokens, layout.token_bytes, layout.data_start),
            (3, 10, 2, bytes.len() as u64)
        );
    }

    #[test]
    fn sizes_that_overflow_or_contradict_the_file_are_refused() {
        for (documents, tokens) in [
            ("18446744073709551615", "1"),
            ("1152921504606846977", "4"),
            ("4", "9223372036854775808"),
            ("0", "1"),
            ("2", "1"),
        ] {
            let json = format!(
                r#"{{"__metadata__":{{"format":"mlmtrain-shard"}},"offsets":{{"dtype":"U64","shape":[{documents}],"data_offsets":[0,8]}},
                "tokens":{{"dtype":"U16","shape":[{tokens}],"data_offsets":[8,10]}}}}"#
            );
            assert!(decode_header(json.as_bytes(), json.len() as u64 + 18).is_err(), "{json}");
        }
    }
}
