//! Converts the arguments of Hugging Face's example scripts (run_mlm.py, run_glue.py, run_ner.py) or a saved
//! `TrainingArguments` to a configuration of mlmtrain, with notes on assumed values and on arguments without
//! a key.
//!
//! `foreign.rs` has the table of keys; the loader checks their values.

use std::path::Path;

use crate::convert::arguments::Arguments;
use crate::defaults::Derived;
use crate::kind::Kind;
use crate::load::Loaded;
use crate::overrides::Override;
use crate::shape::Shape;
use crate::tree::shortened;
use crate::{FinetuneTask, include, load, show};
use base::error::{Problem, Problems};
use base::secrets;

mod arguments;
mod corpus;
mod places;
#[cfg(test)]
mod tests;

/// A configuration that was converted from another program's arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Converted {
    /// The configuration as YAML, each value with its origin as a comment.
    pub yaml: String,
    /// A line for each assumed value and for each argument without a key.
    pub notes: Vec<String>,
}

/// The purpose of the arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Pretraining, as with run_mlm.py.
    Pretrain,
    /// Fine-tuning, as with run_glue.py or run_ner.py.
    Finetune(FinetuneTask),
}

/// One key of the configuration.
#[derive(Debug, Clone, PartialEq)]
struct Setting {
    /// Dotted path.
    path: String,
    /// The value, as YAML.
    value: String,
    /// The argument that it was converted from; `None` if it was assumed.
    from: Option<String>,
}

impl Setting {
    /// Returns true if the setting, perhaps of a whole table, contains the value at `path`.
    fn contains(&self, path: &str) -> bool {
        let Some(rest) = path.strip_prefix(&self.path) else { return false };
        if rest.is_empty() {
            return true;
        }
        let value: serde_json::Value = serde_json::from_str(&self.value).unwrap_or_default();
        rest.starts_with('.') && value.pointer(&rest.replace('.', "/")).is_some()
    }
}

/// The settings and notes so far.
#[derive(Debug, Default)]
struct Draft {
    settings: Vec<Setting>,
    notes: Vec<String>,
    /// Arguments that are off or empty.
    off: Vec<String>,
    /// Arguments that are not known.
    unknown: Vec<String>,
}

impl Draft {
    fn set(&mut self, path: &str, value: impl Into<serde_json::Value>, from: &str) {
        let value = value.into().to_string();
        self.settings.push(Setting { path: path.to_string(), value, from: Some(from.to_string()) });
    }

    /// Adds a setting that the arguments do not contain, and a note with the reason `why`.
    fn assume(&mut self, path: &str, value: impl Into<serde_json::Value>, why: &str) {
        let value = value.into();
        self.notes.push(format!("assumed: `{path}: {value}`: {why}"));
        self.settings.push(Setting { path: path.to_string(), value: value.to_string(), from: None });
    }

    fn without_place(&mut self, argument: &str, value: &serde_json::Value, why: &str) {
        let value = shown(argument, &value.to_string());
        self.notes.push(format!("no place for `{argument}: {value}`: {why}"));
    }
}

/// Returns a value (JSON) for a message, with secrets replaced by `***`.
fn shown(argument: &str, value: &str) -> String {
    let text: Option<String> = serde_json::from_str(value).ok();
    match text {
        Some(text) if secrets::is_named(argument) || secrets::is_credential(&text) => "***".to_string(),
        Some(text) => shortened(&serde_json::Value::from(secrets::url(&text)).to_string()),
        None => shortened(value),
    }
}

/// Reads the arguments in a JSON or YAML file and converts them to a configuration that the loader accepts.
/// Without `purpose`, the purpose is guessed from the arguments.
pub fn convert(path: &Path, purpose: Option<Purpose>) -> Result<Converted, Problems> {
    let root = include::read(path).map_err(|problem| Problems(vec![problem]))?;
    let arguments = Arguments::read(&root).map_err(|message| {
        let hint = "it is made of the JSON or YAML that run_mlm.py, run_glue.py and run_ner.py take";
        Problems(vec![Problem::usage(message).at(path.display()).hint(hint)])
    })?;
    let mut draft = Draft::default();
    let purpose = purpose.unwrap_or_else(|| places::purpose_of(&arguments, &mut draft));
    let (kind, shape) = match purpose {
        Purpose::Pretrain => (Kind::Pretrain, Shape::from_struct::<crate::PretrainConfig>()),
        Purpose::Finetune(_) => (Kind::Finetune, Shape::from_struct::<crate::FinetuneConfig>()),
    };
    places::place(&arguments, purpose, &shape, &mut draft);
    let (json, derived) = settled(kind, &mut draft)?;
    let yaml = show::part(&json, &|path| {
        // The last setting counts: a key of a table may be set after the table.
        let from = &draft.settings.iter().rev().find(|setting| setting.contains(path))?.from;
        Some(from.as_ref().map_or_else(|| "assumed".to_string(), |from| format!("was `{from}`")))
    });
    let mut notes = draft.notes;
    if !derived.is_empty() {
        let keys: Vec<String> = derived.iter().map(|derived| format!("`{}`", derived.key)).collect();
        let keys = keys.join(", ");
        notes.push(format!(
            "not given: {keys}; `pretrain` chooses them for the model (`config show`), not as Hugging Face does"
        ));
    }
    for (arguments, what) in
        [(draft.off, "off or empty, left out"), (draft.unknown, "not known here, left out")]
    {
        if !arguments.is_empty() {
            let quoted: Vec<String> = arguments.iter().map(|name| format!("`{name}`")).collect();
            notes.push(format!("{what}: {}", quoted.join(", ")));
        }
    }
    let head =
        format!("# Made from {} by `mlmtrain config convert`.\n", shortened(&path.display().to_string()));
    Ok(Converted { yaml: head + &yaml, notes })
}

/// Loads the settings; returns the configuration and the keys that `pretrain` chooses. Settings that the
/// loader refuses are removed, with a note.
fn settled(kind: Kind, draft: &mut Draft) -> Result<(serde_json::Value, Vec<Derived>), Problems> {
    loop {
        let overrides: Vec<Override> = draft
            .settings
            .iter()
            .enumerate()
            .map(|(at, setting)| Override::placed(&format!("setting {at}"), &setting.path, &setting.value))
            .collect();
        let loaded = match kind {
            Kind::Pretrain => load::pretrain_of(None, &overrides).map(|loaded| parts(&loaded)),
            Kind::Finetune => load::finetune_of(None, &overrides).map(|loaded| parts(&loaded)),
        };
        let problems = match loaded {
            Ok(parts) => return Ok(parts),
            Err(problems) => problems,
        };
        // One at a time: without the refused setting, the other problems may be gone.
        let refused = problems.0.iter().find_map(|problem| {
            let number = problem.place.as_deref()?.strip_prefix("setting ")?;
            Some((number.parse::<usize>().ok()?, problem))
        });
        let Some((at, problem)) = refused else { return Err(problems) };
        let refused = draft.settings.remove(at);
        let from = refused.from.unwrap_or(refused.path);
        let hint = problem.hint.as_ref().map(|hint| format!("; {hint}")).unwrap_or_default();
        draft.notes.push(format!(
            "no place for `{from}: {}`: {}{hint}",
            shown(&from, &refused.value),
            problem.message
        ));
    }
}

fn parts<T: serde::Serialize>(loaded: &Loaded<T>) -> (serde_json::Value, Vec<Derived>) {
    (show::as_file(&loaded.config), loaded.origins.derived().to_vec())
}
