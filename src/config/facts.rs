//! Facts about the keys of a configuration, read from the declarations on the fields of its structs.
//!
//! A field declares by `#[schemars(...)]`, so that JSON Schema carries the facts:
//!
//! | declaration | meaning |
//! |---|---|
//! | `range(min, max)`, `extend("exclusiveMinimum")`, `extend("exclusiveMaximum")` | limits of a number |
//! | `length(min = 1)`, `length(max)` | a text that is not empty, most items of a list |
//! | `example` | a usual value, for hints |
//! | `extend("x-on-resume" = OnResume::...)` | effect of a change on a resumed run; without it, a new run is needed |
//! | `extend("x-decides-losses" = bool)` | true if only runs with equal values have comparable losses |
//! | `extend("x-path" = true)` | the value names files or folders |
//! | `extend("x-other-names" = [...])` | names that are accepted, too |
//! | `extend("x-foreign-names" = [...])` | names in other programs, for hints and `config convert` |
//! | `extend("x-foreign-hint" = "...")` | how a hint at a foreign name ends |
//! | `extend("x-only-with" = [key, value, ...])` | no effect unless the other key has one of the values |
//!
//! `validate`, `resume`, `likeness`, `variables`, `foreign` and the page of all keys read them here.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;
use serde_json::Value as Json;

use crate::dotted::{ITEM, join, last_key, pattern};
use crate::kind::Kind;
use crate::on_resume::OnResume;
use crate::{FinetuneConfig, PretrainConfig};

/// The facts that the field of one key declares.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Facts {
    pub(crate) default: Json,
    #[serde(rename = "type")]
    pub(crate) json_type: Json,
    pub(crate) minimum: Option<f64>,
    pub(crate) exclusive_minimum: Option<f64>,
    pub(crate) maximum: Option<f64>,
    pub(crate) exclusive_maximum: Option<f64>,
    pub(crate) min_length: Option<usize>,
    pub(crate) max_items: Option<usize>,
    pub(crate) examples: Vec<Json>,
    #[serde(rename = "x-on-resume")]
    pub(crate) on_resume: Option<OnResume>,
    #[serde(rename = "x-decides-losses")]
    pub(crate) decides_losses: Option<bool>,
    #[serde(rename = "x-path")]
    pub(crate) is_path: bool,
    #[serde(rename = "x-other-names")]
    pub(crate) other_names: Vec<String>,
    #[serde(rename = "x-foreign-names")]
    pub(crate) foreign_names: Vec<String>,
    #[serde(rename = "x-foreign-hint")]
    pub(crate) foreign_hint: String,
    /// A dotted path, then values of the key there.
    #[serde(rename = "x-only-with")]
    pub(crate) only_with: Vec<String>,
}

/// The facts of all keys of one kind of configuration, by dotted path.
#[derive(Debug)]
pub(crate) struct Declared(BTreeMap<String, Facts>);

static PRETRAIN: LazyLock<Declared> = LazyLock::new(|| Declared::read(Kind::Pretrain));
static FINETUNE: LazyLock<Declared> = LazyLock::new(|| Declared::read(Kind::Finetune));

/// Returns the JSON Schema of a kind of configuration as its structs declare it.
pub(crate) fn declared_schema(kind: Kind) -> Json {
    match kind {
        Kind::Pretrain => schemars::schema_for!(PretrainConfig).to_value(),
        Kind::Finetune => schemars::schema_for!(FinetuneConfig).to_value(),
    }
}

/// Returns what the fields of a kind of configuration declare.
pub(crate) fn declared(kind: Kind) -> &'static Declared {
    match kind {
        Kind::Pretrain => &PRETRAIN,
        Kind::Finetune => &FINETUNE,
    }
}

/// Returns all keys of both kinds with their facts, those of pretraining first.
pub(crate) fn all() -> impl Iterator<Item = (&'static str, &'static Facts)> {
    [&PRETRAIN, &FINETUNE]
        .into_iter()
        .flat_map(|keys| keys.0.iter().map(|(path, facts)| (path.as_str(), facts)))
}

/// Returns the first fact that `pick` finds for the key at `path`, or else for the nearest table around it, in
/// either kind of configuration.
pub(crate) fn nearest<T>(path: &str, pick: impl Fn(&Facts) -> Option<T>) -> Option<T> {
    let mut path = pattern(path);
    loop {
        let found = [&PRETRAIN, &FINETUNE].into_iter().find_map(|keys| keys.0.get(&path).and_then(&pick));
        if found.is_some() {
            return found;
        }
        path.truncate(path.rfind('.')?);
    }
}

/// Returns the other names that are accepted, each with the name of its key.
pub(crate) fn other_names() -> &'static [(&'static str, &'static str)] {
    static NAMES: LazyLock<Vec<(&str, &str)>> = LazyLock::new(|| {
        let mut names = Vec::new();
        for (path, facts) in all() {
            names.extend(facts.other_names.iter().map(|other| (other.as_str(), last_key(path))));
        }
        names.sort_unstable();
        names.dedup();
        names
    });
    &NAMES
}

impl Declared {
    /// Returns the facts of the key at `path`; `None` for keys of the user's own, such as labels.
    pub(crate) fn get(&self, path: &str) -> Option<&Facts> {
        self.0.get(&pattern(path))
    }

    /// Returns the dotted path of each key below which all keys have a condition, with its facts.
    pub(crate) fn conditions(&self) -> impl Iterator<Item = (&str, &Facts)> {
        let keys = self.0.iter().map(|(path, facts)| (path.as_str(), facts));
        keys.filter(|(_, facts)| !facts.only_with.is_empty())
    }

    fn read(kind: Kind) -> Self {
        let schema = declared_schema(kind);
        let mut keys = BTreeMap::new();
        collect("", &schema, &schema, &mut keys);
        Self(keys)
    }
}

/// Adds the keys of a table or a list, then those below them.
fn collect(path: &str, schema: &Json, root: &Json, keys: &mut BTreeMap<String, Facts>) {
    let properties = schema["properties"].as_object().into_iter().flatten();
    let below = properties.map(|(key, schema)| (join(path, key), schema));
    let items = schema.get("items").map(|schema| (join(path, ITEM), schema));
    for (path, schema) in below.chain(items) {
        let schema = resolved(schema, root);
        let facts = serde_json::from_value(schema.clone());
        keys.insert(path.clone(), facts.unwrap_or_else(|e| unreachable!("the declaration of `{path}`: {e}")));
        collect(&path, &schema, root, keys);
    }
}

/// Returns the schema of a field with that of its type: the definition it refers to, and of several types the
/// table or the number. The field's own declarations win.
fn resolved(field: &Json, root: &Json) -> Json {
    let of_type = field["$ref"].as_str().and_then(|target| root.pointer(target.trim_start_matches('#')));
    let choices = of_type.unwrap_or(field)["anyOf"].as_array().into_iter().flatten();
    let choice = choices
        .filter_map(|choice| match choice["$ref"].as_str() {
            Some(target) => root.pointer(target.trim_start_matches('#')),
            None => Some(choice),
        })
        .find(|choice| ["object", "integer", "number"].iter().any(|name| choice["type"] == *name));
    let mut resolved = serde_json::Map::new();
    for schema in [choice, of_type, Some(field)].into_iter().flatten() {
        resolved.extend(
            schema.as_object().into_iter().flatten().map(|(key, value)| (key.clone(), value.clone())),
        );
    }
    Json::Object(resolved)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(path: &str) -> &'static Facts {
        declared(Kind::Pretrain).get(path).expect("is a key")
    }

    #[test]
    fn facts_come_from_fields_tables_items_and_types() {
        assert_eq!(get("data.sources.3.weight").maximum, Some(1000.0));
        assert_eq!(get("model.roberta.hidden_size").minimum, Some(1.0));
        assert_eq!(get("training.per_device_train_batch_size").minimum, Some(1.0), "of its type");
        assert_eq!(get("training.weight_average.every").minimum, Some(1.0), "of an optional table");
        assert_eq!(get("data.filters.repetition.max_top_ngram_chars.0").maximum, Some(1.0));
        assert_eq!(declared(Kind::Pretrain).get("training.class_weights.cat"), None, "a label is no key");
        assert_eq!(nearest("cache.dir", |facts| facts.on_resume), Some(OnResume::Free), "of its table");
        assert_eq!(nearest("training.learning_rate", |facts| facts.on_resume), None);
        assert!(declared(Kind::Finetune).get("model").expect("is a key").is_path);
    }

    #[test]
    fn keys_named_like_paths_are_paths() {
        for (path, facts) in all().filter(|(path, _)| !path.ends_with(ITEM)) {
            let end = last_key(path).rsplit('_').next().unwrap_or_default();
            assert!(facts.is_path || !["file", "files", "dir", "path"].contains(&end), "{path}");
        }
    }

    #[test]
    fn conditions_name_keys_that_exist() {
        for kind in [Kind::Pretrain, Kind::Finetune] {
            for (path, facts) in declared(kind).conditions() {
                assert!(declared(kind).get(&facts.only_with[0]).is_some(), "{path}");
                assert!(facts.only_with.len() > 1, "{path}");
                assert!(!path.contains(ITEM), "{path}: conditions within lists are not looked at");
            }
        }
    }

    #[test]
    fn defaults_keep_their_own_limits() {
        for (path, facts) in all() {
            let Some(default) = facts.default.as_f64() else { continue };
            assert!(facts.minimum.is_none_or(|least| default >= least), "{path}");
            assert!(facts.maximum.is_none_or(|most| default <= most), "{path}");
            assert!(facts.exclusive_minimum.is_none_or(|least| default > least), "{path}");
            assert!(facts.exclusive_maximum.is_none_or(|most| default < most), "{path}");
        }
    }
}
