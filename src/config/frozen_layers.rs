//! The frozen part of an encoder, as configurations write it: a number of layers, or `embeddings`.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

const EMBEDDINGS: &str = "embeddings";

/// The part of an encoder, counted from its input, that gets no update.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub enum FrozenLayers {
    /// The embeddings alone.
    Embeddings,
    /// The embeddings and the first n layers; nothing for 0.
    Layers(usize),
}

/// The form in a file.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Written {
    Layers(usize),
    Word(String),
}

impl From<FrozenLayers> for Written {
    fn from(frozen: FrozenLayers) -> Self {
        match frozen {
            FrozenLayers::Embeddings => Self::Word(EMBEDDINGS.to_string()),
            FrozenLayers::Layers(layers) => Self::Layers(layers),
        }
    }
}

impl TryFrom<Written> for FrozenLayers {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        match written {
            Written::Layers(layers) => Ok(Self::Layers(layers)),
            Written::Word(word) if word == EMBEDDINGS => Ok(Self::Embeddings),
            Written::Word(word) => Err(format!("`{word}` is neither a number of layers nor `{EMBEDDINGS}`")),
        }
    }
}

impl JsonSchema for FrozenLayers {
    fn schema_name() -> Cow<'static, str> {
        "FrozenLayers".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A number of layers, which the embeddings join; or `embeddings` alone.",
            "anyOf": [{ "const": EMBEDDINGS }, { "type": "integer", "format": "uint", "minimum": 0 }],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_embeddings_read_back_and_nothing_else_is_read() {
        for (frozen, json) in [(FrozenLayers::Layers(3), "3"), (FrozenLayers::Embeddings, "\"embeddings\"")] {
            assert_eq!(serde_json::to_string(&frozen).unwrap(), json);
            assert_eq!(serde_json::from_str::<FrozenLayers>(json).unwrap(), frozen);
        }
        let error = serde_json::from_str::<FrozenLayers>("\"all\"").unwrap_err().to_string();
        assert!(error.contains("`all` is neither a number of layers nor `embeddings`"), "{error}");
    }
}
