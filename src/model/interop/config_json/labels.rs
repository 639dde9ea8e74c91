//! Reads the names of classes from a `config.json`: from `id2label` in all the forms that people write, from
//! `num_labels` alone, or from `label2id`.
//!
//! Two classes may have the same name: a class is identified by its id.

use serde_json::{Map, Value};

use crate::interop::config_json::{Reader, kind_of};

/// Largest accepted `num_labels`. No classifier has more, and a mistyped number must not exhaust memory.
const MOST_LABELS: u64 = 1 << 24;

impl Reader<'_> {
    /// Returns the names of the classes in the order of their ids; `None` if the file lacks all three
    /// keys.
    pub(super) fn labels(&mut self, notes: &mut Vec<String>) -> Option<Vec<String>> {
        let [id2label, label2id, num_labels] = ["id2label", "label2id", "num_labels"]
            .map(|key| self.keys.shift_remove(key).unwrap_or(Value::Null));
        let count = self.number_of_labels(&num_labels);
        let names = match &id2label {
            Value::Null => match (count, &label2id) {
                (Some(count), _) => return Some((0..count).map(numbered).collect()),
                (None, Value::Object(ids)) if !ids.is_empty() => inverse(ids),
                _ => return None,
            },
            Value::Object(names) => names_by_id(names),
            Value::Array(names) => names.iter().enumerate().map(|(id, name)| name_of(id, name)).collect(),
            other => Err(format!("must map ids to names, not {}", kind_of(other))),
        };
        match names {
            Ok(names) => {
                self.note_others(&names, count, &label2id, notes);
                Some(names)
            }
            Err(message) => {
                let key = if id2label.is_null() { "label2id" } else { "id2label" };
                self.refuse(format!("`{key}` {message}"));
                None
            }
        }
    }

    fn number_of_labels(&mut self, num_labels: &Value) -> Option<usize> {
        match num_labels.as_u64() {
            Some(count) if (1..=MOST_LABELS).contains(&count) => usize::try_from(count).ok(),
            _ => {
                if !num_labels.is_null() {
                    self.refuse(format!(
                        "`num_labels` must be a whole number from 1 to {MOST_LABELS}, not {num_labels}"
                    ));
                }
                None
            }
        }
    }

    /// Adds a note for each of `num_labels` and `label2id` that contradicts `id2label`, which wins, as in
    /// transformers.
    fn note_others(&self, names: &[String], count: Option<usize>, label2id: &Value, notes: &mut Vec<String>) {
        let place = self.place;
        if let Some(count) = count.filter(|&count| count != names.len()) {
            let there = names.len();
            notes.push(format!(
                "{place}: `id2label` has {there} labels and `num_labels` is {count}: the former counts"
            ));
        }
        let contradicts = label2id.as_object().into_iter().flatten().any(|(name, id)| {
            let id = whole(id).and_then(|id| names.get(id));
            id != Some(name) && names.contains(name)
        });
        if contradicts {
            notes.push(format!(
                "{place}: `label2id` gives labels other ids than `id2label`: the latter counts"
            ));
        }
    }
}

/// Returns the name that transformers gives to a class without one.
fn numbered(id: usize) -> String {
    format!("LABEL_{id}")
}

/// Returns the names of a map from id to name in the order of the ids, or what is wrong with the map.
fn names_by_id(map: &Map<String, Value>) -> Result<Vec<String>, String> {
    let mut names: Vec<Option<String>> = vec![None; map.len()];
    for (key, name) in map {
        let Ok(id) = key.trim().parse::<usize>() else {
            let is_swapped = map.values().all(|value| whole(value).is_some());
            let more = if is_swapped { ": it maps names to ids, as `label2id` does" } else { "" };
            return Err(format!("has the key `{key}`, which is no id{more}"));
        };
        let last = map.len() - 1;
        let Some(place) = names.get_mut(id) else {
            return Err(format!(
                "has {} labels, so that their ids are 0 to {last}, and names the id {id}",
                last + 1
            ));
        };
        if place.is_some() {
            return Err(format!("names the id {id} twice"));
        }
        *place = Some(name_of(id, name)?);
    }
    // The map has as many entries as `names` has places and no id occurs twice, so every place is filled.
    Ok(names.into_iter().flatten().collect())
}

/// Returns the names of a map from name to id in the order of the ids, or what is wrong with the map.
fn inverse(map: &Map<String, Value>) -> Result<Vec<String>, String> {
    let mut names: Vec<Option<String>> = vec![None; map.len()];
    for (name, id) in map {
        let place = whole(id).and_then(|id| names.get_mut(id)).filter(|place| place.is_none());
        let Some(place) = place else {
            let last = map.len() - 1;
            return Err(format!("gives `{name}` the id {id}, and each from 0 to {last} is wanted once"));
        };
        *place = Some(name.clone());
    }
    Ok(names.into_iter().flatten().collect())
}

/// Returns the name of class `id` as text, also if it is a number or a truth value; `null` gives the name
/// that transformers makes up.
fn name_of(id: usize, name: &Value) -> Result<String, String> {
    match name {
        Value::Null => Ok(numbered(id)),
        Value::String(name) => Ok(name.clone()),
        Value::Number(_) | Value::Bool(_) => Ok(name.to_string()),
        other => Err(format!("names the id {id} by {}, a text is wanted", kind_of(other))),
    }
}

/// Returns a whole number, also one that is written as text.
fn whole(value: &Value) -> Option<usize> {
    match value {
        Value::String(text) => text.trim().parse().ok(),
        value => usize::try_from(value.as_u64()?).ok(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::interop::HubConfig;

    fn read(keys: &serde_json::Value) -> Result<HubConfig, String> {
        let mut config = json!({"model_type": "bert", "architectures": ["BertForSequenceClassification"]});
        for (key, value) in keys.as_object().into_iter().flatten() {
            config[key.as_str()] = value.clone();
        }
        HubConfig::parse("config.json", config.to_string().as_bytes()).map_err(|e| e.to_string())
    }

    #[test]
    fn all_forms_of_names_are_read() {
        for (keys, names) in [
            (json!({"id2label": {"0": "a", "1": "b"}}), &["a", "b"][..]),
            (json!({"id2label": {"1": "b", "0": "a"}}), &["a", "b"]),
            (json!({"id2label": {"0": 0, "1": 1, "2": 2}}), &["0", "1", "2"]),
            (json!({"id2label": {"0": false, "1": true}}), &["false", "true"]),
            (json!({"id2label": {"0": 1.5, "1": -1}}), &["1.5", "-1"]),
            (json!({"id2label": {"00": "a", " 1": null}}), &["a", "LABEL_1"]),
            (json!({"id2label": ["x", "y", "z"]}), &["x", "y", "z"]),
            (json!({"id2label": {"0": "same", "1": "same"}}), &["same", "same"]),
            (json!({"num_labels": 3}), &["LABEL_0", "LABEL_1", "LABEL_2"]),
            (json!({"id2label": null, "num_labels": 2}), &["LABEL_0", "LABEL_1"]),
            (json!({"label2id": {"b": 1, "a": 0}}), &["a", "b"]),
            (json!({"label2id": {"b": "1", "a": "0", "c": 2}}), &["a", "b", "c"]),
        ] {
            let found = read(&keys).unwrap();
            assert_eq!(found.id2label.as_deref(), Some(&names.map_to_owned()[..]), "{keys}");
            assert!(found.notes.is_empty() && found.extra.is_empty(), "{keys}: {:?}", found.notes);
        }
        assert_eq!(read(&json!({})).unwrap().id2label, None);
    }

    trait MapToOwned {
        fn map_to_owned(&self) -> Vec<String>;
    }

    impl MapToOwned for &[&str] {
        fn map_to_owned(&self) -> Vec<String> {
            self.iter().map(|name| (*name).to_string()).collect()
        }
    }

    #[test]
    fn what_cannot_be_read_is_refused_with_its_reason() {
        for (keys, words) in [
            (
                json!({"id2label": {"1": "a", "2": "b"}}),
                "has 2 labels, so that their ids are 0 to 1, and names the id 2",
            ),
            (json!({"id2label": {"0": "a", "00": "b"}}), "names the id 0 twice"),
            (
                json!({"id2label": {"a": 0, "b": 1}}),
                "`a`, which is no id: it maps names to ids, as `label2id` does",
            ),
            (json!({"id2label": {"x": "a"}}), "has the key `x`, which is no id"),
            (json!({"id2label": {"0": ["a"], "1": "b"}}), "names the id 0 by a list"),
            (json!({"id2label": "a"}), "must map ids to names, not a string"),
            (json!({"num_labels": 0}), "`num_labels` must be a whole number from 1"),
            (json!({"num_labels": "three"}), "`num_labels` must be a whole number"),
            (json!({"label2id": {"a": 0, "b": 2}}), "`label2id` gives `b` the id 2"),
        ] {
            let message = read(&keys).unwrap_err();
            assert!(message.contains(words), "{keys}: {message}");
        }
    }

    #[test]
    fn keys_that_contradict_id2label_are_noted() {
        assert!(notes("num_labels", &json!(5)).contains("`id2label` has 2 labels and `num_labels` is 5"));
        assert!(notes("label2id", &json!({"a": 1, "b": 0})).contains("`label2id` gives labels other ids"));
        assert_eq!(notes("label2id", &json!({"a": 0, "b": 1})), "");
        assert_eq!(notes("label2id", &json!({"LABEL_0": 0, "LABEL_1": 1})), "");
    }

    /// Returns the notes on a file with the labels `a` and `b` in `id2label` and one more key.
    fn notes(key: &str, value: &serde_json::Value) -> String {
        read(&json!({"id2label": {"0": "a", "1": "b"}, key: value})).unwrap().notes.join("\n")
    }
}
