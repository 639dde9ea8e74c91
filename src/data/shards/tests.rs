//! Tests with shards that are written and read back, and damaged in many ways.

use std::path::Path;

use proptest::prelude::*;

use super::*;
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
