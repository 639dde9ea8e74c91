//! `prepare` that is killed at random moments, or finds the disk full, and goes on: the bytes are those of an
//! undisturbed run.

use std::fs;
use std::time::{Duration, Instant, SystemTime};

use mlmtrain::rng::{Purpose, Stream};

use crate::workplace::{Tree, Workplace, assert_same_tree, corpus};

const KILLS: u64 = 20;

/// About 2 MB of text in some thirty parts and shards, with filters and duplicates to find.
const CONFIG: &str = "\
run: {output_dir: run, threads: 2}
data:
  sources:
    - {name: stories, files: [corpus.txt], document: paragraph}
    - {name: more, files: [more.txt], document: paragraph}
  filters: {length: {min_words: 30}}
  deduplication: {exact: true, near_threshold: 0.8}
  validation_fraction: 0.1
  shard_tokens: 16384
tokenizer: {vocab_size: 600}
model:
  roberta: {hidden_size: 32, num_hidden_layers: 2, num_attention_heads: 2, intermediate_size: 64}
";

fn place() -> Workplace {
    let place = Workplace::new();
    fs::write(place.path("corpus.txt"), corpus(4000)).unwrap();
    fs::write(place.path("more.txt"), corpus(5000)).unwrap();
    // When a text was written is put down in the settings.
    for name in ["corpus.txt", "more.txt"] {
        let file = fs::File::options().write(true).open(place.path(name)).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000)).unwrap();
    }
    fs::write(place.path("config.yaml"), CONFIG).unwrap();
    place
}

fn prepare(place: &Workplace) -> std::process::Command {
    place.subcommand("prepare", &[], &[])
}

/// Hashes of all that was made, by path inside the run folder.
fn made(place: &Workplace) -> Tree {
    let tree = place.tree();
    tree.into_iter()
        .map(|(path, hash)| (path.strip_prefix(place.path("run")).unwrap().to_path_buf(), hash))
        .collect()
}

#[test]
fn killed_at_random_moments_and_resumed_it_makes_the_same_bytes() {
    let (undisturbed, killed) = (place(), place());
    let start = Instant::now();
    assert!(prepare(&undisturbed).output().unwrap().status.success());
    let whole = start.elapsed();
    let expected = made(&undisturbed);
    assert!(expected.keys().filter(|path| path.extension().is_some_and(|e| e == "safetensors")).count() > 10);

    let moments = Stream::new(0, Purpose::Test, 7);
    let (mut kills, mut runs) = (0, 0);
    while kills < KILLS {
        let mut child = prepare(&killed).spawn().unwrap();
        // Up to a third of an undisturbed run, so that work is left for the next one.
        std::thread::sleep(Duration::from_secs_f64(whole.as_secs_f64() * moments.uniform(runs) / 3.0));
        runs += 1;
        if child.try_wait().unwrap().is_none() {
            kills += 1;
            child.kill().unwrap();
            child.wait().unwrap();
        } else {
            // It came to its end: what it made must be right, and the remaining kills need new work.
            assert_same_tree(&made(&killed), &expected);
            fs::remove_dir_all(killed.path("run")).unwrap();
        }
    }
    let last = prepare(&killed).output().unwrap();
    assert!(last.status.success(), "{}", String::from_utf8_lossy(&last.stderr));
    assert_same_tree(&made(&killed), &expected);
}
