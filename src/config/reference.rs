//! The page of all keys, in Markdown, made from the JSON Schemas: type, default and meaning of each key.
//!
//! It adds no fact of its own: descriptions are the doc comments of the configuration's structs.

use std::fmt::Write;

use serde_json::{Map, Value as Json};

use crate::dotted::join;
use crate::facts;
use crate::kind::Kind;
use crate::on_resume::OnResume;
use crate::schema::schema_of;

const INTRODUCTION: &str = "# All keys

`mlmtrain config keys` prints this page, and a test compares the two: edit the doc comments in `src/config/`, not this
file. Whole numbers may have a unit (`64MB`, `5k`), and any value may be a variable (`${NAME:-default}`). The guides are
listed in [README.md](README.md).

A default of – means that the key is required or that its absence has a meaning of its own. A resumed run takes another
value of a key only where the column \"on resume\" says so; all other keys need a new run.
";

/// Keys that both configurations have are described once, under the first one.
const PARTS: [(Kind, &str); 2] =
    [(Kind::Pretrain, "`pretrain` and `prepare`"), (Kind::Finetune, "`finetune`")];

/// Returns the page of all keys of both configurations, ending in a newline.
pub fn keys_markdown() -> String {
    let mut page = INTRODUCTION.to_string();
    let mut described = Vec::new();
    for (kind, title) in PARTS {
        let schema = schema_of(kind);
        let mut writer = Writer { schema: &schema, page: &mut page, described: &mut described };
        writer.heading(title);
        writer.table("", &schema);
    }
    page
}

struct Writer<'a> {
    schema: &'a Json,
    page: &'a mut String,
    /// Path and definition of each table that the page has.
    described: &'a mut Vec<(String, Json)>,
}

impl Writer<'_> {
    fn heading(&mut self, title: &str) {
        let _ = write!(self.page, "\n## {title}\n");
    }

    /// Writes the keys of the table at `path` ("" for the file itself), then the tables inside it.
    fn table(&mut self, path: &str, table: &Json) {
        let Some(properties) = table["properties"].as_object() else { return };
        if !path.is_empty() {
            let _ = write!(self.page, "\n### `{path}`\n");
            if let Some(text) = table["description"].as_str() {
                let _ = write!(self.page, "\n{}\n", one_line(text));
            }
        }
        self.page.push_str("\n| key | type | default | on resume | meaning |\n|---|---|---|---|---|\n");
        let mut inner = Vec::new();
        for (name, key) in properties.iter().filter(|(_, key)| key["deprecated"] != true) {
            let value = self.resolved(key);
            let below = join(path, name);
            if let Some(table) = self.table_of(value) {
                let below = if value["type"] == "array" { format!("{below}[]") } else { below };
                inner.push((below, table.clone()));
            }
            let _ = writeln!(
                self.page,
                "| `{name}` | {} | {} | {} | {} |",
                self.type_of(value),
                default_of(key),
                on_resume(&join(path, name)),
                self.meaning(key, value)
            );
        }
        for (below, table) in inner {
            self.inner_table(below, table);
        }
    }

    /// Writes a table inside another one, unless the page already has the same one at the same path.
    fn inner_table(&mut self, path: String, table: Json) {
        let entry = (path, table);
        if self.described.contains(&entry) {
            let _ = write!(self.page, "\n`{}`: as above.\n", entry.0);
            return;
        }
        self.described.push(entry.clone());
        self.table(&entry.0, &entry.1);
    }

    /// Returns the definition that a key refers to, also if null is allowed instead; else the key itself.
    fn resolved<'b>(&'b self, key: &'b Json) -> &'b Json {
        let target = key["$ref"].as_str().or_else(|| {
            let choices = key["anyOf"].as_array()?;
            choices.iter().find_map(|choice| choice["$ref"].as_str())
        });
        let definition = target.and_then(|target| self.schema.pointer(target.trim_start_matches('#')));
        definition.unwrap_or(key)
    }

    /// The table of a value, or of the items of a list.
    fn table_of<'b>(&'b self, value: &'b Json) -> Option<&'b Json> {
        let table = if value["type"] == "array" { self.resolved(&value["items"]) } else { value };
        table["properties"].is_object().then_some(table)
    }

    fn type_of(&self, value: &Json) -> String {
        if value["properties"].is_object() {
            return "table".into();
        }
        if value["type"] == "array" {
            return format!("list: {}", self.type_of(self.resolved(&value["items"])));
        }
        if let Some(entries) = value["additionalProperties"].as_object() {
            return format!("table of name: {}", self.type_of(&Json::Object(entries.clone())));
        }
        let lists = ["oneOf", "anyOf", "enum"].map(|list| value[list].as_array());
        let choices = lists.into_iter().flatten().next();
        if let Some(choices) = choices {
            let mut names: Vec<String> = Vec::new();
            for choice in choices {
                let name = self.choice(choice);
                if !name.is_empty() && !names.contains(&name) {
                    names.push(name);
                }
            }
            return names.join(", ");
        }
        let range = range_of(value);
        format!("{}{range}", name_of(&value["type"]))
    }

    /// One of the values or types of a key; "" for null and for texts that are numbers with a unit.
    fn choice(&self, choice: &Json) -> String {
        match &choice["const"] {
            Json::Null if choice["pattern"].is_string() || choice["type"] == "null" => String::new(),
            Json::Null if choice.is_string() => format!("`{}`", plain(choice)),
            Json::Null => self.type_of(self.resolved(choice)),
            value => format!("`{}`", plain(value)),
        }
    }

    /// The description of a key, then what each of its named values means.
    fn meaning(&self, key: &Json, value: &Json) -> String {
        let text = key["description"].as_str().or(value["description"].as_str()).unwrap_or_default();
        let mut meaning = one_line(text);
        let values = if value["type"] == "array" { self.resolved(&value["items"]) } else { value };
        for choice in values["oneOf"].as_array().into_iter().flatten() {
            if let (Some(name), Some(text)) = (choice["const"].as_str(), choice["description"].as_str()) {
                let _ = write!(meaning, "<br>`{}`: {}", name.replace('|', "\\|"), one_line(text));
            }
        }
        meaning
    }
}

/// Everyday names of JSON types. Of several types of a key the first one here counts: null and the text form of a
/// number are no types of their own.
const TYPE_NAMES: [(&str, &str); 5] = [
    ("integer", "whole number"),
    ("number", "number"),
    ("boolean", "true or false"),
    ("object", "table"),
    ("string", "text"),
];

fn name_of(types: &Json) -> &'static str {
    let types: Vec<&str> = match types {
        Json::Array(types) => types.iter().filter_map(Json::as_str).collect(),
        one => one.as_str().into_iter().collect(),
    };
    if types == ["string", "array"] {
        return "text, or list of texts";
    }
    TYPE_NAMES.iter().find(|(name, _)| types.contains(name)).map_or("any", |(_, everyday)| everyday)
}

/// ", at least 1" and the like; nothing for a minimum of 0, which all counts have.
fn range_of(value: &Json) -> String {
    let bounds = [
        ("minimum", "at least"),
        ("exclusiveMinimum", "above"),
        ("maximum", "at most"),
        ("exclusiveMaximum", "below"),
    ];
    let parts: Vec<String> = bounds
        .iter()
        .filter(|(name, _)| value[name].is_number() && !(*name == "minimum" && value[name] == 0))
        .map(|(name, words)| format!("{words} {}", value[name].as_f64().unwrap_or_default()))
        .collect();
    if parts.is_empty() { String::new() } else { format!(", {}", parts.join(" and ")) }
}

/// Says if a resumed run may have another value of the key at `path`.
fn on_resume(path: &str) -> &'static str {
    match facts::nearest(&path.replace("[]", ".*"), |facts| facts.on_resume) {
        None => "",
        Some(OnResume::Split) => "if an update keeps its rows",
        Some(OnResume::Free | OnResume::Cadence | OnResume::Length | OnResume::Exchange) => "may change",
    }
}

/// The default of a key that is no table.
fn default_of(key: &Json) -> String {
    match &key["default"] {
        Json::Null => "–".into(),
        Json::Object(_) => String::new(),
        Json::Array(items) if items.is_empty() => "none".into(),
        value => format!("`{}`", plain(value)),
    }
}

/// A value as YAML has it, for a cell of a table.
fn plain(value: &Json) -> String {
    let text = match value {
        Json::String(text) => text.clone(),
        Json::Object(entries) => braced(entries),
        value => value.to_string(),
    };
    text.replace('|', "\\|")
}

fn braced(entries: &Map<String, Json>) -> String {
    let entries: Vec<String> =
        entries.iter().map(|(key, value)| format!("{key}: {}", plain(value))).collect();
    format!("{{{}}}", entries.join(", "))
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_in_configs_is_what_the_program_prints() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../configs/keys.md");
        let page = keys_markdown();
        let kept = std::fs::read_to_string(path).expect("configs/keys.md is there");
        let differs = kept.lines().zip(page.lines()).position(|(kept, made)| kept != made);
        assert!(
            kept == page,
            "line {differs:?} differs: `mlmtrain config keys > configs/keys.md` writes it anew"
        );
    }

    #[test]
    fn every_key_has_a_row_with_a_type_and_a_meaning() {
        let page = keys_markdown();
        let rows: Vec<Vec<&str>> = page
            .lines()
            .filter(|line| line.starts_with("| `"))
            .map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect())
            .collect();
        assert!(rows.len() > 250, "{}", rows.len());
        for row in rows {
            assert!(row.len() == 5 && !row[1].is_empty() && row[1] != "any" && !row[4].is_empty(), "{row:?}");
        }
    }
}
