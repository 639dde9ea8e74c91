//! Flattens a configuration file of any command and version to its keys and values.

use anyhow::Result;

use crate::dotted::join;
use crate::tree;
use crate::tree::{Node, Value};

/// Returns the dotted path and the value of each key in a text, in the order of the text. Items of lists of
/// tables are numbered from 0: `data.sources.0.files`. Errors call the text `name`.
pub fn flat(text: &str, name: &str) -> Result<Vec<(String, String)>> {
    let root = tree::parse(text, name)?;
    let mut found = Vec::new();
    add(&root, "", &mut found);
    Ok(found)
}

fn add(node: &Node, path: &str, found: &mut Vec<(String, String)>) {
    match &node.value {
        Value::Table(entries) => {
            for entry in entries {
                add(&entry.node, &join(path, &entry.key), found);
            }
        }
        Value::List(items) if items.iter().any(|item| matches!(item.value, Value::Table(_))) => {
            items.iter().enumerate().for_each(|(at, item)| add(item, &join(path, &at.to_string()), found));
        }
        // An empty text has no keys.
        Value::Null if path.is_empty() => {}
        value => found.push((path.to_string(), text(value))),
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::Null | Value::Table(_) => "null".to_string(),
        Value::Bool(value) => value.to_string(),
        Value::Integer(value) => value.to_string(),
        Value::Float(value) => format!("{value:?}"),
        Value::Text(value) => value.clone(),
        // The name of the variable, not its value, which may be a secret and is not filled in here anyway.
        Value::Filled(filled) => filled.written.clone(),
        Value::List(items) => {
            let items: Vec<String> = items.iter().map(|item| text(&item.value)).collect();
            format!("[{}]", items.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_has_its_path() {
        let yaml = "run: {seed: 7, note: null}\ndata:\n  sources:\n  - files: [a, b]\n    weight: 1.0\n\
                    new_key: [true, 0.002]\n";
        let found = flat(yaml, "config.yaml").unwrap();
        let found: Vec<String> = found.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let wanted = [
            "run.seed=7",
            "run.note=null",
            "data.sources.0.files=[a, b]",
            "data.sources.0.weight=1.0",
            "new_key=[true, 0.002]",
        ];
        assert_eq!(found, wanted);
        assert!(flat("", "config.yaml").unwrap().is_empty());
        assert!(flat("run: [", "config.yaml").unwrap_err().to_string().contains("config.yaml"));
    }
}
