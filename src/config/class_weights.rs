//! Factors of the loss by label, as configurations write them: `balanced`, or a number for each label.

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

const BALANCED: &str = "balanced";

/// The factor of an example's loss, by its label.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub enum ClassWeights {
    /// Examples / (labels x examples of the label), as scikit-learn's `balanced`.
    Balanced,
    /// A weight for the name of each label; all labels must be given.
    ByLabel(BTreeMap<String, f64>),
}

/// The form in a file.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Written {
    Word(String),
    ByLabel(BTreeMap<String, f64>),
}

impl From<ClassWeights> for Written {
    fn from(weights: ClassWeights) -> Self {
        match weights {
            ClassWeights::Balanced => Self::Word(BALANCED.to_string()),
            ClassWeights::ByLabel(weights) => Self::ByLabel(weights),
        }
    }
}

impl TryFrom<Written> for ClassWeights {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        match written {
            Written::ByLabel(weights) => Ok(Self::ByLabel(weights)),
            Written::Word(word) if word == BALANCED => Ok(Self::Balanced),
            Written::Word(word) => {
                Err(format!("`{word}` is neither `{BALANCED}` nor a weight for each label"))
            }
        }
    }
}

impl JsonSchema for ClassWeights {
    fn schema_name() -> Cow<'static, str> {
        "ClassWeights".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "`balanced`, or a weight for each label.",
            "anyOf": [
                { "const": BALANCED },
                { "type": "object", "additionalProperties": { "type": "number", "exclusiveMinimum": 0 } },
            ],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_and_weights_read_back_and_nothing_else_is_read() {
        let by_label = ClassWeights::ByLabel([("a".to_string(), 2.0), ("b".to_string(), 0.5)].into());
        for (weights, json) in [(ClassWeights::Balanced, "\"balanced\""), (by_label, r#"{"a":2.0,"b":0.5}"#)]
        {
            assert_eq!(serde_json::to_string(&weights).unwrap(), json);
            assert_eq!(serde_json::from_str::<ClassWeights>(json).unwrap(), weights);
        }
        let error = serde_json::from_str::<ClassWeights>("\"even\"").unwrap_err().to_string();
        assert!(error.contains("`even` is neither `balanced` nor a weight for each label"), "{error}");
    }
}
