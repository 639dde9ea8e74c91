//! Packing, masking and loading over real shards in a temporary folder.

use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::config::Family;
use crate::config::MlmConfig;
use crate::corpus::Side;
use crate::rng::Purpose;
use crate::rng::Stream;
use crate::shards::Manifest;
use crate::shards::ShardSet;
use crate::shards::ShardWriter;
use crate::shards::SplitEntry;
use crate::tokenizer::BpeOptions;
use crate::tokenizer::BpeTrainer;
use crate::tokenizer::Tokenizer;

const VOCAB: usize = 1000;

/// Shards whose documents have the given lengths; every token says which one it is, modulo the vocabulary.
fn shards(folder: &Path, lengths: &[usize]) -> Arc<ShardSet> {
    let mut writer = ShardWriter::new(folder, Side::Train, "f", VOCAB, 50);
    let mut next = 0;
    for length in lengths {
        let ids: Vec<u32> = (next..next + length).map(token).collect();
        next += length;
        writer.push(&ids, 1).unwrap();
    }
    let (train, validation) = (writer.finish().unwrap(), SplitEntry::default());
    let (version, sources) = (Manifest::VERSION, vec!["text".to_string()]);
    let names = (String::new(), "f".to_string());
    Manifest {
        version,
        settings_sha256: names.0,
        tokenizer: names.1,
        vocab_size: VOCAB,
        sources,
        documents_read: 0,
        without_tokens: 0,
        train,
        validation,
    }
    .write(folder)
    .unwrap();
    Arc::new(ShardSet::open(folder, Side::Train).unwrap())
}

fn token(number: usize) -> u32 {
    (5 + number % (VOCAB - 5)) as u32
}

fn tokenizer() -> Tokenizer {
    let options = BpeOptions { family: Family::Roberta, vocab_size: 261, min_frequency: 2, model_max_length: 512 };
    BpeTrainer::new(options).unwrap().finish(|_| {}).unwrap()
}

fn frame(max_seq_length: usize) -> Frame {
    Frame::new(&tokenizer(), max_seq_length).unwrap()
}

fn masking() -> Masking {
    Masking::new(&MlmConfig::default(), &tokenizer()).unwrap()
}

fn loader(set: &Arc<ShardSet>, rows: usize, accumulation_steps: usize, cursor: Cursor) -> Loader {
    let options = LoaderOptions { seed: 7, rows_per_micro_batch: rows, accumulation_steps };
    Loader::start(Arc::clone(set), frame(16), masking(), options, cursor).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn each_token_comes_exactly_once_an_epoch(lengths in prop::collection::vec(1usize..60, 1..30), max_seq_length in 3usize..40, seed: u64) {
        let folder = tempfile::tempdir().unwrap();
        let set = shards(folder.path(), &lengths);
        let order = Order::Shuffled { seed };
        let mut packer = Packer::new(Arc::clone(&set), order, frame(max_seq_length), Cursor::default()).unwrap();
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
        let in_order = (0..set.num_documents()).map(|i| set.document(order.document(0, i, set.num_documents())).unwrap());
        prop_assert_eq!(pieces.concat(), in_order.flatten().collect::<Vec<_>>());
        prop_assert_eq!(rows, rows_per_epoch(&set, order, max_seq_length).unwrap());
        prop_assert!((packer.epoch() - 1.0).abs() < 1e-12);
        prop_assert_eq!(packer.next_row().unwrap().sample_id, 1 << 40);
    }
}

#[test]
fn rows_have_no_slivers_and_little_waste() {
    let folder = tempfile::tempdir().unwrap();
    let set = shards(folder.path(), &[50; 200]);
    let mut packer = Packer::new(Arc::clone(&set), Order::Fixed, frame(128), Cursor::default()).unwrap();
    let (mut places, mut used) = (0, 0);
    while packer.cursor().index < set.num_documents() {
        used += packer.next_row().unwrap().ids.len();
        places += 128;
    }
    assert!(used as f64 / f64::from(places) > 0.95, "{used} of {places}");
}

#[test]
fn masks_keep_to_their_shares_and_off_special_tokens() {
    let (tokenizer, masking) = (tokenizer(), masking());
    let (mut chosen, mut masked, mut kept, mut ordinary) = (0, 0, 0, 0);
    for sample in 0..1000 {
        let original: Vec<u32> = (0..101).map(|t| if t % 100 == 0 { 0 } else { 5 + t as u32 }).collect();
        let mut ids = original.clone();
        let mut labels = Vec::new();
        masking.apply(Stream::new(3, Purpose::Mask, sample), &mut ids, |place, id| labels.push((place as usize, id)));
        ordinary += 99;
        chosen += labels.len();
        for (place, id) in &labels {
            assert_eq!(original[*place], *id);
            assert!(!tokenizer.special_ids().contains(id));
            match ids[*place] {
                4 => masked += 1,
                same if same == *id => kept += 1,
                other => assert!(other > 4, "a random replacement is never special"),
            }
        }
        let changed = (0..ids.len()).filter(|i| ids[*i] != original[*i]);
        assert!(changed.into_iter().all(|i| labels.iter().any(|(place, _)| *place == i)));
    }
    let share = |part: usize, whole: usize| part as f64 / whole as f64;
    // Four standard deviations of a binomial share.
    let near = |value: f64, p: f64, n: usize| (value - p).abs() < 4.0 * (p * (1.0 - p) / n as f64).sqrt();
    assert!(near(share(chosen, ordinary), 0.15, ordinary), "{}", share(chosen, ordinary));
    assert!(near(share(masked, chosen), 0.8, chosen), "{}", share(masked, chosen));
    // One random draw in 256 is the token itself.
    assert!(near(share(kept, chosen), 0.1 + 0.1 / 256.0, chosen), "{}", share(kept, chosen));
}

#[test]
fn micro_batches_do_not_change_the_step() {
    let folder = tempfile::tempdir().unwrap();
    let set = shards(folder.path(), &[3, 40, 17, 90, 5, 5, 60]);
    let whole = |rows, accumulation| {
        let mut loader = loader(&set, rows, accumulation, Cursor::default());
        let steps: Vec<StepBatches> = (0..6).map(|_| loader.next_step().unwrap()).collect();
        steps
            .into_iter()
            .map(|step| {
                assert_eq!((step.micro.len(), step.rows), (accumulation, 8));
                assert_eq!(step.label_count, step.micro.iter().map(Batch::num_labels).sum::<usize>());
                let all = |field: fn(&Batch) -> Vec<u64>| step.micro.iter().flat_map(field).collect::<Vec<u64>>();
                let labels = all(|b| {
                    b.label_positions.iter().zip(&b.labels).flat_map(|(p, l)| [b.token_keys[*p as usize], u64::from(*l)]).collect()
                });
                let ids = all(|b| b.ids.iter().map(|id| u64::from(*id)).collect());
                (ids, labels, all(|b| b.token_keys.clone()), all(|b| b.sample_ids.clone()), step.cursor_after)
            })
            .collect::<Vec<_>>()
    };
    let expected = whole(8, 1);
    for (rows, accumulation) in [(4, 2), (2, 4), (1, 8)] {
        assert_eq!(whole(rows, accumulation), expected);
    }
}

#[test]
fn batches_are_well_formed() {
    let folder = tempfile::tempdir().unwrap();
    let set = shards(folder.path(), &[3, 40, 17, 90, 5, 5, 60]);
    let mut loader = loader(&set, 4, 2, Cursor::default());
    for _ in 0..10 {
        for batch in loader.next_step().unwrap().micro {
            let tokens = batch.num_tokens();
            assert_eq!((batch.position_ids.len(), batch.token_type_ids.len(), batch.token_keys.len()), (tokens, tokens, tokens));
            assert_eq!((batch.cu_seqlens[0], *batch.cu_seqlens.last().unwrap() as usize), (0, tokens));
            assert!(batch.max_seqlen() <= 16);
            for segment in batch.cu_seqlens.windows(2) {
                let positions = &batch.position_ids[segment[0] as usize..segment[1] as usize];
                assert!(positions.iter().zip(0..).all(|(position, expected)| *position == expected));
                assert!(positions.len() >= 3);
            }
            assert!(batch.token_keys.windows(2).all(|keys| keys[0] < keys[1]));
            assert_eq!(batch.sample_ids.len(), 4);
        }
    }
}

#[test]
fn resuming_from_any_cursor_gives_the_steps_of_an_uninterrupted_run() {
    let folder = tempfile::tempdir().unwrap();
    let set = shards(folder.path(), &[3, 40, 17, 90, 5, 5, 60]);
    let mut loader_once = loader(&set, 3, 1, Cursor::default());
    let steps: Vec<StepBatches> = (0..20).map(|_| loader_once.next_step().unwrap()).collect();
    assert!(steps[19].epoch > 2.0, "the run passes over the end of an epoch");
    for stop in 0..19 {
        let json = serde_json::to_string(&steps[stop].cursor_after).unwrap();
        let mut resumed = loader(&set, 3, 1, serde_json::from_str(&json).unwrap());
        assert_eq!(resumed.next_step().unwrap(), steps[stop + 1]);
    }
}

#[test]
fn epochs_differ_in_order_and_masks() {
    let folder = tempfile::tempdir().unwrap();
    let set = shards(folder.path(), &[14; 40]);
    let mut loader = loader(&set, 40, 1, Cursor::default());
    let (first, second) = (loader.next_step().unwrap().micro.remove(0), loader.next_step().unwrap().micro.remove(0));
    assert_ne!(first.ids, second.ids);
    assert_ne!(first.label_positions, second.label_positions);
}

#[test]
fn evaluation_sees_every_document_once_with_the_same_masks() {
    let folder = tempfile::tempdir().unwrap();
    let set = shards(folder.path(), &[30, 10, 100]);
    let batches = || -> Vec<Batch> {
        let masking = Masking::for_evaluation(&tokenizer()).unwrap();
        EvaluationBatches::new(&set, frame(16), masking, 4).unwrap().map(Result::unwrap).collect()
    };
    let all = batches();
    assert_eq!(all, batches());
    assert_eq!(all.iter().map(|b| b.sample_ids.len()).sum::<usize>() as u64, rows_per_epoch(&set, Order::Fixed, 16).unwrap());
    let special_tokens: usize = all.iter().map(|b| 2 * (b.cu_seqlens.len() - 1)).sum();
    assert_eq!(all.iter().map(Batch::num_tokens).sum::<usize>() - special_tokens, 140);
    let empty = Arc::new(ShardSet::open(folder.path(), Side::Validation).unwrap());
    assert_eq!(EvaluationBatches::new(&empty, frame(16), masking(), 4).unwrap().count(), 0);
}

#[test]
fn errors_reach_the_caller_and_foreign_cursors_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let set = shards(folder.path(), &[30, 10, 100]);
    let beyond = Cursor { index: 9, ..Cursor::default() };
    let options = LoaderOptions { seed: 1, rows_per_micro_batch: 1, accumulation_steps: 1 };
    let refused = Loader::start(Arc::clone(&set), frame(16), masking(), options, beyond);
    assert!(refused.err().expect("the cursor is beyond the shards").to_string().contains("beyond the 3 documents"));
    std::fs::write(folder.path().join("train-00000.safetensors"), b"gone").unwrap();
    let mut loader = loader(&set, 50, 1, Cursor::default());
    assert!(format!("{:#}", loader.next_step().unwrap_err()).contains("train-00000.safetensors"));
    assert!(loader.next_step().unwrap_err().to_string().contains("the loader has ended"));
}
