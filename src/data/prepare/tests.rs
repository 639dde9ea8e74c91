//! Prepares small corpora from text to shards.

use std::ffi::OsString;
use std::path::PathBuf;

use super::*;
use crate::shards::MANIFEST_JSON;
use base::processes::Processes;
use base::processes::testing::{in_each, threads};
use config::PretrainConfig;

/// A folder with a text file to prepare.
struct Story {
    folder: tempfile::TempDir,
}

impl Story {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let text: String = (0..400)
            .map(|n| {
                format!(
                    "Paragraph {n}: Mary found the {} garden, and the robin sang {n} songs.\n\n",
                    ["secret", "locked"][n % 2]
                )
            })
            .collect::<Vec<_>>()
            .concat();
        std::fs::write(folder.path().join("story.txt"), text).unwrap();
        Self { folder }
    }

    fn config(&self, prepared: &str, more: &str) -> PretrainConfig {
        let root = self.folder.path().display();
        let json = format!(
            r#"{{"data": {{"sources": [{{"files": ["{root}/story.txt"], "document": "paragraph"}}], "prepared_dir": "{root}/{prepared}",
            "shard_tokens": 3000 {more}}}, "tokenizer": {{"vocab_size": 320}}, "model": {{"roberta": {{}}}}}}"#
        );
        serde_json::from_str(&json).unwrap()
    }

    fn files(&self, prepared: &str) -> Vec<(PathBuf, Vec<u8>)> {
        let root = self.folder.path().join(prepared);
        let folders = ["shards", "tokenizer"].map(|name| root.join(name));
        let paths = folders.iter().flat_map(|folder| base::fs::list(folder).unwrap());
        paths
            .map(|path| (path.strip_prefix(&root).unwrap().to_path_buf(), std::fs::read(&path).unwrap()))
            .collect()
    }
    /// Names and bytes of the kept documents, sorted by name.
    fn documents(&self, prepared: &str) -> Vec<(OsString, Vec<u8>)> {
        let folder = self.folder.path().join(prepared).join("documents");
        let mut files: Vec<PathBuf> = base::fs::list(&folder).unwrap();
        files.sort();
        files
            .iter()
            .map(|path| (path.file_name().unwrap().to_owned(), std::fs::read(path).unwrap()))
            .collect()
    }

    fn report(&self, prepared: &str) -> String {
        std::fs::read_to_string(self.folder.path().join(prepared).join("report.json")).unwrap()
    }

    fn settings(&self, prepared: &str) -> String {
        std::fs::read_to_string(self.folder.path().join(prepared).join("settings.json")).unwrap()
    }
}

#[test]
fn text_becomes_shards_once_and_is_reused() {
    let story = Story::new();
    let mut stages = Vec::new();
    let made = ensure_prepared(Processes::ALONE, &story.config("a", ""), &mut |progress| {
        stages.push(progress.stage);
    })
    .unwrap();
    stages.dedup();
    assert_eq!(stages, [Stage::Read, Stage::Count, Stage::CountWords, Stage::Tokenize]);
    assert!(!made.was_reused);
    assert_eq!((made.manifest.documents(), made.manifest.documents_read), (400, 400));
    assert_eq!(made.train.num_tokens() + made.validation.num_tokens(), made.manifest.tokens());
    let first = made.tokenizer.decode(&made.train.document(0).unwrap(), false).unwrap();
    assert!(first.starts_with("Paragraph 0: Mary found the secret garden"), "{first}");

    let before = story.files("a");
    let again =
        ensure_prepared(Processes::ALONE, &story.config("a", ""), &mut |_| panic!("nothing is left to do"))
            .unwrap();
    assert!(again.was_reused);
    std::fs::remove_file(story.folder.path().join("story.txt")).unwrap();
    assert!(ensure_prepared(Processes::ALONE, &story.config("a", ""), &mut |_| {}).unwrap().was_reused);
    assert_eq!(story.files("a"), before);
}

#[test]
fn bytes_are_the_same_for_any_number_of_threads_and_after_an_interruption() {
    let story = Story::new();
    for threads in [1, 2, 7] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let config = story.config(&format!("threads-{threads}"), "");
        pool.install(|| ensure_prepared(Processes::ALONE, &config, &mut |_| {}).map(|_| ())).unwrap();
    }
    let expected = story.files("threads-1");
    assert_eq!(story.files("threads-2"), expected);
    assert_eq!(story.files("threads-7"), expected);
    let shards = story.folder.path().join("threads-2/shards");
    std::fs::remove_file(shards.join(MANIFEST_JSON)).unwrap();
    std::fs::remove_file(shards.join("train-00001.safetensors")).unwrap();
    assert!(
        !ensure_prepared(Processes::ALONE, &story.config("threads-2", ""), &mut |_| {}).unwrap().was_reused
    );
    assert_eq!(story.files("threads-2"), expected);
}

#[test]
fn saved_text_is_a_source_with_the_same_documents_and_split() {
    let story = Story::new();
    let more = r#", "validation_fraction": 0.1, "deduplication": {"exact": true}"#;
    let path = story.folder.path().join("story.txt");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.repeat(2)).unwrap();
    let saving = story.config("a", &format!(r#"{more}, "save_text": true"#));
    let first = ensure_prepared(Processes::ALONE, &saving, &mut |_| {}).unwrap();
    assert_eq!((first.manifest.documents(), first.manifest.documents_read), (400, 800));
    let saved: Vec<PathBuf> = base::fs::list(&story.folder.path().join("a/text")).unwrap();
    assert_eq!(saved, [story.folder.path().join("a/text/0-story.jsonl.zst")]);
    let lines = zstd::decode_all(std::fs::read(&saved[0]).unwrap().as_slice()).unwrap();
    let lines = String::from_utf8(lines).unwrap();
    assert_eq!(lines.matches(r#""split":"validation""#).count(), first.validation.num_documents() as usize);

    let mut again = story.config("b", r#", "validation_fraction": 0.1"#);
    let pattern = story.folder.path().join("a/text/*.jsonl.zst");
    again.data.sources = vec![config::SourceConfig::of_files(vec![pattern.to_str().unwrap().to_string()])];
    let second = ensure_prepared(Processes::ALONE, &again, &mut |_| {}).unwrap();
    for (first, second) in [(&first.train, &second.train), (&first.validation, &second.validation)] {
        assert_eq!(first.num_documents(), second.num_documents());
        let same = (0..first.num_documents())
            .all(|index| first.document(index).unwrap() == second.document(index).unwrap());
        assert!(same, "the same texts, by a tokenizer that learnt from them");
    }

    // The text cannot be had from finished shards.
    let prepared = ensure_prepared(Processes::ALONE, &story.config("c", more), &mut |_| {}).unwrap();
    assert!(prepared.notes.iter().all(|note| !note.contains("save_text")));
    let late = story.config("c", &format!(r#"{more}, "save_text": true"#));
    let late = ensure_prepared(Processes::ALONE, &late, &mut |_| {}).unwrap();
    assert!(late.was_reused && late.notes.iter().any(|note| note.contains("`data.save_text` has no effect")));
}

#[test]
fn other_settings_are_named_and_nothing_is_overwritten() {
    let story = Story::new();
    ensure_prepared(Processes::ALONE, &story.config("a", ""), &mut |_| {}).unwrap();
    let before = story.files("a");
    let changed = refusal(&story.config("a", r#", "validation_fraction": 0.5"#));
    assert!(changed.contains("`data.validation_fraction` was 0.01, now is 0.5"), "{changed}");
    std::fs::write(story.folder.path().join("story.txt"), "another text").unwrap();
    let changed = refusal(&story.config("a", ""));
    assert!(changed.contains("`files.0.bytes` was "), "{changed}");
    assert_eq!(story.files("a"), before);
}

/// Returns the error of preparing with settings that differ from those of the folder.
fn refusal(config: &PretrainConfig) -> String {
    ensure_prepared(Processes::ALONE, config, &mut |_| {}).err().expect("the settings differ").to_string()
}

#[test]
fn several_processes_write_the_same_bytes_as_one() {
    let story = Story::new();
    let text: String = (0..14_000)
        // The last 500 paragraphs repeat earlier ones, far away from them.
        .map(|n| if n < 13_500 { n } else { n - 7_000 })
        .map(|n| format!("Paragraph {n}: the robin sang {} of {n} songs.\n\n", n % 7))
        .collect::<Vec<_>>()
        .concat();
    std::fs::write(story.folder.path().join("story.txt"), text).unwrap();
    let more = r#", "keep_documents": true, "deduplication": {"exact": true}"#;
    ensure_prepared(Processes::ALONE, &story.config("alone", more), &mut |_| {}).unwrap();
    assert!(story.documents("alone").len() > 6, "there are parts to divide");
    let alone = story.report("alone");
    assert!(alone.contains("\"exact_duplicate\"") && alone.contains("repeats "), "{alone}");
    for size in [2, 3] {
        let name = format!("of-{size}");
        let config = story.config(&name, more);
        let made = prepare_with(size, &config);
        assert!(
            !made[0]
                && story.files(&name) == story.files("alone")
                && story.documents(&name) == story.documents("alone")
        );
        assert_eq!(story.report(&name), alone);
        assert_eq!(prepare_with(size, &config), vec![true; size]);
        // A part in the middle is missing, as if the process that should write it was lost.
        let folder = story.folder.path().join(&name);
        for gone in ["shards", "tokenizer"] {
            std::fs::remove_dir_all(folder.join(gone)).unwrap();
        }
        let whole = story.documents(&name);
        for gone in ["complete.json", "part-00001.json"] {
            std::fs::remove_file(folder.join("documents").join(gone)).unwrap();
        }
        prepare_with(size, &config);
        assert!(
            story.files(&name) == story.files("alone") && story.documents(&name) == whole,
            "{size}, gone on with"
        );
        // One process fails in the second portion of text, before a shard of that portion is in the journal;
        // several processes resume.
        let shards = folder.join("shards");
        std::fs::remove_file(shards.join(MANIFEST_JSON)).unwrap();
        let obstacle = shards.join("train-00040.safetensors");
        std::fs::remove_file(&obstacle).unwrap();
        std::fs::create_dir(&obstacle).unwrap();
        assert!(ensure_prepared(Processes::ALONE, &config, &mut |_| {}).is_err());
        std::fs::remove_dir(&obstacle).unwrap();
        let journal = std::fs::read_to_string(shards.join("progress.json")).unwrap();
        assert!(journal.contains("train-00020") && !journal.contains("train-00039"), "{journal}");
        prepare_with(size, &config);
        assert!(story.files(&name) == story.files("alone"), "{size}, in the midst of tokenizing");
    }
}

/// Prepares with `size` processes; returns for each of them if nothing had to be made.
fn prepare_with(size: usize, config: &PretrainConfig) -> Vec<bool> {
    in_each(&threads(size), |processes| {
        ensure_prepared(processes, config, &mut |_| {}).map(|prepared| prepared.was_reused)
    })
    .into_iter()
    .map(Result::unwrap)
    .collect()
}

#[test]
fn a_changed_text_is_found_and_a_copied_one_is_accepted() {
    let story = Story::new();
    let path = story.folder.path().join("story.txt");
    // Long enough that the samples do not cover all of the text.
    let text = std::fs::read_to_string(&path).unwrap().repeat(6);
    std::fs::write(&path, &text).unwrap();
    let config = story.config("a", "");
    assert!(!prepare_alone(&config).unwrap().was_reused);
    assert!(prepare_alone(&config).unwrap().was_reused);
    let before = story.settings("a");
    std::fs::write(&path, &text).unwrap();
    assert!(prepare_alone(&config).unwrap().was_reused, "a copy");
    assert_ne!(story.settings("a"), before, "its time is put down");
    let after_a_copy = story.settings("a");
    assert!(prepare_alone(&config).unwrap().was_reused && story.settings("a") == after_a_copy);
    let sample_before = base::fs::sample_hash(&path).unwrap();
    let at = 6000 + text[6000..].find("Paragraph").unwrap();
    let mut changed = text;
    changed.replace_range(at..at + 9, "Chapter__");
    std::fs::write(&path, &changed).unwrap();
    assert_eq!(base::fs::sample_hash(&path).unwrap(), sample_before, "samples do not see it");
    let message = format!("{:#}", prepare_alone(&config).err().unwrap());
    assert!(message.contains("story.txt` has another content"), "{message}");
}

fn prepare_alone(config: &PretrainConfig) -> anyhow::Result<Prepared> {
    ensure_prepared(Processes::ALONE, config, &mut |_| {})
}
