//! `--set a.b=c` and the flags that stand for such a setting: put into the tree before it is checked.
//!
//! It does not judge values; their place is the flag, so that `check.rs` and `validate.rs` name it.

use crate::config::check::Wrong;
use crate::config::check::join;
use crate::config::check::unknown_key;
use crate::config::shape::Field;
use crate::config::shape::Shape;
use crate::config::tree::Entry;
use crate::config::tree::Node;
use crate::config::tree::Place;
use crate::config::tree::Value;
use crate::config::tree::parse;
use crate::config::tree::shortened;
use crate::error::Problem;
use crate::families::Family;

/// The beginning of a key that every family's table of a model has under a name of its own.
const OF_FAMILY: &str = "model.<family>.";

/// The dropouts of an encoder; a family has some of them.
const DROPOUTS: [&str; 4] =
    ["hidden_dropout_prob", "attention_probs_dropout_prob", "embedding_dropout", "mlp_dropout"];

/// One value from the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Override {
    /// How the command line spells it: `--set training.max_steps`, `--train`.
    flag: String,
    /// Dotted path of the key.
    key: String,
    /// The value as YAML; for a key that holds a text, the text itself unless it begins with a quotation
    /// mark.
    text: String,
    /// Whether it is no value, but the name of a profile.
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

    /// The profile of the file that has this name; profiles lie below all values.
    pub fn profile(name: &str) -> Self {
        Self { is_profile: true, ..Self::new("--profile".to_string(), "", name.to_string()) }
    }

    /// The name of the profile that it asks for.
    pub(super) fn as_profile(&self) -> Option<&str> {
        self.is_profile.then_some(self.text.as_str())
    }

    /// The setting that a flag of its own stands for, such as `--train` for `data.train_file`.
    pub fn flag(flag: &str, key: &str, value: impl Into<serde_json::Value>) -> Self {
        Self::new(flag.to_string(), key, value.into().to_string())
    }

    /// As [`Override::flag`], of a value as it was typed.
    pub fn typed(flag: &str, key: &str, text: &str) -> Self {
        Self::new(flag.to_string(), key, text.to_string())
    }

    /// All dropouts of the model whose table the configuration has.
    pub fn dropout_of_model(flag: &str, text: &str) -> Self {
        Self::typed(flag, &format!("{OF_FAMILY}dropout"), text)
    }

    /// A value that is written at `place`, as YAML.
    pub(super) fn placed(place: &str, key: &str, text: &str) -> Self {
        Self::new(place.to_string(), key, text.to_string())
    }

    /// Puts the value into the tree, creating the tables above it. Profiles are laid over a file when it is
    /// read.
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

    /// The same value for each dropout that the model of the configuration has.
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

    /// The shape that the key leads to, and whether null is a value there.
    fn target<'a>(&self, root: &'a Shape) -> Result<(&'a Shape, bool), Wrong> {
        let (mut here, mut optional) = (root, false);
        let mut path = String::new();
        for key in self.key.split('.') {
            (here, optional) = match here {
                Shape::Table(_) => {
                    let unknown = || unknown_key(Place::Flag(self.flag.clone()), key, &path, here, root);
                    here.field(key).map(|field| (&field.shape, field.optional)).ok_or_else(unknown)?
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

/// The value of `field` in a table, created when it is not there; none when the node is something else than a
/// table.
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
