//! JSON Schema of both kinds of configurations, so that editors complete keys and underline mistakes.
//!
//! Generated from the structs. This module adds the title, units, other names of keys, and keys of files.

use serde_json::{Value as Json, json};

use crate::facts::{declared_schema, other_names};
use crate::kind::Kind;
use crate::shape::{INCLUDE, PROFILES, SWEPT};

/// Returns the JSON Schema (draft 2020-12) of a configuration, indented, with a newline at the end.
pub fn schema_json(kind: Kind) -> String {
    format!("{:#}\n", schema_of(kind))
}

/// Returns the same schema as a JSON value.
pub(crate) fn schema_of(kind: Kind) -> Json {
    match kind {
        Kind::Pretrain => schema(kind, "mlmtrain pretrain: configuration"),
        Kind::Finetune => with_sweep(schema(kind, "mlmtrain finetune: configuration")),
    }
}

fn schema(kind: Kind, title: &str) -> Json {
    let mut schema = declared_schema(kind);
    schema["title"] = json!(title);
    extend(&mut schema["properties"]);
    add_keys_of_files(&mut schema["properties"]);
    let tables = schema["$defs"].as_object_mut().into_iter().flat_map(|tables| tables.values_mut());
    // Choices have no properties, and looking one up by its name would give them a null one.
    for properties in tables.filter_map(|table| table.get_mut("properties")) {
        extend(properties);
    }
    schema
}

/// Adds keys at the top of a file that are not part of the resulting configuration.
fn add_keys_of_files(properties: &mut Json) {
    properties[INCLUDE] = json!({
        "description": "Files to begin with, relative to this one: later ones win, and this file over all.",
        "type": ["string", "array"],
        "items": {"type": "string"},
    });
    properties[PROFILES] = json!({
        "description": "Named parts of a configuration, each laid over the rest by `--profile NAME`.",
        "type": "object",
        "additionalProperties": {"type": ["object", "null"]},
    });
}

/// Adds the table of a sweep, which is not a key of a run's configuration.
fn with_sweep(mut schema: Json) -> Json {
    schema["properties"][SWEPT] = json!({
        "description": "Values of keys, by full path or last name: every combination is trained.",
        "type": "object",
        "additionalProperties": {"type": "array", "minItems": 1},
    });
    schema
}

fn extend(properties: &mut Json) {
    allow_units(properties);
    add_other_names(properties);
}

/// Allows units for whole numbers, such as `64MB` or `5k`, and variables for all numbers and truth values.
fn allow_units(properties: &mut Json) {
    for property in properties.as_object_mut().into_iter().flat_map(|p| p.values_mut()) {
        let mut names = match &property["type"] {
            Json::String(name) => vec![json!(name)],
            Json::Array(names) => names.clone(),
            _ => continue,
        };
        let pattern = if names.iter().any(|name| name == "integer") {
            r"^([0-9][0-9_.]* ?[A-Za-z]*|.*\$\{.*)$"
        } else if names.iter().any(|name| name == "number" || name == "boolean") {
            r"\$\{"
        } else {
            continue;
        };
        names.push(json!("string"));
        property["type"] = json!(names);
        property["pattern"] = json!(pattern);
    }
}

/// Adds other names of keys as deprecated, so that an editor accepts `warmup_ratio` and shows that
/// `warmup_steps` is the present name.
fn add_other_names(properties: &mut Json) {
    let Some(properties) = properties.as_object_mut() else { return };
    for (other, name) in other_names() {
        if let Some(mut property) = properties.get(*name).cloned() {
            property["description"] = json!(format!("Another name of `{name}`."));
            property["deprecated"] = json!(true);
            properties.insert((*other).to_string(), property);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_schemas_describe_every_key() {
        for kind in [Kind::Pretrain, Kind::Finetune] {
            let schema: Json = serde_json::from_str(&schema_json(kind)).expect("is JSON");
            let tables = schema["$defs"].as_object().expect("has tables").values().chain([&schema]);
            for (name, property) in tables.filter_map(|t| t["properties"].as_object()).flatten() {
                assert!(
                    property["description"].as_str().is_some_and(|d| d.len() > 5),
                    "`{name}` has no description"
                );
            }
            assert_eq!(schema["$defs"]["TrainingConfig"]["properties"]["warmup_ratio"]["deprecated"], true);
            assert_eq!(
                schema["$defs"]["TrainingConfig"]["properties"]["max_steps"]["type"],
                json!(["integer", "string"])
            );
            assert_eq!(schema["additionalProperties"], false);
            let tables = schema["$defs"].as_object().expect("has tables").values();
            let mut properties = tables.filter_map(|table| table.get("properties"));
            assert!(properties.all(Json::is_object), "null is no valid value of `properties`");
        }
    }
}
