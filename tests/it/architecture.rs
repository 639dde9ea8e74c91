//! The module table of `src/lib.rs` as a test: which module may use which, how long a file may be, who may
//! open files and name families, and that no module's files use each other in a circle.
//!
//! A planted violation of each rule must be found, so that the checks cannot rot unnoticed (`planted.rs`).
//! Macros, `include!` and strings are not followed.

mod circles;
mod kernels;
mod licences;
mod pages;
mod planted;
mod source;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use source::{CRATES_OF_MODULES, Line, Source, is_part_of_name};

/// A module may use itself and those before it. The table in `src/lib.rs` must be the same.
const MODULES: [&str; 38] = [
    "secrets",
    "error",
    "pages",
    "quantity",
    "words",
    "quietly",
    "instructions",
    "processes",
    "rng",
    "scores",
    "fs",
    "sealed",
    "stores",
    "families",
    "config",
    "records",
    "corpus",
    "tokenizer",
    "shards",
    "prepare",
    "batches",
    "ops",
    "distributed",
    "layers",
    "models",
    "checkpoint",
    "precision",
    "telemetry",
    "optim",
    "interop",
    "machine",
    "recipe",
    "tasks",
    "train",
    "estimate",
    "trials",
    "report",
    "commands",
];

const MOST_LINES: usize = 500;

/// What only `src/fs` may do.
const FILE_ACCESS: [&str; 5] = ["std::fs", "File::open", "File::create", "File::options", "OpenOptions"];

/// What only `src/base/instructions` may do: the user's cap must hold everywhere.
const ASKING_THE_PROCESSOR: [&str; 3] = ["_feature_detected!", "Arch::new", "__cpuid"];

/// What panics on a closed or full stdout.
const PRINTING: [&str; 5] = ["println!", "eprintln!", "print!", "eprint!", "dbg!"];

#[test]
fn the_source_keeps_to_the_module_table() {
    let broken = violations(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn the_table_in_lib_rs_is_the_same() {
    let lib = read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lib.rs"));
    let rows = lib
        .lines()
        .filter_map(|line| line.strip_prefix("//! | [`"))
        .filter_map(|row| row.split(" | ").next());
    let table: Vec<&str> =
        rows.flat_map(|cell| cell.split(", ")).map(|name| name.trim_matches(['[', ']', '`'])).collect();
    assert_eq!(table, MODULES, "the table in the documentation");
    // A long list of names as one line.
    let lib = lib.replace("{\n    ", "{").replace(",\n    ", ", ").replace(",\n}", "}");
    let declared: BTreeSet<&str> = lib.lines().flat_map(declared_modules).collect();
    assert_eq!(declared, BTreeSet::from(MODULES), "the declarations");
}

/// The modules that a line of `lib.rs` declares, or takes from another crate.
fn declared_modules(line: &str) -> Vec<&str> {
    let crates = CRATES_OF_MODULES.map(|name| format!("pub use {name}::"));
    let mut starts = crates.iter().map(String::as_str).chain(["pub mod ", "pub use "]);
    let names = starts.find_map(|start| line.strip_prefix(start)?.strip_suffix(';'));
    let names = names.into_iter().flat_map(|names| names.trim_matches(['{', '}']).split(", "));
    names.collect()
}

/// Everything in the Rust files under `root` that breaks a rule, as `file:line: what`.
fn violations(root: &Path) -> Vec<String> {
    let mut files = Vec::new();
    rust_files(root, &mut files);
    assert!(!files.is_empty(), "no source under `{}`", root.display());
    files.sort();
    let sources: Vec<Source> = files
        .iter()
        .map(|path| Source::new(path.strip_prefix(root).expect("found under the root"), &read(path)))
        .collect();
    let families: Vec<String> = sources.iter().filter_map(Source::family_name).collect();
    let of_files = sources.iter().flat_map(|source| file_violations(source, &families));
    of_files.chain(circles::circles(&sources)).collect()
}

fn file_violations(source: &Source, families: &[String]) -> Vec<String> {
    let name = &source.file;
    let mut found = Vec::new();
    if source.line_count > MOST_LINES {
        found.push(format!("{name}: {} lines, the most is {MOST_LINES}", source.line_count));
    }
    if !source.starts_with_documentation {
        found.push(format!("{name}: the first line is not `//!`"));
    }
    if !source.is_root() && position(source.module()).is_none() {
        found.push(format!("{name}: `{}` is not in the module table", source.module()));
    }
    for line in &source.lines {
        let problems = line_violations(source, line, families);
        found.extend(problems.into_iter().map(|problem| format!("{name}:{}: {problem}", line.number)));
    }
    found
}

fn line_violations(source: &Source, line: &Line, families: &[String]) -> Vec<String> {
    let code = line.code.as_str();
    let mut found = Vec::new();
    for target in source.used(0, line) {
        found.extend(check_use(source.module(), target));
    }
    if line.in_tests {
        return found;
    }
    let files = FILE_ACCESS.iter().find(|name| source.module() != "fs" && contains_word(code, name));
    found.extend(files.map(|name| format!("`{name}` belongs in `fs`")));
    let asks =
        ASKING_THE_PROCESSOR.iter().find(|name| source.module() != "instructions" && code.contains(*name));
    found.extend(asks.map(|name| format!("`{name}` belongs in `instructions`")));
    let print = PRINTING.iter().find(|name| contains_word(code, name));
    found.extend(print.map(|name| format!("`{name}` panics on a closed stdout, use `writeln!`")));
    let family = families.iter().find(|name| source.module() != "families" && contains_name(code, name));
    found.extend(family.map(|name| format!("`{name}` belongs in `families`: ask the family's data")));
    found
}

fn check_use(module: &str, target: &str) -> Option<String> {
    let Some(used) = position(target) else {
        return Some(format!("`{target}` is not in the module table"));
    };
    let user = position(module)?;
    (used > user).then(|| format!("`{module}` uses `{target}`, which comes after it"))
}

fn position(module: &str) -> Option<usize> {
    MODULES.iter().position(|name| *name == module)
}

fn contains_word(code: &str, word: &str) -> bool {
    code.match_indices(word).any(|(at, _)| !code[..at].ends_with(is_part_of_name))
}

/// [`contains_word`] that does not take the beginning of a longer name for it.
fn contains_name(code: &str, name: &str) -> bool {
    code.match_indices(name).any(|(at, _)| {
        !code[..at].ends_with(is_part_of_name) && !code[at + name.len()..].starts_with(is_part_of_name)
    })
}

fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a readable folder") {
        let path = entry.expect("a readable folder").path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") && !path.ends_with("build.rs") {
            found.push(path);
        }
    }
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).expect("a readable source file")
}
