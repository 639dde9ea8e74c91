//! `${NAME}` and `${NAME:-default}` in the texts of a configuration file: environment variables by their
//! values; `$${` gives a literal `${`. `${NAME:plain}` says that the value is not a secret, whatever its name.
//!
//! Also what is saved of them: the name of a secret, the names in paths, the values of all else.

use std::collections::BTreeMap;
use std::sync::Mutex;

use serde_json::Value as Json;

use crate::config::check::Wrong;
use crate::config::check::join;
use crate::config::tree::Filled;
use crate::config::tree::Node;
use crate::config::tree::Place;
use crate::config::tree::Value;
use crate::config::tree::shortened;
use crate::error::Problem;
use crate::secrets;

/// Texts that came from variables, and how they were written.
static WRITTEN: Mutex<BTreeMap<String, Filled>> = Mutex::new(BTreeMap::new());

/// The beginning of a path in the user's home folder, as in a shell.
const HOME: &str = "~/";

/// What follows the name of a variable whose value is no secret.
const PLAIN: &str = ":plain";

/// Values of variables that are paths, with their names.
static FOLDERS: Mutex<BTreeMap<String, String>> = Mutex::new(BTreeMap::new());

/// Finds the value of a variable; `Err` where it is there and no UTF-8.
pub(super) type Lookup<'a> = &'a dyn Fn(&str) -> Result<Option<String>, ()>;

/// The variables of this process.
pub(super) fn environment(name: &str) -> Result<Option<String>, ()> {
    std::env::var_os(name).map(|value| value.into_string().map_err(drop)).transpose()
}

/// Fills in the variables of all texts that stand in files; `wrong` gets those that cannot be, with their
/// dotted paths. `path` is that of `node`.
pub(super) fn fill(node: &mut Node, path: &str, lookup: Lookup<'_>, wrong: &mut Vec<(String, Wrong)>) {
    match &mut node.value {
        Value::Text(text) if text.contains("${") && matches!(node.place, Place::File { .. }) => {
            match filled(text, lookup) {
                Ok(filled) => {
                    node.value = match filled {
                        Some(filled) => Value::Filled(remembered(filled)),
                        // Only `$${`: as good as written.
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
        Value::Text(text) if text.starts_with(HOME) && is_path(key_of(path)) => {
            if let Ok(Some(home)) = lookup("HOME") {
                let (written, text) = (text.clone(), home + &text[1..]);
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

/// As [`fill`], of a part that is read before the rest; the first problem is all that is told.
pub(super) fn fill_at_once(node: &mut Node, path: &str) -> Result<(), Problem> {
    let mut wrong = Vec::new();
    fill(node, path, &environment, &mut wrong);
    wrong.into_iter().next().map_or(Ok(()), |(_, wrong)| Err(wrong.problem()))
}

/// Takes out what stands for a variable that is not set: a profile of another machine may be checked here.
pub(super) fn without_unset(node: &mut Node, lookup: Lookup<'_>) {
    let is_unset = |node: &Node| match &node.value {
        Value::Text(text) => filled(text, lookup).is_err_and(|refusal| refusal.is_unset),
        _ => false,
    };
    match &mut node.value {
        Value::List(nodes) => {
            nodes.retain(|node| !is_unset(node));
            for node in nodes {
                without_unset(node, lookup);
            }
        }
        Value::Table(entries) => {
            entries.retain(|entry| !is_unset(&entry.node));
            for entry in entries {
                without_unset(&mut entry.node, lookup);
            }
        }
        _ => {}
    }
}

/// Leaves what stands for a variable that is not set as it is written.
pub(super) fn keep_unset(node: &mut Node, lookup: Lookup<'_>) {
    match &mut node.value {
        Value::Text(written) if filled(written, lookup).is_err_and(|refusal| refusal.is_unset) => {
            let (text, written) = (written.clone(), written.clone());
            node.value = Value::Filled(Filled { text, written, is_secret: false });
        }
        Value::List(nodes) => nodes.iter_mut().for_each(|node| keep_unset(node, lookup)),
        Value::Table(entries) => entries.iter_mut().for_each(|entry| keep_unset(&mut entry.node, lookup)),
        _ => {}
    }
}

/// Why a text cannot be filled in.
#[derive(Debug)]
struct Refusal {
    message: String,
    hint: String,
    is_unset: bool,
}

/// A part of a text.
#[derive(Debug, PartialEq)]
enum Part<'a> {
    Text(&'a str),
    Variable { name: &'a str, default: Option<&'a str>, is_plain: bool },
}

/// The text with its variables filled in; none where it has no variables.
fn filled(written: &str, lookup: Lookup<'_>) -> Result<Option<Filled>, Refusal> {
    let (mut text, mut is_filled, mut is_secret) = (String::new(), false, false);
    for part in parts(written)? {
        let (name, default, is_plain) = match part {
            Part::Text(part) => {
                text.push_str(part);
                continue;
            }
            Part::Variable { name, default, is_plain } => (name, default, is_plain),
        };
        let refuse = |message: String, hint: String, is_unset| Refusal { message, hint, is_unset };
        let value = lookup(name).map_err(|()| {
            let message = format!("the value of the variable `{name}` is not UTF-8");
            refuse(message, "set it to plain text".to_string(), false)
        })?;
        is_filled = true;
        // As in a shell, `:-` also stands in for nothing.
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
                return Err(refuse(message, hint, true));
            }
        }
    }
    Ok(is_filled.then(|| Filled { text, written: written.to_string(), is_secret }))
}

/// Cuts a text at its variables.
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
        let refuse = |message: String| Refusal {
            message,
            hint: "write `${NAME}` or `${NAME:-default}`, and `$${` for `${` itself".to_string(),
            is_unset: false,
        };
        if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
            return Err(refuse("a `${` without the name of a variable".to_string()));
        }
        let behind = &inner[name.len()..];
        let plain = behind.strip_prefix(PLAIN);
        let (behind, is_plain) = (plain.unwrap_or(behind), plain.is_some());
        let (default, end) = match (behind.strip_prefix(":-"), behind.find('}')) {
            (_, None) => return Err(refuse(format!("`${{{name}` has no `}}` at its end"))),
            (Some(_), Some(end)) => (Some(&behind[2..end]), end),
            (None, Some(0)) => (None, 0),
            (None, Some(end)) => {
                let what = shortened(&behind[..end]);
                return Err(refuse(format!("`{what}` behind the name of the variable `{name}`")));
            }
        };
        if default.is_some_and(|default| default.contains("${")) {
            return Err(refuse(format!(
                "the default of `{name}` holds a variable, and may hold plain text only"
            )));
        }
        parts.push(Part::Variable { name, default, is_plain });
        rest = &behind[end + 1..];
    }
    parts.push(Part::Text(rest));
    Ok(parts)
}

/// A text that reads back as `text`.
pub(super) fn escaped(text: &str) -> String {
    text.replace("${", "$${")
}

fn unescaped(text: &str) -> String {
    text.replace("$${", "${")
}

fn remembered(filled: Filled) -> Filled {
    if let Ok(mut written) = WRITTEN.lock() {
        written.insert(filled.text.clone(), filled.clone());
    }
    filled
}

/// How the value of `key` is saved where it came from variables and its value is not: as it was written, in
/// paths, so that a run may go on where its files lie elsewhere; and where it holds a secret.
pub(super) fn as_written(key: &str, text: &str) -> Option<String> {
    let written = WRITTEN.lock().ok()?;
    let filled = written.get(text)?;
    (filled.is_secret || is_path(key)).then(|| filled.written.clone())
}

/// A path as it is on every machine where the variables that the configuration names stand for its folders.
pub fn portable(path: &str) -> String {
    let Ok(folders) = FOLDERS.lock() else { return path.to_string() };
    // Of two values that the path begins with the longer one comes last.
    let found = folders.iter().rev().find_map(|(value, name)| {
        let rest = path.strip_prefix(value.trim_end_matches('/'))?;
        (rest.is_empty() || rest.starts_with('/')).then(|| format!("${{{name}}}{rest}"))
    });
    // What lies in the cache of objects is known by its URL.
    found.unwrap_or_else(|| secrets::masked(path).into_owned())
}

/// From here on the text `to` is saved as `from` is, which it stands for.
pub fn moved(from: &str, to: &str) {
    if let Ok(mut written) = WRITTEN.lock()
        && let Some(filled) = written.get(from).cloned()
    {
        written.insert(to.to_string(), filled);
    }
}

/// The last key of a dotted path: of an item of a list that of the list.
fn key_of(path: &str) -> &str {
    path.rsplit('.').find(|key| key.parse::<usize>().is_err()).unwrap_or_default()
}

/// Whether a key names files or folders.
fn is_path(key: &str) -> bool {
    const NAMES: [&str; 5] = ["model", "checkpoint", "probes", "minimal_pairs", "compare_with"];
    ["file", "files", "dir", "path"].iter().any(|end| key.rsplit('_').next() == Some(end))
        || NAMES.contains(&key)
}

/// A configuration as a run saved it, with the variables that it kept filled in where they are set.
pub fn with_variables(saved: Json) -> Json {
    with_variables_of(saved, "")
}

/// As [`with_variables`], of the value of a key.
fn with_variables_of(mut saved: Json, key: &str) -> Json {
    match &mut saved {
        Json::String(text) if text.starts_with(HOME) && is_path(key) => {
            if let Ok(Some(home)) = environment("HOME") {
                let (written, filled) = (text.clone(), home + &text[1..]);
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

    fn told(text: &str) -> String {
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
            assert_eq!(told(written), want, "{written}");
        }
    }

    #[test]
    fn a_value_that_looks_like_a_secret_is_one_unless_it_is_said_to_be_plain() {
        let lookup = |name: &str| {
            Ok(match name {
                "VARIABLES_TEST_URL" => Some("postgres://ann:planted@db/x".to_string()),
                "VARIABLES_TEST_KEY1" => Some("planted-key".to_string()),
                "VARIABLES_TEST_DIR" => Some("/data/planted".to_string()),
                _ => None,
            })
        };
        let is_secret = |written: &str| filled(written, &lookup).unwrap().unwrap().is_secret;
        assert!(is_secret("${VARIABLES_TEST_URL}") && is_secret("a ${VARIABLES_TEST_KEY1}"));
        assert!(!is_secret("${VARIABLES_TEST_KEY1:plain}") && !is_secret("${VARIABLES_TEST_DIR}"));
        let filled = filled("${UNSET:plain:-x}|${VARIABLES_TEST_KEY1:plain}", &lookup).unwrap().unwrap();
        assert_eq!(filled.text, "x|planted-key");
    }

    #[test]
    fn what_is_wrong_is_said() {
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
            assert_eq!(told(written), want, "{written}");
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
                    let is_told = !refusal.message.is_empty() && text.contains("${");
                    prop_assert!(is_told);
                }
            }
        }

        #[test]
        fn a_value_stands_where_its_name_stood(
            before in "[^$]{0,5}",
            after in "[^$]{0,5}",
            value in "[^$]{1,9}",
        ) {
            let lookup = |_: &str| Ok(Some(value.clone()));
            let text = format!("{before}${{A_B1}}{after}");
            let filled = filled(&text, &lookup).unwrap().unwrap();
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
        let config = crate::config::load_pretrain(&file, &sets).unwrap().config;
        let paths = [&config.data.sources[0].files[0], &config.data.sources[0].files[1]];
        assert_eq!(paths, [&format!("{home}/corpus/*.txt"), &format!("{home}/a")]);
        assert_eq!(config.run.output_dir, std::path::Path::new(&home).join("runs/x"));
        assert_eq!(
            config.tokenizer.path.as_deref(),
            Some(std::path::Path::new(&home).join("tokenizer").as_path())
        );
        assert_eq!(config.run.sample_text.as_deref(), Some("~/no path"));
        let saved = crate::config::saved(&config);
        assert_eq!(saved["run"]["output_dir"], "~/runs/x");
        let again = with_variables(saved);
        assert_eq!(again["run"]["output_dir"], format!("{home}/runs/x"));
    }
}
