//! Applies `--set a.b=c`, and flags that are short for such a setting, to the tree before it is checked.
//!
//! Does not check values. Their place is the flag, so `check.rs` and `validate` name it in errors.

use crate::check::{Wrong, unknown_key};
use crate::dotted::join;
use crate::shape::{Field, Shape};
use crate::tree::{Entry, Node, Place, Value, parse, shortened};
use base::error::Problem;
use base::families::Family;

/// Start of keys that mean the key of the configuration's own family.
const OF_FAMILY: &str = "model.<family>.";

/// The dropouts of an encoder; each family has some of them.
const DROPOUTS: [&str; 4] =
    ["hidden_dropout_prob", "attention_probs_dropout_prob", "embedding_dropout", "mlp_dropout"];

/// One value from the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Override {
    /// The flag as on the command line, for errors: `--set training.max_steps`, `--train`.
    flag: String,
    /// Dotted path of the key.
    key: String,
    /// The value as YAML; for keys with a text as value, the text itself unless it begins with a quotation
    /// mark.
    text: String,
    /// If true, `text` is the name of a profile instead of a value.
    is_profile: bool,
}

impl Override {
    /// Reads `key=value`.
    pub fn set(text: &str) -> Result<Self, Problem> {
        let (key, value) = text.split_once('=').unwrap_or((text, ""));
        let key = key.trim();
        if !text.contains('=') || key.is_empty() {
            let hint = "write it like `--set training.max_steps=100`";
            return Err(Problem::usage(format!("`{}` is not of the form `key=value`", shortened(text)))
                .at("--set")
                .hint(hint));
        }
        Ok(Self::new(format!("--set {key}"), key, value.to_string()))
    }

    fn new(flag: String, key: &str, text: String) -> Self {
        Self { flag, key: key.to_string(), text, is_profile: false }
    }

    /// Asks for the profile of the file with this name. All other overrides win over profiles.
    pub fn profile(name: &str) -> Self {
        Self { is_profile: true, ..Self::new("--profile".to_string(), "", name.to_string()) }
    }

    /// Returns the name of the profile, if this is a profile.
    pub(super) fn as_profile(&self) -> Option<&str> {
        self.is_profile.then_some(self.text.as_str())
    }

    /// The dotted path of the key.
    pub(super) fn key(&self) -> &str {
        &self.key
    }

    /// The first part of the key.
    pub(super) fn first_key(&self) -> &str {
        self.key.split('.').next().unwrap_or_default()
    }

    /// Returns the setting that a flag is short for, such as `--train` for `data.train_file`.
    pub fn flag(flag: &str, key: &str, value: impl Into<serde_json::Value>) -> Self {
        Self::new(flag.to_string(), key, value.into().to_string())
    }

    /// Like [`Override::flag`], with the value as it was typed.
    pub fn typed(flag: &str, key: &str, text: &str) -> Self {
        Self::new(flag.to_string(), key, text.to_string())
    }

    /// Sets all dropouts of the model in the configuration's table of a family.
    pub fn dropout_of_model(flag: &str, text: &str) -> Self {
        Self::typed(flag, &format!("{OF_FAMILY}dropout"), text)
    }

    /// Returns the setting of a value, as YAML, that errors report at `place`.
    pub(super) fn placed(place: &str, key: &str, text: &str) -> Self {
        Self::new(place.to_string(), key, text.to_string())
    }

    /// Puts the value into the tree and creates missing tables above it. Does nothing for profiles, which are
    /// merged when a file is read.
    pub(super) fn apply(&self, root: &mut Node, shape: &Shape) -> Result<(), Wrong> {
        if self.is_profile {
            return Ok(());
        }
        if self.key.starts_with(OF_FAMILY) {
            return self.dropouts(root)?.iter().try_for_each(|one| one.apply(root, shape));
        }
        let place = Place::Flag(self.flag.clone());
        let (wanted, optional) = self.target(shape)?;
        let value = Node { value: self.value(wanted, optional)?, place: place.clone() }.placed(&place);
        let mut node = root;
        let mut here = shape;
        let mut path = String::new();
        for key in self.key.split('.') {
            // A scalar where a table belongs is a problem of its own, which `check.rs` reports.
            (node, here) = match (here, here.field(key)) {
                (Shape::List(item), _) => (self.item(node, key, &path)?, item.as_ref()),
                (_, Some(field)) => match child(node, here, field, &place) {
                    Some(below) => (below, &field.shape),
                    None => return Ok(()),
                },
                (_, None) => return Ok(()),
            };
            path = join(&path, key);
        }
        *node = value;
        Ok(())
    }

    /// Returns the same value for each dropout of the model in the configuration.
    fn dropouts(&self, root: &Node) -> Result<Vec<Self>, Wrong> {
        let model = root.entries().iter().find(|entry| entry.key == "model");
        let tables = model.map(|entry| entry.node.entries()).unwrap_or_default();
        let families = tables.iter().filter_map(|entry| Family::named(&entry.key));
        let keys = families.flat_map(|family| {
            let own = DROPOUTS.into_iter().filter_map(move |field| family.key(field));
            own.map(move |key| format!("model.{}.{key}", family.name)).collect::<Vec<_>>()
        });
        let all: Vec<Self> = keys.map(|key| Self::typed(&self.flag, &key, &self.text)).collect();
        if all.is_empty() {
            let message = "the configuration has no table of a model whose dropout this could be".to_string();
            return Err(self.wrong(
                message,
                "a model that is read from a folder keeps the dropout of its `config.json`",
            ));
        }
        Ok(all)
    }

    /// Returns the shape of the key, and true if its value may be null.
    fn target<'a>(&self, root: &'a Shape) -> Result<(&'a Shape, bool), Wrong> {
        let mut here = root;
        let mut optional = false;
        let mut path = String::new();
        for key in self.key.split('.') {
            (here, optional) = match here {
                Shape::Table(_) => {
                    let field = here.field(key).map(|field| (&field.shape, field.optional));
                    field
                        .ok_or_else(|| unknown_key(Place::Flag(self.flag.clone()), key, &path, here, root))?
                }
                Shape::List(item) => (item.as_ref(), false),
                _ => {
                    return Err(self.wrong(
                        format!("`{path}` is {}, it has no keys", here.wanted()),
                        "set the key itself",
                    ));
                }
            };
            path = join(&path, key);
        }
        Ok((here, optional))
    }

    /// Refuses a key that the configuration does not have.
    pub(super) fn require_key(&self, root: &Shape) -> Result<(), Wrong> {
        self.target(root).map(drop)
    }

    fn item<'a>(&self, node: &'a mut Node, key: &str, path: &str) -> Result<&'a mut Node, Wrong> {
        let items = match &mut node.value {
            Value::List(items) => items.as_mut_slice(),
            _ => &mut [],
        };
        let hint = format!("it has {}, numbered from 0; to give the whole list, write `[a, b]`", items.len());
        let item = key.parse::<usize>().ok().and_then(|index| items.get_mut(index));
        item.ok_or_else(|| self.wrong(format!("`{path}` has no item `{}`", shortened(key)), &hint))
    }

    fn value(&self, shape: &Shape, optional: bool) -> Result<Value, Wrong> {
        let text = self.text.trim();
        let is_null = optional && ["", "null", "~"].contains(&text);
        if *shape == Shape::Text && !is_null && !text.starts_with(['"', '\'']) {
            return Ok(Value::Text(self.text.clone()));
        }
        if text.is_empty() {
            return Ok(Value::Null);
        }
        match parse(text, &self.flag) {
            Ok(node) => Ok(if is_null { Value::Null } else { node.value }),
            Err(problem) => Err(self.wrong(
                problem.message,
                "quote the value for YAML and once more for the shell: `--set 'key=\"value\"'`",
            )),
        }
    }

    fn wrong(&self, message: String, hint: &str) -> Wrong {
        Wrong { place: Place::Flag(self.flag.clone()), message, hint: Some(hint.to_string()) }
    }
}

/// Returns the value of `field` in a table; creates a missing one. Returns `None` if the node is not a table.
fn child<'a>(node: &'a mut Node, table: &Shape, field: &Field, place: &Place) -> Option<&'a mut Node> {
    if node.value == Value::Null {
        node.value = Value::Table(Vec::new());
    }
    let Value::Table(entries) = &mut node.value else { return None };
    let index = entries.iter().position(|e| table.field(&e.key).is_some_and(|f| f.name == field.name));
    let index = index.unwrap_or_else(|| {
        let node = Node { value: Value::Null, place: place.clone() };
        entries.push(Entry { key: field.name.clone(), place: place.clone(), node });
        entries.len() - 1
    });
    entries.get_mut(index).map(|entry| &mut entry.node)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_needs_a_key_and_an_equals_sign() {
        insta::assert_snapshot!(Override::set("training.max_steps").expect_err("is wrong"), @r#"
        --set: `training.max_steps` is not of the form `key=value`
          hint: write it like `--set training.max_steps=100`
        "#);
        insta::assert_snapshot!(Override::set("=4").expect_err("is wrong"), @r#"
        --set: `=4` is not of the form `key=value`
          hint: write it like `--set training.max_steps=100`
        "#);
    }
}
