//! Shards written and read back, damaged in many ways, and the whole way from text to shards.

use std::path::Path;
use std::path::PathBuf;

use proptest::prelude::*;

use super::*;
use crate::config::PretrainConfig;
use crate::corpus::Side;

/// Writes the documents as training shards of at most `shard_tokens` tokens.
fn write(folder: &Path, documents: &[Vec<u32>], vocab_size: usize, shard_tokens: u64) -> Manifest {
    let mut writer = ShardWriter::new(folder, Side::Train, "fingerprint", vocab_size, shard_tokens);
    for document in documents {
        writer.push(0, document, 10).unwrap();
    }
    let manifest = Manifest {
        version: Manifest::VERSION,
        settings_sha256: String::new(),
        tokenizer: "fingerprint".to_string(),
        vocab_size,
        sources: vec!["text".to_string()],
        documents_read: 0,
        without_tokens: 0,
        train: writer.finish().unwrap(),
        validation: SplitEntry::default(),
    };
    manifest.write(folder).unwrap();
    manifest
}

fn documents() -> Vec<Vec<u32>> {
    (0..20).map(|n| (0..=n * 7 % 13).map(|t| n * 100 + t).collect()).collect()
}

#[test]
fn documents_come_back_from_several_shards_in_both_widths() {
    for (vocab_size, dtype) in [(1 << 16, "U16"), ((1 << 16) + 1, "U32")] {
        let folder = tempfile::tempdir().unwrap();
        let manifest = write(folder.path(), &documents(), vocab_size, 30);
        assert!(manifest.train.shards.len() > 2);
        assert!(manifest.train.shards.iter().all(|shard| shard.tokens <= 30));
        let set = ShardSet::open(folder.path(), Side::Train).unwrap();
        let read: Vec<Vec<u32>> = (0..set.num_documents()).map(|i| set.document(i).unwrap()).collect();
        assert_eq!(read, documents());
        assert_eq!(set.lengths().unwrap(), documents().iter().map(|d| d.len() as u32).collect::<Vec<_>>());
        assert!(set.document(20).unwrap_err().to_string().contains("there is no document 20"));
        assert_eq!(ShardSet::open(folder.path(), Side::Validation).unwrap().num_documents(), 0);
        let bytes = std::fs::read(folder.path().join("train-00000.safetensors")).unwrap();
        let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        assert_eq!(format!("{:?}", tensors.tensor("tokens").unwrap().dtype()), dtype);
        assert_eq!(
            tensors.tensor("offsets").unwrap().shape()[0] as u64,
            manifest.train.shards[0].documents + 1
        );
    }
}

#[test]
fn a_shard_that_changes_after_opening_is_an_error_and_not_a_crash() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &documents(), 3000, 1000);
    let set = ShardSet::open(folder.path(), Side::Train).unwrap();
    let path = folder.path().join("train-00000.safetensors");
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, vec![0xff; bytes.len()]).unwrap();
    assert!(format!("{:#}", set.document(3).unwrap_err()).contains("train-00000.safetensors"));
    std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    assert!(format!("{:#}", set.document(19).unwrap_err()).contains("train-00000.safetensors"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn any_damage_to_a_shard_is_found_and_named(place in any::<prop::sample::Index>(), flip in 1..=255u8, cut: bool) {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), &documents(), 3000, 1000);
        let path = folder.path().join("train-00000.safetensors");
        let mut bytes = std::fs::read(&path).unwrap();
        let place = place.index(bytes.len());
        if cut { bytes.truncate(place) } else { bytes[place] ^= flip }
        std::fs::write(&path, bytes).unwrap();
        let error = format!("{:#}", ShardSet::open(folder.path(), Side::Train).unwrap_err());
        prop_assert!(error.contains("train-00000.safetensors"), "{}", error);
    }

    #[test]
    fn a_mutated_manifest_never_panics(place in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), &documents(), 3000, 50);
        let path = folder.path().join(MANIFEST_JSON);
        let mut bytes = std::fs::read(&path).unwrap();
        let place = place.index(bytes.len());
        bytes[place] = byte;
        std::fs::write(&path, bytes).unwrap();
        if let Ok(set) = ShardSet::open(folder.path(), Side::Train) {
            for index in 0..set.num_documents() {
                let _ = set.document(index);
            }
        }
    }
}

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
    let made = ensure_prepared(&story.config("a", ""), &mut |progress| stages.push(progress.stage)).unwrap();
    stages.dedup();
    assert_eq!(stages, [Stage::Read, Stage::Count, Stage::CountWords, Stage::Tokenize]);
    assert!(!made.was_reused);
    assert_eq!((made.manifest.documents(), made.manifest.documents_read), (400, 400));
    assert_eq!(made.train.num_tokens() + made.validation.num_tokens(), made.manifest.tokens());
    let first = made.tokenizer.decode(&made.train.document(0).unwrap(), false).unwrap();
    assert!(first.starts_with("Paragraph 0: Mary found the secret garden"), "{first}");

    let before = story.files("a");
    let again = ensure_prepared(&story.config("a", ""), &mut |_| panic!("nothing is left to do")).unwrap();
    assert!(again.was_reused);
    std::fs::remove_file(story.folder.path().join("story.txt")).unwrap();
    assert!(ensure_prepared(&story.config("a", ""), &mut |_| {}).unwrap().was_reused);
    assert_eq!(story.files("a"), before);
}

#[test]
fn bytes_are_the_same_for_any_number_of_threads_and_after_an_interruption() {
    let story = Story::new();
    for threads in [1, 2, 7] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let config = story.config(&format!("threads-{threads}"), "");
        pool.install(|| ensure_prepared(&config, &mut |_| {}).map(|_| ())).unwrap();
    }
    let expected = story.files("threads-1");
    assert_eq!(story.files("threads-2"), expected);
    assert_eq!(story.files("threads-7"), expected);
    let shards = story.folder.path().join("threads-2/shards");
    std::fs::remove_file(shards.join(MANIFEST_JSON)).unwrap();
    std::fs::remove_file(shards.join("train-00001.safetensors")).unwrap();
    assert!(!ensure_prepared(&story.config("threads-2", ""), &mut |_| {}).unwrap().was_reused);
    assert_eq!(story.files("threads-2"), expected);
}

#[test]
fn other_settings_are_named_and_nothing_is_overwritten() {
    let story = Story::new();
    ensure_prepared(&story.config("a", ""), &mut |_| {}).unwrap();
    let before = story.files("a");
    let message =
        |config| ensure_prepared(&config, &mut |_| {}).err().expect("the settings differ").to_string();
    let changed = message(story.config("a", r#", "validation_fraction": 0.5"#));
    assert!(changed.contains("`data.validation_fraction` was 0.01, now is 0.5"), "{changed}");
    std::fs::write(story.folder.path().join("story.txt"), "another text").unwrap();
    let changed = message(story.config("a", ""));
    assert!(changed.contains("`files.0.bytes` was "), "{changed}");
    assert_eq!(story.files("a"), before);
}
