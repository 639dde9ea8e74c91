//! Verifies every byte of a folder of shards: what opening checks, and what opening leaves to the first read.
//!
//! Each file is verified on its own, so that one bad shard does not hide another.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Result;

use crate::corpus::Side;
use crate::shards::held::{OpenShard, le_u64};
use crate::shards::{MANIFEST_JSON, Manifest, ShardEntry, format};
use base::error::Problem;
use base::fs;

/// Memory for reading, in bytes; a multiple of all widths of tokens.
const PORTION_BYTES: u64 = 1 << 20;

/// Result of the verification of one file.
#[derive(Debug)]
pub struct Verdict {
    /// Name of the file inside the folder.
    pub file: String,
    /// The error describes the damage.
    pub result: Result<()>,
}

/// Verifies that the manifest agrees with itself: totals, names, sources.
pub fn verify_manifest(folder: &Path, manifest: &Manifest) -> Verdict {
    let place = folder.join(MANIFEST_JSON);
    Verdict {
        file: MANIFEST_JSON.to_string(),
        result: check_manifest(manifest).map_err(|problem| problem.at(place.display()).into()),
    }
}

fn check_manifest(manifest: &Manifest) -> Result<(), Problem> {
    let mut names = BTreeSet::new();
    for side in [Side::Train, Side::Validation] {
        let entry = manifest.side(side);
        let name = super::manifest::name_of(side);
        let documents = total(&entry.shards, |shard| shard.documents);
        let tokens = total(&entry.shards, |shard| shard.tokens);
        if (documents, tokens) != (Some(entry.documents), Some(entry.tokens)) {
            return Err(Problem::new(format!(
                "says {} documents and {} tokens for {name}, its shards have others",
                entry.documents, entry.tokens
            )));
        }
        if let Some(twice) = entry.shards.iter().find(|shard| !names.insert(&shard.file)) {
            return Err(Problem::new(format!("lists `{}` twice", twice.file.escape_debug())));
        }
    }
    Ok(())
}

/// Sum over all shards; `None` if it does not fit into 64 bits.
fn total(shards: &[ShardEntry], number: fn(&ShardEntry) -> u64) -> Option<u64> {
    shards.iter().try_fold(0u64, |sum, shard| sum.checked_add(number(shard)))
}

/// Verifies length, hash, header, offsets, token ids and tokenizer of one shard. Reads the file twice, in
/// little memory.
pub fn verify_shard(folder: &Path, manifest: &Manifest, entry: &ShardEntry) -> Verdict {
    Verdict { file: entry.file.clone(), result: check(&folder.join(&entry.file), manifest, entry) }
}

fn check(path: &Path, manifest: &Manifest, entry: &ShardEntry) -> Result<()> {
    let shard = OpenShard::open(path, entry)?;
    let mut header = vec![0; (shard.layout.data_start - 8) as usize];
    shard.read_at(&mut header, 8)?;
    match format::tokenizer_of(&header) {
        Some(tokenizer) if tokenizer == manifest.tokenizer => {}
        _ => return Err(shard.damaged("was made with another tokenizer than the manifest names".to_string())),
    }
    check_offsets(&shard)?;
    check_ids(&shard, manifest.vocab_size)?;
    if fs::len_bytes(path)? != entry.bytes {
        return Err(shard.damaged("changed while it was read".to_string()));
    }
    Ok(())
}

/// Checks that offsets start at 0, never decrease, and end at the last token.
fn check_offsets(shard: &OpenShard) -> Result<()> {
    let layout = shard.layout;
    let mut last = 0;
    let mut document = 0u64;
    portions(shard, layout.data_start, layout.tokens_start(), |bytes| {
        for offset in bytes.chunks_exact(8).map(le_u64) {
            if offset < last || offset > layout.tokens || (document == 0 && offset != 0) {
                return Err(shard.damaged(format!(
                    "its offset {document} is {offset}, after {last} and of {} tokens",
                    layout.tokens
                )));
            }
            last = offset;
            document += 1;
        }
        Ok(())
    })?;
    if last == layout.tokens {
        Ok(())
    } else {
        Err(shard.damaged(format!("its offsets end at {last} of {} tokens", layout.tokens)))
    }
}

/// Checks that all token ids are in the vocabulary.
fn check_ids(shard: &OpenShard, vocab_size: usize) -> Result<()> {
    let start = shard.layout.tokens_start();
    let width = shard.layout.token_bytes;
    let mut place = 0u64;
    portions(shard, start, start + shard.layout.tokens * width, |bytes| {
        for id in bytes.chunks_exact(width as usize).map(le_u64) {
            if id >= vocab_size as u64 {
                return Err(shard.damaged(format!(
                    "holds id {id} as token {place}, the vocabulary has {vocab_size} entries"
                )));
            }
            place += 1;
        }
        Ok(())
    })
}

/// Calls `look` with consecutive portions of the bytes from `from` to `to`.
fn portions(
    shard: &OpenShard,
    mut from: u64,
    to: u64,
    mut look: impl FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let mut bytes = vec![0; PORTION_BYTES.min(to - from) as usize];
    while from < to {
        let count = PORTION_BYTES.min(to - from) as usize;
        shard.read_at(&mut bytes[..count], from)?;
        look(&bytes[..count])?;
        from += count as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shards::{ShardWriter, SplitEntry};

    fn written_manifest(folder: &Path) -> Manifest {
        let mut writer = ShardWriter::new(folder, Side::Train, "fingerprint", 100, 30);
        (0..20u32).for_each(|n| writer.push(0, &[n, n + 1, n + 2], 10).unwrap());
        Manifest {
            version: Manifest::VERSION,
            settings_sha256: String::new(),
            tokenizer: "fingerprint".to_string(),
            vocab_size: 100,
            sources: vec!["text".to_string()],
            documents_read: 20,
            without_tokens: 0,
            train: writer.finish().unwrap(),
            validation: SplitEntry::default(),
        }
    }

    /// Changes the file and puts the hash of the changed file into its entry, as a broken writer would.
    fn forge(folder: &Path, entry: &mut ShardEntry, change: impl Fn(&mut [u8], usize)) {
        let path = folder.join(&entry.file);
        let mut bytes = std::fs::read(&path).unwrap();
        let data_start = 8 + le_u64(&bytes[..8]) as usize;
        change(&mut bytes, data_start);
        std::fs::write(&path, &bytes).unwrap();
        entry.sha256 = fs::sha256_of(&[&bytes]);
    }

    fn message(verdict: &Verdict) -> String {
        verdict.result.as_ref().err().map(|e| format!("{e:#}")).unwrap_or_default()
    }

    #[test]
    fn intact_shards_pass_and_each_kind_of_damage_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let mut manifest = written_manifest(folder.path());
        assert!(manifest.train.shards.len() > 1);
        assert!(verify_manifest(folder.path(), &manifest).result.is_ok());
        assert!(
            manifest
                .train
                .shards
                .iter()
                .all(|entry| verify_shard(folder.path(), &manifest, entry).result.is_ok())
        );
        let documents = manifest.train.shards[0].documents as usize;
        let original = std::fs::read(folder.path().join(&manifest.train.shards[0].file)).unwrap();
        for (expected, place, byte) in [
            ("its offset 1 is 255, after 0 and of 30 tokens", 8, 255u8),
            ("its offset 0 is 1, after 0", 0, 1),
            ("its offsets end at 29 of 30 tokens", 8 * documents, 29),
            ("holds id 200 as token 1, the vocabulary has 100", 8 * (documents + 1) + 2, 200),
        ] {
            let mut entry = manifest.train.shards[0].clone();
            forge(folder.path(), &mut entry, |bytes, data_start| bytes[data_start + place] = byte);
            let message = message(&verify_shard(folder.path(), &manifest, &entry));
            assert!(message.contains(expected) && message.contains(&entry.file), "{message}");
            std::fs::write(folder.path().join(&entry.file), &original).unwrap();
        }
        manifest.tokenizer = "another".to_string();
        assert!(
            message(&verify_shard(folder.path(), &manifest, &manifest.train.shards[0]))
                .contains("another tokenizer")
        );
        manifest.train.tokens += 1;
        assert!(
            message(&verify_manifest(folder.path(), &manifest))
                .contains("manifest.json: says 20 documents and 61 tokens for train")
        );
    }
}
