//! Compares results on generated corpora with planted duplicates to a brute-force comparison of all pairs.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use rayon::prelude::*;

use super::shingles::for_each_shingle;
use super::*;
use base::processes::Processes;
use base::processes::testing::{in_each, threads};
use base::rng::{Purpose, Stream};
use config::DeduplicationConfig;

const THRESHOLD: f64 = 0.8;
const MEMORY_BYTES: usize = 1 << 22;

fn near() -> DeduplicationConfig {
    DeduplicationConfig { exact: true, near_threshold: Some(THRESHOLD), ..DeduplicationConfig::default() }
}

/// Generates `count` words; the same seed and number give the same word.
fn words(seed: u64, count: usize) -> Vec<String> {
    let stream = Stream::new(seed, Purpose::Test, 9);
    (0..count).map(|i| format!("w{}", stream.below(i as u64, 50_000))).collect()
}

/// Replaces `changes` words, spread evenly; each replacement changes five shingles.
fn changed(words: &[String], changes: usize, seed: u64) -> Vec<String> {
    let mut words = words.to_vec();
    for change in 0..changes {
        let at = (change * words.len() + words.len() / 2) / changes;
        words[at] = format!("x{seed}y{change}");
    }
    words
}

/// Writes the sketches of `texts` in parts of these sizes, and the remaining ones in a last part.
fn parts(folder: &Path, config: &DeduplicationConfig, texts: &[String], sizes: &[usize]) -> Vec<PathBuf> {
    let sketcher = Sketcher::new(config).unwrap();
    let sketches: Vec<Sketch> = texts.par_iter().map(|text| sketcher.sketch(text)).collect();
    let mut sketches = sketches.iter();
    let sizes = sizes.iter().copied().chain([usize::MAX]);
    sizes
        .enumerate()
        .map(|(number, size)| {
            let path = folder.join(format!("part-{number}.sketches"));
            let mut writer = SketchWriter::create(&path, &sketcher).unwrap();
            sketches.by_ref().take(size).for_each(|sketch| writer.push(sketch).unwrap());
            writer.finish().unwrap();
            path
        })
        .collect()
}

/// Reason and original of each document.
type Found = Vec<Option<(&'static str, u64)>>;

fn found(duplicates: &Duplicates, documents: usize) -> Found {
    let documents = 0..documents as u64;
    documents
        .map(|i| duplicates.reason(i).map(|reason| (reason, duplicates.original(i).unwrap().unwrap())))
        .collect()
}

fn search(config: &DeduplicationConfig, texts: &[String], sizes: &[usize], memory_bytes: usize) -> Found {
    let folder = tempfile::tempdir().unwrap();
    let parts = parts(folder.path(), config, texts, sizes);
    let scratch = folder.path().join("scratch");
    let duplicates =
        resolve(Processes::ALONE, &parts, &scratch, config, memory_bytes, &mut |_, _| {}).unwrap();
    assert_eq!(std::fs::read_dir(&scratch).unwrap().count(), 0, "nothing is left behind");
    let alone = found(&duplicates, texts.len());
    for size in [2, 3] {
        let together = in_each(&threads(size), |processes| {
            resolve(processes, &parts, &scratch, config, memory_bytes, &mut |_, _| {}).unwrap()
        });
        assert_eq!(found(&together[0], texts.len()), alone, "of {size}");
        for other in &together {
            let reasons: Vec<Option<&str>> = (0..texts.len() as u64).map(|i| other.reason(i)).collect();
            assert!(reasons.iter().copied().eq(alone.iter().map(|found| found.map(|(reason, _)| reason))));
        }
    }
    alone
}

fn shingle_set(text: &str) -> BTreeSet<u32> {
    let mut set = BTreeSet::new();
    for_each_shingle(text, 5, |shingle| {
        set.insert(shingle);
    });
    set
}

fn jaccard(a: &BTreeSet<u32>, b: &BTreeSet<u32>) -> f64 {
    let shared = a.intersection(b).count();
    shared as f64 / (a.len() + b.len() - shared) as f64
}

/// Generates 500 documents: 100 originals, and long after each of them, copies with more and more changed
/// words.
fn planted() -> Vec<String> {
    let originals: Vec<Vec<String>> = (0..100).map(|i| words(i, 200 + 5 * i as usize)).collect();
    let mut texts: Vec<String> = originals.iter().map(|words| words.join(" ")).collect();
    for copy in 1..5u64 {
        for (number, words) in originals.iter().enumerate() {
            // A share c of changed words gives J = (1 - 5c) / (1 + 5c).
            let jaccard = [0.97, 0.93, 0.9, 0.85, 0.75, 0.7, 0.55, 0.3][(number + 2 * copy as usize) % 8];
            let share = (1.0 - jaccard) / (1.0 + jaccard) / 5.0;
            let changes = (words.len() as f64 * share).round().max(1.0) as usize;
            texts.push(changed(words, changes, 1000 * copy + number as u64).join(" "));
        }
    }
    texts
}

#[test]
fn near_duplicates_equal_those_of_a_comparison_of_all_pairs() {
    let texts = planted();
    let sets: Vec<BTreeSet<u32>> = texts.iter().map(|text| shingle_set(text)).collect();
    let found = search(&near(), &texts, &[33, 0, 200], MEMORY_BYTES);
    let mut high = 0;
    let mut high_found = 0;
    for (i, set) in sets.iter().enumerate() {
        let kept = (0..i).filter(|j| found[*j].is_none());
        let best = kept.map(|j| jaccard(set, &sets[j])).fold(0.0, f64::max);
        if best >= 0.9 {
            high += 1;
            high_found += usize::from(found[i].is_some());
        }
        if let Some((reason, original)) = found[i] {
            assert_eq!(reason, "near_duplicate");
            assert!(
                (original as usize) < i && found[original as usize].is_none(),
                "{i} repeats {original}, which stays"
            );
            let similarity = jaccard(set, &sets[original as usize]);
            assert!(similarity >= 0.6, "{i} is taken for a copy of {original} at {similarity}");
        }
    }
    assert!(high >= 120, "the made corpus has {high} pairs at 0.9 or more");
    assert!(high_found as f64 >= 0.97 * high as f64, "{high_found} of {high}");
}

#[test]
fn planted_copies_are_counted_exactly() {
    // Every twentieth document repeats the one ten before it, with other spacing.
    let mut texts: Vec<String> = (0..2000).map(|i| words(i, 30).join(" ")).collect();
    for i in (19..2000).step_by(20) {
        texts[i] = texts[i - 10].replace(' ', "\n ");
    }
    for (config, reason) in [
        (DeduplicationConfig { exact: true, ..DeduplicationConfig::default() }, "exact_duplicate"),
        (near(), "exact_duplicate"),
        (DeduplicationConfig { exact: false, ..near() }, "near_duplicate"),
    ] {
        for memory_bytes in [0, MEMORY_BYTES] {
            let found = search(&config, &texts, &[700, 700], memory_bytes);
            assert_eq!(found.iter().flatten().count(), 100);
            assert!((19..2000).step_by(20).all(|i| found[i] == Some((reason, i as u64 - 10))));
        }
    }
}

#[test]
fn threads_memory_and_parts_do_not_change_the_result() {
    let mut texts = planted();
    texts.extend_from_within(20..60);
    let expected = search(&near(), &texts, &[], MEMORY_BYTES);
    assert_eq!(expected.iter().flatten().filter(|(reason, _)| *reason == "exact_duplicate").count(), 40);
    for threads in [1, 2, 7] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        for (memory_bytes, sizes) in [(0, &[1, 1, 500][..]), (1 << 14, &[100]), (MEMORY_BYTES, &[0, 0, 7])] {
            assert!(
                pool.install(|| search(&near(), &texts, sizes, memory_bytes)) == expected,
                "{threads} {memory_bytes} {sizes:?}"
            );
        }
    }
    // More parts than files that may be open.
    assert!(search(&near(), &texts, &[1; 400], 0) == expected);
}

#[test]
fn a_chain_of_small_changes_keeps_its_far_end() {
    // Each document differs from the previous one in 4 of 400 words, at other places each time: similarity
    // 0.905 to the previous one, 0.82 over two steps, 0.74 over three, and so on.
    let mut texts = vec![words(5, 400)];
    for link in 1..12usize {
        let mut next = texts[link - 1].clone();
        for change in 0..4 {
            next[change * 100 + link * 8] = format!("link{link}change{change}");
        }
        texts.push(next);
    }
    let texts: Vec<String> = texts.iter().map(|words| words.join(" ")).collect();
    let found = search(&near(), &texts, &[], MEMORY_BYTES);
    let kept: Vec<usize> = (0..12).filter(|i| found[*i].is_none()).collect();
    assert!(kept.len() >= 3 && kept.len() <= 6 && kept[0] == 0, "{kept:?}");
}

#[test]
fn a_copy_of_a_near_duplicate_repeats_the_kept_document() {
    let original = words(1, 300);
    let like = changed(&original, 2, 1).join(" ");
    let texts = vec!["something else".to_string(), original.join(" "), like.clone(), like];
    let found = search(&near(), &texts, &[2], MEMORY_BYTES);
    assert_eq!(found, [None, None, Some(("near_duplicate", 1)), Some(("exact_duplicate", 1))]);
}

#[test]
fn one_of_many_similar_documents_is_kept() {
    let original = words(3, 200);
    let mut texts: Vec<String> = (0..600).map(|i| changed(&original, 1, i).join(" ")).collect();
    texts.push(words(4, 200).join(" "));
    let found = search(&near(), &texts, &[], 1 << 16);
    assert_eq!((0..601).filter(|i| found[*i].is_none()).collect::<Vec<_>>(), [0, 600]);
}

#[test]
fn short_documents_and_those_without_spaces_are_distinguished() {
    let chinese = "我能吞下玻璃而不伤身体我能吞下玻璃而不伤身体因为玻璃对我没有任何伤害所以我每天早上都吃一块玻璃然后去上班";
    let other = "今天天气很好我们一起去公园散步看见许多人在湖边钓鱼孩子们在草地上奔跑老人坐在长椅上晒太阳";
    let texts: Vec<String> = ["Yes.", "No.", "", "?!", "yes", chinese, other, &format!("{chinese}。")]
        .map(str::to_string)
        .to_vec();
    let found = search(&near(), &texts, &[], MEMORY_BYTES);
    let expected =
        [None, None, None, None, Some(("near_duplicate", 0)), None, None, Some(("near_duplicate", 5))];
    assert_eq!(found, expected);
}

#[test]
fn progress_rises_to_the_total() {
    let folder = tempfile::tempdir().unwrap();
    let texts: Vec<String> = (0..20_000).map(|i| format!("document {i}")).collect();
    let parts = parts(folder.path(), &near(), &texts, &[]);
    let mut reports = Vec::new();
    let duplicates =
        resolve(Processes::ALONE, &parts, folder.path(), &near(), MEMORY_BYTES, &mut |done, total| {
            reports.push((done, total));
        })
        .unwrap();
    assert!(reports.len() > 10 && reports.is_sorted() && reports.iter().all(|(done, total)| done <= total));
    assert!(matches!(reports.last(), Some((done, total)) if done == total));
    assert!((0..20_000).all(|index| duplicates.reason(index).is_none()));
}

#[test]
fn a_damaged_file_is_an_error_that_names_it() {
    let folder = tempfile::tempdir().unwrap();
    let texts: Vec<String> = (0..50).map(|i| words(i, 20).join(" ")).collect();
    let parts = parts(folder.path(), &near(), &texts, &[20]);
    let whole = std::fs::read(&parts[1]).unwrap();
    for at in (0..whole.len()).step_by(101).chain(0..48) {
        let mut flipped = whole.clone();
        flipped[at] ^= 1 << (at % 8);
        require_refusal(&parts, &flipped, &format!("bit {} of byte {at}", at % 8));
    }
    for len in [0, 1, 47, 48, whole.len() - 1] {
        require_refusal(&parts, &whole[..len], &format!("cut to {len} bytes"));
    }
    require_refusal(&parts, &[whole.as_slice(), b"x"].concat(), "a byte too many");
    // A valid header with a count of 2^60 documents.
    let mut huge = whole.clone();
    huge[32..40].copy_from_slice(&(1u64 << 60).to_le_bytes());
    let own = crc32c::crc32c(&huge[..44]);
    huge[44..48].copy_from_slice(&own.to_le_bytes());
    require_refusal(&parts, &huge, "a huge count");
    std::fs::remove_file(&parts[1]).unwrap();
    assert!(resolve(Processes::ALONE, &parts, folder.path(), &near(), MEMORY_BYTES, &mut |_, _| {}).is_err());
    std::fs::write(&parts[1], &whole).unwrap();
    let other = DeduplicationConfig { shingle_words: 4, ..near() };
    let error = resolve(Processes::ALONE, &parts, folder.path(), &other, MEMORY_BYTES, &mut |_, _| {})
        .unwrap_err()
        .to_string();
    assert!(error.contains("part-0.sketches") && error.contains("other settings"), "{error}");
}

/// Replaces the second file by `bytes` and requires an error that names it.
fn require_refusal(parts: &[PathBuf], bytes: &[u8], what: &str) {
    std::fs::write(&parts[1], bytes).unwrap();
    let folder = parts[1].parent().unwrap();
    let error = resolve(Processes::ALONE, parts, folder, &near(), MEMORY_BYTES, &mut |_, _| {})
        .expect_err(what)
        .to_string();
    assert!(error.contains("part-1.sketches"), "{what}: {error}");
}

#[test]
fn an_unfinished_file_of_sketches_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("part");
    let sketcher = Sketcher::new(&near()).unwrap();
    let mut writer = SketchWriter::create(&path, &sketcher).unwrap();
    writer.push(&sketcher.sketch("a")).unwrap();
    drop(writer);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
