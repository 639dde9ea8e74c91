//! The section `model` of a pretraining configuration: a table named after the family, or the path of a model
//! folder to start from.

use std::borrow::Cow;
use std::path::PathBuf;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{DeserializeOwned, Error};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use base::families::{EncoderConfig, Family, ModelConfig};

const PATH: &str = "path";
const GENERATOR_PATH: &str = "generator_path";
const POSITIONS: &str = "max_position_embeddings";
const LAYERS: &str = "num_hidden_layers";
const EMBEDDINGS: &str = "initial_embeddings";

/// Initial word embeddings of a model that starts without a folder.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum InitialEmbeddings {
    /// Drawn, as all other weights are.
    #[default]
    Random,
    /// Tokens that occur next to the same tokens in the text begin near each other.
    Cooccurrence,
}

/// The given tables of families and the folder to start from. Validation requires exactly one of all these.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ModelSection {
    /// A model folder to start from: architecture, weights and tokenizer.
    pub path: Option<PathBuf>,
    /// The folder of the generator that belongs to `path`, for replaced-token detection.
    pub generator_path: Option<PathBuf>,
    /// A number of positions larger than that of the folder's model.
    pub max_position_embeddings: Option<usize>,
    /// A number of layers larger than that of the folder's model.
    pub num_hidden_layers: Option<usize>,
    /// Initial values of the word embeddings.
    pub initial_embeddings: InitialEmbeddings,
    /// The given tables of families, in the order of [`Family::ALL`].
    pub tables: Vec<ModelConfig>,
}

impl Serialize for ModelSection {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (key, path) in [(PATH, &self.path), (GENERATOR_PATH, &self.generator_path)] {
            path.as_ref().map_or(Ok(()), |path| map.serialize_entry(key, path))?;
        }
        for (key, count) in [(POSITIONS, self.max_position_embeddings), (LAYERS, self.num_hidden_layers)] {
            count.map_or(Ok(()), |count| map.serialize_entry(key, &count))?;
        }
        if self.initial_embeddings != InitialEmbeddings::default() {
            map.serialize_entry(EMBEDDINGS, &self.initial_embeddings)?;
        }
        for model in &self.tables {
            map.serialize_entry(model.family.name, &model.to_table())?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for ModelSection {
    /// Reads the section. Absent keys take the defaults of their family, which serde's `default` cannot do.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut given = Map::<String, Value>::deserialize(deserializer)?;
        let path = take::<PathBuf, D::Error>(&mut given, PATH);
        let generator_path = take::<PathBuf, D::Error>(&mut given, GENERATOR_PATH);
        let positions = take::<usize, D::Error>(&mut given, POSITIONS);
        let layers = take::<usize, D::Error>(&mut given, LAYERS);
        let initial_embeddings = take::<InitialEmbeddings, D::Error>(&mut given, EMBEDDINGS);
        let mut tables = Vec::new();
        for family in Family::ALL {
            let table = given.shift_remove(family.name).filter(|table| !table.is_null());
            let Some(table) = table else { continue };
            let table = Map::<String, Value>::deserialize(table).map_err(D::Error::custom)?;
            tables.push(ModelConfig::from_table(family, table).map_err(D::Error::custom)?);
        }
        match given.keys().next() {
            Some(other) => {
                Err(D::Error::custom(format!("unknown family `{other}`: there are {}", Family::names("and"))))
            }
            None => Ok(Self {
                path: path?,
                generator_path: generator_path?,
                max_position_embeddings: positions?,
                num_hidden_layers: layers?,
                initial_embeddings: initial_embeddings?.unwrap_or_default(),
                tables,
            }),
        }
    }
}

/// Takes a key out of a table and reads its value; `None` if the key is absent or null.
fn take<T: DeserializeOwned, E: Error>(table: &mut Map<String, Value>, key: &str) -> Result<Option<T>, E> {
    let value = table.shift_remove(key).filter(|value| !value.is_null());
    value.map(serde_json::from_value).transpose().map_err(E::custom)
}

fn path_schema(description: &str) -> Value {
    serde_json::json!({"description": description, "type": ["string", "null"], "x-path": true})
}

/// Returns the schema of a family's table; `fields` are the schemas of the fields of [`EncoderConfig`].
fn family_schema(family: Family, fields: &Map<String, Value>, generator: &mut SchemaGenerator) -> Value {
    let defaults = ModelConfig::from_table(family, Map::new()).expect("a family has defaults").to_table();
    let keys: Map<String, Value> = fields
        .iter()
        .filter_map(|(field, schema)| {
            let (key, mut schema) = (family.key(field)?, schema.clone());
            schema["default"] = defaults.get(key).cloned().unwrap_or_default();
            Some((key.to_string(), schema))
        })
        .collect();
    let name = format!("{}Config", family.class);
    let table = serde_json::json!({"type": "object", "properties": keys, "additionalProperties": false});
    generator.definitions_mut().insert(name.clone(), table);
    let description = format!("Sizes of a model of the family {}.", family.title);
    let any = [serde_json::json!({"$ref": format!("#/$defs/{name}")}), serde_json::json!({"type": "null"})];
    serde_json::json!({"description": description, "anyOf": any})
}

impl JsonSchema for ModelSection {
    fn schema_name() -> Cow<'static, str> {
        "ModelSection".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let encoder = EncoderConfig::json_schema(generator);
        let embeddings = InitialEmbeddings::json_schema(generator);
        let fields = encoder.get("properties").and_then(Value::as_object).expect("a struct has properties");
        let mut properties = Map::new();
        properties.insert(
            PATH.to_string(),
            path_schema(
                "A model folder to start from: its architecture, weights, and tokenizer unless `tokenizer` is given.",
            ),
        );
        properties.insert(
            GENERATOR_PATH.to_string(),
            path_schema(
                "Folder of the generator that belongs to `path`, for replaced-token detection; without it the generator \
                 starts from random weights.",
            ),
        );
        let more = [
            (POSITIONS, 1 << 20, "More positions than the model of `path` has; its rows are repeated."),
            (
                LAYERS,
                1 << 10,
                "More layers than the model of `path` has; its layers are repeated in their order.",
            ),
        ];
        for (key, most, about) in more {
            properties.insert(
                key.to_string(),
                serde_json::json!({
                    "description": about, "type": ["integer", "null"], "format": "uint", "minimum": 1, "maximum": most,
                }),
            );
        }
        properties.insert(EMBEDDINGS.to_string(), embeddings.into());
        for family in Family::ALL {
            properties.insert(family.name.to_string(), family_schema(family, fields, generator));
        }
        json_schema!({
            "type": "object",
            "description": "The model: one table, named after the family, or the path of a folder.",
            "properties": properties,
            "additionalProperties": false,
        })
    }
}
