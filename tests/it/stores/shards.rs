//! Shards in a bucket: read a window ahead, with room for a part of them on this disk.

use std::fs;
use std::path::Path;

use crate::material::corpus;
use crate::stores::bucket::bucket;
use crate::stores::server::{S3, equip};
use crate::workplace::{Finished, Workplace};

/// Shards as small as may be, two of a window; somewhat more than an epoch.
const WINDOWS: [&str; 4] = [
    "data.shard_tokens=1024",
    "data.shuffle_window_shards=2",
    "training.per_device_train_batch_size=32",
    "training.max_steps=110",
];

/// Puts all files below a folder into the bucket; gives their bytes.
fn put(server: &S3, folder: &Path, key: &str) -> u64 {
    let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
    let put_one = |entry: fs::DirEntry| {
        let key = format!("{key}/{}", entry.file_name().display());
        if entry.path().is_dir() {
            return put(server, &entry.path(), &key);
        }
        let bytes = fs::read(entry.path()).unwrap();
        server.put(&key, &bytes);
        bytes.len() as u64
    };
    entries.map(put_one).sum()
}

/// A machine without any text.
fn bare() -> Workplace {
    let place = Workplace::new();
    fs::remove_file(place.path("corpus.txt")).unwrap();
    place
}

fn run(server: &S3, place: &Workplace, sets: &[&str]) -> Finished {
    server.run(place.command(sets, &[]), &place.path("cache"))
}

#[test]
fn shards_in_a_bucket_train_as_on_the_disk_and_only_some_of_them_lie_here() {
    let Some(server) = bucket() else { return };
    let local = Workplace::new();
    fs::write(local.path("corpus.txt"), corpus(1600)).unwrap();
    local.run(&WINDOWS, &[]).ok();
    let data = local.run_path("data");
    let shards = fs::read_dir(data.join("shards")).unwrap().count();
    let all = put(&server, &data, "prepared");
    let weights = |place: &Workplace| fs::read(place.run_path("final/model.safetensors")).unwrap();

    // Less than half of it has room.
    let room = all * 2 / 5;
    let limit = format!("cache.max_bytes={room}");
    let away = [&WINDOWS[..], &["data.prepared_dir=s3://bucket/prepared", &limit]].concat();
    let place = bare();
    run(&server, &place, &away).ok();
    assert!(weights(&place) == weights(&local), "the bytes of the models differ");
    let objects = fs::read_dir(place.path("cache/mlmtrain/objects"))
        .unwrap()
        .map(|entry| entry.unwrap().metadata().unwrap());
    let lengths: Vec<u64> = objects.map(|metadata| metadata.len()).collect();
    assert!(lengths.len() < shards, "{} of {shards} shards are here", lengths.len());
    assert!(lengths.iter().sum::<u64>() <= room, "{lengths:?}, {room} of {all}");
    let epochs = place.metrics().last().unwrap()["epoch"].as_f64().unwrap();
    assert!(epochs > 1.0, "{epochs} epochs");
    let saved = fs::read_to_string(place.run_path("config.yaml")).unwrap();
    assert!(saved.contains("s3://bucket/prepared") && !saved.contains("views"), "{saved}");

    // A machine vanishes; the next one has nothing but the run.
    let place = bare();
    let mut child =
        equip(&mut place.command(&away, &[]), &server.endpoint, &place.path("cache")).spawn().unwrap();
    while place.checkpoints().is_empty() && child.try_wait().unwrap().is_none() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    fs::remove_dir_all(place.path("cache")).unwrap();
    run(&server, &place, &away).ok();
    assert!(weights(&place) == weights(&local), "the bytes of the models differ after a kill");

    // Without windows all of them come first.
    let whole = ["data.shard_tokens=1024", "data.prepared_dir=s3://bucket/prepared", "training.max_steps=2"];
    run(&server, &bare(), &whole).ok();

    // What cannot be, and what is not there, or is not what was made.
    let epochs = [&away[..], &["training.max_steps=-1"]].concat();
    run(&server, &bare(), &epochs).refused(2, &["training.max_steps", "reads all shards", "bucket"]);
    let counted = [&away[..], &["model.initial_embeddings=cooccurrence"]].concat();
    run(&server, &bare(), &counted).refused(2, &["model.initial_embeddings", "counts in all shards"]);
    let nowhere = [&away[..], &["data.prepared_dir=s3://bucket/nowhere"]].concat();
    run(&server, &bare(), &nowhere).refused(2, &["s3://bucket/nowhere/settings.json", "mlmtrain prepare"]);
    for key in server.keys().iter().filter(|key| key.contains("shards/train")) {
        let mut bytes = server.get(key);
        *bytes.last_mut().unwrap() ^= 1;
        server.put(key, &bytes);
    }
    let broken = run(&server, &bare(), &away);
    let words = ["s3://bucket/prepared/shards/train", "does not match its hash"];
    assert!(
        broken.code == Some(1) && words.iter().all(|word| broken.stderr.contains(word)),
        "{}",
        broken.stderr
    );
}
