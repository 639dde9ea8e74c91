//! JSON Schema of both configurations, so that editors complete keys and underline mistakes.
//!
//! Made from the structs; only the title, units and the other names of keys are added here.

use schemars::JsonSchema;
use serde_json::Value as Json;
use serde_json::json;

use crate::config::FinetuneConfig;
use crate::config::PretrainConfig;
use crate::config::axes::TABLE;
use crate::config::shape::INCLUDE;
use crate::config::shape::OTHER_NAMES;
use crate::config::shape::PROFILES;

/// Which command a configuration is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `pretrain` and `prepare`.
    Pretrain,
    /// `finetune`.
    Finetune,
}

/// The JSON Schema (draft 2020-12) of a configuration, indented, ending in a newline.
pub fn schema_json(kind: Kind) -> String {
    format!("{:#}\n", schema_of(kind))
}

/// The same as a value.
pub(in crate::config) fn schema_of(kind: Kind) -> Json {
    match kind {
        Kind::Pretrain => schema::<PretrainConfig>("mlmtrain pretrain: configuration"),
        Kind::Finetune => with_sweep(schema::<FinetuneConfig>("mlmtrain finetune: configuration")),
    }
}

fn schema<T: JsonSchema>(title: &str) -> Json {
    let mut schema = schemars::schema_for!(T).to_value();
    schema["title"] = json!(title);
    extend(&mut schema["properties"]);
    add_what_files_have(&mut schema["properties"]);
    let tables = schema["$defs"].as_object_mut().into_iter().flat_map(|tables| tables.values_mut());
    // Choices have no properties, and looking one up by its name would give them a null one.
    for properties in tables.filter_map(|table| table.get_mut("properties")) {
        extend(properties);
    }
    schema
}

/// Keys at the top of a file that are no part of what comes of it.
fn add_what_files_have(properties: &mut Json) {
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

/// The table that a sweep is written in, which is no key of a run's configuration.
fn with_sweep(mut schema: Json) -> Json {
    schema["properties"][TABLE] = json!({
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

/// Whole numbers may be written with a unit: `64MB`, `5k`; all numbers and truth values as a variable.
fn allow_units(properties: &mut Json) {
    for property in properties.as_object_mut().into_iter().flat_map(|p| p.values_mut()) {
        let mut names = match &property["type"] {
            Json::String(name) => vec![json!(name)],
            Json::Array(names) => names.clone(),
            _ => continue,
        };
        let has = |wanted: &[&str]| names.iter().any(|name| wanted.iter().any(|wanted| name == wanted));
        let pattern = if has(&["integer"]) {
            r"^([0-9][0-9_.]* ?[A-Za-z]*|.*\$\{.*)$"
        } else if has(&["number", "boolean"]) {
            r"\$\{"
        } else {
            continue;
        };
        names.push(json!("string"));
        property["type"] = json!(names);
        property["pattern"] = json!(pattern);
    }
}

/// Lets an editor accept `warmup_ratio` and say that its name is `warmup_steps` now.
fn add_other_names(properties: &mut Json) {
    let Some(properties) = properties.as_object_mut() else { return };
    for (other, name) in OTHER_NAMES {
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
