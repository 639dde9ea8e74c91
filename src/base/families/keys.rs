//! What the fields of [`EncoderConfig`] are called in a family's `config.json` and in its table of a
//! configuration, and which of them a family has.

use serde::Deserialize;
use serde::de::Error;
use serde_json::Map;
use serde_json::Value;

use crate::families::EncoderConfig;
use crate::families::Family;
use crate::families::ModelConfig;

/// How a family's keys differ from the fields of [`EncoderConfig`].
#[derive(Debug, Clone, Copy)]
pub struct Keys {
    /// Fields that it calls by another name: the field, its key.
    pub renamed: &'static [(&'static str, &'static str)],
    /// Fields that it has and other families have only where they say so as well.
    pub own: &'static [&'static str],
    /// Fields of most families that it does not have.
    pub absent: &'static [&'static str],
    /// Keys of `config.json` that have one value here, which is what they stand for where they are absent.
    pub constants: &'static [(&'static str, Constant)],
}

/// The only value of a key.
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
    /// As JSON.
    pub fn json(self) -> Value {
        match self {
            Self::Text(text) => text.into(),
            Self::Flag(flag) => flag.into(),
            Self::Number(number) => number.into(),
        }
    }
}

impl Keys {
    /// Those of BERT and what descends from it.
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
    /// What the family calls a field of [`EncoderConfig`]; `None` where it has none.
    pub fn key(self, field: &str) -> Option<&str> {
        let renamed = self.keys.renamed.iter().find(|(own, _)| *own == field).map(|(_, key)| *key);
        self.has_field(field).then_some(renamed.unwrap_or(field))
    }

    fn has_field(self, field: &str) -> bool {
        let is_others = || Self::ALL.iter().any(|other| other.keys.own.contains(&field));
        self.keys.own.contains(&field) || !(self.keys.absent.contains(&field) || is_others())
    }

    /// The field of [`EncoderConfig`] that the family calls `key`.
    pub fn field(self, key: &str) -> Option<&str> {
        let renamed = self.keys.renamed.iter().find(|(_, own)| *own == key);
        let is_own =
            |field: &str| self.has_field(field) && self.keys.renamed.iter().all(|(other, _)| *other != field);
        renamed.map(|(field, _)| *field).or_else(|| Some(key).filter(|key| is_own(key)))
    }
}

impl ModelConfig {
    /// The sizes by the family's own keys.
    pub fn to_table(&self) -> Map<String, Value> {
        let Value::Object(fields) = serde_json::to_value(&self.encoder).expect("numbers have a JSON form")
        else {
            unreachable!("a struct is written as an object");
        };
        let own = |(field, value): (String, Value)| Some((self.family.key(&field)?.to_string(), value));
        fields.into_iter().filter_map(own).collect()
    }

    /// The model of a table of the family's own keys; absent ones take the family's defaults.
    pub fn from_table(family: Family, table: Map<String, Value>) -> Result<Self, serde_json::Error> {
        let Value::Object(mut fields) = serde_json::to_value(&family.defaults)? else {
            unreachable!("a struct is written as an object");
        };
        for (key, value) in table {
            let unknown = || serde_json::Error::custom(format!("unknown key `{key}`"));
            fields.insert(family.field(&key).ok_or_else(unknown)?.to_string(), value);
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
        let table = |key: &str| Map::from_iter([(key.to_string(), 1e-5.into())]);
        assert!(ModelConfig::from_table(Family::MODERNBERT, table("norm_eps")).is_ok());
        for (family, key) in [(Family::MODERNBERT, "layer_norm_eps"), (Family::BERT, "norm_eps")] {
            let error = ModelConfig::from_table(family, table(key)).unwrap_err().to_string();
            assert!(error.contains(key), "{error}");
        }
    }
}
