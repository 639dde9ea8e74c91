//! The whole way from text to shards.

use std::path::PathBuf;
use std::time::Duration;

use super::*;
use crate::config::PretrainConfig;
use crate::distributed::World;
use crate::distributed::threads::in_each;
use crate::distributed::threads::worlds;
use crate::shards::MANIFEST_JSON;

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
        let paths = folders.iter().flat_map(|folder| crate::fs::list(folder).unwrap());
        paths
            .map(|path| (path.strip_prefix(&root).unwrap().to_path_buf(), std::fs::read(&path).unwrap()))
            .collect()
    }
}

#[test]
fn text_becomes_shards_once_and_is_reused() {
    let story = Story::new();
    let mut stages = Vec::new();
    let made =
        ensure_prepared(World::ALONE, &story.config("a", ""), &mut |progress| stages.push(progress.stage))
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
        ensure_prepared(World::ALONE, &story.config("a", ""), &mut |_| panic!("nothing is left to do"))
            .unwrap();
    assert!(again.was_reused);
    std::fs::remove_file(story.folder.path().join("story.txt")).unwrap();
    assert!(ensure_prepared(World::ALONE, &story.config("a", ""), &mut |_| {}).unwrap().was_reused);
    assert_eq!(story.files("a"), before);
}

#[test]
fn bytes_are_the_same_for_any_number_of_threads_and_after_an_interruption() {
    let story = Story::new();
    for threads in [1, 2, 7] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let config = story.config(&format!("threads-{threads}"), "");
        pool.install(|| ensure_prepared(World::ALONE, &config, &mut |_| {}).map(|_| ())).unwrap();
    }
    let expected = story.files("threads-1");
    assert_eq!(story.files("threads-2"), expected);
    assert_eq!(story.files("threads-7"), expected);
    let shards = story.folder.path().join("threads-2/shards");
    std::fs::remove_file(shards.join(MANIFEST_JSON)).unwrap();
    std::fs::remove_file(shards.join("train-00001.safetensors")).unwrap();
    assert!(!ensure_prepared(World::ALONE, &story.config("threads-2", ""), &mut |_| {}).unwrap().was_reused);
    assert_eq!(story.files("threads-2"), expected);
}

#[test]
fn other_settings_are_named_and_nothing_is_overwritten() {
    let story = Story::new();
    ensure_prepared(World::ALONE, &story.config("a", ""), &mut |_| {}).unwrap();
    let before = story.files("a");
    let message = |config| {
        ensure_prepared(World::ALONE, &config, &mut |_| {}).err().expect("the settings differ").to_string()
    };
    let changed = message(story.config("a", r#", "validation_fraction": 0.5"#));
    assert!(changed.contains("`data.validation_fraction` was 0.01, now is 0.5"), "{changed}");
    std::fs::write(story.folder.path().join("story.txt"), "another text").unwrap();
    let changed = message(story.config("a", ""));
    assert!(changed.contains("`files.0.bytes` was "), "{changed}");
    assert_eq!(story.files("a"), before);
}

#[test]
fn several_processes_leave_the_bytes_of_one() {
    let story = Story::new();
    let text: String = (0..14_000)
        // The last 500 are there before, far away from them.
        .map(|n| if n < 13_500 { n } else { n - 7_000 })
        .map(|n| format!("Paragraph {n}: the robin sang {} of {n} songs.\n\n", n % 7))
        .collect::<Vec<_>>()
        .concat();
    std::fs::write(story.folder.path().join("story.txt"), text).unwrap();
    let more = r#", "keep_documents": true, "deduplication": {"exact": true}"#;
    ensure_prepared(World::ALONE, &story.config("alone", more), &mut |_| {}).unwrap();
    let documents = |prepared: &str| {
        let folder = story.folder.path().join(prepared).join("documents");
        let mut files: Vec<PathBuf> = crate::fs::list(&folder).unwrap();
        files.sort();
        files
            .iter()
            .map(|path| (path.file_name().unwrap().to_owned(), std::fs::read(path).unwrap()))
            .collect::<Vec<_>>()
    };
    let report = |prepared: &str| {
        std::fs::read_to_string(story.folder.path().join(prepared).join("report.json")).unwrap()
    };
    assert!(documents("alone").len() > 6, "there are parts to divide");
    let alone = report("alone");
    assert!(alone.contains("\"exact_duplicate\"") && alone.contains("repeats "), "{alone}");
    for size in [2, 3] {
        let name = format!("of-{size}");
        let config = story.config(&name, more);
        let again = || {
            let prepare =
                |world| ensure_prepared(world, &config, &mut |_| {}).map(|prepared| prepared.was_reused);
            in_each(&worlds(size, Duration::from_secs(60)), prepare)
                .into_iter()
                .map(Result::unwrap)
                .collect::<Vec<_>>()
        };
        let made = again();
        assert!(
            !made[0] && story.files(&name) == story.files("alone") && documents(&name) == documents("alone")
        );
        assert_eq!(report(&name), alone);
        assert_eq!(again(), vec![true; size]);
        // A part in the middle is missing, as where the process that had it was lost.
        let folder = story.folder.path().join(&name);
        for gone in ["shards", "tokenizer"] {
            std::fs::remove_dir_all(folder.join(gone)).unwrap();
        }
        let whole = documents(&name);
        for gone in ["complete.json", "part-00001.json"] {
            std::fs::remove_file(folder.join("documents").join(gone)).unwrap();
        }
        again();
        assert!(
            story.files(&name) == story.files("alone") && documents(&name) == whole,
            "{size}, gone on with"
        );
        // One process came to the second portion of text, of which no shard counts; several go on.
        let shards = folder.join("shards");
        std::fs::remove_file(shards.join(MANIFEST_JSON)).unwrap();
        let obstacle = shards.join("train-00040.safetensors");
        std::fs::remove_file(&obstacle).unwrap();
        std::fs::create_dir(&obstacle).unwrap();
        assert!(ensure_prepared(World::ALONE, &config, &mut |_| {}).is_err());
        std::fs::remove_dir(&obstacle).unwrap();
        let journal = std::fs::read_to_string(shards.join("progress.json")).unwrap();
        assert!(journal.contains("train-00020") && !journal.contains("train-00039"), "{journal}");
        again();
        assert!(story.files(&name) == story.files("alone"), "{size}, in the midst of tokenizing");
    }
}

#[test]
fn a_text_that_was_changed_is_seen_and_one_that_was_copied_is_not() {
    let story = Story::new();
    let path = story.folder.path().join("story.txt");
    // Long enough that samples leave something out.
    let text = std::fs::read_to_string(&path).unwrap().repeat(6);
    std::fs::write(&path, &text).unwrap();
    let config = story.config("a", "");
    let prepared = || ensure_prepared(World::ALONE, &config, &mut |_| {});
    assert!(!prepared().unwrap().was_reused);
    assert!(prepared().unwrap().was_reused);
    let settings = || std::fs::read_to_string(story.folder.path().join("a/settings.json")).unwrap();
    let before = settings();
    std::fs::write(&path, &text).unwrap();
    assert!(prepared().unwrap().was_reused, "a copy");
    assert_ne!(settings(), before, "its time is put down");
    let after_a_copy = settings();
    assert!(prepared().unwrap().was_reused && settings() == after_a_copy);
    let sample = || crate::fs::sample_hash(&path).unwrap();
    let sample_before = sample();
    let at = 6000 + text[6000..].find("Paragraph").unwrap();
    let mut changed = text;
    changed.replace_range(at..at + 9, "Chapter__");
    std::fs::write(&path, &changed).unwrap();
    assert_eq!(sample(), sample_before, "samples do not see it");
    let message = format!("{:#}", prepared().err().unwrap());
    assert!(message.contains("story.txt` has another content"), "{message}");
}
