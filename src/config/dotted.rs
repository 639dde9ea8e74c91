//! Dotted paths of keys, such as `data.sources.0.files`.

/// In the path of a declared key, any item of a list.
pub(super) const ITEM: &str = "*";

/// Returns `path.key`, or `key` if `path` is empty.
pub(super) fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_string() } else { format!("{path}.{key}") }
}

/// Returns a path with the number of each item replaced by [`ITEM`].
pub(super) fn pattern(path: &str) -> String {
    let keys = path.split('.').map(|key| if is_item(key) { ITEM } else { key });
    keys.collect::<Vec<_>>().join(".")
}

/// Returns the last key of a path; for an item of a list that of the list.
pub(super) fn last_key(path: &str) -> &str {
    path.rsplit('.').find(|key| !is_item(key)).unwrap_or_default()
}

fn is_item(key: &str) -> bool {
    key == ITEM || key.parse::<usize>().is_ok()
}
