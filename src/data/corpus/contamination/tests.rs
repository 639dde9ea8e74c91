//! Tests of contamination: sequences of words, whole short examples, in every kind of file.

use super::*;
use crate::corpus::Judge;
use config::{ContaminationAction, DataConfig};

const EXAMPLE: &str = "The quick brown fox jumps over the lazy dog while the old cat sleeps";

/// A configuration with one evaluation file.
fn config(folder: &tempfile::TempDir, name: &str, content: &str) -> ContaminationConfig {
    let path = folder.path().join(name);
    std::fs::write(&path, content).expect("is writable");
    ContaminationConfig { files: vec![path.display().to_string()], ..ContaminationConfig::default() }
}

fn detail(config: &ContaminationConfig, text: &str) -> Option<String> {
    let data = DataConfig { contamination: config.clone(), ..DataConfig::default() };
    let judged = Judge::new(&data).expect("is right").judge(text);
    judged.rejection.map(|rejection| rejection.detail.replace(&config.files[0], "FILE"))
}

#[test]
fn sequences_are_found_in_any_case_and_punctuation() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = config(&folder, "test.txt", &format!("short\n{EXAMPLE}\n"));
    assert_eq!(
        detail(&config, &format!("Before. {EXAMPLE} after.")).as_deref(),
        Some("2 of its sequences of 13 words stand in `FILE`")
    );
    let loud = "THE QUICK, brown fox -- jumps over the lazy dog! While the old cat";
    assert_eq!(detail(&config, loud).as_deref(), Some("1 of its sequences of 13 words stand in `FILE`"));
    assert_eq!(
        detail(&config, "the quick brown fox jumps over the lazy dog while the old"),
        None,
        "twelve words"
    );
    assert_eq!(detail(&config, "short"), None);
}

#[test]
fn every_field_of_every_format_is_read() {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, content) in [
        ("a.csv", format!("label,text\n1,\"{EXAMPLE},\n and more\"\n")),
        ("a.tsv", format!("label\ttext\n1\t{EXAMPLE} \"\n")),
        ("a.jsonl", format!("{{\"id\": 1, \"a\": {{\"b\": [\"{EXAMPLE}\"]}}}}\n\n")),
        ("a.json", format!("[{{\"q\": \"{EXAMPLE}\"}}]")),
        ("a.txt", format!("\u{feff}{EXAMPLE}\r\n")),
    ] {
        assert!(detail(&config(&folder, name, &content), EXAMPLE).is_some(), "{name}");
    }
}

#[test]
fn short_examples_count_as_a_whole() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = ContaminationConfig {
        min_overlap: 5,
        ..config(
            &folder,
            "test.tsv",
            "0\tone two three four five six seven eight\n1\tone two three four five six seven\n",
        )
    };
    assert_eq!(
        detail(&config, "zero one two three four five six seven eight nine").as_deref(),
        Some("holds an example of 8 words of `FILE`")
    );
    assert_eq!(detail(&config, "one two three four five six seven"), None, "seven words are said by many");
}

#[test]
fn fewer_sequences_than_the_minimum_are_accepted() {
    let folder = tempfile::tempdir().expect("a folder");
    let base = config(&folder, "test.txt", EXAMPLE);
    for (min_overlap, is_found) in [(1, true), (2, true), (3, false)] {
        let config = ContaminationConfig { min_overlap, ..base.clone() };
        assert_eq!(detail(&config, EXAMPLE).is_some(), is_found, "{min_overlap}");
    }
}

#[test]
fn a_report_keeps_the_document_and_counts() {
    let folder = tempfile::tempdir().expect("a folder");
    let contamination =
        ContaminationConfig { action: ContaminationAction::Report, ..config(&folder, "test.txt", EXAMPLE) };
    let judged =
        Judge::new(&DataConfig { contamination, ..DataConfig::default() }).expect("is right").judge(EXAMPLE);
    assert_eq!(judged.rejection, None);
    assert_eq!(judged.changes, [("contaminated", 2)]);
}

#[test]
fn unusable_files_are_refused_by_name() {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, content, expected) in [
        ("words.txt", "one\nword\na\nline\n", "words.txt: holds no example of at least 8 words"),
        ("bad.jsonl", "{\"a\": 1}\n{\"a\": \n", "bad.jsonl:2: is not JSON"),
        ("bad.json", "[1,\n2,", "bad.json:2: is not JSON"),
    ] {
        let error = Contamination::new(&config(&folder, name, content)).err().expect("is wrong");
        assert!(format!("{error:#}").contains(expected), "{error:#}");
    }
    let path = folder.path().join("latin1.txt");
    std::fs::write(&path, b"p\xe4iv\xe4\xe4").expect("is writable");
    let config =
        ContaminationConfig { files: vec![path.display().to_string()], ..ContaminationConfig::default() };
    let error = format!("{:#}", Contamination::new(&config).err().expect("is wrong"));
    assert!(error.contains("latin1.txt: is not UTF-8 text (byte 1)"), "{error}");
}
