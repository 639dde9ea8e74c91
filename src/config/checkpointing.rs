//! Gradient checkpointing, as configurations write it: `true`, `false` or `auto`.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::auto;
use crate::auto::AUTO;

/// Gradient checkpointing: layers save their input only, and compute the rest again in backward.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GradientCheckpointing {
    /// On if a step would not fit into memory otherwise.
    Auto,
    /// Always on.
    On,
    /// Always off.
    Off,
}

impl GradientCheckpointing {
    /// Returns true if checkpointing is on; false for `Auto` as long as it is not resolved.
    pub fn is_on(self) -> bool {
        self == Self::On
    }
}

impl From<bool> for GradientCheckpointing {
    fn from(on: bool) -> Self {
        if on { Self::On } else { Self::Off }
    }
}

impl Serialize for GradientCheckpointing {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        auto::serialize((*self != Self::Auto).then(|| self.is_on()), serializer)
    }
}

impl<'de> Deserialize<'de> for GradientCheckpointing {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let on = auto::deserialize::<bool, D>(deserializer, "`true`, `false`")?;
        Ok(on.map_or(Self::Auto, Self::from))
    }
}

impl JsonSchema for GradientCheckpointing {
    fn schema_name() -> Cow<'static, str> {
        "GradientCheckpointing".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "`true`, `false`, or `auto`: where a step would not fit into memory otherwise.",
            "anyOf": [{ "const": AUTO }, { "type": "boolean" }],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_is_read_back_as_written() {
        for (text, value) in [
            ("\"auto\"", GradientCheckpointing::Auto),
            ("true", GradientCheckpointing::On),
            ("false", GradientCheckpointing::Off),
        ] {
            assert_eq!(serde_json::from_str::<GradientCheckpointing>(text).unwrap(), value);
            assert_eq!(serde_json::to_string(&value).unwrap(), text);
        }
        let error = serde_json::from_str::<GradientCheckpointing>("\"yes\"").unwrap_err().to_string();
        assert!(error.contains("`yes` is neither `true`, `false` nor `auto`"), "{error}");
    }
}
