//! Which objects of a bucket are deleted.

use std::collections::BTreeSet;

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
