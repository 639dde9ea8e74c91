//! The blank before the first word of a text: the steps of a tokenizer.json that add it, and their settings.
//! Words that are passed one by one are separate texts.

use serde_json::{Value, json};

/// The setting of `ByteLevel` that puts a blank before a text that does not begin with one.
pub(super) const KEY: &str = "add_prefix_space";

/// The blank before a word.
const WORD_BLANK: &str = r" (?=\S)";

/// The pre-tokenizer of a unigram vocabulary. Each word begins with `▁`, including the first one of a text or
/// a line, and each word that is passed separately. Lines are separated. The blank that `▁` represents is not
/// part of the word's position in the text, so it is removed first.
pub(super) fn unigram_words() -> Value {
    json!({"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"String": "\n"}, "behavior": "Isolated", "invert": false},
        {"type": "Split", "pattern": {"Regex": WORD_BLANK}, "behavior": "Removed", "invert": false},
        {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true},
    ]})
}

/// Returns true if these steps separate lines and divide them into words as SentencePiece does, independent
/// of the position of a line.
pub(super) fn spells_lines(steps: &[&Value]) -> bool {
    let all = unigram_words();
    let own = &all["pretokenizers"];
    match steps {
        [lines, words] => is_same_split(lines, &own[0]) && is_metaspace_of_words(words),
        [lines, blanks, words] => {
            is_same_split(lines, &own[0]) && is_same_split(blanks, &own[1]) && is_metaspace_of_words(words)
        }
        _ => false,
    }
}

/// Returns true if two `Split` steps have the same effect.
fn is_same_split(step: &Value, own: &Value) -> bool {
    let keys = ["type", "pattern", "behavior"];
    keys.iter().all(|key| step[*key] == own[*key]) && step["invert"] != true
}

/// Returns true if a `Metaspace` step treats all words in the same way, including the first one.
fn is_metaspace_of_words(step: &Value) -> bool {
    step["type"] == "Metaspace" && (step["prepend_scheme"] == "never" || step["prepend_scheme"] == "always")
}

/// Returns true if each word of a text is encoded as after a blank; `None` if the vocabulary has no blanks
/// before words.
pub(super) fn is_added(json: &Value) -> Option<bool> {
    match word_step(&json["pre_tokenizer"])? {
        step if step["type"] == "ByteLevel" => {
            Some(step[KEY] == true || json["normalizer"].to_string().contains(r#""prepend":" ""#))
        }
        step => Some(step["prepend_scheme"] != "never"),
    }
}

/// Changes the pipeline in `json` so that each word is encoded as after a blank, including the first one of a
/// text, and so that the positions of words do not include that blank.
pub(super) fn add(json: &mut Value) {
    let step = &mut json["pre_tokenizer"];
    match step["type"].as_str() {
        Some("ByteLevel") => step[KEY] = true.into(),
        Some("Metaspace") => step["prepend_scheme"] = "always".into(),
        Some("Sequence") if spells_lines(&steps_of(step)) => *step = unigram_words(),
        Some("Sequence") => add_to_sequence(json),
        _ => {}
    }
    if has_byte_level(&json["pre_tokenizer"]) {
        json["post_processor"] = trimming(json["post_processor"].take(), true);
    }
}

fn steps_of(sequence: &Value) -> Vec<&Value> {
    sequence["pretokenizers"].as_array().into_iter().flatten().collect()
}

/// Adds the blank in a sequence of steps. Steps before the one with the blank may divide words, and each
/// piece would get a blank.
fn add_to_sequence(json: &mut Value) {
    let steps = json["pre_tokenizer"]["pretokenizers"].as_array_mut();
    let Some((place, step)) = steps.and_then(|all| {
        all.iter_mut()
            .enumerate()
            .find(|(_, step)| step["type"] == "ByteLevel" || step["type"] == "Metaspace")
    }) else {
        return;
    };
    if step["type"] == "Metaspace" {
        // Only at the beginning of a word.
        step["prepend_scheme"] = "first".into();
    } else if place == 0 {
        step[KEY] = true.into();
    } else {
        let prepend = json!({"type": "Prepend", "prepend": " "});
        let mut all = vec![prepend];
        match json["normalizer"].take() {
            Value::Null => {}
            mut whole if whole["type"] == "Sequence" => {
                all.extend(whole["normalizers"].as_array_mut().map(std::mem::take).unwrap_or_default());
            }
            one => all.push(one),
        }
        json["normalizer"] = json!({"type": "Sequence", "normalizers": all});
    }
}

/// `processor` with a step that excludes the blank before a word from the word's position.
pub(super) fn trimming(mut processor: Value, is_added: bool) -> Value {
    match processor["type"].as_str() {
        Some("RobertaProcessing" | "ByteLevel") => {
            processor["trim_offsets"] = true.into();
            processor[KEY] = is_added.into();
            return processor;
        }
        Some("Sequence") => {
            let steps = processor["processors"].as_array_mut().map(std::mem::take).unwrap_or_default();
            let has_trimming = steps.iter().any(|step| step[KEY].is_boolean());
            let mut steps: Vec<Value> = steps
                .into_iter()
                .map(|step| if step[KEY].is_boolean() { trimming(step, is_added) } else { step })
                .collect();
            if !has_trimming {
                steps.insert(0, trim(is_added));
            }
            return json!({"type": "Sequence", "processors": steps});
        }
        Some(_) => {}
        None => return trim(is_added),
    }
    json!({"type": "Sequence", "processors": [trim(is_added), processor]})
}

fn trim(is_added: bool) -> Value {
    json!({"type": "ByteLevel", KEY: is_added, "trim_offsets": true, "use_regex": true})
}

/// The step of a pre-tokenizer that encodes the blank before a word; in a sequence, the first such step.
fn word_step(step: &Value) -> Option<&Value> {
    match step["type"].as_str()? {
        "ByteLevel" | "Metaspace" => Some(step),
        "Sequence" => step["pretokenizers"].as_array()?.iter().find_map(word_step),
        _ => None,
    }
}

fn has_byte_level(step: &Value) -> bool {
    word_step(step).is_some_and(|step| step["type"] == "ByteLevel")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn byte_level(add: bool) -> Value {
        json!({"type": "ByteLevel", "add_prefix_space": add, "trim_offsets": true, "use_regex": true})
    }

    #[expect(clippy::needless_pass_by_value, reason = "the callers write the value in place")]
    fn added(normalizer: Value, pre_tokenizer: Value, post_processor: Value) -> Value {
        let mut json = json!({"normalizer": normalizer, "pre_tokenizer": pre_tokenizer, "post_processor": post_processor});
        assert_eq!(is_added(&json), Some(false));
        add(&mut json);
        assert_eq!(is_added(&json), Some(true));
        json
    }

    #[test]
    fn each_pipeline_gets_the_blank_in_its_own_way() {
        let alone = added(Value::Null, byte_level(false), json!({"type": "TemplateProcessing"}));
        assert_eq!(alone["pre_tokenizer"], byte_level(true));
        let want =
            json!({"type": "Sequence", "processors": [byte_level(true), {"type": "TemplateProcessing"}]});
        assert_eq!(alone["post_processor"], want);
        let again = trimming(want.clone(), true);
        assert_eq!(again, want, "nothing is there twice");
        let roberta = json!({"type": "RobertaProcessing", "trim_offsets": false, "add_prefix_space": false});
        let roberta = added(Value::Null, byte_level(false), roberta)["post_processor"].clone();
        assert_eq!(
            roberta,
            json!({"type": "RobertaProcessing", "trim_offsets": true, "add_prefix_space": true})
        );
        let first = json!({"type": "Sequence", "pretokenizers": [byte_level(false), {"type": "Digits"}]});
        let first = added(Value::Null, first, Value::Null);
        assert_eq!(first["pre_tokenizer"]["pretokenizers"][0], byte_level(true));
        assert_eq!(first["post_processor"], byte_level(true));
        let after_digits =
            json!({"type": "Sequence", "pretokenizers": [{"type": "Digits"}, byte_level(false)]});
        let behind = added(json!({"type": "NFC"}), after_digits, Value::Null);
        assert_eq!(behind["normalizer"]["normalizers"][0], json!({"type": "Prepend", "prepend": " "}));
        assert_eq!(behind["normalizer"]["normalizers"][1], json!({"type": "NFC"}));
        assert_eq!(behind["pre_tokenizer"]["pretokenizers"][1], byte_level(false));
        let metaspace =
            json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never", "split": true});
        let alone = added(Value::Null, metaspace.clone(), Value::Null);
        assert_eq!(
            (alone["pre_tokenizer"]["prepend_scheme"].as_str(), &alone["post_processor"]),
            (Some("always"), &Value::Null)
        );
        let after_digits = json!({"type": "Sequence", "pretokenizers": [{"type": "Punctuation"}, metaspace]});
        let behind = added(Value::Null, after_digits, Value::Null);
        assert_eq!(behind["pre_tokenizer"]["pretokenizers"][1]["prepend_scheme"], "first");
    }

    #[test]
    fn words_without_blanks_need_none() {
        let mut json = json!({"normalizer": null, "pre_tokenizer": {"type": "BertPreTokenizer"}, "post_processor": null});
        let before = json.clone();
        assert_eq!(is_added(&json), None);
        add(&mut json);
        assert_eq!(json, before);
    }
}
