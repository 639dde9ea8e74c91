//! The same step for any number of ranks, workers and micro-batches.

use super::*;
use config::{MaskingUnit, TrainingConfig, TrainingPhase};

/// All values of a step that training can see, independent of its division into micro-batches.
#[derive(Debug, Clone, PartialEq)]
struct Whole {
    ids: Vec<u32>,
    token_keys: Vec<u64>,
    position_ids: Vec<u32>,
    /// Key of each label's token, and the label.
    labels: Vec<(u64, u32)>,
    token_type_ids: Vec<u32>,
    /// Key of each pair's first token, and its label.
    pairs: Vec<(u64, u32)>,
    sample_ids: Vec<u64>,
    segment_lengths: Vec<u32>,
    cursor_after: Cursor,
    epoch: f64,
}

fn whole(ranks: &[StepBatches]) -> Whole {
    let batches: Vec<&Batch> = ranks.iter().flat_map(|step| &step.micro).collect();
    assert!(
        ranks.iter().all(|step| (&step.cursor_after, step.epoch) == (&ranks[0].cursor_after, ranks[0].epoch))
    );
    Whole {
        ids: batches.iter().flat_map(|b| b.ids.clone()).collect(),
        token_keys: batches.iter().flat_map(|b| b.token_keys.clone()).collect(),
        position_ids: batches.iter().flat_map(|b| b.position_ids.clone()).collect(),
        labels: batches.iter().flat_map(|b| keyed(b, &b.label_positions, &b.labels)).collect(),
        token_type_ids: batches.iter().flat_map(|b| b.token_type_ids.clone()).collect(),
        pairs: batches.iter().flat_map(|b| keyed(b, &b.pair_positions, &b.pair_labels)).collect(),
        sample_ids: batches.iter().flat_map(|b| b.sample_ids.clone()).collect(),
        segment_lengths: batches
            .iter()
            .flat_map(|b| b.cu_seqlens.windows(2).map(|w| w[1] - w[0]).collect::<Vec<_>>())
            .collect(),
        cursor_after: ranks[0].cursor_after.clone(),
        epoch: ranks[0].epoch,
    }
}

/// The labels at these positions of a batch, with the keys of their tokens.
fn keyed(batch: &Batch, positions: &[u32], labels: &[u32]) -> Vec<(u64, u32)> {
    positions.iter().zip(labels).map(|(p, l)| (batch.token_keys[*p as usize], *l)).collect()
}

/// The first steps of a run with 16 rows per step.
fn steps(
    set: &Arc<ShardSet>,
    frame: Frame,
    masking: &Masking,
    world_size: usize,
    rows: usize,
    workers: usize,
) -> Vec<Whole> {
    let ranks = (0..world_size).map(|rank| {
        let order = Order::Weighted { seed: 7, weights: [1.0, 0.5, 1.7].into() };
        let options =
            LoaderOptions { order, total_steps: 6, rank, world_size, workers, ..options(7, rows, 16 / rows) };
        Loader::start(Arc::clone(set), frame, masking.clone(), options, Cursor::default()).unwrap()
    });
    let mut ranks: Vec<Loader> = ranks.collect();
    (0..6)
        .map(|_| whole(&ranks.iter_mut().map(|loader| loader.next_step().unwrap()).collect::<Vec<_>>()))
        .collect()
}

fn sources() -> Arc<ShardSet> {
    let [one, two, three] =
        [&[3, 40, 17, 90, 5, 5, 60][..], &[8; 30], &[100, 1, 33]].map(|lengths| -> Vec<Vec<u32>> {
            lengths.iter().map(|n| (7 * n..8 * n).map(token).map(|id| id % 250 + 5).collect()).collect()
        });
    Arc::new(ShardSet::in_memory_sources(&[("one", &one), ("two", &two), ("three", &three)], VOCAB))
}

#[test]
fn ranks_workers_and_micro_batches_change_nothing() {
    let set = sources();
    for unit in [MaskingUnit::Token, MaskingUnit::WholeWord, MaskingUnit::Span] {
        let config = MlmConfig { masking: unit, mlm_probability_end: Some(0.4), ..MlmConfig::default() };
        let masking = Masking::new(&config, &tokenizer()).unwrap();
        for frame in frames(16) {
            let expected = steps(&set, frame, &masking, 1, 16, 1);
            assert!(expected[5].epoch > 1.0, "the steps pass over the end of an epoch");
            for (world_size, rows, workers) in
                [(1, 4, 1), (1, 1, 3), (2, 8, 1), (4, 2, 2), (8, 1, 1), (8, 2, 4), (3, 2, 1)]
            {
                let found = steps(&set, frame, &masking, world_size, rows, workers);
                assert_eq!(found, expected, "{frame:?} {unit:?} {world_size} {rows} {workers}");
            }
        }
    }
}

#[test]
fn phases_and_ramp_give_the_same_steps_to_any_number_of_ranks_and_after_a_resume() {
    let set = sources();
    let phases = TrainingConfig {
        per_device_train_batch_size: 2.into(),
        gradient_accumulation_steps: 8,
        phases: vec![TrainingPhase::of_length(3, 12)],
        ..TrainingConfig::default()
    };
    for frame in frames(32) {
        let start = |rank, world_size, first_step, cursor| {
            let plan = BatchPlan::new(&phases, 32);
            let options = LoaderOptions { first_step, rank, world_size, ..LoaderOptions::new(3, plan) };
            Loader::start(Arc::clone(&set), frame, masking(), options, cursor).unwrap()
        };
        let mut alone = start(0, 1, 0, Cursor::default());
        let expected: Vec<StepBatches> = (0..6).map(|_| alone.next_step().unwrap()).collect();
        let [short, long] =
            [&expected[2], &expected[5]].map(|step| step.micro.iter().map(Batch::max_seqlen).max().unwrap());
        assert!(short <= 12 && long > 12);
        let keys: Vec<u64> = expected[3].micro.iter().flat_map(|b| b.token_keys.clone()).collect();
        assert!(
            keys.is_sorted_by(|a, b| a < b) && keys[keys.len() - 1] >= 15 * 32,
            "keys are by the row length of the step"
        );
        let mut two = [start(0, 2, 0, Cursor::default()), start(1, 2, 0, Cursor::default())];
        for step in &expected {
            assert_eq!(
                whole(&two.each_mut().map(|loader| loader.next_step().unwrap())),
                whole(std::slice::from_ref(step))
            );
        }
        for stop in 0..5 {
            let mut resumed = start(0, 1, stop as u64 + 1, expected[stop].cursor_after.clone());
            assert_eq!(resumed.next_step().unwrap(), expected[stop + 1], "{frame:?} after step {stop}");
        }
    }
}

#[test]
fn returned_memory_is_reused_and_changes_nothing() {
    let set = sources();
    let mut keeping = loader(&set, 4, 2, Cursor::default());
    let mut returning = loader(&set, 4, 2, Cursor::default());
    let mut addresses = std::collections::BTreeSet::new();
    for _ in 0..30 {
        let step = returning.next_step().unwrap();
        assert_eq!(step, keeping.next_step().unwrap());
        addresses.extend(step.micro.iter().map(|batch| batch.ids.as_ptr() as usize));
        returning.give_back(step);
    }
    assert!(addresses.len() < 30, "{} of 60 batches lay in memory of their own", addresses.len());
}

#[test]
fn a_rank_outside_the_world_size_is_refused() {
    let options = LoaderOptions { rank: 2, world_size: 2, ..options(1, 1, 1) };
    let refused = Loader::start(sources(), frame(16), masking(), options, Cursor::default());
    assert!(refused.err().expect("there is no rank 2 of 2").to_string().contains("rank 2 is not one of 2"));
}
