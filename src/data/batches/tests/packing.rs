//! Every token once an epoch, in every mode, from any position on.

use proptest::prelude::*;

use super::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn each_token_comes_exactly_once_an_epoch(lengths in prop::collection::vec(1usize..60, 1..30), max_seq_length in 3usize..40, seed: u64) {
        let folder = tempfile::tempdir().unwrap();
        let set = shards(folder.path(), &lengths);
        let order = Order::Shuffled { seed };
        let sequence = order.sequence(set.sources()).unwrap();
        let mut packer = Packer::new(Arc::clone(&set), order.clone(), frame(max_seq_length), Cursor::default()).unwrap();
        let mut rows = 0;
        let mut pieces: Vec<Vec<u32>> = Vec::new();
        while packer.cursor().tokens < set.num_tokens() {
            let row = packer.next_row().unwrap();
            rows += 1;
            prop_assert!(row.ids.len() <= max_seq_length);
            prop_assert_eq!(*row.segment_ends.last().unwrap() as usize, row.ids.len());
            let mut start = 0;
            for end in row.segment_ends {
                let segment = &row.ids[start..end as usize];
                prop_assert!(segment.len() >= 3);
                prop_assert_eq!((segment[0], segment[segment.len() - 1]), (0, 2));
                pieces.push(segment[1..segment.len() - 1].to_vec());
                start = end as usize;
            }
        }
        let in_order = (0..set.num_documents()).map(|i| set.document(sequence.document(0, i)).unwrap());
        prop_assert_eq!(pieces.concat(), in_order.flatten().collect::<Vec<_>>());
        prop_assert_eq!(rows, rows_per_epoch(&set, &order, frame(max_seq_length)).unwrap());
        prop_assert!((packer.epoch() - 1.0).abs() < 1e-12);
        prop_assert_eq!(packer.next_row().unwrap().sample_id, 1 << 40);
    }
}

#[test]
fn rows_have_no_slivers_and_little_waste() {
    let folder = tempfile::tempdir().unwrap();
    let set = shards(folder.path(), &[50; 200]);
    let mut packer = Packer::new(Arc::clone(&set), Order::Fixed, frame(128), Cursor::default()).unwrap();
    let mut places = 0;
    let mut used = 0;
    while packer.cursor().index < set.num_documents() {
        used += packer.next_row().unwrap().ids.len();
        places += 128;
    }
    assert!(used as f64 / f64::from(places) > 0.95, "{used} of {places}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn every_mode_takes_every_token_once_an_epoch_and_keeps_to_its_rules(
        lengths in prop::collection::vec(1usize..60, 1..40), max_seq_length in 3usize..40, seed: u64, mode in 0usize..18,
    ) {
        let documents = documents(&lengths);
        let set = Arc::new(ShardSet::in_memory(&documents, VOCAB));
        let order = Order::Shuffled { seed };
        let frame = frames(max_seq_length)[mode];
        let report = packing_report(&set, &order, frame).unwrap();
        let mut packer = Packer::new(Arc::clone(&set), order, frame, Cursor::default()).unwrap();
        let mut seen = Vec::new();
        let mut tokens = 0;
        let mut special = 0;
        let mut rows = 0;
        while let Some(row) = packer.next_row_of_epoch().unwrap() {
            rows += 1;
            prop_assert_eq!(row.sample_id, rows - 1);
            prop_assert!(row.ids.len() <= max_seq_length && row.ids.len() > 2);
            prop_assert_eq!(*row.segment_ends.last().unwrap() as usize, row.ids.len());
            prop_assert_eq!((row.ids[0], row.ids[row.ids.len() - 1]), (0, 2));
            let single = matches!(frame.packing, Packing::Documents | Packing::FullSentences { .. });
            prop_assert!(!single || row.segment_ends.len() == 1);
            tokens += row.ids.len() as u64;
            special += row.ids.iter().filter(|id| **id < 5).count() as u64;
            seen.extend(row.ids.into_iter().filter(|id| *id >= 5));
        }
        prop_assert!((packer.epoch() - 1.0).abs() < 1e-12);
        prop_assert_eq!(packer.next_row().unwrap().sample_id, 1 << 40);
        let mut expected: Vec<u32> = documents.concat();
        expected.sort_unstable();
        seen.sort_unstable();
        prop_assert_eq!(seen, expected);
        prop_assert_eq!((report.rows, report.tokens, report.special_tokens), (rows, tokens, special));
        prop_assert_eq!((report.capacity, report.documents), (rows * max_seq_length as u64, lengths.len() as u64));
    }
}

/// Documents of these lengths; every token has the next number.
fn documents(lengths: &[usize]) -> Vec<Vec<u32>> {
    let mut next = 0;
    let documents = lengths.iter().map(|length| {
        next += length;
        (next - length..next).map(token).collect()
    });
    documents.collect()
}

/// The rows of an epoch in the order of the shards, including special tokens.
fn rows_of(lengths: &[usize], max_seq_length: usize, packing: Packing) -> Vec<Vec<u32>> {
    let set = Arc::new(ShardSet::in_memory(&documents(lengths), VOCAB));
    let frame = frame(max_seq_length).with_packing(packing);
    let mut packer = Packer::new(set, Order::Fixed, frame, Cursor::default()).unwrap();
    std::iter::from_fn(|| packer.next_row_of_epoch().unwrap()).map(|row| row.ids).collect()
}

#[test]
fn the_modes_differ_in_the_content_of_a_row() {
    // Tokens are 5, 6, 7, ...; 0 begins a segment, 2 ends it and separates documents.
    let lengths = [2, 3, 4];
    assert_eq!(
        rows_of(&lengths, 8, Packing::FullSentences { separator: true }),
        [vec![0, 5, 6, 2, 7, 8, 9, 2], vec![0, 10, 11, 12, 13, 2]]
    );
    assert_eq!(
        rows_of(&lengths, 8, Packing::FullSentences { separator: false }),
        [vec![0, 5, 6, 7, 8, 9, 10, 2], vec![0, 11, 12, 13, 2]]
    );
    assert_eq!(
        rows_of(&lengths, 5, Packing::Documents),
        [vec![0, 5, 6, 2], vec![0, 7, 8, 9, 2], vec![0, 10, 11, 12, 2], vec![0, 13, 2]]
    );
    let best_fit = rows_of(&lengths, 9, Packing::BestFit { window_documents: 3 });
    assert_eq!(best_fit, [vec![0, 10, 11, 12, 13, 2], vec![0, 7, 8, 9, 2, 0, 5, 6, 2]]);
}

#[test]
fn a_separator_is_never_alone_at_the_end_of_a_row() {
    // After 5 tokens and two special ones, the eighth place could contain a separator with nothing after it.
    let rows = rows_of(&[5, 4], 8, Packing::FullSentences { separator: true });
    assert_eq!(rows, [vec![0, 5, 6, 7, 8, 9, 2], vec![0, 10, 11, 12, 13, 2]]);
}

#[test]
fn best_fit_cuts_fewer_documents_and_wastes_less() {
    let lengths: Vec<usize> = (0..3000).map(|n| 5 + (n * 7919) % 120).collect();
    let set = ShardSet::in_memory(&documents(&lengths), VOCAB);
    let report = |packing| {
        packing_report(&set, &Order::Shuffled { seed: 3 }, frame(128).with_packing(packing)).unwrap()
    };
    let segments = report(Packing::Segments);
    let best_fit = report(Packing::BestFit { window_documents: 1024 });
    assert_eq!(
        best_fit.to_string(),
        "1.6k rows an epoch, 98.6 % full, 3.0 % special tokens, 0 of 3k documents continued in another row"
    );
    assert!(segments.cut_share() > 0.4 && best_fit.documents_cut == 0, "{segments:?} {best_fit:?}");
    assert!(best_fit.fill() > 0.97, "{best_fit:?}");
    assert!(report(Packing::Documents).fill() < 0.6);
    let joined = report(Packing::FullSentences { separator: false });
    assert!(joined.fill() > 0.999 && joined.special_share() < segments.special_share(), "{joined:?}");
}

#[test]
fn packing_resumes_from_any_row_in_every_mode() {
    let lengths = [3, 40, 17, 90, 5, 5, 60, 1, 2, 31, 8, 14];
    let set = Arc::new(ShardSet::in_memory(&documents(&lengths), VOCAB));
    let order = Order::Weighted { seed: 2, weights: [1.5].into() };
    for frame in frames(16) {
        let start = |cursor| Packer::new(Arc::clone(&set), order.clone(), frame, cursor).unwrap();
        let mut whole = start(Cursor::default());
        let rows: Vec<(Cursor, Row)> =
            (0..150).map(|_| (whole.cursor(), whole.next_row().unwrap())).collect();
        assert!(whole.epoch() > 2.0, "{frame:?}");
        for (number, (cursor, _)) in rows.iter().enumerate() {
            let json = serde_json::to_string(cursor).unwrap();
            let mut resumed = start(serde_json::from_str(&json).unwrap());
            for (_, expected) in rows.iter().skip(number).take(4) {
                assert_eq!(&resumed.next_row().unwrap(), expected, "{frame:?} from row {number}");
            }
        }
        let mut skipping = start(Cursor::default());
        skipping.skip_rows(100).unwrap();
        assert_eq!((skipping.cursor(), &skipping.next_row().unwrap()), (rows[100].0.clone(), &rows[100].1));
    }
}

#[test]
fn longer_rows_in_mid_epoch_lose_no_token_and_can_be_resumed() {
    let lengths = [3, 40, 17, 90, 5, 5, 60, 1, 2, 31, 8, 14];
    let set = Arc::new(ShardSet::in_memory(&documents(&lengths), VOCAB));
    // All modes but the last, which draws some tokens in addition.
    for long in frames(32).into_iter().take(21) {
        let short = Frame { max_seq_length: 10, ..long };
        let mut packer =
            Packer::new(Arc::clone(&set), Order::Shuffled { seed: 1 }, short, Cursor::default()).unwrap();
        let mut ids: Vec<u32> = (0..9).flat_map(|_| packer.next_row().unwrap().ids).collect();
        packer.set_max_seq_length(32);
        let mut resumed =
            Packer::new(Arc::clone(&set), Order::Shuffled { seed: 1 }, long, packer.cursor()).unwrap();
        while let Some(row) = packer.next_row_of_epoch().unwrap() {
            assert_eq!(resumed.next_row().unwrap(), row);
            ids.extend(row.ids);
        }
        ids.retain(|id| *id >= 5);
        ids.sort_unstable();
        assert_eq!(ids, (0..276).map(token).collect::<Vec<_>>(), "{long:?}");
    }
}

#[test]
fn a_window_of_longer_rows_is_refused() {
    let set = Arc::new(ShardSet::in_memory(&documents(&[30, 40]), VOCAB));
    for window_seq_length in [1, 17] {
        let cursor = Cursor { window_seq_length, ..Cursor::default() };
        let mut packer =
            Packer::new(Arc::clone(&set), Order::Fixed, frame(16).with_packing(PACKINGS[4]), cursor).unwrap();
        assert!(packer.next_row().unwrap_err().to_string().contains("rows of"));
    }
}

#[test]
fn empty_documents_are_skipped() {
    let set = Arc::new(ShardSet::in_memory(&[vec![], vec![5, 6, 7], vec![], vec![]], VOCAB));
    for packing in PACKINGS {
        let mut packer =
            Packer::new(Arc::clone(&set), Order::Fixed, frame(8).with_packing(packing), Cursor::default())
                .unwrap();
        let epochs: Vec<u64> = (0..3).map(|_| packer.next_row().unwrap().sample_id >> 40).collect();
        assert_eq!(epochs, [0, 1, 2], "{packing:?}");
    }
}
