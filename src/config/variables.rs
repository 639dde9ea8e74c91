//! Replaces `${NAME}` and `${NAME:-default}` in the texts of a configuration file by the values of
//! environment variables. `$${` gives a literal `${`. `${NAME:plain}` marks a value as not secret, whatever
//! the name of the variable.
//!
//! Also decides the form in which such texts are saved: with the names of variables for secrets and paths,
//! with the values for all else.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;

use serde_json::Value as Json;

use crate::check::Wrong;
use crate::dotted::{join, last_key};
use crate::facts;
use crate::tree::{Filled, Node, Place, Value, shortened};
use base::error::Problem;
use base::secrets;

/// Texts that came from variables, with their written form.
static WRITTEN: Mutex<BTreeMap<String, Filled>> = Mutex::new(BTreeMap::new());

/// Start of a path in the user's home folder, as in a shell.
const HOME: &str = "~/";

/// Suffix of the name of a variable whose value is not a secret.
const PLAIN: &str = ":plain";

/// From the values of variables that are paths to the names of the variables.
static FOLDERS: Mutex<BTreeMap<String, String>> = Mutex::new(BTreeMap::new());

/// Looks up the value of a variable; `Err` if the value is not UTF-8.
pub(super) type Lookup<'a> = &'a dyn Fn(&str) -> Result<Option<String>, ()>;

/// Looks up an environment variable of this process.
pub(super) fn environment(name: &str) -> Result<Option<String>, ()> {
    std::env::var_os(name).map(|value| value.into_string().map_err(drop)).transpose()
}

/// Fills in the variables of all texts that come from files. Adds texts for which that fails to `wrong`, with
/// their dotted paths. `path` is the dotted path of `node`.
pub(super) fn fill(node: &mut Node, path: &str, lookup: Lookup<'_>, wrong: &mut Vec<(String, Wrong)>) {
    match &mut node.value {
        Value::Text(text) if text.contains("${") && matches!(node.place, Place::File { .. }) => {
            match filled(text, lookup) {
                Ok(filled) => {
                    node.value = match filled {
                        Some(filled) => Value::Filled(remembered(filled)),
                        // There was only `$${`, so the value depends on no variable.
                        None => Value::Text(unescaped(text)),
                    };
                }
                Err(Refusal { message, hint, .. }) => {
                    let message = format!("`{path}`: {message}");
                    let problem = Wrong { place: node.place.clone(), message, hint: Some(hint) };
                    wrong.push((path.to_string(), problem));
                }
            }
        }
        Value::Text(text) if text.starts_with(HOME) && is_path(last_key(path)) => {
            if let Ok(Some(home)) = lookup("HOME") {
                let written = text.clone();
                let text = home + &text[1..];
                node.value = Value::Filled(remembered(Filled { text, written, is_secret: false }));
            }
        }
        Value::List(nodes) => {
            for (index, node) in nodes.iter_mut().enumerate() {
                fill(node, &join(path, &index.to_string()), lookup, wrong);
            }
        }
        Value::Table(entries) => {
            for entry in entries {
                fill(&mut entry.node, &join(path, &entry.key), lookup, wrong);
            }
        }
        _ => {}
    }
}

/// Like [`fill`], for a part that is read before the rest; returns only the first problem.
pub(super) fn fill_at_once(node: &mut Node, path: &str) -> Result<(), Problem> {
    let mut wrong = Vec::new();
    fill(node, path, &environment, &mut wrong);
    wrong.into_iter().next().map_or(Ok(()), |(_, wrong)| Err(wrong.problem()))
}

/// Removes texts with variables that are not set, so that a profile for another machine can be checked here.
pub(super) fn without_unset(node: &mut Node, lookup: Lookup<'_>) {
    match &mut node.value {
        Value::List(nodes) => {
            nodes.retain(|node| !is_unset(node, lookup));
            for node in nodes {
                without_unset(node, lookup);
            }
        }
        Value::Table(entries) => {
            entries.retain(|entry| !is_unset(&entry.node, lookup));
            for entry in entries {
                without_unset(&mut entry.node, lookup);
            }
        }
        _ => {}
    }
}

fn is_unset(node: &Node, lookup: Lookup<'_>) -> bool {
    match &node.value {
        Value::Text(text) => filled(text, lookup).is_err_and(|refusal| refusal.is_unset),
        _ => false,
    }
}

/// Keeps texts with variables that are not set as they are written.
pub(super) fn keep_unset(node: &mut Node, lookup: Lookup<'_>) {
    match &mut node.value {
        Value::Text(written) if filled(written, lookup).is_err_and(|refusal| refusal.is_unset) => {
            let text = written.clone();
            let written = written.clone();
            node.value = Value::Filled(Filled { text, written, is_secret: false });
        }
        Value::List(nodes) => nodes.iter_mut().for_each(|node| keep_unset(node, lookup)),
        Value::Table(entries) => entries.iter_mut().for_each(|entry| keep_unset(&mut entry.node, lookup)),
        _ => {}
    }
}

/// The reason why a text cannot be filled in; `is_unset` if a variable is not set.
#[derive(Debug)]
struct Refusal {
    message: String,
    hint: String,
    is_unset: bool,
}

/// A part of a text: plain text, or a variable.
#[derive(Debug, PartialEq)]
enum Part<'a> {
    Text(&'a str),
    Variable { name: &'a str, default: Option<&'a str>, is_plain: bool },
}

/// Returns the text with its variables filled in; `None` if it has no variables.
fn filled(written: &str, lookup: Lookup<'_>) -> Result<Option<Filled>, Refusal> {
    let mut text = String::new();
    let mut is_filled = false;
    let mut is_secret = false;
    for part in parts(written)? {
        let (name, default, is_plain) = match part {
            Part::Text(part) => {
                text.push_str(part);
                continue;
            }
            Part::Variable { name, default, is_plain } => (name, default, is_plain),
        };
        let value = lookup(name).map_err(|()| {
            let message = format!("the value of the variable `{name}` is not UTF-8");
            Refusal { message, hint: "set it to plain text".to_string(), is_unset: false }
        })?;
        is_filled = true;
        // As in a shell, the default after `:-` also replaces an empty value.
        match (value, default) {
            (Some(value), default) if !value.is_empty() || default.is_none() => {
                if !is_plain && (secrets::is_named(name) || secrets::is_credential(&value)) {
                    is_secret = true;
                    secrets::hold(name, &value);
                } else if value.len() > 1
                    && value.starts_with('/')
                    && let Ok(mut folders) = FOLDERS.lock()
                {
                    folders.insert(value.clone(), name.to_string());
                }
                text.push_str(&value);
            }
            (_, Some(default)) => text.push_str(default),
            (_, None) => {
                let message = format!("the variable `{name}` is not set");
                let hint = format!("set it, or write `${{{name}:-default}}` for what to take then");
                return Err(Refusal { message, hint, is_unset: true });
            }
        }
    }
    Ok(is_filled.then(|| Filled { text, written: written.to_string(), is_secret }))
}

/// Splits a text into plain parts and variables.
fn parts(written: &str) -> Result<Vec<Part<'_>>, Refusal> {
    let mut parts = Vec::new();
    let mut rest = written;
    while let Some(at) = rest.find("${") {
        if rest[..at].ends_with('$') {
            parts.extend([Part::Text(&rest[..at - 1]), Part::Text("${")]);
            rest = &rest[at + 2..];
            continue;
        }
        parts.push(Part::Text(&rest[..at]));
        let inner = &rest[at + 2..];
        let name =
            &inner[..inner.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(inner.len())];
        if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
            return Err(malformed("a `${` without the name of a variable".to_string()));
        }
        let after_name = &inner[name.len()..];
        let after_plain = after_name.strip_prefix(PLAIN);
        let is_plain = after_plain.is_some();
        let suffix = after_plain.unwrap_or(after_name);
        let (default, end) = match (suffix.strip_prefix(":-"), suffix.find('}')) {
            (_, None) => return Err(malformed(format!("`${{{name}` has no `}}` at its end"))),
            (Some(_), Some(end)) => (Some(&suffix[2..end]), end),
            (None, Some(0)) => (None, 0),
            (None, Some(end)) => {
                let unexpected = shortened(&suffix[..end]);
                return Err(malformed(format!("`{unexpected}` behind the name of the variable `{name}`")));
            }
        };
        if default.is_some_and(|default| default.contains("${")) {
            return Err(malformed(format!(
                "the default of `{name}` holds a variable, and may hold plain text only"
            )));
        }
        parts.push(Part::Variable { name, default, is_plain });
        rest = &suffix[end + 1..];
    }
    parts.push(Part::Text(rest));
    Ok(parts)
}

fn malformed(message: String) -> Refusal {
    let hint = "write `${NAME}` or `${NAME:-default}`, and `$${` for `${` itself".to_string();
    Refusal { message, hint, is_unset: false }
}

/// Returns the form of a text that reads back as `text`.
pub(super) fn escaped(text: &str) -> String {
    text.replace("${", "$${")
}

fn unescaped(text: &str) -> String {
    text.replace("$${", "${")
}

/// Records the written form of a text for [`as_written`].
fn remembered(filled: Filled) -> Filled {
    if let Ok(mut written) = WRITTEN.lock() {
        written.insert(filled.text.clone(), filled.clone());
    }
    filled
}

/// Returns the written form of a text that came from variables, if the value of `key` is saved in that form:
/// for secrets, and for paths, so that a run may continue on a machine with its files in other folders.
pub(super) fn as_written(key: &str, text: &str) -> Option<String> {
    let written = WRITTEN.lock().ok()?;
    let filled = written.get(text)?;
    (filled.is_secret || is_path(key)).then(|| filled.written.clone())
}

/// Replaces the start of a path by a variable of the configuration with that value, so that the path is valid
/// on every machine with its own values.
pub fn portable(path: &str) -> String {
    let Ok(folders) = FOLDERS.lock() else { return path.to_string() };
    // In reverse order, since the longer of two values with the same start comes last.
    let found = folders.iter().rev().find_map(|(value, name)| {
        let rest = path.strip_prefix(value.trim_end_matches('/'))?;
        (rest.is_empty() || rest.starts_with('/')).then(|| format!("${{{name}}}{rest}"))
    });
    // Otherwise the path may be a URL, since objects in the cache are named by their URL: its secrets are
    // masked.
    found.unwrap_or_else(|| secrets::masked(path).into_owned())
}

/// Saves the text `to` from now on in the written form of `from`, which it replaces.
pub fn moved(from: &str, to: &str) {
    if let Ok(mut written) = WRITTEN.lock()
        && let Some(filled) = written.get(from).cloned()
    {
        written.insert(to.to_string(), filled);
    }
}

/// Returns the path of `name` in `folder`. If `folder` came from variables, the path is saved with them, too.
pub(super) fn below(folder: &str, name: &str) -> String {
    let path = join_path(folder, name);
    if let Ok(mut written) = WRITTEN.lock()
        && let Some(Filled { written: of_folder, is_secret, .. }) = written.get(folder).cloned()
    {
        let filled = Filled { text: path.clone(), written: join_path(&of_folder, name), is_secret };
        written.insert(path.clone(), filled);
    }
    path
}

/// Appends a name to a path or URL.
pub(super) fn join_path(folder: &str, name: &str) -> String {
    Path::new(folder).join(name).to_string_lossy().into_owned()
}

/// Returns true if the values of a key are paths of files or folders.
fn is_path(key: &str) -> bool {
    facts::all().any(|(path, facts)| facts.is_path && last_key(path) == key)
}

/// Fills in the variables of a configuration that a run saved, as far as they are set.
pub fn with_variables(saved: Json) -> Json {
    with_variables_of(saved, "")
}

/// Like [`with_variables`], for the value of a key.
fn with_variables_of(mut saved: Json, key: &str) -> Json {
    match &mut saved {
        Json::String(text) if text.starts_with(HOME) && is_path(key) => {
            if let Ok(Some(home)) = environment("HOME") {
                let written = text.clone();
                let filled = home + &text[1..];
                *text = remembered(Filled { text: filled, written, is_secret: false }).text;
            }
        }
        Json::String(text) if text.contains("${") => {
            if let Ok(Some(filled)) = filled(text, &environment) {
                *text = remembered(filled).text;
            }
        }
        Json::Array(items) => items.iter_mut().for_each(|item| *item = with_variables_of(item.take(), key)),
        Json::Object(table) => {
            table.iter_mut().for_each(|(key, value)| *value = with_variables_of(value.take(), key));
        }
        _ => {}
    }
    saved
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lookup(name: &str) -> Result<Option<String>, ()> {
        match name {
            "HOME" => Ok(Some("/home/ann".to_string())),
            "EMPTY" => Ok(Some(String::new())),
            "NESTED" => Ok(Some("${HOME}".to_string())),
            "BAD" => Err(()),
            _ => Ok(None),
        }
    }

    /// Returns the filled-in text, or the message of the refusal.
    fn outcome(text: &str) -> String {
        match filled(text, &lookup) {
            Ok(Some(filled)) => filled.text,
            Ok(None) => format!("plain {}", unescaped(text)),
            Err(refusal) => refusal.message,
        }
    }

    #[test]
    fn variables_are_filled_in_as_a_shell_would() {
        for (written, want) in [
            ("${HOME}/corpus/*.txt", "/home/ann/corpus/*.txt"),
            ("a${HOME}b${HOME}", "a/home/annb/home/ann"),
            ("${LR:-1e-4}", "1e-4"),
            ("${EMPTY:-x}|${EMPTY}|${UNSET:-}", "x||"),
            ("$${HOME}", "plain ${HOME}"),
            ("$$${HOME}", "plain $${HOME}"),
            ("${HOME}$${HOME}", "/home/ann${HOME}"),
            ("$HOME {x} $", "plain $HOME {x} $"),
            ("${NESTED}", "${HOME}"),
        ] {
            assert_eq!(outcome(written), want, "{written}");
        }
    }

    #[test]
    fn values_that_look_like_secrets_are_secret_unless_marked_as_plain() {
        for (written, is_secret) in [
            ("${VARIABLES_TEST_URL}", true),
            ("a ${VARIABLES_TEST_KEY1}", true),
            ("${VARIABLES_TEST_KEY1:plain}", false),
            ("${VARIABLES_TEST_DIR}", false),
        ] {
            let filled = filled(written, &|name| Ok(planted(name))).unwrap().unwrap();
            assert_eq!(filled.is_secret, is_secret, "{written}");
        }
        let plain = "${UNSET:plain:-x}|${VARIABLES_TEST_KEY1:plain}";
        assert_eq!(filled(plain, &|name| Ok(planted(name))).unwrap().unwrap().text, "x|planted-key");
    }

    /// Looks up variables with values that look like secrets, and with one that does not.
    fn planted(name: &str) -> Option<String> {
        match name {
            "VARIABLES_TEST_URL" => Some("postgres://ann:planted@db/x".to_string()),
            "VARIABLES_TEST_KEY1" => Some("planted-key".to_string()),
            "VARIABLES_TEST_DIR" => Some("/data/planted".to_string()),
            _ => None,
        }
    }

    #[test]
    fn errors_name_the_variable_or_the_syntax() {
        for (written, want) in [
            ("${UNSET}", "the variable `UNSET` is not set"),
            ("${BAD}", "the value of the variable `BAD` is not UTF-8"),
            ("${}", "a `${` without the name of a variable"),
            ("${1}", "a `${` without the name of a variable"),
            ("${HOME", "`${HOME` has no `}` at its end"),
            ("${HOME:-a", "`${HOME` has no `}` at its end"),
            ("${HOME-a}", "`-a` behind the name of the variable `HOME`"),
            ("${A:-${HOME}}", "the default of `A` holds a variable, and may hold plain text only"),
        ] {
            assert_eq!(outcome(written), want, "{written}");
        }
    }

    proptest! {
        #[test]
        fn any_text_reads_back_from_its_escaped_form(text in "([$]{0,3}[{]?[A-Z]{0,2}[}]?|.){0,8}") {
            let escaped = escaped(&text);
            let is_plain = filled(&escaped, &lookup).is_ok_and(|filled| filled.is_none());
            prop_assert!(is_plain, "{escaped}");
            prop_assert_eq!(unescaped(&escaped), text);
        }

        #[test]
        fn any_text_is_filled_in_or_refused(text in "([$][{]|[$]|[}]|:-|HOME|EMPTY|.){0,10}") {
            match filled(&text, &lookup) {
                Ok(Some(filled)) => prop_assert_eq!(filled.written, text),
                Ok(None) => {
                    let is_text = parts(&text).unwrap().iter().all(|part| matches!(part, Part::Text(_)));
                    prop_assert!(is_text);
                }
                Err(refusal) => {
                    let has_message = !refusal.message.is_empty() && text.contains("${");
                    prop_assert!(has_message);
                }
            }
        }

        #[test]
        fn a_value_replaces_its_variable(
            before in "[^$]{0,5}",
            after in "[^$]{0,5}",
            value in "[^$]{1,9}",
        ) {
            let text = format!("{before}${{A_B1}}{after}");
            let filled = filled(&text, &|_: &str| Ok(Some(value.clone()))).unwrap().unwrap();
            prop_assert_eq!(filled.text, format!("{before}{value}{after}"));
        }
    }

    #[test]
    fn a_path_in_the_home_folder_is_found_and_saved_as_it_is_written() {
        let Some(home) = std::env::var("HOME").ok().filter(|home| !home.is_empty()) else { return };
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.yaml");
        let text = "run: {output_dir: ~/runs/x, sample_text: ~/no path}\ndata: {sources: [{files: ['~/corpus/*.txt', ~/a]}]}\n\
            model: {roberta: {}}\n";
        std::fs::write(&file, text).unwrap();
        let sets = ["tokenizer.path=~/tokenizer".to_string()];
        let config = crate::load_pretrain(&file, &sets).unwrap().config;
        let paths = [&config.data.sources[0].files[0], &config.data.sources[0].files[1]];
        assert_eq!(paths, [&format!("{home}/corpus/*.txt"), &format!("{home}/a")]);
        assert_eq!(config.run.output_dir, Path::new(&home).join("runs/x"));
        assert_eq!(config.tokenizer.path.as_deref(), Some(Path::new(&home).join("tokenizer").as_path()));
        assert_eq!(config.run.sample_text.as_deref(), Some("~/no path"));
        let saved = crate::saved(&config);
        assert_eq!(saved["run"]["output_dir"], "~/runs/x");
        let again = with_variables(saved);
        assert_eq!(again["run"]["output_dir"], format!("{home}/runs/x"));
    }
}
