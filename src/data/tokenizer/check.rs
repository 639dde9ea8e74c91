//! Checks a tokenizer.json from outside before the `tokenizers` crate reads it. Refused are parts that make
//! texts grow without bound, tables that claim more bytes than they have, merges that cut characters in half,
//! and pieces whose tree would be too deep.

use serde_json::Value;

use base::error::Problem;

/// Largest factor by which a text may grow, in bytes: normalizers replace one byte by a few bytes, and there
/// are not many of them.
const GROWTH_MAX: usize = 1024;

/// Most merges per entry of a vocabulary. One merge makes an entry; some tokenizers list every way to make
/// it.
const MERGES_PER_ENTRY_MAX: usize = 16;

/// Longest piece of a unigram vocabulary in bytes. The crate builds a tree with a level for each byte, and drops it
/// recursively.
const PIECE_BYTES_MAX: usize = 4096;

/// Refuses a tokenizer that would need unbounded memory.
pub(super) fn check(json: &Value, place: &str) -> Result<(), Problem> {
    fault(json).map_or(Ok(()), |message| {
        Err(Problem::new(format!("is not a tokenizer that can be used: {message}")).at(place))
    })
}

/// The first reason to refuse a tokenizer.
fn fault(json: &Value) -> Option<String> {
    let parts = ["normalizer", "pre_tokenizer", "post_processor", "decoder"].map(|key| growth(&json[key]));
    if parts.into_iter().fold(1, usize::saturating_mul) > GROWTH_MAX {
        return Some(format!("its parts make a text more than {GROWTH_MAX} times as long"));
    }
    if claims_too_much(&json["normalizer"]) {
        return Some("`precompiled_charsmap` claims more than it holds".to_string());
    }
    let merges = json["model"]["merges"].as_array().map_or(0, Vec::len);
    let entries = json["model"]["vocab"].as_object().map_or(0, serde_json::Map::len);
    if merges > MERGES_PER_ENTRY_MAX * entries.max(1) {
        return Some(format!("it has {merges} merges for {entries} entries of its vocabulary"));
    }
    let pieces = json["model"]["vocab"].as_array().into_iter().flatten();
    let longest = pieces.filter_map(|piece| piece.get(0)?.as_str()).map(str::len).max().unwrap_or_default();
    if longest > PIECE_BYTES_MAX {
        return Some(format!("it has a piece of {longest} bytes, more than {PIECE_BYTES_MAX}"));
    }
    let part = merge_without_prefix(&json["model"])?;
    Some(format!("merge with `{part}`, which lacks the `continuing_subword_prefix`"))
}

/// Upper bound on the factor by which `part` and its components make a text longer.
fn growth(part: &Value) -> usize {
    match part {
        Value::Object(fields) => fields.values().map(growth).fold(own_growth(part), usize::saturating_mul),
        Value::Array(parts) => parts.iter().map(growth).fold(1, usize::saturating_mul),
        _ => 1,
    }
}

/// The growth by one component alone. Old files may omit types, so the keys are decisive.
fn own_growth(part: &Value) -> usize {
    match (&part["pattern"], &part["content"]) {
        (Value::Null, _) | (_, Value::Null) => {}
        (pattern, content) => {
            let new = content.as_str().map_or(1, str::len);
            // A regular expression may match the empty string, which occurs everywhere.
            return pattern["String"].as_str().map_or(new + 1, |old| {
                if old.is_empty() { new + 1 } else { new.div_ceil(old.len()).max(1) }
            });
        }
    }
    match part["type"].as_str() {
        // Each byte above 0x7f becomes two bytes.
        Some("ByteLevel") => 2,
        _ => num_sequences(&part["single"]).max(num_sequences(&part["pair"]) / 2).max(1),
    }
}

/// Returns true if the table of a `Precompiled` normalizer anywhere in `part` is shorter than its first four
/// bytes claim; the crate allocates the claimed size first.
fn claims_too_much(part: &Value) -> bool {
    match part {
        Value::Object(fields) => fields.iter().any(|(key, value)| match value.as_str() {
            Some(table) if key == "precompiled_charsmap" => {
                first_number(table).is_some_and(|claim| claim as usize > table.len())
            }
            _ => claims_too_much(value),
        }),
        Value::Array(parts) => parts.iter().any(claims_too_much),
        _ => false,
    }
}

/// Number of texts in a template.
fn num_sequences(pieces: &Value) -> usize {
    pieces.as_array().into_iter().flatten().filter(|piece| !piece["Sequence"].is_null()).count()
}

/// The first four bytes of `base64` as a little-endian number.
fn first_number(base64: &str) -> Option<u32> {
    let mut bits = 0u64;
    for byte in base64.get(..6)?.bytes() {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 | u64::from(value);
    }
    Some(((bits >> 4) as u32).swap_bytes())
}

/// The right part of a merge if it does not begin with the prefix. The crate cuts off the prefix's length
/// without a check, even in the middle of a character.
fn merge_without_prefix(model: &Value) -> Option<&str> {
    let prefix = model["continuing_subword_prefix"].as_str().filter(|prefix| !prefix.is_empty())?;
    let merges = model["merges"].as_array()?;
    let pairs = merges.iter().filter_map(|pair| pair.get(1)?.as_str());
    let texts = merges.iter().filter_map(|both| Some(both.as_str()?.split_once(' ')?.1));
    pairs.chain(texts).find(|right| !right.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_text_may_grow_a_little() {
        let replace =
            |old: &str, new: &str| json!({"type": "Replace", "pattern": {"String": old}, "content": new});
        assert_eq!(growth(&Value::Null), 1);
        assert_eq!(growth(&replace(" ", "▁")), 3);
        assert_eq!(growth(&replace("``", "\"")), 1);
        assert_eq!(growth(&json!({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "})), 2);
        assert_eq!(
            growth(&json!({"normalizers": [replace("a", "aa"), {"type": "NFC"}, replace("a", "aaa")]})),
            6
        );
        assert_eq!(growth(&json!({"type": "Split", "pattern": {"String": ""}, "behavior": "Isolated"})), 1);
        let [a, b] = ["A", "B"].map(|id| json!({"Sequence": {"id": id, "type_id": 0}}));
        assert_eq!(growth(&json!({"single": [a], "pair": [a, b]})), 1);
        assert_eq!(growth(&json!({"single": [a, a, a], "pair": []})), 3);
        let bomb: Vec<Value> = (0..100).map(|_| replace("a", "aa")).collect();
        let refused =
            check(&json!({"normalizer": {"type": "Sequence", "normalizers": bomb}}), "here").unwrap_err();
        assert!(refused.to_string().contains("1024 times as long"), "{refused}");
    }

    #[test]
    fn a_table_has_what_it_claims() {
        // 0x04030201, then nothing.
        assert_eq!(first_number("AQIDBA=="), Some(0x0403_0201));
        assert_eq!(first_number("AQID"), None);
        let table =
            |base64: &str| json!({"normalizers": [{"type": "Precompiled", "precompiled_charsmap": base64}]});
        assert!(claims_too_much(&table("AQIDBA==")) && !claims_too_much(&table("BAAAAAQAAAA=")));
    }

    #[test]
    fn merges_make_the_entries_of_the_vocabulary() {
        let [allowed, refused] = [48, 49].map(|count| {
            let vocab = json!({"a": 0, "b": 1, "ab": 2});
            check(&json!({"model": {"vocab": vocab, "merges": vec!["a b"; count]}}), "here")
        });
        assert!(allowed.is_ok());
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("49 merges for 3 entries"), "{refused}");
    }

    #[test]
    fn pieces_are_not_long() {
        let [allowed, refused] = [4096, 1 << 20].map(|bytes| {
            check(&json!({"model": {"type": "Unigram", "vocab": [["x".repeat(bytes), -1.0]]}}), "here")
        });
        assert!(allowed.is_ok());
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("a piece of 1048576 bytes"), "{refused}");
    }

    #[test]
    fn right_parts_of_merges_begin_with_the_prefix() {
        let model =
            |merge: Value| json!({"continuing_subword_prefix": "##", "merges": [["a", "##b"], merge]});
        assert_eq!(merge_without_prefix(&model(json!("a ##b"))), None);
        assert_eq!(merge_without_prefix(&model(json!("a 漢"))), Some("漢"));
        assert_eq!(merge_without_prefix(&model(json!(["a", "b"]))), Some("b"));
        assert_eq!(
            merge_without_prefix(&json!({"continuing_subword_prefix": "", "merges": [["a", "b"]]})),
            None
        );
    }
}
