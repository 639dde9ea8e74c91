//! Chunks of long documents: distributed over the epoch, as often as their documents, within windows of
//! shards.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// The rows of an epoch, and the cursor before each.
fn epoch(packer: &mut Packer) -> Vec<(Cursor, Row)> {
    std::iter::from_fn(|| {
        let cursor = packer.cursor();
        packer.next_row_of_epoch().unwrap().map(|row| (cursor, row))
    })
    .collect()
}

/// Documents of these lengths; every token is the number of its document, from 10 on.
fn numbered(lengths: &[usize]) -> Vec<Vec<u32>> {
    (10..).zip(lengths).map(|(number, length)| vec![number; *length]).collect()
}

fn text(row: &Row) -> impl Iterator<Item = u32> {
    row.ids.iter().copied().filter(|id| *id >= 5)
}

#[test]
fn documents_that_fit_a_row_come_as_they_do_without_chunks() {
    let lengths: Vec<usize> = (0..200).map(|n| 1 + n * 7 % 13).collect();
    let set = Arc::new(ShardSet::in_memory(&numbered(&lengths), VOCAB));
    for packing in PACKINGS {
        let whole = frame(16).with_packing(packing);
        // A pair needs one more place, so that 14 tokens do not fill a row of one.
        let [rows, with_chunks] = [whole, Frame { chunk_row: Some(17), ..whole }].map(|frame| {
            let order = Order::Weighted { seed: 3, weights: [1.7].into() };
            let mut packer = Packer::new(Arc::clone(&set), order, frame, Cursor::default()).unwrap();
            (0..300).map(|_| (packer.cursor(), packer.next_row().unwrap())).collect::<Vec<_>>()
        });
        assert_eq!(rows, with_chunks, "{packing:?}");
    }
}

#[test]
fn rows_of_long_documents_are_spread_over_the_whole_epoch() {
    let set = Arc::new(ShardSet::in_memory(&numbered(&[7000; 10]), VOCAB));
    for packing in PACKINGS.into_iter().take(6) {
        let frame = frame(16).with_packing(packing).with_chunks();
        let mut packer =
            Packer::new(Arc::clone(&set), Order::Shuffled { seed: 1 }, frame, Cursor::default()).unwrap();
        let rows = epoch(&mut packer);
        // Batches of 32 rows contain as many different documents as if each row were drawn independently.
        let documents = rows.chunks(32).map(|batch| {
            let all: std::collections::BTreeSet<u32> = batch.iter().flat_map(|(_, row)| text(row)).collect();
            all.len()
        });
        let counts: Vec<usize> = documents.collect();
        let mean = counts.iter().sum::<usize>() as f64 / counts.len() as f64;
        assert!(mean > 9.3, "{packing:?}: {mean} of 10 documents in a batch");
        // A chunk fills a row alone.
        let mixed = rows.iter().filter(|(_, row)| row.segment_ends.len() > 1 || row.ids.len() < 16).count();
        assert!(mixed < 10, "{packing:?}: {mixed} of {} rows", rows.len());
    }
}

#[test]
fn every_other_row_of_a_long_document_has_short_segments() {
    let set = Arc::new(ShardSet::in_memory(&numbered(&[40_000]), VOCAB));
    for packing in PACKINGS.into_iter().take(6) {
        let frame = frame(128).with_packing(packing).with_chunks();
        let mut packer =
            Packer::new(Arc::clone(&set), Order::Shuffled { seed: 5 }, frame, Cursor::default()).unwrap();
        let rows = epoch(&mut packer);
        let short = rows.iter().filter(|(_, row)| row.segment_ends == [32, 64, 96, 128]).count();
        let is_divided = matches!(packing, Packing::Segments | Packing::BestFit { .. });
        assert_eq!(short, if is_divided { 40_000 / 246 } else { 0 }, "{packing:?} of {}", rows.len());
    }
}

#[test]
fn every_chunk_and_every_rest_comes_as_often_as_its_source_is_weighted() {
    // Every document of 35 tokens has 3 chunks of 10 tokens and a rest of 5, each with different ids.
    let [web, books] = [(10, 20), (500, 7)].map(|(first, documents)| -> Vec<Vec<u32>> {
        (0..documents).map(|number| (0..35).map(|t| first + 4 * number + t / 10).collect()).collect()
    });
    let set = Arc::new(ShardSet::in_memory_sources(&[("web", &web), ("books", &books)], VOCAB));
    let orders = [[0.5, 1.0], [2.0, 0.3], [0.0, 1.0]]
        .map(|weights: [f64; 2]| Order::Weighted { seed: 4, weights: weights.into() });
    for packing in [Packing::Segments, Packing::BestFit { window_documents: 5 }] {
        let frame = frame(12).with_packing(packing).with_chunks();
        let mut packer = Packer::with_mixes(Arc::clone(&set), &orders, frame, Cursor::default()).unwrap();
        let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
        for row in 0..900 {
            packer.set_mix(row / 300).unwrap();
            text(&packer.next_row().unwrap()).for_each(|id| *counts.entry(id).or_default() += 1);
            for (first, documents) in [(10, 20), (500, 7)] {
                for (is_rest, length) in [(false, 10), (true, 5)] {
                    let ids = (first..first + 4 * documents).filter(|id| ((id - first) % 4 == 3) == is_rest);
                    let times = ids.map(|id| counts.get(&id).copied().unwrap_or(0).div_ceil(length));
                    let least = times.clone().min().unwrap();
                    let most = times.max().unwrap();
                    // A window shuffles the end of a pass and the beginning of the next one together.
                    let most_apart = 1 + usize::from(is_rest && packing != Packing::Segments);
                    assert!(most - least <= most_apart, "{packing:?} row {row}: {counts:?}");
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn rows_of_short_segments_lose_no_token_and_resume_from_any_row(
        lengths in prop::collection::vec(1usize..900, 1..8), seed: u64, places in 12usize..140, is_best_fit: bool,
    ) {
        let mut numbers = 0..;
        let documents: Vec<Vec<u32>> =
            lengths.iter().map(|length| numbers.by_ref().take(*length).map(token).collect()).collect();
        let set = Arc::new(ShardSet::in_memory(&documents, VOCAB));
        let packing =
            if is_best_fit { Packing::BestFit { window_documents: 3 } } else { Packing::Segments };
        // In the second frame rows are shorter than those for which chunks are made.
        for max_seq_length in [places, places.min(40)] {
            let frame = Frame { chunk_row: Some(places), ..frame(max_seq_length).with_packing(packing) };
            let start = |cursor| Packer::new(Arc::clone(&set), Order::Shuffled { seed }, frame, cursor).unwrap();
            let rows = epoch(&mut start(Cursor::default()));
            prop_assert!(rows.iter().all(|(_, row)| row.ids.len() <= max_seq_length));
            let mut found: Vec<u32> = rows.iter().flat_map(|(_, row)| text(row)).collect();
            let mut expected = documents.concat();
            found.sort_unstable();
            expected.sort_unstable();
            prop_assert_eq!(found, expected);
            for (cursor, row) in rows.iter().step_by(3) {
                let next = start(cursor.clone()).next_row_of_epoch().unwrap();
                prop_assert_eq!(next.as_ref(), Some(row));
            }
        }
    }

    #[test]
    fn windows_of_shards_are_used_up_one_after_the_other(
        lengths in prop::collection::vec(1usize..60, 1..30), seed: u64, size in 1usize..4, which in 0usize..21,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let set = shards(folder.path(), &lengths);
        let frame = frames(12)[which];
        let order = Order::Windowed { seed, size, shards: set.ranges().into() };
        let sequence = order.sequence(set.sources()).unwrap();
        let windows = sequence.windows().unwrap();
        let start = |cursor| Packer::new(Arc::clone(&set), order.clone(), frame, cursor).unwrap();
        let mut packer = start(Cursor::default());
        for number in 0..2 {
            let rows = epoch(&mut packer);
            let mut seen: Vec<u32> = rows.iter().flat_map(|(_, row)| text(row)).collect();
            if frame.chunk_row.is_some() {
                // Window by window, each token of the window occurs once.
                let mut from = 0;
                for window in 0..windows.len() {
                    let inside = windows.shards(window).into_iter().flatten();
                    let mut expected: Vec<u32> =
                        inside.flat_map(|document| set.document(document).unwrap()).collect();
                    let mut found = seen[from..from + expected.len()].to_vec();
                    from += expected.len();
                    expected.sort_unstable();
                    found.sort_unstable();
                    prop_assert_eq!(found, expected, "window {}", window);
                }
            }
            seen.sort_unstable();
            let mut all: Vec<u32> = (0..lengths.iter().sum()).map(token).collect();
            all.sort_unstable();
            prop_assert_eq!(seen, all);
            let report = packing_report(&set, &order, frame).unwrap();
            prop_assert!(number > 0 || report.rows == rows.len() as u64);
            for (number, (cursor, _)) in rows.iter().enumerate() {
                let json = serde_json::to_string(cursor).unwrap();
                let mut resumed = start(serde_json::from_str(&json).unwrap());
                for (_, expected) in rows.iter().skip(number).take(3) {
                    prop_assert_eq!(&resumed.next_row().unwrap(), expected);
                }
            }
            // The next epoch begins with its first row.
            packer = start(Cursor { epoch: 1, ..Cursor::default() });
        }
    }
}

#[test]
fn a_position_of_another_order_is_refused() {
    let set = Arc::new(ShardSet::in_memory(&numbered(&[100, 30]), VOCAB));
    let whole = frame(12);
    let windowed = Order::Windowed { seed: 1, size: 1, shards: set.ranges().into() };
    let [first_chunk, late_chunk] = [1, 14].map(|chunk| Cursor { chunk, ..Cursor::default() });
    for (order, frame, cursor) in [
        (Order::Shuffled { seed: 1 }, whole, first_chunk),
        (Order::Shuffled { seed: 1 }, whole.with_chunks(), late_chunk.clone()),
        (windowed.clone(), whole.with_chunks(), Cursor { shard_window: 1, ..Cursor::default() }),
        (windowed, whole.with_chunks(), late_chunk),
    ] {
        let refused =
            Packer::new(Arc::clone(&set), order, frame, cursor).and_then(|mut packer| packer.next_row());
        let message = refused.unwrap_err().to_string();
        assert!(message.starts_with("the position to continue from"), "{message}");
    }
}
