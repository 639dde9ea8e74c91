//! The module table of `src/lib.rs` as a test: which module may use which, how long a file may be, who may
//! open files.
//!
//! A planted violation of each rule must be found, so that the checks cannot rot unnoticed. Macros,
//! `include!` and strings are not followed.

use std::fs;
use std::path::Path;
use std::path::PathBuf;

/// A module may use itself and those before it. The table in `src/lib.rs` must be the same.
const MODULES: [&str; 24] = [
    "error",
    "quantity",
    "quietly",
    "rng",
    "scores",
    "fs",
    "ops",
    "config",
    "layers",
    "models",
    "checkpoint",
    "corpus",
    "tokenizer",
    "shards",
    "prepare",
    "batches",
    "precision",
    "distributed",
    "telemetry",
    "optim",
    "interop",
    "tasks",
    "train",
    "commands",
];

const MOST_LINES: usize = 500;

/// What only `src/fs` may do.
const FILE_ACCESS: [&str; 5] = ["std::fs", "File::open", "File::create", "File::options", "OpenOptions"];

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
    let declared: Vec<&str> =
        lib.lines().filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';')).collect();
    assert_eq!(declared, MODULES, "the declarations");
}

#[test]
fn each_planted_violation_is_found() {
    let plain = "//! A file.\n";
    for (file, content, expected) in [
        (
            "ops/linear/mod.rs",
            "use crate::config::Family;",
            "ops/linear/mod.rs:2: `ops` uses `config`, which comes after it",
        ),
        (
            "fs/lock.rs",
            "fn f() -> crate::train::Loop {}",
            "fs/lock.rs:2: `fs` uses `train`, which comes after it",
        ),
        (
            "models/encoder.rs",
            "pub(crate) use crate::interop::Names;",
            "models/encoder.rs:2: `models` uses `interop`, which comes after it",
        ),
        ("quantity.rs", "use super::fs::open;", "quantity.rs:2: `quantity` uses `fs`, which comes after it"),
        (
            "optim/adamw.rs",
            "use super::super::train::Step;",
            "optim/adamw.rs:2: `optim` uses `train`, which comes after it",
        ),
        (
            "rng.rs",
            "mod tests {\n    use super::super::scores::mean;\n}",
            "rng.rs:3: `rng` uses `scores`, which comes after it",
        ),
        (
            "train/mod.rs",
            "use crate::helpers::Thing;",
            "train/mod.rs:2: `helpers` is not in the module table",
        ),
        ("helpers.rs", "", "helpers.rs: `helpers` is not in the module table"),
        (
            "train/mod.rs",
            "use crate::{fs, ops};",
            "train/mod.rs:2: one path a line instead of `use crate::{..}`",
        ),
        ("shards/read.rs", "let f = std::fs::File::open(p);", "shards/read.rs:2: `std::fs` belongs in `fs`"),
        ("shards/read.rs", "let f = File::open(p);", "shards/read.rs:2: `File::open` belongs in `fs`"),
        (
            "commands/run.rs",
            "println!(\"done\");",
            "commands/run.rs:2: `println!` panics on a closed stdout, use `writeln!`",
        ),
        (
            "main.rs",
            "eprintln!(\"done\");",
            "main.rs:2: `eprintln!` panics on a closed stdout, use `writeln!`",
        ),
        ("train/mod.rs", &"// long\n".repeat(500), "train/mod.rs: 501 lines, the most is 500"),
        ("train/step.rs", "\0", "train/step.rs: the first line is not `//!`"),
    ] {
        let tree = tempfile::tempdir().expect("a temporary folder");
        let path = tree.path().join(file);
        fs::create_dir_all(path.parent().expect("a file in a folder")).expect("a writable folder");
        let content =
            if content == "\0" { "use crate::optim::Rate;".to_string() } else { format!("{plain}{content}") };
        fs::write(&path, content).expect("a writable folder");
        let found = violations(tree.path());
        assert!(found.iter().any(|found| found == expected), "wanted {expected:?}, found {found:?}");
    }
}

#[test]
fn what_is_allowed_is_not_reported() {
    let content = "//! A file. See [`crate::commands`].\n\
        use crate::error::Problem;\n\
        use crate::config::model::Family;\n\
        use super::super::fs::open; // not crate::train\n\
        fn f(x: $crate::rng::Stream) -> crate::config::Family { super::list() }\n\
        macro_rules! my_println { () => {} }\n\
        #[cfg(test)]\n\
        mod tests {\n    use super::*;\n    use std::fs;\n    fn g() { println!() }\n}\n";
    let tree = tempfile::tempdir().expect("a temporary folder");
    fs::create_dir(tree.path().join("config")).expect("a writable folder");
    fs::write(tree.path().join("config/check.rs"), content).expect("a writable folder");
    assert_eq!(violations(tree.path()), Vec::<String>::new());
}

/// Everything in the Rust files under `root` that breaks a rule, as `file:line: what`.
fn violations(root: &Path) -> Vec<String> {
    let mut files = Vec::new();
    rust_files(root, &mut files);
    assert!(!files.is_empty(), "no source under `{}`", root.display());
    files.sort();
    files
        .iter()
        .flat_map(|path| file_violations(path.strip_prefix(root).expect("found under the root"), &read(path)))
        .collect()
}

fn file_violations(file: &Path, text: &str) -> Vec<String> {
    let source = Source::new(file);
    let name = file.display();
    let mut found = Vec::new();
    if text.lines().count() > MOST_LINES {
        found.push(format!("{name}: {} lines, the most is {MOST_LINES}", text.lines().count()));
    }
    if !text.starts_with("//!") {
        found.push(format!("{name}: the first line is not `//!`"));
    }
    if !source.is_root() && position(source.module()).is_none() {
        found.push(format!("{name}: `{}` is not in the module table", source.module()));
    }
    let mut inline_depth = 0;
    let mut in_tests = source.is_test_file();
    for (index, line) in text.lines().enumerate() {
        let code = line.split("//").next().unwrap_or("");
        in_tests |= line.starts_with("#[cfg(test)]");
        for problem in source.line_violations(code, inline_depth, in_tests) {
            found.push(format!("{name}:{}: {problem}", index + 1));
        }
        // rustfmt keeps the braces of a module that stands at the left margin at the left margin.
        match code.trim_end() {
            "}" => inline_depth = 0,
            start if is_inline_module(start) => inline_depth = 1,
            _ => {}
        }
    }
    found
}

/// A file by its place in the module tree: `ops/linear/mod.rs` is `["ops", "linear"]`, `lib.rs` and `main.rs`
/// are `[]`.
struct Source {
    path: Vec<String>,
}

impl Source {
    fn new(file: &Path) -> Self {
        let parts = file.with_extension("");
        let mut path: Vec<String> = parts.iter().map(|part| part.to_string_lossy().into_owned()).collect();
        if path.last().is_some_and(|last| last == "mod") || path == ["lib"] || path == ["main"] {
            path.pop();
        }
        Self { path }
    }

    fn is_root(&self) -> bool {
        self.path.is_empty()
    }

    fn module(&self) -> &str {
        self.path.first().map_or("", String::as_str)
    }

    fn is_test_file(&self) -> bool {
        self.path.iter().any(|part| part == "tests")
    }

    fn line_violations(&self, code: &str, inline_depth: usize, in_tests: bool) -> Vec<String> {
        let mut found = Vec::new();
        if code.contains("use crate::{") {
            found.push("one path a line instead of `use crate::{..}`".to_string());
        }
        for target in self.used_modules(code, inline_depth) {
            found.extend(self.check_use(target));
        }
        if in_tests {
            return found;
        }
        let files = FILE_ACCESS.iter().find(|name| self.module() != "fs" && contains_word(code, name));
        found.extend(files.map(|name| format!("`{name}` belongs in `fs`")));
        let print = PRINTING.iter().find(|name| contains_word(code, name));
        found.extend(print.map(|name| format!("`{name}` panics on a closed stdout, use `writeln!`")));
        found
    }

    /// The top-level modules that a line names: by `crate::name`, or by as many `super::` as lead to the
    /// root.
    fn used_modules<'a>(&self, code: &'a str, inline_depth: usize) -> Vec<&'a str> {
        let mut targets: Vec<&str> =
            code.match_indices("crate::").map(|(at, path)| first_name(&code[at + path.len()..])).collect();
        let climb = "super::".repeat(self.path.len() + inline_depth);
        for (at, path) in code.match_indices(&climb) {
            let longer = code[..at].ends_with("super::");
            if !self.is_root() && !longer {
                targets.push(first_name(&code[at + path.len()..]));
            }
        }
        targets.retain(|target| !target.is_empty());
        targets
    }

    fn check_use(&self, target: &str) -> Option<String> {
        let Some(used) = position(target) else {
            return Some(format!("`{target}` is not in the module table"));
        };
        let user = position(self.module())?;
        (used > user).then(|| format!("`{}` uses `{target}`, which comes after it", self.module()))
    }
}

fn is_inline_module(line: &str) -> bool {
    line.split_once("mod ").is_some_and(|(before, after)| {
        (before.is_empty() || before.starts_with("pub")) && after.ends_with('{')
    })
}

fn position(module: &str) -> Option<usize> {
    MODULES.iter().position(|name| *name == module)
}

fn first_name(path: &str) -> &str {
    let end = path.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(path.len());
    &path[..end]
}

fn contains_word(code: &str, word: &str) -> bool {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(word).any(|(at, _)| !code[..at].ends_with(is_name))
}

fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a readable folder") {
        let path = entry.expect("a readable folder").path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).expect("a readable source file")
}
