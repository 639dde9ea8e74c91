//! Violations that are planted in a small tree, each of which must be found, and what is allowed.

use std::fs;

use tempfile::TempDir;

use super::violations;

/// A source tree of these files.
fn planted(files: &[(&str, &str)]) -> TempDir {
    let tree = tempfile::tempdir().expect("a temporary folder");
    for (file, content) in files {
        let path = tree.path().join(file);
        fs::create_dir_all(path.parent().expect("a file in a folder")).expect("a writable folder");
        fs::write(&path, content).expect("a writable folder");
    }
    tree
}

#[test]
fn each_planted_violation_is_found() {
    for (file, content, expected) in [
        (
            "distributed.rs",
            "use crate::layers::Store;",
            "distributed.rs:2: `distributed` uses `layers`, which comes after it",
        ),
        (
            "base/fs/lock.rs",
            "fn f() -> crate::families::Family {}",
            "base/fs/lock.rs:2: `fs` uses `families`, which comes after it",
        ),
        (
            "data/corpus/pass.rs",
            "use base::fs;\nfn f(x: &config::Kind, y: crate::prepare::Job) {}",
            "data/corpus/pass.rs:3: `corpus` uses `prepare`, which comes after it",
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
        ("train.rs", "use crate::helpers::Thing;", "train.rs:2: `helpers` is not in the module table"),
        ("helpers.rs", "", "helpers.rs: `helpers` is not in the module table"),
        (
            "train.rs",
            "use crate::{fs, commands};",
            "train.rs:2: `train` uses `commands`, which comes after it",
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
        (
            "ops/linear/cpu.rs",
            "let wide = std::arch::is_x86_feature_detected!(\"avx512f\");",
            "ops/linear/cpu.rs:2: `_feature_detected!` belongs in `instructions`",
        ),
        (
            "corpus/dedup.rs",
            "pulp::Arch::new().dispatch(f);",
            "corpus/dedup.rs:2: `Arch::new` belongs in `instructions`",
        ),
        ("train.rs", &"// long\n".repeat(500), "train.rs: 501 lines, the most is 500"),
        ("train/step.rs", "\0", "train/step.rs: the first line is not `//!`"),
        ("train.rs", "#[cfg(test)]\nmod tests;\nuse std::fs;", "train.rs:4: `std::fs` belongs in `fs`"),
        (
            "train.rs",
            "#[cfg(test)]\nmod tests {\n    use std::fs;\n}\nuse std::fs;",
            "train.rs:6: `std::fs` belongs in `fs`",
        ),
    ] {
        let content = if content == "\0" {
            "use crate::optim::Rate;".to_string()
        } else {
            format!("//! A file.\n{content}")
        };
        let found = violations(planted(&[(file, &content)]).path());
        assert!(found.iter().any(|found| found == expected), "wanted {expected:?}, found {found:?}");
    }
}

#[test]
fn a_family_is_named_in_its_own_room_and_in_tests_alone() {
    let tree = planted(&[
        ("lib.rs", "//! A file.\nfn f() -> Family { Family::ROBERTA }\n"),
        ("families/bert.rs", "//! A file.\nconst PARENT: Family = Family::BERT;\n"),
        ("families/deberta_v2.rs", "//! A file.\n"),
        ("families/roberta.rs", "//! A file.\n"),
        ("tasks/a.rs", "//! See Family::BERT.\nfn f() { family == Family::BERT }\n"),
        ("tasks/b.rs", "//! A file.\nfn f() { match family { Family::DEBERTA_V2 => {} } }\n"),
        ("tasks/c.rs", "//! A file.\n#[cfg(test)]\nmod tests {\n    const F: Family = Family::BERT;\n}\n"),
        ("tasks/d.rs", "//! A file.\nuse Family::BERT_LIKE;\nuse MyFamily::BERT;\n"),
    ]);
    let found: Vec<String> =
        violations(tree.path()).into_iter().filter(|found| !found.contains("module table")).collect();
    assert_eq!(
        found,
        [
            "lib.rs:2: `Family::ROBERTA` belongs in `families`: ask the family's data",
            "tasks/a.rs:2: `Family::BERT` belongs in `families`: ask the family's data",
            "tasks/b.rs:2: `Family::DEBERTA_V2` belongs in `families`: ask the family's data",
        ]
    );
}

#[test]
fn each_circle_inside_a_module_is_reported_once() {
    let tree = planted(&[
        ("ops/lib.rs", "//! A file.\nmod indices;\npub use indices::Indices;\nuse indices::Plan;\n"),
        (
            "ops/indices.rs",
            "//! A file.\nuse crate::{heads::Tiles};\nuse super::packet::{\n    Array,\n    Keys,\n};\n",
        ),
        ("ops/heads.rs", "//! A file.\nuse crate::heads::tiles::Tiles;\n"),
        ("ops/heads/tiles.rs", "//! A file.\nuse super::super::Indices;\nuse super::Shape;\n"),
        ("ops/packet.rs", "//! A file.\n#[cfg(test)]\nuse crate::indices::Indices;\n"),
        ("fs/a.rs", "//! A file.\nuse super::b::B;\n"),
        ("fs/b.rs", "//! A file.\nuse super::{c, d};\n"),
        ("fs/c.rs", "//! A file.\nuse super::a::A;\n"),
        ("training/tasks/deep/x.rs", "//! A file.\nuse crate::tasks::deep::y::Y;\n"),
        ("training/tasks/deep/y.rs", "//! A file.\nuse super::x::X;\n"),
    ]);
    assert_eq!(
        violations(tree.path()),
        [
            "`fs` has a circle: a -> b (fs/a.rs:2) -> c (fs/b.rs:2) -> a (fs/c.rs:2)",
            "`ops` has a circle: heads -> indices (ops/heads/tiles.rs:2) -> heads (ops/indices.rs:2)",
            "`tasks::deep` has a circle: x -> y (training/tasks/deep/x.rs:2) -> x (training/tasks/deep/y.rs:2)",
        ]
    );
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
        const TEXT: &str =\n    std::fs::TEXT;\n\
        #[cfg(test)]\n\
        mod tests {\n    use super::*;\n    use std::fs;\n    fn g() { println!() }\n}\n";
    let tree = planted(&[("config/check.rs", content)]);
    assert_eq!(violations(tree.path()), Vec::<String>::new());
}
