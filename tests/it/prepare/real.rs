//! The corpora that `configs/corpus` describes, the large ones where their text is there: many formats, kinds
//! and faults in one run.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::notes;

/// The report of `prepare` with a configuration of the project; `None`, and a line that says so, without the
/// data.
fn report(name: &str) -> Option<Value> {
    if !Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data/text_fi").is_dir() {
        notes::skipped("there is no real data in `../shared/data`");
        return None;
    }
    Some(prepared(name))
}

fn prepared(name: &str) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_mlmtrain"))
        .args(["prepare", "--quiet", "--config", &format!("configs/corpus/{name}.yaml"), "--set"])
        .arg(format!("run.output_dir={}", folder.path().display()))
        // All text is read, judged and tokenized; a vocabulary from a part of it will do.
        .args(["--set", "tokenizer.train_bytes=4194304"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let bytes = std::fs::read(folder.path().join("data/report.json")).unwrap();
    serde_json::from_slice(&bytes).unwrap()
}

fn documents(report: &Value, source: &str, what: &str) -> u64 {
    let sources = report["sources"].as_array().unwrap();
    let source = sources.iter().find(|table| table["name"] == source).unwrap();
    source.pointer(what).map_or(0, |amount| amount["documents"].as_u64().unwrap())
}

#[test]
fn the_sample_in_the_repository_gives_every_rule_something_to_do() {
    let report = prepared("sample");
    for (source, read, kept) in [("village", 9, 6), ("pages", 9, 4), ("letters", 4, 3), ("web", 1, 0)] {
        assert_eq!(
            (documents(&report, source, "/read"), documents(&report, source, "/kept")),
            (read, kept),
            "{source}"
        );
    }
    for (source, reason) in [
        ("letters", "exact_duplicate"),
        ("pages", "near_duplicate"),
        ("pages", "language"),
        ("pages", "few_letters"),
        ("village", "no_lines_left"),
        ("web", "html_markup"),
    ] {
        assert!(documents(&report, source, &format!("/dropped/{reason}")) > 0, "{source}: {reason}");
    }
}

#[test]
fn finnish_of_many_kinds_loses_what_is_no_finnish_text() {
    let Some(report) = report("finnish") else { return };
    for (source, read, least_kept) in
        [("news", 139_700, 135_000), ("court", 2_648, 2_500), ("web", 2_500, 2_000)]
    {
        assert_eq!(documents(&report, source, "/read"), read, "{source}");
        let kept = documents(&report, source, "/kept");
        assert!((least_kept..=read).contains(&kept), "{source}: {kept}");
    }
    assert_eq!(documents(&report, "messy-html", "/dropped/html_markup"), 11);
    assert_eq!(
        (documents(&report, "messy-html", "/kept"), documents(&report, "messy-languages", "/kept")),
        (0, 0)
    );
    assert!(documents(&report, "messy-tweets", "/kept") < 150, "of 5,000 tweets in English");
    let (disk, text) =
        (report["shards"]["disk_bytes"].as_f64().unwrap(), report["shards"]["text_bytes"].as_f64().unwrap());
    assert!(disk < 0.6 * text, "{disk} bytes of shards for {text} bytes of text");
}

#[test]
fn english_comes_from_text_json_and_parquet_at_once() {
    let Some(report) = report("english") else { return };
    for (source, read) in
        [("reviews", 25_000), ("encyclopedia", 2_349), ("news", 900), ("web", 1_598), ("web-prefixes", 1_480)]
    {
        assert_eq!(documents(&report, source, "/read"), read, "{source}");
        assert!(documents(&report, source, "/kept") * 2 > read, "{source}");
    }
    let tokens = report["shards"]["source_tokens"].as_array().unwrap();
    assert!(tokens.iter().all(|count| count.as_u64().unwrap() > 100_000), "{tokens:?}");
}
