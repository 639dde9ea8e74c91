//! The device of a run, as configurations write it: `auto`, `cpu`, `cuda`, `cuda:1`.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Number of GPUs that have a name; no rented machine has more.
const MOST_GPUS: usize = 8;

/// The device that the program computes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceChoice {
    /// The first GPU if one can be used, else the CPU.
    Auto,
    /// The CPU.
    Cpu,
    /// The GPU with this number, or an error that says why not.
    Cuda(usize),
}

impl DeviceChoice {
    /// Returns the name in configurations; that of the first GPU is `cuda`.
    pub fn name(self) -> String {
        match self {
            Self::Auto => "auto".to_string(),
            Self::Cpu => "cpu".to_string(),
            Self::Cuda(0) => "cuda".to_string(),
            Self::Cuda(ordinal) => format!("cuda:{ordinal}"),
        }
    }

    /// Returns the device with a name, also for `cuda:0`.
    pub fn named(name: &str) -> Option<Self> {
        let all = [Self::Auto, Self::Cpu].into_iter().chain((0..MOST_GPUS).map(Self::Cuda));
        if name == "cuda:0" {
            Some(Self::Cuda(0))
        } else {
            all.into_iter().find(|choice| choice.name() == name)
        }
    }

    /// Returns all names, `cuda` and `cuda:0` included.
    fn names() -> Vec<String> {
        let gpus = (0..MOST_GPUS).map(|ordinal| format!("cuda:{ordinal}"));
        ["auto", "cpu", "cuda"].map(str::to_string).into_iter().chain(gpus).collect()
    }
}

impl std::str::FromStr for DeviceChoice {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::named(name).ok_or_else(|| "take `auto`, `cpu`, `cuda`, or `cuda:1` and so on".to_string())
    }
}

impl Serialize for DeviceChoice {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.name())
    }
}

impl<'de> Deserialize<'de> for DeviceChoice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

impl JsonSchema for DeviceChoice {
    fn schema_name() -> Cow<'static, str> {
        "DeviceChoice".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let names: Vec<Schema> =
            Self::names().into_iter().map(|name| json_schema!({ "const": name })).collect();
        json_schema!({
            "description": "Where the program computes: the best that is there, the CPU, or a GPU by its number (`cuda` is the first).",
            "oneOf": names,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_read_and_the_first_gpu_has_two() {
        for name in DeviceChoice::names() {
            let choice = DeviceChoice::named(&name).unwrap();
            assert!(choice.name() == name || (name == "cuda:0" && choice.name() == "cuda"), "{name}");
            let back: DeviceChoice = serde_json::from_str(&serde_json::to_string(&choice).unwrap()).unwrap();
            assert_eq!(back, choice);
        }
        assert_eq!(DeviceChoice::named("cuda:3"), Some(DeviceChoice::Cuda(3)));
        assert!(DeviceChoice::named("gpu").is_none() && DeviceChoice::named("cuda:-1").is_none());
    }
}
