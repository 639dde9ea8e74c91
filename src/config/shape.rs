//! The allowed keys and types of a configuration, read from the JSON Schema of the structs, so that the
//! structs are the only description.
//!
//! Knows types only; `validate` checks combinations.

use schemars::JsonSchema;
use serde_json::Value as Json;

use crate::facts::other_names;

/// The wanted form of a value.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Shape {
    Table(Vec<Field>),
    List(Box<Shape>),
    Text,
    Integer {
        min: i128,
        max: i128,
    },
    /// A whole number, or this word.
    IntegerOr {
        word: String,
        min: i128,
        max: i128,
    },
    Number,
    Bool,
    /// `true`, `false`, or this word.
    BoolOr {
        word: String,
    },
    Choice(Vec<String>),
    /// This word, or a table of numbers whose keys are the user's own.
    WordOrNumbers {
        word: String,
    },
}

/// One key of a table.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Field {
    pub(super) name: String,
    pub(super) shape: Shape,
    /// The documentation as the end of a message: lower case, no final period.
    pub(super) about: String,
    /// True if the key must be given.
    pub(super) required: bool,
    /// True if the value may be null.
    pub(super) optional: bool,
}

/// The key at the top of a file with other files to start from.
pub(super) const INCLUDE: &str = "include";
/// The key at the top of a file with the swept keys.
pub(super) const SWEPT: &str = "sweep";
/// The key at the top of a file with named parts of the configuration.
pub(super) const PROFILES: &str = "profiles";

/// Keys of a list of tasks that say by which protocol models are compared.
pub(super) const LIST_KEYS: [&str; 3] = ["protocol", "iterations", "published"];

impl Shape {
    /// Returns the shape of a configuration struct.
    pub(super) fn from_struct<T: JsonSchema>() -> Self {
        let schema = schemars::schema_for!(T).to_value();
        read(&schema, &schema, "")
    }

    /// Returns this shape with all keys of tables optional, except in tables within lists, which are given as
    /// a whole.
    pub(super) fn without_required(&self) -> Self {
        match self {
            Self::Table(fields) => {
                let fields = fields.iter().map(|field| Field {
                    required: false,
                    shape: field.shape.without_required(),
                    ..field.clone()
                });
                Self::Table(fields.collect())
            }
            other => other.clone(),
        }
    }

    /// Returns the keys of a table; none for anything else.
    pub(super) fn fields(&self) -> &[Field] {
        match self {
            Self::Table(fields) => fields,
            _ => &[],
        }
    }

    /// Returns the field with this name or other name.
    pub(super) fn field(&self, key: &str) -> Option<&Field> {
        self.named(key).or_else(|| self.named(name_of(key)))
    }

    fn named(&self, name: &str) -> Option<&Field> {
        self.fields().iter().find(|field| field.name == name)
    }

    /// Describes the shape for messages, such as "a whole number" or "a list".
    pub(super) fn wanted(&self) -> String {
        match self {
            Self::Table(_) => "a table of keys".to_string(),
            Self::List(item) => format!("a list, each item {}", item.wanted()),
            Self::Text => "a text".to_string(),
            Self::Integer { .. } => "a whole number".to_string(),
            Self::IntegerOr { word, .. } => format!("a whole number or `{word}`"),
            Self::Number => "a number".to_string(),
            Self::Bool => "`true` or `false`".to_string(),
            Self::BoolOr { word } => format!("`true`, `false` or `{word}`"),
            Self::Choice(names) => format!("one of {}", quoted(names)),
            Self::WordOrNumbers { word } => format!("`{word}` or a number for each name"),
        }
    }

    /// Returns the dotted paths of all keys named `name` below this shape, for the hint "it belongs
    /// elsewhere".
    /// Items of lists count only if no table has the key.
    pub(super) fn find(&self, name: &str) -> Vec<String> {
        let found = self.find_below(name, false);
        if found.is_empty() { self.find_below(name, true) } else { found }
    }

    fn find_below(&self, name: &str, in_lists: bool) -> Vec<String> {
        let mut paths = Vec::new();
        for field in self.fields() {
            let own = &field.name;
            paths.extend((own == name).then(|| own.clone()));
            let (below, start) = match &field.shape {
                Self::Table(_) => (&field.shape, format!("{own}.")),
                Self::List(item) if in_lists => (&**item, format!("{own}.0.")),
                _ => continue,
            };
            paths.extend(below.find_below(name, in_lists).iter().map(|rest| format!("{start}{rest}")));
        }
        paths
    }
}

/// Returns the key for another name of it; any other text unchanged.
pub(super) fn name_of(key: &str) -> &str {
    other_names().iter().find(|(other, _)| *other == key).map_or(key, |(_, name)| name)
}

/// Lists names like "`a`, `b`, `c`".
pub(super) fn quoted<S: AsRef<str>>(names: &[S]) -> String {
    names.iter().map(|n| format!("`{}`", n.as_ref())).collect::<Vec<_>>().join(", ")
}

fn read(schema: &Json, root: &Json, key: &str) -> Shape {
    if let Some(target) = schema["$ref"].as_str() {
        let name = target.rsplit('/').next().unwrap_or_default();
        return read(&root["$defs"][name], root, key);
    }
    if let Some(shape) = scalar_or_word(schema) {
        return shape;
    }
    if let Some(inner) = schema["anyOf"].as_array().and_then(|any| any.iter().find(|s| s["type"] != "null")) {
        return read(inner, root, key);
    }
    if let Some(choices) = schema["oneOf"].as_array() {
        return Shape::Choice(
            choices.iter().filter_map(|c| c["const"].as_str()).map(str::to_string).collect(),
        );
    }
    match type_name(schema) {
        "object" => Shape::Table(fields(schema, root)),
        "array" => Shape::List(Box::new(read(&schema["items"], root, key))),
        "string" => Shape::Text,
        "boolean" => Shape::Bool,
        "number" => Shape::Number,
        "integer" => integer(schema["format"].as_str().unwrap_or_default()),
        other => {
            unreachable!("a configuration field of JSON type `{other}` at `{key}`: teach `Shape` about it")
        }
    }
}

fn fields(schema: &Json, root: &Json) -> Vec<Field> {
    let required = schema["required"].as_array().map(Vec::as_slice).unwrap_or_default();
    let properties = schema["properties"].as_object().into_iter().flatten();
    properties
        .map(|(name, schema)| Field {
            name: name.clone(),
            shape: read(schema, root, name),
            about: about(schema),
            required: required.iter().any(|required| required == name),
            optional: is_optional(schema),
        })
        .collect()
}

/// Reads the schema of a value that may be one special word instead of a number, a truth value or a table of
/// numbers.
fn scalar_or_word(schema: &Json) -> Option<Shape> {
    let any = schema["anyOf"].as_array()?;
    let word = any.iter().find_map(|s| s["const"].as_str())?.to_string();
    if any.iter().any(|s| s["type"] == "boolean") {
        return Some(Shape::BoolOr { word });
    }
    if any.iter().any(|s| s["type"] == "object") {
        return Some(Shape::WordOrNumbers { word });
    }
    let number = any.iter().find(|s| s["type"] == "integer")?;
    match integer(number["format"].as_str().unwrap_or_default()) {
        Shape::Integer { min, max } => Some(Shape::IntegerOr { word, min, max }),
        _ => None,
    }
}

fn integer(format: &str) -> Shape {
    let (min, max) = match format {
        "uint32" => (0, u32::MAX.into()),
        "uint" | "uint64" => (0, u64::MAX.into()),
        _ => (i64::MIN.into(), i64::MAX.into()),
    };
    Shape::Integer { min, max }
}

/// Returns the name of the type; for `["string", "null"]` the one that is not null.
fn type_name(schema: &Json) -> &str {
    match &schema["type"] {
        Json::Array(names) => {
            names.iter().filter_map(Json::as_str).find(|n| *n != "null").unwrap_or_default()
        }
        name => name.as_str().unwrap_or_default(),
    }
}

fn is_optional(schema: &Json) -> bool {
    let null_type = schema["type"].as_array().is_some_and(|names| names.iter().any(|n| n == "null"));
    null_type || schema["anyOf"].as_array().is_some_and(|any| any.iter().any(|s| s["type"] == "null"))
}

/// Returns a doc comment as the end of a message: lower case, no final period.
fn about(schema: &Json) -> String {
    let text = schema["description"].as_str().unwrap_or_default().replace('\n', " ");
    let text = text.trim_end_matches('.');
    let mut chars = text.chars();
    match (chars.next(), chars.next()) {
        (Some(first), Some(second)) if second.is_lowercase() || second == ' ' => {
            format!("{}{}", first.to_lowercase(), &text[first.len_utf8()..])
        }
        _ => text.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FinetuneConfig, PretrainConfig};

    #[test]
    fn the_shape_follows_the_structs() {
        let shape = Shape::from_struct::<PretrainConfig>();
        let training = &shape.field("training").expect("is a field").shape;
        assert_eq!(
            training.field("max_steps").expect("is a field").shape,
            Shape::Integer { min: i64::MIN.into(), max: i64::MAX.into() }
        );
        assert_eq!(training.field("warmup_ratio").expect("has another name").name, "warmup_steps");
        let rows = &training.field("per_device_train_batch_size").expect("is a field").shape;
        assert_eq!(*rows, Shape::IntegerOr { word: "auto".to_string(), min: 0, max: u64::MAX.into() });
        let checkpointing = &training.field("gradient_checkpointing").unwrap().shape;
        assert_eq!(*checkpointing, Shape::BoolOr { word: "auto".to_string() });
        let time = training.field("max_train_time").expect("is a field");
        assert!(time.optional && !time.required && time.shape == Shape::Text);
        assert_eq!(
            shape.field("run").expect("is a field").shape.field("device").expect("is a field").shape.wanted(),
            "one of `auto`, `cpu`, `cuda`, `cuda:0`, `cuda:1`, `cuda:2`, `cuda:3`, `cuda:4`, `cuda:5`, `cuda:6`, `cuda:7`"
        );
        assert!(shape.field("model").expect("is a field").required);
        assert_eq!(shape.find("seed"), ["run.seed"]);
        assert_eq!(shape.find("type_vocab_size").len(), 7, "each family has its own keys");
        assert_eq!(shape.find("norm_eps"), ["model.modernbert.norm_eps", "model.neobert.norm_eps"]);
    }

    #[test]
    fn every_other_name_leads_to_a_key_that_exists() {
        let shapes = [Shape::from_struct::<PretrainConfig>(), Shape::from_struct::<FinetuneConfig>()];
        for (other, name) in other_names() {
            assert!(shapes.iter().any(|s| !s.find(name).is_empty()), "{name}");
            // A family may have a key of that name: an other name counts only in tables without such a key.
            let mut keys = shapes.iter().flat_map(|s| s.find(other));
            assert!(keys.all(|key| key.starts_with("model.")), "{other} is a key of its own");
        }
    }
}
