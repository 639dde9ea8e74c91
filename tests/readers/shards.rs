//! Shards of tokenised text and their manifest.

use std::fs;
use std::path::Path;

use anyhow::Context;
use mlmtrain::corpus::Side;
use mlmtrain::shards::{Manifest, ShardSet, ShardWriter, SplitEntry};

use super::corpora::DOCUMENTS;
use super::folders::sha256;
use super::{Input, Outcome};

const TARGET: &str = "shards";

pub(super) fn all(folder: &Path) -> Vec<Input> {
    vec![shard(&folder.join("shard"), false), shard(&folder.join("signed-shard"), true), {
        let folder = folder.join("manifest");
        write(&folder);
        let bytes = fs::read(folder.join("manifest.json")).unwrap();
        Input::new(TARGET, "manifest.json", folder.join("manifest.json"), bytes, read).giving(DOCUMENTS)
    }]
}

/// A folder of one shard.
fn write(folder: &Path) -> Manifest {
    let mut writer = ShardWriter::new(folder, Side::Train, "fingerprint", 1000, 1 << 20);
    (0..DOCUMENTS as u32).for_each(|n| writer.push(0, &(n..2 * n + 3).collect::<Vec<_>>(), 10).unwrap());
    let manifest = Manifest {
        version: Manifest::VERSION,
        settings_sha256: String::new(),
        tokenizer: "fingerprint".to_string(),
        vocab_size: 1000,
        sources: vec!["text".to_string()],
        documents_read: DOCUMENTS,
        without_tokens: 0,
        train: writer.finish().unwrap(),
        validation: SplitEntry::default(),
    };
    manifest.write(folder).unwrap();
    manifest
}

fn read(path: &Path) -> Outcome {
    let set = ShardSet::open(path.parent().context("it lies in a folder")?, Side::Train)?;
    for index in 0..set.num_documents() {
        set.document(index)?;
    }
    set.lengths()?;
    Ok(set.num_documents())
}

/// A shard; a signed one has its damage vouched for by the manifest, so that the hash does not find it.
fn shard(folder: &Path, is_signed: bool) -> Input {
    let manifest = write(folder);
    let path = folder.join(&manifest.train.shards[0].file);
    let bytes = fs::read(&path).unwrap();
    let read = move |path: &Path| {
        if is_signed {
            let (bytes, mut manifest) = (fs::read(path)?, manifest.clone());
            let entry = &mut manifest.train.shards[0];
            (entry.bytes, entry.sha256) = (bytes.len() as u64, sha256(&bytes));
            fs::write(path.with_file_name("manifest.json"), serde_json::to_vec(&manifest)?)?;
        }
        read(path)
    };
    Input::new(TARGET, if is_signed { "signed shard" } else { "shard" }, path, bytes, read).giving(DOCUMENTS)
}
