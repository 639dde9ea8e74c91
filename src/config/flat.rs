//! The keys and values of a configuration file, of whichever command and version.

use anyhow::Result;

use crate::config::tree;
use crate::config::tree::Node;
use crate::config::tree::Value;

/// All values of a text by their dotted paths, as people write them, in its order. Lists of tables count from
/// 0: `data.sources.0.files`. Errors call it `name`.
pub fn flat(text: &str, name: &str) -> Result<Vec<(String, String)>> {
    let root = tree::parse(text, name)?;
    let mut found = Vec::new();
    add(&root, "", &mut found);
    Ok(found)
}

fn add(node: &Node, path: &str, found: &mut Vec<(String, String)>) {
    let below = |key: &str| if path.is_empty() { key.to_string() } else { format!("{path}.{key}") };
    match &node.value {
        Value::Table(entries) => entries.iter().for_each(|entry| add(&entry.node, &below(&entry.key), found)),
        Value::List(items) if items.iter().any(|item| matches!(item.value, Value::Table(_))) => {
            items.iter().enumerate().for_each(|(at, item)| add(item, &below(&at.to_string()), found));
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
        // A secret's value is for nobody to read, and a file that was not filled in has none.
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
