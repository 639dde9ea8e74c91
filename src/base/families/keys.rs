//! Names of the fields of [`EncoderConfig`] in a family's `config.json` and in its table of a configuration,
//! and which of the fields a family has.

use serde::Deserialize;
use serde::de::Error;
use serde_json::{Map, Value};

use crate::families::{EncoderConfig, Family, ModelConfig};

/// Differences between a family's keys and the fields of [`EncoderConfig`].
#[derive(Debug, Clone, Copy)]
pub struct Keys {
    /// Fields with another name in this family: the field and its key.
    pub renamed: &'static [(&'static str, &'static str)],
    /// Fields that this family has, and that other families have only if they list them here, too.
    pub own: &'static [&'static str],
    /// Fields of most families that this family does not have.
    pub absent: &'static [&'static str],
    /// Keys of `config.json` for which only one value is supported; an absent key has this value.
    pub constants: &'static [(&'static str, Constant)],
}

/// The only supported value of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Constant {
    /// A text.
    Text(&'static str),
    /// A truth value.
    Flag(bool),
    /// A whole number.
    Number(u64),
}

impl Constant {
    /// The value as JSON.
    pub fn json(self) -> Value {
        match self {
            Self::Text(text) => text.into(),
            Self::Flag(flag) => flag.into(),
            Self::Number(number) => number.into(),
        }
    }
}

impl Keys {
    /// Keys of BERT and of the families derived from it.
    pub(super) const BERT: Self = Self {
        renamed: &[],
        own: &[],
        absent: &[],
        constants: &[
            ("hidden_act", Constant::Text("gelu")),
            ("position_embedding_type", Constant::Text("absolute")),
        ],
    };
}

impl Family {
    /// The family's key for a field of [`EncoderConfig`]; `None` if the family does not have the field.
    pub fn key(self, field: &str) -> Option<&str> {
        let renamed = self.keys.renamed.iter().find(|(own, _)| *own == field).map(|(_, key)| *key);
        self.has_field(field).then_some(renamed.unwrap_or(field))
    }

    /// Returns true if the family lists the field as its own, or neither lacks it nor leaves it to other
    /// families.
    fn has_field(self, field: &str) -> bool {
        let is_absent = self.keys.absent.contains(&field)
            || Self::ALL.iter().any(|other| other.keys.own.contains(&field));
        self.keys.own.contains(&field) || !is_absent
    }

    /// The field of [`EncoderConfig`] for the family's `key`.
    pub fn field(self, key: &str) -> Option<&str> {
        let renamed = self.keys.renamed.iter().find(|(_, own)| *own == key);
        renamed.map(|(field, _)| *field).or_else(|| {
            let is_renamed = self.keys.renamed.iter().any(|(field, _)| *field == key);
            (self.has_field(key) && !is_renamed).then_some(key)
        })
    }
}

impl ModelConfig {
    /// The fields of the encoder under the family's own keys.
    pub fn to_table(&self) -> Map<String, Value> {
        let Value::Object(fields) = serde_json::to_value(&self.encoder).expect("numbers have a JSON form")
        else {
            unreachable!("a struct is written as an object");
        };
        fields
            .into_iter()
            .filter_map(|(field, value)| Some((self.family.key(&field)?.to_string(), value)))
            .collect()
    }

    /// Builds a model from a table with the family's own keys; absent keys get the family's defaults.
    pub fn from_table(family: Family, table: Map<String, Value>) -> Result<Self, serde_json::Error> {
        let Value::Object(mut fields) = serde_json::to_value(&family.defaults)? else {
            unreachable!("a struct is written as an object");
        };
        for (key, value) in table {
            let Some(field) = family.field(&key) else {
                return Err(serde_json::Error::custom(format!("unknown key `{key}`")));
            };
            fields.insert(field.to_string(), value);
        }
        Ok(Self { family, encoder: EncoderConfig::deserialize(Value::Object(fields))? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_family_reads_what_it_writes_by_its_own_keys() {
        for family in Family::ALL {
            let encoder = EncoderConfig { hidden_size: 99, layer_norm_eps: 0.5, ..EncoderConfig::of(family) };
            let model = ModelConfig { family, encoder };
            let table = model.to_table();
            for key in table.keys() {
                let field = family.field(key).unwrap();
                assert!(family.has_field(field), "{family:?} {key}");
            }
            let mut read = ModelConfig::from_table(family, table).unwrap();
            if family.key("layer_norm_eps").is_none() {
                read.encoder.layer_norm_eps = 0.5;
            }
            assert_eq!(read, model);
        }
    }

    #[test]
    fn fields_that_are_renamed_or_absent_are_named_in_json() {
        let fields =
            serde_json::to_value(EncoderConfig { embedding_size: Some(1), ..EncoderConfig::BASE }).unwrap();
        for family in Family::ALL {
            let renamed = family.keys.renamed.iter().map(|(field, _)| field);
            for field in renamed.chain(family.keys.own).chain(family.keys.absent) {
                assert!(fields.get(field).is_some(), "{family:?} {field}");
            }
        }
    }

    #[test]
    fn a_key_of_another_family_is_unknown() {
        assert!(ModelConfig::from_table(Family::MODERNBERT, table_with("norm_eps")).is_ok());
        for (family, key) in [(Family::MODERNBERT, "layer_norm_eps"), (Family::BERT, "norm_eps")] {
            let error = ModelConfig::from_table(family, table_with(key)).unwrap_err().to_string();
            assert!(error.contains(key), "{error}");
        }
    }

    fn table_with(key: &str) -> Map<String, Value> {
        Map::from_iter([(key.to_string(), 1e-5.into())])
    }
}
