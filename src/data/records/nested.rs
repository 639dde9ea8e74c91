//! Fields within the objects of a row, named by paths with dots: `review.text` is the field `text` of the
//! object `review`. A field whose own name is `review.text` comes before the path.

use serde_json::{Map, Value};

/// Most paths that an error lists.
const LISTED: usize = 12;

/// A value of a row that is no object, with its path from the row.
#[derive(Debug)]
pub struct Leaf<'a> {
    /// Its name; within objects the names of these before it, joined by dots.
    pub path: String,
    /// True if it is within an object.
    pub is_nested: bool,
    /// The value.
    pub value: &'a Value,
}

/// Returns all values of an object and of the objects within it, in their order.
pub fn leaves(object: &Map<String, Value>) -> Vec<Leaf<'_>> {
    let mut found = Vec::new();
    add_leaves(object, None, &mut found);
    found
}

fn add_leaves<'a>(object: &'a Map<String, Value>, above: Option<&str>, found: &mut Vec<Leaf<'a>>) {
    for (name, value) in object {
        let path = above.map_or_else(|| name.clone(), |above| format!("{above}.{name}"));
        if let Value::Object(inner) = value {
            add_leaves(inner, Some(&path), found);
        } else {
            found.push(Leaf { path, is_nested: above.is_some(), value });
        }
    }
}

/// Returns the paths of the first values that are within objects, for errors.
pub fn nested_paths(object: &Map<String, Value>) -> Vec<String> {
    let nested = leaves(object).into_iter().filter(|leaf| leaf.is_nested);
    nested.take(LISTED).map(|leaf| leaf.path).collect()
}

/// Returns the paths of the first values within the object called `name`, for errors.
pub(crate) fn paths_within(name: &str, object: &Map<String, Value>) -> Vec<String> {
    leaves(object).into_iter().take(LISTED).map(|leaf| format!("{name}.{}", leaf.path)).collect()
}

/// Returns the field with a name or at a path; `None` if it is missing.
pub(crate) fn field<'a>(object: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    match step(object, name)? {
        (key, None) => object.get(key),
        (key, Some(rest)) => field(object.get(key)?.as_object()?, rest),
    }
}

/// As [`field`], to be changed.
pub(crate) fn field_mut<'a>(object: &'a mut Map<String, Value>, name: &str) -> Option<&'a mut Value> {
    match step(object, name)? {
        (key, None) => object.get_mut(key),
        (key, Some(rest)) => field_mut(object.get_mut(key)?.as_object_mut()?, rest),
    }
}

/// Removes the field that a name or a path means and returns it. An object that is empty then goes as well.
pub fn take_field(object: &mut Map<String, Value>, name: &str) -> Option<Value> {
    match step(object, name)? {
        (key, None) => object.shift_remove(key),
        (key, Some(rest)) => {
            let inner = object.get_mut(key)?.as_object_mut()?;
            let value = take_field(inner, rest);
            if inner.is_empty() {
                object.shift_remove(key);
            }
            value
        }
    }
}

/// Splits a name into that of a field of `object` and the path within this field, if it is an object; `None`
/// if the whole leads to no field.
fn step<'n>(object: &Map<String, Value>, name: &'n str) -> Option<(&'n str, Option<&'n str>)> {
    if object.contains_key(name) {
        return Some((name, None));
    }
    name.match_indices('.').find_map(|(dot, _)| {
        let key = &name[..dot];
        let rest = &name[dot + 1..];
        let inner = object.get(key)?.as_object()?;
        step(inner, rest).map(|_| (key, Some(rest)))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(value: Value) -> Map<String, Value> {
        let Value::Object(object) = value else { panic!("is no object") };
        object
    }

    #[test]
    fn a_path_leads_into_objects_and_a_field_of_that_name_comes_first() {
        let row = object(json!({
            "review": {"text": "within", "by.whom": {"name": "me"}},
            "a": {"b": 1}, "a.b": 2, "list": [{"text": "no"}],
        }));
        for (name, expected) in [
            ("review.text", Some(json!("within"))),
            ("review.by.whom.name", Some(json!("me"))),
            ("a.b", Some(json!(2))),
            ("a", Some(json!({"b": 1}))),
            ("review.stars", None),
            ("review.text.more", None),
            ("list.text", None),
            ("review.", None),
            (".", None),
            ("", None),
        ] {
            assert_eq!(field(&row, name), expected.as_ref(), "{name}");
            assert_eq!(field_mut(&mut row.clone(), name), expected.clone().as_mut(), "{name}");
        }
        let within = ["review.text", "review.by.whom.name", "a.b"];
        assert_eq!(nested_paths(&row), within);
        assert_eq!(paths_within("a", row["a"].as_object().unwrap()), ["a.b"]);
    }

    #[test]
    fn a_field_is_taken_out_of_its_object() {
        let mut row = object(json!({"review": {"text": "good", "lang": "en"}, "id": 1}));
        assert_eq!(take_field(&mut row, "review.none"), None);
        assert_eq!(take_field(&mut row, "review.text"), Some(json!("good")));
        assert_eq!(Value::from(row.clone()), json!({"review": {"lang": "en"}, "id": 1}));
        assert_eq!(take_field(&mut row, "review.lang"), Some(json!("en")));
        assert_eq!(Value::from(row), json!({"id": 1}));
    }
}
