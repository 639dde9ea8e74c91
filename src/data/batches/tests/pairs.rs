//! Pairs of segments: their texts, their labels, and how often each label occurs.

use proptest::prelude::*;

use super::*;
use base::rng::{Purpose, Stream};

/// Documents of these lengths, in which each token has a different id; and the document of each id.
fn documents(lengths: &[usize]) -> (Vec<Vec<u32>>, Vec<usize>) {
    let mut next = 0;
    let mut owners = vec![usize::MAX; 5];
    let mut documents = Vec::with_capacity(lengths.len());
    for (number, length) in lengths.iter().enumerate() {
        next += length;
        owners.resize(next + 5, number);
        documents.push((next - length..next).map(|id| id as u32 + 5).collect());
    }
    (documents, owners)
}

/// All rows of an epoch in one batch, without masks, and the number of rows.
fn epoch(set: &Arc<ShardSet>, order: Order, kind: SentencePairs, max_seq_length: usize) -> (Batch, u64) {
    let frame = frame(max_seq_length).with_packing(Packing::Pairs(kind));
    let mut packer = Packer::new(Arc::clone(set), order, frame, Cursor::default()).unwrap();
    let mut batch = Batch { cu_seqlens: vec![0], ..Batch::default() };
    let mut rows = 0;
    while packer.append_row_of_epoch(&mut batch).unwrap().is_some() {
        rows += 1;
    }
    assert!((packer.epoch() - 1.0).abs() < 1e-12, "what was drawn does not count");
    (batch, rows)
}

/// The texts of each segment, with its label.
fn segments(batch: &Batch) -> Vec<(Vec<Vec<u32>>, Option<u32>)> {
    let segments = batch.cu_seqlens.windows(2).map(|bounds| {
        let range = bounds[0] as usize + 1..bounds[1] as usize;
        let ids = &batch.ids[range.clone()];
        let types = &batch.token_type_ids[range];
        assert_eq!((batch.ids[bounds[0] as usize], batch.token_type_ids[bounds[0] as usize]), (0, 0));
        let mut texts: Vec<Vec<u32>> = ids.split(|&id| id == 2).map(<[u32]>::to_vec).collect();
        assert_eq!(texts.pop(), Some(Vec::new()), "a separator ends it");
        let counted = texts.iter().zip(0..).flat_map(|(text, kind)| vec![kind; text.len() + 1]);
        assert_eq!(types, counted.collect::<Vec<u32>>());
        let pair = batch.pair_positions.iter().position(|&position| position == bounds[0]);
        (texts, pair.map(|pair| batch.pair_labels[pair]))
    });
    segments.collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn labels_say_what_the_texts_are_and_every_token_comes_once_an_epoch(
        lengths in prop::collection::vec(1usize..60, 2..16), max_seq_length in 7usize..40, seed: u64, is_next: bool,
    ) {
        let kind = if is_next { SentencePairs::NextSentence } else { SentencePairs::SentenceOrder };
        let (documents, owners) = documents(&lengths);
        let set = Arc::new(ShardSet::in_memory(&documents, VOCAB));
        let (batch, rows) = epoch(&set, Order::Shuffled { seed }, kind, max_seq_length);
        let frame = frame(max_seq_length).with_packing(Packing::Pairs(kind));
        let report = packing_report(&set, &Order::Shuffled { seed }, frame).unwrap();
        let special = batch.ids.iter().filter(|&&id| id < 5).count() as u64;
        prop_assert_eq!((report.rows, report.tokens, report.special_tokens), (rows, batch.num_tokens() as u64, special));
        prop_assert!(report.tokens <= report.capacity);
        let mut own = Vec::new();
        let mut cut = std::collections::BTreeMap::new();
        for (texts, label) in segments(&batch) {
            let mut stretch: Vec<u32> = match (label, texts.as_slice()) {
                (None, [one]) => { prop_assert!(one.len() < 4); one.clone() }
                (Some(0), [first, second]) => [first.clone(), second.clone()].concat(),
                (Some(1), [first, second]) if !is_next => [second.clone(), first.clone()].concat(),
                (Some(1), [first, second]) => {
                    let [a, b] = [first, second].map(|text| owners[text[0] as usize]);
                    prop_assert!(a != b && second.iter().all(|&id| owners[id as usize] == b));
                    prop_assert!(second.windows(2).all(|pair| pair[0] + 1 == pair[1]));
                    first.clone()
                }
                other => { prop_assert!(false, "{:?}", other); Vec::new() }
            };
            prop_assert!(stretch.windows(2).all(|pair| pair[0] + 1 == pair[1]), "one stretch of a document: {:?}", stretch);
            *cut.entry(owners[stretch[0] as usize]).or_insert(0u64) += 1;
            own.append(&mut stretch);
        }
        own.sort_unstable();
        prop_assert_eq!(own, documents.concat());
        prop_assert_eq!(report.documents_cut, cut.values().filter(|&&segments| segments > 1).count() as u64);
    }
}

#[test]
fn half_of_the_pairs_are_of_either_class_and_texts_are_cut_near_the_middle() {
    let lengths: Vec<usize> = (0..12).map(|number| 40 + 7 * number % 60).collect();
    let (documents, _) = documents(&lengths);
    let set = Arc::new(ShardSet::in_memory(&documents, VOCAB));
    for kind in [SentencePairs::NextSentence, SentencePairs::SentenceOrder] {
        let mut labels = Vec::new();
        let mut shares = Vec::new();
        for seed in 0..60 {
            let (batch, _) = epoch(&set, Order::Shuffled { seed }, kind, 24);
            labels.extend(batch.pair_labels.iter().map(|&label| f64::from(label)));
            // The lengths do not reveal the classes if documents are long enough.
            for (texts, _) in segments(&batch).iter().filter(|(_, label)| label.is_some()) {
                shares.push(texts[0].len() as f64 / (texts[0].len() + texts[1].len()) as f64);
            }
        }
        for values in [&labels, &shares] {
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            assert!((mean - 0.5).abs() < 0.03, "{kind:?}: {mean}");
        }
        assert!(shares.iter().all(|share| (0.25..=0.75).contains(share)), "{kind:?}");
    }
}

#[test]
fn a_seed_an_epoch_and_a_row_have_pairs_of_their_own_and_masks_leave_them_alone() {
    let (documents, _) = documents(&[90; 10]);
    let set = Arc::new(ShardSet::in_memory(&documents, VOCAB));
    let [one, again, other] = [1, 1, 2]
        .map(|seed| epoch(&set, Order::Shuffled { seed }, SentencePairs::NextSentence, 30).0.pair_labels);
    assert_eq!(one, again);
    assert_ne!(one, other);
    let frame = frame(30).with_packing(Packing::Pairs(SentencePairs::NextSentence));
    let batches: Vec<Batch> =
        EvaluationBatches::new(&set, frame, masking(), 4).unwrap().map(Result::unwrap).collect();
    let all = batches.iter().flat_map(|batch| batch.pair_labels.clone()).collect::<Vec<u32>>();
    assert_eq!(all, epoch(&set, Order::Fixed, SentencePairs::NextSentence, 30).0.pair_labels);
    for batch in &batches {
        assert_eq!(batch.token_type_ids.len(), batch.ids.len());
        assert!(batch.pair_positions.iter().all(|&at| batch.ids[at as usize] == 0));
        assert!(batch.label_positions.iter().all(|at| !batch.pair_positions.contains(at)));
    }
    // The stream of pairs differs from that of masks.
    let [pairs, masks] = [Purpose::Pairs, Purpose::Mask].map(|purpose| Stream::new(1, purpose, 0).words(0));
    assert_ne!(pairs, masks);
}

#[test]
fn rows_that_hold_no_pair_are_refused() {
    let (documents, _) = documents(&[9]);
    let set = Arc::new(ShardSet::in_memory(&documents, VOCAB));
    let frame = frame(6).with_packing(Packing::Pairs(SentencePairs::SentenceOrder));
    let refused = Packer::new(set, Order::Fixed, frame, Cursor::default()).err().unwrap().to_string();
    assert!(refused.contains("rows of 6 tokens hold no pair of segments"), "{refused}");
}
