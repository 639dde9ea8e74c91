//! Profiles: named parts of a configuration in its file, which `--profile` merges over the rest.
//!
//! All profiles are checked, also those that are not asked for; in these, variables that are not set are
//! ignored.

use crate::check::{Wrong, check};
use crate::dotted::join;
use crate::merge::merged;
use crate::shape::{PROFILES, Shape, quoted};
use crate::suggest::closest;
use crate::tree::{Entry, Node, Place, Value};
use crate::variables;
use base::error::{Problem, Problems};

const SHAPE: &str =
    "write `profiles:`, below it a name for each, and below that its keys, such as `training:`";

/// Merges the profiles that are asked for over the rest of a file; later ones win. Keeps the table of
/// profiles, which is checked later.
pub(super) fn apply(mut root: Node, file: &str, asked: &[&str]) -> Result<Node, Problems> {
    let Some(table) = root.take(PROFILES) else {
        return match asked.first() {
            None => Ok(root),
            Some(name) => {
                let message = format!("`{name}` is asked for, and `{file}` has no `profiles`");
                Err(Problems(vec![Problem::usage(message).at("--profile").hint(SHAPE)]))
            }
        };
    };
    let place = root.place.clone();
    let mut unknown = Vec::new();
    for name in asked {
        match table.node.entries().iter().find(|entry| entry.key == *name) {
            Some(profile) => {
                let mut over = profile.node.clone();
                over.take(PROFILES);
                root = merged(root, over);
                root.place.clone_from(&place);
            }
            None => unknown.push(unknown_profile(name, &table)),
        }
    }
    root.entries_mut().into_iter().for_each(|entries| entries.push(table.clone()));
    if unknown.is_empty() { Ok(root) } else { Err(Problems(unknown)) }
}

fn unknown_profile(name: &str, table: &Entry) -> Problem {
    let names: Vec<&str> = table.node.entries().iter().map(|entry| entry.key.as_str()).collect();
    let hint = match closest(name, &names) {
        Some(near) => format!("did you mean `{near}`? There are {}", quoted(&names)),
        None if names.is_empty() => format!("{} has none", table.place.shown()),
        None => format!("there are {}", quoted(&names)),
    };
    Problem::usage(format!("there is no profile `{name}`")).at("--profile").hint(hint)
}

/// Removes `keys` from all profiles: they are not keys of a configuration and were read before.
pub(super) fn remove_keys(root: &mut Node, keys: &[&str]) {
    let tables = root.entries_mut().into_iter().flatten().filter(|entry| entry.key == PROFILES);
    for node in tables.filter_map(|entry| entry.node.entries_mut()).flatten().map(|profile| &mut profile.node)
    {
        for key in keys {
            node.take(key);
        }
    }
}

fn refuse(place: Place, message: String) -> Wrong {
    Wrong { place, message, hint: Some(SHAPE.to_string()) }
}

/// Returns the problems of each profile of a file by itself; `shape` is that of the whole configuration.
pub(super) fn wrong(table: &Entry, shape: &Shape) -> Vec<Wrong> {
    let Value::Table(profiles) = &table.node.value else {
        let message = format!("`{PROFILES}` wants a table of profiles, not {}", table.node.value.described());
        return vec![refuse(table.place.clone(), message)];
    };
    let shape = shape.without_required();
    let mut found = Vec::new();
    for (index, profile) in profiles.iter().enumerate() {
        let name = join(PROFILES, &profile.key);
        if profiles[..index].iter().any(|other| other.key == profile.key) {
            found.push(refuse(profile.place.clone(), format!("`{name}` is given a second time")));
        }
        let mut node = profile.node.clone();
        variables::without_unset(&mut node, &variables::environment);
        let mut unfilled = Vec::new();
        variables::fill(&mut node, &name, &variables::environment, &mut unfilled);
        found.extend(unfilled.into_iter().map(|(_, wrong)| wrong));
        match node.value {
            Value::Table(_) | Value::Null => found.extend(check(&node, &shape).1.problems),
            other => {
                let message = format!("`{name}` wants a table of keys, not {}", other.described());
                found.push(refuse(profile.place.clone(), message));
            }
        }
    }
    found
}
