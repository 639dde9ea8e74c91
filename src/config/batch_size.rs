//! The number of rows per device and micro-batch, as configurations write it: a number or `auto`.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::auto;
use crate::auto::AUTO;

/// Number of rows per device and micro-batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchSize {
    /// As many rows as are predicted to fit into memory.
    Auto,
    /// This number of rows.
    Rows(usize),
}

impl From<usize> for BatchSize {
    fn from(rows: usize) -> Self {
        Self::Rows(rows)
    }
}

impl Serialize for BatchSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let rows = match self {
            Self::Auto => None,
            Self::Rows(rows) => Some(rows),
        };
        auto::serialize(rows, serializer)
    }
}

impl<'de> Deserialize<'de> for BatchSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let rows = auto::deserialize::<usize, D>(deserializer, "a number of rows")?;
        Ok(rows.map_or(Self::Auto, Self::Rows))
    }
}

impl JsonSchema for BatchSize {
    fn schema_name() -> Cow<'static, str> {
        "BatchSize".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A number of rows, also with a unit (`1k`); or `auto`: as many as should fit into memory.",
            "anyOf": [
                { "const": AUTO },
                { "type": "integer", "format": "uint", "minimum": 1 },
                { "type": "string", "pattern": "^[0-9][0-9_.]* ?[A-Za-z]*$" },
            ],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_auto_read_back_and_nothing_else_is_read() {
        for (size, json) in [(BatchSize::Auto, "\"auto\""), (BatchSize::Rows(32), "32")] {
            assert_eq!(serde_json::to_string(&size).unwrap(), json);
            assert_eq!(serde_json::from_str::<BatchSize>(json).unwrap(), size);
        }
        let error = serde_json::from_str::<BatchSize>("\"automatic\"").unwrap_err().to_string();
        assert!(error.contains("`automatic` is neither a number of rows nor `auto`"), "{error}");
        assert!(serde_json::from_str::<BatchSize>("-1").is_err());
    }
}
