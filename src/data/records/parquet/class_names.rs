//! Class names that a dataset stores in its Parquet files, next to columns of class numbers.

use parquet::file::metadata::KeyValue;
use serde_json::Value;

/// Metadata key under which the `datasets` library describes columns.
const KEY: &str = "huggingface";

/// Returns the class names of the numbers in a column, or in its lists; `None` if the file has no names.
pub(super) fn class_names(metadata: Option<&Vec<KeyValue>>, column: &str) -> Option<Vec<String>> {
    let described = metadata?.iter().find(|entry| entry.key == KEY)?.value.as_deref()?;
    let described: Value = serde_json::from_str(described).ok()?;
    let feature = &described["info"]["features"][column];
    // The items of a list are described under `feature`; in files of older versions, in a list of one
    // element.
    let items = [feature, &feature["feature"], &feature[0]];
    let class = items.into_iter().find(|feature| feature["_type"] == "ClassLabel")?;
    let names = class["names"].as_array()?.iter().map(|name| name.as_str().map(str::to_string));
    names.collect::<Option<Vec<String>>>().filter(|names| !names.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_that_datasets_writes_are_found() {
        // datasets 5.2: the metadata of a split of CoNLL-2003, and of one of a classifier.
        let class = json!({"names": ["O", "B-PER"], "_type": "ClassLabel"});
        let features = json!({
            "ner_tags": {"feature": class, "_type": "List"},
            "old_tags": [class],
            "label": class,
            "text": {"dtype": "string", "_type": "Value"},
        });
        let value = json!({"info": {"features": features}}).to_string();
        let metadata = vec![KeyValue { key: KEY.to_string(), value: Some(value) }];
        for column in ["ner_tags", "old_tags", "label"] {
            assert_eq!(class_names(Some(&metadata), column).unwrap(), ["O", "B-PER"], "{column}");
        }
        assert_eq!(class_names(Some(&metadata), "text"), None);
        assert_eq!(class_names(Some(&metadata), "id"), None);
        let broken = vec![KeyValue { key: KEY.to_string(), value: Some("{".to_string()) }];
        assert_eq!((class_names(Some(&broken), "label"), class_names(None, "label")), (None, None));
    }
}
