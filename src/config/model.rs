//! The `model:` table of a pretraining configuration: one table below it, named after the family.

use std::borrow::Cow;

use schemars::JsonSchema;
use schemars::Schema;
use schemars::SchemaGenerator;
use schemars::json_schema;
use serde::Deserialize;
use serde::Deserializer;
use serde::Serialize;
use serde::Serializer;
use serde::de::Error;
use serde_json::Map;
use serde_json::Value;

use crate::families::EncoderConfig;
use crate::families::Family;
use crate::families::ModelConfig;

/// The family tables that are there: validation wants one.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelSection {
    /// In the order of [`Family::ALL`].
    pub tables: Vec<ModelConfig>,
}

impl Serialize for ModelSection {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.tables.iter().map(|model| (model.family.name, &model.encoder)))
    }
}

impl<'de> Deserialize<'de> for ModelSection {
    /// Absent keys take the family's own defaults, which serde's `default` cannot know.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut given = Map::<String, Value>::deserialize(deserializer)?;
        let mut tables = Vec::new();
        for family in Family::ALL {
            let Some(table) = given.shift_remove(family.name).filter(|table| !table.is_null()) else {
                continue;
            };
            let mut all = serde_json::to_value(EncoderConfig::of(family)).map_err(D::Error::custom)?;
            let table = Map::<String, Value>::deserialize(table).map_err(D::Error::custom)?;
            all.as_object_mut().expect("a struct is written as an object").extend(table);
            let encoder = EncoderConfig::deserialize(all).map_err(D::Error::custom)?;
            tables.push(ModelConfig { family, encoder });
        }
        match given.keys().next() {
            Some(other) => {
                Err(D::Error::custom(format!("unknown family `{other}`: there are {}", Family::names("and"))))
            }
            None => Ok(Self { tables }),
        }
    }
}

impl JsonSchema for ModelSection {
    fn schema_name() -> Cow<'static, str> {
        "ModelSection".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let encoder = generator.subschema_for::<EncoderConfig>();
        let table = |family: Family| {
            let about = format!("A {} encoder; absent keys take the family's own defaults.", family.title);
            (
                family.name.to_string(),
                serde_json::json!({"description": about, "anyOf": [encoder, {"type": "null"}]}),
            )
        };
        let properties: Map<String, Value> = Family::ALL.into_iter().map(table).collect();
        json_schema!({
            "type": "object",
            "description": "The model: one table, named after the family.",
            "properties": properties,
            "additionalProperties": false,
        })
    }
}
