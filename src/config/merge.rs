//! Merges two trees: tables key by key, anything else as a whole.
//!
//! Does not know which keys exist: a key that is given twice in one table remains twice, for `check.rs` to
//! report.

use crate::shape::name_of;
use crate::tree::{Entry, Node, Value};

/// Merges two tables: entries of `over` win over those of `base`. If one of the two is not a table, returns
/// `over`.
///
/// An empty `over`, such as a section with all its keys commented out, keeps the table `base`.
pub(super) fn merged(base: Node, over: Node) -> Node {
    let Node { value, place } = over;
    let value = match (base.value, value) {
        (Value::Table(below), Value::Table(above)) => Value::Table(entries(below, above)),
        (table @ Value::Table(_), Value::Null) => table,
        (_, value) => value,
    };
    Node { value, place }
}

fn entries(below: Vec<Entry>, above: Vec<Entry>) -> Vec<Entry> {
    let mut base: Vec<Option<Entry>> = below.into_iter().map(Some).collect();
    let mut whole: Vec<Entry> = Vec::new();
    let mut taken: Vec<(usize, Entry)> = Vec::new();
    for entry in above {
        let same = base
            .iter()
            .position(|other| other.as_ref().is_some_and(|other| name_of(&other.key) == name_of(&entry.key)));
        match same {
            Some(at) => taken.extend(base[at].take().map(|other| {
                let node = merged(other.node, entry.node);
                (at, Entry { node, ..entry })
            })),
            None => whole.push(entry),
        }
    }
    // Keys of the base keep their order; new keys follow.
    for (at, entry) in taken {
        base[at] = Some(entry);
    }
    base.into_iter().flatten().chain(whole).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::tree::parse;

    fn read(text: &str) -> Node {
        parse(text, "a.yaml").expect("is valid")
    }

    fn over(base: &str, over: &str) -> String {
        text(&merged(read(base), read(over)))
    }

    fn text(node: &Node) -> String {
        match &node.value {
            Value::Table(entries) => {
                let each = entries.iter().map(|entry| format!("{}: {}", entry.key, text(&entry.node)));
                format!("{{{}}}", each.collect::<Vec<_>>().join(", "))
            }
            Value::List(nodes) => format!("[{}]", nodes.iter().map(text).collect::<Vec<_>>().join(", ")),
            Value::Integer(value) => value.to_string(),
            Value::Null => "null".to_string(),
            other => other.described(),
        }
    }

    #[test]
    fn tables_merge_and_all_else_is_replaced() {
        assert_eq!(
            over("{a: 1, t: {x: 1, y: 2}}", "{t: {y: 3, z: 4}, b: 5}"),
            "{a: 1, t: {x: 1, y: 3, z: 4}, b: 5}"
        );
        assert_eq!(over("{l: [1, 2]}", "{l: [3]}"), "{l: [3]}");
        assert_eq!(over("{t: {x: 1}}", "{t: 2}"), "{t: 2}");
        assert_eq!(over("{t: 2}", "{t: {x: 1}}"), "{t: {x: 1}}");
        assert_eq!(over("{t: {x: 1}, v: 1}", "{t: null, v: null}"), "{t: {x: 1}, v: null}");
    }

    #[test]
    fn other_names_of_a_key_are_merged_and_repeated_keys_remain() {
        assert_eq!(over("{warmup_ratio: 1, a: 1}", "{warmup_steps: 2}"), "{warmup_steps: 2, a: 1}");
        assert_eq!(over("{a: 1}", "{a: 2, a: 3}"), "{a: 2, a: 3}");
        assert_eq!(over("{}", "{a: 2, a: 3}"), "{a: 2, a: 3}");
        assert_eq!(over("{a: 1, a: 2}", "{a: 3}"), "{a: 3, a: 2}");
    }

    /// Collects the values of a tree by their dotted paths.
    fn leaves(node: &Node, path: &str, all: &mut BTreeMap<String, String>) {
        if node.entries().is_empty() {
            all.insert(path.to_string(), text(node));
        }
        for entry in node.entries() {
            leaves(&entry.node, &format!("{path}.{}", entry.key), all);
        }
    }

    fn tables() -> impl Strategy<Value = Node> {
        let leaf = (0..9_i128).prop_map(Value::Integer);
        let value = leaf.prop_recursive(3, 24, 4, |inner| {
            let keys = proptest::collection::btree_map("[a-d]", inner, 0..4);
            keys.prop_map(|keys| {
                let place = read("").place;
                let entries = keys.into_iter().map(|(key, value)| Entry {
                    key,
                    place: place.clone(),
                    node: Node { value, place: place.clone() },
                });
                Value::Table(entries.collect())
            })
        });
        value.prop_map(|value| match value {
            Value::Table(_) => Node { value, ..read("") },
            _ => read(""),
        })
    }

    proptest! {
        #[test]
        fn every_value_is_that_of_the_upper_tree_or_else_of_the_lower(base in tables(), upper in tables()) {
            let whole = merged(base.clone(), upper.clone());
            let mut below = BTreeMap::new();
            let mut above = BTreeMap::new();
            let mut found = BTreeMap::new();
            leaves(&base, "", &mut below);
            leaves(&upper, "", &mut above);
            leaves(&whole, "", &mut found);
            for (path, value) in &above {
                // An empty table keeps the entries of the lower tree.
                if value != "{}" {
                    prop_assert_eq!(found.get(path), Some(value));
                }
            }
            for (path, value) in &found {
                let is_known = [&above, &below].iter().any(|leaves| leaves.get(path) == Some(value));
                prop_assert!(is_known, "{path}: {value}");
            }
            prop_assert_eq!(text(&merged(whole.clone(), upper)), text(&whole), "twice is once");
            prop_assert_eq!(text(&merged(base.clone(), base.clone())), text(&base));
        }
    }
}
