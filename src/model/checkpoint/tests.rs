//! Tests of what checkpoints promise: they are complete or absent, damage is always found, and the newest
//! valid one is used.

use std::collections::BTreeMap;
use std::path::Path;

use candle_core::{DType, Device, Tensor};
use proptest::prelude::*;
use serde_json::json;

use super::*;
use base::error::{Class, class_of};
use base::fs::testing::skipped;
use base::sealed::write_sealed;

const KEEP_ALL: &Retention = &keep(100, None);

const fn keep(limit: usize, best_step: Option<u64>) -> Retention {
    Retention { limit, save_steps: 0, total_bytes: None, in_trouble: Vec::new(), best_step }
}

fn tensor(values: &[f32]) -> Tensor {
    Tensor::new(values, &Device::Cpu).unwrap()
}

fn snapshot(step: u64) -> Snapshot {
    let weights = vec![
        ("b.weight".to_string(), tensor(&[step as f32, 2.0, 3.0])),
        ("a.weight".to_string(), tensor(&[-1.5])),
    ];
    let parts = vec![
        ("model.safetensors".to_string(), Part::Tensors(weights)),
        ("trainer/state.json".to_string(), Part::Json(json!({ "step": step, "tokens": 12345 }))),
        ("tokenizer.json".to_string(), Part::Bytes(b"{}".to_vec())),
    ];
    Snapshot { step, parts }
}

fn store_with(steps: &[u64]) -> (tempfile::TempDir, CheckpointStore) {
    let folder = tempfile::tempdir().unwrap();
    let store = CheckpointStore::new(folder.path());
    for &step in steps {
        store.save(&snapshot(step), KEEP_ALL).unwrap();
    }
    (folder, store)
}

fn names_in(folder: &Path) -> Vec<String> {
    base::fs::list(folder)
        .unwrap()
        .iter()
        .map(|path| path.file_name().unwrap().to_string_lossy().into_owned())
        .collect()
}

fn newest_step(store: &CheckpointStore) -> Option<u64> {
    store.newest(Ok).unwrap().0.map(|checkpoint| checkpoint.step())
}

#[test]
fn what_was_saved_comes_back() {
    let (folder, store) = store_with(&[7]);
    let (checkpoint, refused) = store.newest(Ok).unwrap();
    let checkpoint = checkpoint.unwrap();
    assert!(refused.is_empty());
    assert_eq!((checkpoint.step(), checkpoint.path()), (7, folder.path().join("checkpoint-7").as_path()));
    assert_eq!(checkpoint.json("trainer/state.json").unwrap(), json!({ "step": 7, "tokens": 12345 }));
    assert_eq!(checkpoint.bytes("tokenizer.json", 10).unwrap(), b"{}");
    let tensors = checkpoint.tensors("model.safetensors").unwrap();
    assert_eq!(tensors.keys().collect::<Vec<_>>(), ["a.weight", "b.weight"]);
    assert_eq!(tensors["b.weight"].to_vec1::<f32>().unwrap(), [7.0, 2.0, 3.0]);
    let missing = checkpoint.json("trainer/other.json").unwrap_err().to_string();
    assert!(missing.contains("no part `trainer/other.json`"), "{missing}");
}

#[test]
fn the_file_is_what_the_safetensors_library_reads_and_transformers_accepts() {
    let device = Device::Cpu;
    let tensors = vec![
        // More values than are copied at once, and not in the order of memory.
        (
            "long".to_string(),
            Tensor::arange(0.0_f32, 420_000.0, &device).unwrap().reshape((700, 600)).unwrap().t().unwrap(),
        ),
        (
            "half".to_string(),
            Tensor::new(&[[1.0_f32, -2.0], [0.5, 4.0]], &device).unwrap().to_dtype(DType::F16).unwrap(),
        ),
        (
            "transposed".to_string(),
            Tensor::new(&[[1.0_f32, 2.0, 3.0], [4.0, 5.0, 6.0]], &device).unwrap().t().unwrap(),
        ),
        ("ids".to_string(), Tensor::new(&[1_i64, -9], &device).unwrap()),
        ("empty".to_string(), Tensor::zeros((0, 3), DType::F32, &device).unwrap()),
    ];
    let mut bytes = Vec::new();
    write_tensors(&mut bytes, &tensors).unwrap();
    let (_, metadata) = safetensors::SafeTensors::read_metadata(&bytes).unwrap();
    assert_eq!(metadata.metadata().as_ref().unwrap()["format"], "pt");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    std::fs::write(&path, &bytes).unwrap();
    let read = TensorFile::open(&path).unwrap().tensors().unwrap();
    assert_eq!(read["transposed"].to_vec2::<f32>().unwrap(), [[1.0, 4.0], [2.0, 5.0], [3.0, 6.0]]);
    assert!(read["long"].to_vec2::<f32>().unwrap() == tensors[0].1.to_vec2::<f32>().unwrap());
    assert_eq!(read["ids"].to_vec1::<i64>().unwrap(), [1, -9]);
    assert_eq!(read["half"].dtype(), DType::F16);
    assert_eq!(read["empty"].dims(), [0, 3]);
    let mut reversed = Vec::new();
    write_tensors(&mut reversed, &tensors.into_iter().rev().collect::<Vec<_>>()).unwrap();
    assert_eq!(bytes, reversed, "the bytes do not depend on the order in which tensors are handed over");
}

#[test]
fn every_flipped_byte_is_found_and_named() {
    let (_folder, store) = store_with(&[1, 2]);
    let path = store.path_of(2);
    for name in ["manifest.json", "model.safetensors", "trainer/state.json"] {
        let file = path.join(name);
        let good = std::fs::read(&file).unwrap();
        for position in 0..good.len() {
            let mut bad = good.clone();
            bad[position] ^= 1 << (position % 8);
            std::fs::write(&file, &bad).unwrap();
            let message = format!("{:#}", Checkpoint::open(&path).unwrap_err());
            assert!(message.contains("checkpoint-2"), "{name} byte {position}: {message}");
        }
        std::fs::write(&file, &good).unwrap();
    }
    Checkpoint::open(&path).unwrap();
    std::fs::write(path.join("tokenizer.json"), b"[]").unwrap();
    let (checkpoint, refused) = store.newest(Ok).unwrap();
    assert_eq!(checkpoint.unwrap().step(), 1);
    assert!(
        refused.len() == 1 && refused[0].contains("tokenizer.json") && refused[0].contains("SHA-256"),
        "{refused:?}"
    );
}

#[test]
fn a_checkpoint_that_its_reader_cannot_use_is_skipped() {
    let (_folder, store) = store_with(&[1, 2, 3]);
    let newest = store.newest(|checkpoint| match checkpoint.step() {
        3 => anyhow::bail!("no state"),
        step => Ok(step),
    });
    assert_eq!(newest.unwrap(), (Some(2), vec!["no state".to_string()]));
}

#[test]
fn short_missing_and_renamed_checkpoints_are_refused_with_the_reason() {
    let (folder, store) = store_with(&[10, 20, 30, 40]);
    let weights = store.path_of(40).join("model.safetensors");
    let bytes = std::fs::read(&weights).unwrap();
    std::fs::write(&weights, &bytes[..bytes.len() - 1]).unwrap();
    std::fs::remove_file(store.path_of(30).join("manifest.json")).unwrap();
    std::fs::rename(store.path_of(20), store.path_of(25)).unwrap();
    std::fs::create_dir(folder.path().join("checkpoint-050")).unwrap();
    let (checkpoint, refused) = store.newest(Ok).unwrap();
    assert_eq!(checkpoint.unwrap().step(), 10);
    assert!(
        refused[0].contains("model.safetensors") && refused[0].contains("the manifest says"),
        "{}",
        refused[0]
    );
    assert!(refused[1].contains("checkpoint-30: there is no `manifest.json`"), "{}", refused[1]);
    assert!(refused[2].contains("checkpoint-25: holds step 20"), "{}", refused[2]);
}

#[test]
fn the_step_of_the_newest_checkpoint_is_found_without_reading_its_files() {
    let (_folder, store) = store_with(&[10, 20, 30, 40]);
    assert_eq!(store.newest_step().unwrap(), Some(40));
    // Of the right size, but with another content, which is not read.
    std::fs::write(store.path_of(40).join("tokenizer.json"), b"[]").unwrap();
    assert_eq!(store.newest_step().unwrap(), Some(40));
    std::fs::write(store.path_of(40).join("tokenizer.json"), b"[").unwrap();
    std::fs::remove_file(store.path_of(30).join("manifest.json")).unwrap();
    std::fs::rename(store.path_of(20), store.path_of(25)).unwrap();
    assert_eq!(store.newest_step().unwrap(), Some(10));
    std::fs::remove_dir_all(store.path_of(10)).unwrap();
    assert_eq!(store.newest_step().unwrap(), None);
}

#[test]
fn old_checkpoints_go_and_the_best_and_later_ones_stay() {
    let (folder, store) = store_with(&[1, 2, 3, 4, 90]);
    store.save(&snapshot(5), &keep(2, Some(2))).unwrap();
    assert_eq!(store.steps().unwrap(), [2, 4, 5, 90]);
    assert_eq!(names_in(folder.path()).len(), 4);
}

#[test]
fn an_old_checkpoint_that_cannot_be_deleted_is_reported_and_prevents_no_save() {
    let (_folder, store) = store_with(&[1, 2]);
    set_mode(&store.path_of(1), 0o500);
    let warnings = store.save(&snapshot(3), &keep(2, None)).unwrap();
    if !store.path_of(1).exists() {
        return skipped("this user may delete everything");
    }
    set_mode(&store.path_of(1), 0o700);
    assert!(warnings.len() == 1 && warnings[0].contains("checkpoint-1"), "{warnings:?}");
    assert_eq!(newest_step(&store), Some(3));
}

fn set_mode(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_link_in_the_place_of_a_new_folder_is_not_followed() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join(".tmp-checkpoint-1");
    let outside = folder.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::os::unix::fs::symlink(&outside, &root).unwrap();
    let message = format!("{:#}", write_sealed(&root, 1, &snapshot(1).parts).unwrap_err());
    assert!(message.contains(".tmp-checkpoint-1"), "{message}");
    assert_eq!(names_in(&outside), [""; 0]);
    // A store removes the link and leaves its target alone.
    CheckpointStore::new(folder.path()).save(&snapshot(1), KEEP_ALL).unwrap();
    assert_eq!(names_in(folder.path()), ["checkpoint-1", "outside"]);
    assert_eq!(names_in(&outside), [""; 0]);
}

#[test]
fn saving_a_step_again_replaces_it() {
    let (folder, store) = store_with(&[3]);
    let mut again = snapshot(3);
    again.parts.push(("extra.json".to_string(), Part::Json(json!(1))));
    store.save(&again, &keep(1, None)).unwrap();
    assert_eq!(store.newest(Ok).unwrap().0.unwrap().json("extra.json").unwrap(), json!(1));
    assert_eq!(names_in(folder.path()), ["checkpoint-3"]);
}

#[test]
fn an_interrupted_replacement_loses_nothing_and_leftovers_go() {
    let (folder, store) = store_with(&[3]);
    std::fs::rename(store.path_of(3), folder.path().join(".old-checkpoint-3")).unwrap();
    std::fs::create_dir_all(folder.path().join(".tmp-checkpoint-4/trainer")).unwrap();
    std::fs::write(folder.path().join(".tmp-1-metrics.jsonl"), b"half").unwrap();
    assert_eq!(newest_step(&store), Some(3));
    store.save(&snapshot(4), KEEP_ALL).unwrap();
    assert_eq!(names_in(folder.path()), ["checkpoint-3", "checkpoint-4"]);
    // The reverse: the new checkpoint was published, but is damaged, and the old one is still there.
    std::fs::rename(store.path_of(4), folder.path().join(".old-checkpoint-4")).unwrap();
    std::fs::create_dir(store.path_of(4)).unwrap();
    assert_eq!(newest_step(&store), Some(4));
    store.save(&snapshot(5), KEEP_ALL).unwrap();
    assert_eq!(names_in(folder.path()), ["checkpoint-3", "checkpoint-4", "checkpoint-5"]);
    Checkpoint::open(&store.path_of(4)).unwrap();
}

#[test]
fn a_failed_save_keeps_what_was_there_and_says_how_much_room_there_is() {
    let (folder, store) = store_with(&[1]);
    let mut broken = snapshot(2);
    // `trainer` cannot be a file and a folder: the second write fails like on a failing disk.
    broken.parts.insert(0, ("trainer".to_string(), Part::Bytes(Vec::new())));
    let error = store.save(&broken, &keep(1, None)).unwrap_err();
    assert_eq!(class_of(&error), Class::Disk);
    let message = error.to_string();
    assert!(
        message.contains("checkpoint-2") && message.contains(" are free") && message.contains("hint:"),
        "{message}"
    );
    assert_eq!(names_in(folder.path()), ["checkpoint-1"]);
    let error = store.require_space(u64::MAX).unwrap_err();
    assert_eq!(class_of(&error), Class::Disk);
}

#[test]
fn names_that_leave_the_folder_are_refused() {
    let (_folder, store) = store_with(&[]);
    for name in ["../x", "/etc/x", "a/../../x", "", "a//b", "manifest.json", "./a"] {
        let bad = Snapshot { step: 1, parts: vec![(name.to_string(), Part::Bytes(Vec::new()))] };
        assert!(store.save(&bad, KEEP_ALL).is_err(), "{name}");
    }
    assert_eq!(newest_step(&store), None);
}

#[test]
fn a_name_that_comes_twice_in_a_tensor_file_is_refused() {
    let header = br#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#;
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(header);
    bytes.extend_from_slice(&[0; 4]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    std::fs::write(&path, bytes).unwrap();
    let message = TensorFile::open(&path).err().unwrap().to_string();
    assert!(message.contains("model.safetensors") && message.contains("`a` twice"), "{message}");
}

#[test]
fn tensors_that_share_bytes_or_leave_some_out_are_refused() {
    for second in ["[0,4]", "[2,6]", "[3,8]", "[8,12]", "[4,3]"] {
        let header = format!(
            r#"{{"a":{{"dtype":"F32","shape":[1],"data_offsets":[0,4]}},"b":{{"dtype":"F32","shape":[1],"data_offsets":{second}}}}}"#
        );
        let bytes = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &[0; 12]].concat();
        let message = read_tensors(&bytes).unwrap_err();
        let place = format!("has no valid header in its first {} bytes", 8 + header.len());
        assert!(message.contains("model.safetensors") && message.contains(&place), "{second}: {message}");
    }
}

fn read_tensors(bytes: &[u8]) -> Result<BTreeMap<String, Tensor>, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    std::fs::write(&path, bytes).unwrap();
    TensorFile::open(&path).and_then(|file| file.tensors()).map_err(|e| format!("{e:#}"))
}

proptest! {
    #[test]
    fn arbitrary_bytes_as_tensors_are_refused_by_name(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let message = read_tensors(&bytes).unwrap_err();
        prop_assert!(message.contains("model.safetensors"), "{message}");
    }

    #[test]
    fn a_mutated_tensor_file_is_read_or_refused_by_name(position in 0..200_usize, byte in any::<u8>(), cut in 0..20_usize) {
        let mut bytes = Vec::new();
        write_tensors(&mut bytes, &[("w".to_string(), tensor(&[1.0, 2.0])), ("v".to_string(), tensor(&[3.0]))]).unwrap();
        let position = position % bytes.len();
        bytes[position] = byte;
        bytes.truncate(bytes.len() - cut);
        if let Err(message) = read_tensors(&bytes) {
            prop_assert!(message.contains("model.safetensors"), "{message}");
        }
    }
}
