//! Deletion and replacement of a bucket's objects.

use std::collections::BTreeSet;

use serde_json::Value;

use super::*;

const CHECKPOINT_FILES: [&str; 3] = ["manifest.json", "model.safetensors", "trainer/state.json"];

#[test]
fn the_last_complete_checkpoint_stays_until_a_later_one_is_uploaded() {
    let old = "checkpoint-1/manifest.json";
    let next = "checkpoint-2/manifest.json";
    assert!(is_last("checkpoint-1", &[next], &[old]), "the next one is on its way");
    assert!(!is_last("checkpoint-1", &[next], &[old, next]), "the next one is in the bucket");
    assert!(
        is_last("checkpoint-1", &["checkpoint-2/model.safetensors"], &[old]),
        "the next one is being deleted"
    );
    assert!(is_last("checkpoint-1", &["checkpoint-2/generator/manifest.json"], &[old]));
    assert!(!is_last("final", &[next], &[old]), "not a checkpoint");
    let other_seed = "seed-2/checkpoint-9/manifest.json";
    let both = ["seed-1/checkpoint-1/manifest.json", other_seed];
    assert!(is_last("seed-1/checkpoint-1", &[other_seed], &both), "each seed keeps one");
}

fn is_last(folder: &str, here: &[&str], known: &[&str]) -> bool {
    is_last_resort(folder, &files(here), &files(known))
}

fn files(names: &[&str]) -> Files {
    names.iter().map(|name| (name.to_string(), (1, SystemTime::UNIX_EPOCH))).collect()
}

/// Files are listed one by one while the run deletes checkpoints, so any of them may be missing.
#[test]
fn whatever_is_listed_a_bucket_with_a_complete_checkpoint_keeps_one() {
    let names: Vec<String> = [1, 2]
        .iter()
        .flat_map(|step| CHECKPOINT_FILES.map(|file| format!("checkpoint-{step}/{file}")))
        .collect();
    for known in subsets(&names).filter(|known| completed(known).len() == manifests(known)) {
        for here in subsets(&names) {
            let gone = gone(&here, &known);
            let mut left = known.clone();
            for name in &gone {
                if let Some(folder) = sealed_folder(name, &known) {
                    left.remove(&format!("{folder}/{MANIFEST}"));
                }
                left.remove(name);
            }
            let is_kept = completed(&known).is_empty() || !completed(&left).is_empty();
            assert!(is_kept, "here {:?}, in the bucket {:?}", here.keys(), known.keys());
        }
    }
    // A checkpoint that the run has deleted goes once a later one is complete.
    let first: Vec<&str> = names[..3].iter().map(String::as_str).collect();
    let all: Vec<&str> = names.iter().map(String::as_str).collect();
    assert_eq!(gone(&files(&all[3..]), &files(&all)), first);
}

fn subsets(names: &[String]) -> impl Iterator<Item = Files> {
    (0..1_u32 << names.len()).map(|bits| {
        let chosen = names.iter().enumerate().filter(|(at, _)| bits >> at & 1 == 1);
        files(&chosen.map(|(_, name)| name.as_str()).collect::<Vec<&str>>())
    })
}

fn completed(objects: &Files) -> BTreeSet<u64> {
    let steps = [1, 2].into_iter();
    steps
        .filter(|step| {
            CHECKPOINT_FILES.iter().all(|file| objects.contains_key(&format!("checkpoint-{step}/{file}")))
        })
        .collect()
}

fn manifests(objects: &Files) -> usize {
    objects.keys().filter(|name| name.ends_with(MANIFEST)).count()
}

#[test]
fn the_only_checkpoint_of_a_bucket_is_replaced_after_the_next_one_or_at_the_end() {
    for ends in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let mut uploader = uploader(folder.path());
        save(folder.path(), 1, "first");
        uploader.bring_up_to_date(false).unwrap();
        // The run went back to its beginning, and comes to step 1 in another way.
        save(folder.path(), 1, "another");
        uploader.bring_up_to_date(false).unwrap();
        assert_eq!(uploaded(&uploader, 1), "first");
        if !ends {
            save(folder.path(), 2, "next");
            uploader.bring_up_to_date(false).unwrap();
            assert_eq!((uploaded(&uploader, 1), uploaded(&uploader, 2)), ("first".into(), "next".into()));
        }
        uploader.bring_up_to_date(ends).unwrap();
        assert_eq!(uploaded(&uploader, 1), "another", "at the end: {ends}");
    }
}

#[test]
fn a_manifest_without_an_answer_of_the_store_is_kept_and_written_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut uploader = uploader(folder.path());
    save(folder.path(), 1, "first");
    uploader.bring_up_to_date(false).unwrap();
    let manifest = "checkpoint-1/manifest.json";
    uploader.known.insert(manifest.to_string(), UNSURE);
    std::fs::remove_dir_all(folder.path().join("checkpoint-1")).unwrap();
    std::fs::create_dir(folder.path().join("checkpoint-2")).unwrap();
    std::fs::write(folder.path().join("checkpoint-2/model.safetensors"), "incomplete").unwrap();
    uploader.bring_up_to_date(false).unwrap();
    assert_eq!(uploaded(&uploader, 1), "first", "it may be complete");
    save(folder.path(), 2, "next");
    uploader.bring_up_to_date(false).unwrap();
    assert_eq!(uploaded(&uploader, 2), "next");
    assert!(!uploader.remote.objects().unwrap().contains_key(manifest));
}

/// Writes a checkpoint with this text as its weights.
fn save(folder: &Path, step: u64, text: &str) {
    let folder = folder.join(format!("checkpoint-{step}"));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("model.safetensors"), text).unwrap();
    std::fs::write(folder.join("manifest.json"), r#"{"files": [{"name": "model.safetensors"}]}"#).unwrap();
}

fn uploader(folder: &Path) -> Uploader {
    Uploader {
        folder: folder.to_path_buf(),
        remote: Remote::in_memory(),
        claim: Claim::new(Value::Null),
        is_continued: false,
        is_lost: false,
        limit: 2,
        known: Files::new(),
        older: BTreeMap::new(),
        is_first: true,
    }
}

/// The weights in the bucket of a checkpoint that is complete there.
fn uploaded(uploader: &Uploader, step: u64) -> String {
    let folder = format!("checkpoint-{step}");
    let objects = uploader.remote.objects().unwrap();
    assert!(uploader.remote.is_complete(&folder, &objects).unwrap(), "{folder}: {objects:?}");
    let weights = uploader.remote.read(&format!("{folder}/model.safetensors")).unwrap();
    String::from_utf8(weights.unwrap()).unwrap()
}
