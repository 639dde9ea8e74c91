//! The `model:` table of a pretraining configuration: one table below it, named after the family, or the path
//! of a model folder to begin with.

use std::borrow::Cow;
use std::path::PathBuf;

use schemars::JsonSchema;
use schemars::Schema;
use schemars::SchemaGenerator;
use schemars::json_schema;
use serde::Deserialize;
use serde::Deserializer;
use serde::Serialize;
use serde::Serializer;
use serde::de::DeserializeOwned;
use serde::de::Error;
use serde::ser::SerializeMap;
use serde_json::Map;
use serde_json::Value;

use crate::families::EncoderConfig;
use crate::families::Family;
use crate::families::ModelConfig;

const PATH: &str = "path";
const GENERATOR_PATH: &str = "generator_path";
const POSITIONS: &str = "max_position_embeddings";
const LAYERS: &str = "num_hidden_layers";
const EMBEDDINGS: &str = "initial_embeddings";

/// What the word embeddings of a model are before its first step, where it begins with no folder.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum InitialEmbeddings {
    /// Drawn, as all other weights are.
    #[default]
    Random,
    /// Tokens that stand beside the same tokens in the text begin near each other.
    Cooccurrence,
}

/// The family tables that are there, and the folder to begin with: validation wants one of all.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ModelSection {
    /// A model folder: architecture, weights and tokenizer.
    pub path: Option<PathBuf>,
    /// The folder of the generator beside it, for replaced-token detection.
    pub generator_path: Option<PathBuf>,
    /// More positions than the folder's model has.
    pub max_position_embeddings: Option<usize>,
    /// More layers than the folder's model has.
    pub num_hidden_layers: Option<usize>,
    /// What the word embeddings begin with.
    pub initial_embeddings: InitialEmbeddings,
    /// In the order of [`Family::ALL`].
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
    /// Absent keys take the family's own defaults, which serde's `default` cannot know.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut given = Map::<String, Value>::deserialize(deserializer)?;
        let mut take = |key: &str| given.shift_remove(key).filter(|value| !value.is_null());
        let [path, generator_path] = [take(PATH), take(GENERATOR_PATH)].map(optional::<PathBuf, D::Error>);
        let [positions, layers] = [take(POSITIONS), take(LAYERS)].map(optional::<usize, D::Error>);
        let initial_embeddings = optional::<InitialEmbeddings, D::Error>(take(EMBEDDINGS));
        let mut tables = Vec::new();
        for family in Family::ALL {
            let Some(table) = given.shift_remove(family.name).filter(|table| !table.is_null()) else {
                continue;
            };
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

fn optional<T: DeserializeOwned, E: Error>(value: Option<Value>) -> Result<Option<T>, E> {
    value.map(serde_json::from_value).transpose().map_err(E::custom)
}

impl JsonSchema for ModelSection {
    fn schema_name() -> Cow<'static, str> {
        "ModelSection".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let encoder = EncoderConfig::json_schema(generator);
        let embeddings = InitialEmbeddings::json_schema(generator);
        let fields = encoder.get("properties").and_then(Value::as_object).expect("a struct has properties");
        let table = |family: Family| {
            let own =
                |(field, schema): (&String, &Value)| Some((family.key(field)?.to_string(), schema.clone()));
            let keys: Map<String, Value> = fields.iter().filter_map(own).collect();
            let name = format!("{}Config", family.class);
            let table =
                serde_json::json!({"type": "object", "properties": keys, "additionalProperties": false});
            generator.definitions_mut().insert(name.clone(), table);
            let about = format!("A {} encoder; absent keys take the family's own defaults.", family.title);
            let any =
                [serde_json::json!({"$ref": format!("#/$defs/{name}")}), serde_json::json!({"type": "null"})];
            (family.name.to_string(), serde_json::json!({"description": about, "anyOf": any}))
        };
        let path = |about: &str| serde_json::json!({"description": about, "type": ["string", "null"]});
        let mut properties = Map::new();
        properties.insert(
            PATH.to_string(),
            path("A model folder to begin with: its architecture, its weights, and its tokenizer unless `tokenizer` is given."),
        );
        properties.insert(
            GENERATOR_PATH.to_string(),
            path("The folder of the generator beside `path`, for replaced-token detection; it begins fresh when there is none."),
        );
        let more = [
            (POSITIONS, "More positions than the model of `path` has; the rows that are there are repeated."),
            (
                LAYERS,
                "More layers than the model of `path` has; those that are there are repeated in their order.",
            ),
        ];
        for (key, about) in more {
            properties.insert(
                key.to_string(),
                serde_json::json!({"description": about, "type": ["integer", "null"], "format": "uint", "minimum": 0}),
            );
        }
        properties.insert(EMBEDDINGS.to_string(), embeddings.into());
        properties.extend(Family::ALL.into_iter().map(table));
        json_schema!({
            "type": "object",
            "description": "The model: one table, named after the family, or the path of a folder.",
            "properties": properties,
            "additionalProperties": false,
        })
    }
}
