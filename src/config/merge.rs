//! One tree over another: tables key by key, anything else as a whole.
//!
//! It does not know which keys exist: a key that is given twice in one table stays so, for `check.rs` to
//! find.

use crate::config::shape::name_of;
use crate::config::tree::Entry;
use crate::config::tree::Node;
use crate::config::tree::Value;

/// A table with the entries of `over` put over those of `base`; of anything else, `over`.
///
/// Nothing, as a key has whose keys are all commented out, leaves the table below it as it is.
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
        let is_same = |other: &Option<Entry>| {
            other.as_ref().is_some_and(|other| name_of(&other.key) == name_of(&entry.key))
        };
        match base.iter().position(is_same) {
            Some(at) => taken.extend(base[at].take().map(|other| {
                let node = merged(other.node, entry.node);
                (at, Entry { node, ..entry })
            })),
            None => whole.push(entry),
        }
    }
    // The order is that of the base, where a key has a place there.
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
    use crate::config::tree::parse;

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
    fn another_name_of_a_key_is_the_key_and_one_given_twice_stays_twice() {
        assert_eq!(over("{warmup_ratio: 1, a: 1}", "{warmup_steps: 2}"), "{warmup_steps: 2, a: 1}");
        assert_eq!(over("{a: 1}", "{a: 2, a: 3}"), "{a: 2, a: 3}");
        assert_eq!(over("{}", "{a: 2, a: 3}"), "{a: 2, a: 3}");
        assert_eq!(over("{a: 1, a: 2}", "{a: 3}"), "{a: 3, a: 2}");
    }

    /// The values of a tree by their dotted paths.
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
                let place = || read("").place;
                let entry =
                    |(key, value)| Entry { key, place: place(), node: Node { value, place: place() } };
                Value::Table(keys.into_iter().map(entry).collect())
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
            let (mut below, mut above, mut found) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
            leaves(&base, "", &mut below);
            leaves(&upper, "", &mut above);
            leaves(&whole, "", &mut found);
            for (path, value) in &above {
                // An empty table leaves what is below it.
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
