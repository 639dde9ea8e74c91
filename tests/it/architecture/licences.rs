//! Licences and sources of all crates that the program and its tests are built from: those that
//! `scripts/deny.toml` allows.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use base::fs::testing::skipped;
use spdx::{Expression, ParseMode};

use super::read;

#[test]
fn dependencies_have_allowed_licences_and_come_from_the_registry() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let allowed = allowed_licences(&read(&root.join("scripts/deny.toml")));
    let Some(crates) = crates_of_all_features(root) else {
        return skipped("`cargo tree --offline` does not find the crates of all features: `cargo fetch`");
    };
    assert!(crates.len() > 100, "only {} crates", crates.len());
    let problems: Vec<String> = crates.iter().filter_map(|line| problem(line, root, &allowed)).collect();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn planted_crates_are_refused() {
    let allowed = allowed_licences("allow = [\"MIT\", \"Zlib\"]\n");
    for (line, expected) in [
        ("x v1.0.0|MIT OR GPL-3.0-only", None),
        ("x v1.0.0 (proc-macro)|Zlib", None),
        ("x v1.0.0 (/p/src/x)|MIT/Apache-2.0", None),
        (
            "x v1.0.0|MIT AND GPL-3.0-only",
            Some("x v1.0.0: the licence `MIT AND GPL-3.0-only` is not allowed"),
        ),
        ("x v1.0.0|", Some("x v1.0.0: the licence `` is not allowed")),
        ("x v1.0.0 (/q)|MIT", Some("x v1.0.0 (/q): it does not come from crates.io")),
        (
            "x v1.0.0 (https://a.b/c#1)|MIT",
            Some("x v1.0.0 (https://a.b/c#1): it does not come from crates.io"),
        ),
    ] {
        assert_eq!(problem(line, Path::new("/p"), &allowed).as_deref(), expected);
    }
}

/// The list `allow` of the section `licenses`, which has one line.
fn allowed_licences(deny_toml: &str) -> BTreeSet<String> {
    let line = deny_toml.lines().find(|line| line.starts_with("allow = [")).expect("a list `allow`");
    line.split('"').skip(1).step_by(2).map(str::to_string).collect()
}

/// Name, version, source and licence of each crate; `None` if some were never downloaded.
fn crates_of_all_features(root: &Path) -> Option<BTreeSet<String>> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--workspace", "--all-features", "--edges", "normal,build,dev", "--prefix", "none"])
        .args(["--format", "{p}|{l}", "--target", "x86_64-unknown-linux-gnu", "--locked", "--offline"])
        .current_dir(root)
        .output()
        .expect("cargo starts");
    let text = String::from_utf8(output.stdout).expect("text of cargo");
    let lines = text.lines().filter(|line| !line.is_empty());
    output.status.success().then(|| lines.map(|line| line.trim_end_matches(" (*)").to_string()).collect())
}

/// What is wrong with a crate, if anything.
fn problem(line: &str, root: &Path, allowed: &BTreeSet<String>) -> Option<String> {
    let (name, licence) = line.split_once('|').expect("two columns");
    let source = name.split_once(" (").map(|(_, source)| source).filter(|source| *source != "proc-macro)");
    if source.is_some_and(|source| !source.starts_with(&*root.to_string_lossy())) {
        return Some(format!("{name}: it does not come from crates.io"));
    }
    let is_allowed = Expression::parse_mode(licence, ParseMode::LAX).is_ok_and(|expression| {
        expression.evaluate(|one| {
            one.addition.is_none() && one.license.id().is_some_and(|id| allowed.contains(id.name))
        })
    });
    (!is_allowed).then(|| format!("{name}: the licence `{licence}` is not allowed"))
}
