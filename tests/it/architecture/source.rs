//! A source file as the rules see it: its place in the module tree, and its lines without comments.
//!
//! The other crates are seen as the modules that the library re-exports: `src/base/fs/lock.rs` is
//! `fs/lock.rs`, `base::fs` is `crate::fs`, and `crate::linear` in the crate `ops` is `crate::ops::linear`.
//!
//! It knows no rule.

use std::path::Path;

/// Folders below `src` that are crates of their own. Each uses only those before it.
const CRATES: [&str; 7] = ["base", "stores", "config", "data", "ops", "model", "training"];

/// Those of which the library re-exports each module. The others are one module each.
pub(super) const CRATES_OF_MODULES: [&str; 4] = ["base", "data", "model", "training"];

/// A file by its place in the module tree: `ops/linear.rs` is `["ops", "linear"]`; `lib.rs`, `main.rs` and
/// `base/lib.rs` are `[]`.
pub(super) struct Source {
    pub(super) file: String,
    pub(super) path: Vec<String>,
    /// Each path of a grouped `use` is a line of its own here.
    pub(super) lines: Vec<Line>,
    pub(super) line_count: usize,
    pub(super) starts_with_documentation: bool,
}

/// A line of a source file.
pub(super) struct Line {
    pub(super) number: usize,
    /// What stands before a comment.
    pub(super) code: String,
    /// How many modules that are written out in this file it stands in.
    inline_depth: usize,
    /// Whether it is compiled for tests alone.
    pub(super) in_tests: bool,
}

impl Source {
    pub(super) fn new(file: &Path, text: &str) -> Self {
        let parts = file.with_extension("");
        let mut path: Vec<String> = parts.iter().map(|part| part.to_string_lossy().into_owned()).collect();
        let text = in_modules(path.first().map_or("", String::as_str), text);
        if path.first().is_some_and(|first| CRATES_OF_MODULES.contains(&first.as_str())) {
            path.remove(0);
        }
        if path.last().is_some_and(|last| ["mod", "lib", "main"].contains(&last.as_str())) {
            path.pop();
        }
        let is_test_file = path.iter().any(|part| part == "tests");
        let starts_with_documentation = text.starts_with("//!");
        let (lines, line_count) = (lines(&text, is_test_file), text.lines().count());
        Self { file: file.display().to_string(), path, lines, line_count, starts_with_documentation }
    }

    pub(super) fn is_root(&self) -> bool {
        self.path.is_empty()
    }

    pub(super) fn module(&self) -> &str {
        self.path.first().map_or("", String::as_str)
    }

    /// The names below the first `level` parts of this file's path that a line uses: by `crate::`, or by as
    /// many `super::` as lead there. For level 0 these are top-level modules.
    pub(super) fn used<'a>(&self, level: usize, line: &'a Line) -> Vec<&'a str> {
        let code = line.code.as_str();
        let from_root =
            self.path[..level].iter().fold("crate::".to_string(), |path, part| path + part + "::");
        let mut names: Vec<&str> =
            code.match_indices(&from_root).map(|(at, path)| first_name(&code[at + path.len()..])).collect();
        let climb = "super::".repeat(self.path.len() + line.inline_depth - level);
        for (at, path) in code.match_indices(&climb).filter(|_| !climb.is_empty()) {
            let longer = code[..at].ends_with("super::");
            if !self.is_root() && !longer {
                names.push(first_name(&code[at + path.len()..]));
            }
        }
        names.retain(|name| !name.is_empty());
        names
    }

    /// What a file of `families` gives the name of: `families/roberta.rs` is `Family::ROBERTA`.
    pub(super) fn family_name(&self) -> Option<String> {
        let [room, family] = self.path.as_slice() else { return None };
        (room == "families" && family != "tests").then(|| format!("Family::{}", family.to_uppercase()))
    }
}

/// The text of a file of the crate `own` with its paths as the library has them.
fn in_modules(own: &str, text: &str) -> String {
    let Some(position) = CRATES.iter().position(|name| *name == own) else { return text.to_string() };
    let text = text.replace("crate::", &path_of(own));
    CRATES[..position].iter().fold(text, |text, used| replaced_paths(&text, used, &path_of(used)))
}

/// The start of paths in a crate, as the library has them.
fn path_of(name: &str) -> String {
    if CRATES_OF_MODULES.contains(&name) { "crate::".to_string() } else { format!("crate::{name}::") }
}

/// Replaces `name::` at the start of each path.
fn replaced_paths(text: &str, name: &str, replacement: &str) -> String {
    let start = format!("{name}::");
    let mut replaced = String::new();
    let mut done = 0;
    for (at, path) in text.match_indices(&start) {
        if !text[..at].ends_with(|c| is_part_of_name(c) || c == ':') {
            replaced += &text[done..at];
            replaced += replacement;
            done = at + path.len();
        }
    }
    replaced + &text[done..]
}

/// rustfmt keeps the braces of what stands at the left margin at the left margin.
fn lines(text: &str, is_test_file: bool) -> Vec<Line> {
    let mut inline_depth = 0;
    // Whether an item for tests alone is announced, or has begun.
    let (mut announced, mut in_test_item) = (false, false);
    let mut lines = Vec::new();
    for (number, line) in ungrouped(text) {
        let code = line.split("//").next().unwrap_or("").trim_end();
        if line.starts_with("#[cfg(test)]") {
            announced = true;
        } else if announced && !code.is_empty() && !code.starts_with('#') {
            (announced, in_test_item) = (false, true);
        }
        let in_tests = is_test_file || announced || in_test_item;
        lines.push(Line { number, code: code.to_string(), inline_depth, in_tests });
        if !code.starts_with(' ') && code.ends_with([';', '}']) {
            in_test_item = false;
        }
        match code {
            "}" => inline_depth = 0,
            start if is_inline_module(start) => inline_depth = 1,
            _ => {}
        }
    }
    lines
}

/// The lines of a file with their numbers; `use a::{b, c};` is `use a::b;` and `use a::c;`.
fn ungrouped(text: &str) -> Vec<(usize, String)> {
    let mut lines = Vec::new();
    let mut statement = String::new();
    let mut first_number = 0;
    for (index, line) in text.lines().enumerate() {
        let number = index + 1;
        if statement.is_empty() {
            let is_group =
                line.contains("use ") && line.contains("::{") && !line.trim_start().starts_with("//");
            if !is_group {
                lines.push((number, line.to_string()));
                continue;
            }
            first_number = number;
        }
        statement.push_str(if statement.is_empty() { line } else { line.trim() });
        if statement.ends_with(';') {
            lines.extend(paths_of(&statement).into_iter().map(|path| (first_number, path)));
            statement.clear();
        }
    }
    lines
}

/// `use a::{b, c as d, self};` as `use a::b;`, `use a::c as d;`, `use a;`. Groups inside groups are not used
/// here.
fn paths_of(statement: &str) -> Vec<String> {
    let Some((prefix, names)) = statement.trim_end_matches("};").split_once("::{") else {
        return vec![statement.to_string()];
    };
    let names = names.split(',').map(str::trim).filter(|name| !name.is_empty());
    names
        .map(|name| if name == "self" { format!("{prefix};") } else { format!("{prefix}::{name};") })
        .collect()
}

fn is_inline_module(line: &str) -> bool {
    line.split_once("mod ").is_some_and(|(before, after)| {
        (before.is_empty() || before.starts_with("pub")) && after.ends_with('{')
    })
}

fn first_name(path: &str) -> &str {
    path.split(|c| !is_part_of_name(c)).next().unwrap_or(path)
}

pub(super) fn is_part_of_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}
