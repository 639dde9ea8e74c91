//! The loader: steps, micro-batches, resuming, evaluation, errors.

use super::*;
use config::PretrainTask;

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
                let all =
                    |field: fn(&Batch) -> Vec<u64>| step.micro.iter().flat_map(field).collect::<Vec<u64>>();
                let labels = all(|b| {
                    b.label_positions
                        .iter()
                        .zip(&b.labels)
                        .flat_map(|(p, l)| [b.token_keys[*p as usize], u64::from(*l)])
                        .collect()
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
            assert_eq!(
                (batch.position_ids.len(), batch.token_type_ids.len(), batch.token_keys.len()),
                (tokens, tokens, tokens)
            );
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
    let first = loader.next_step().unwrap().micro.remove(0);
    let second = loader.next_step().unwrap().micro.remove(0);
    assert_ne!(first.ids, second.ids);
    assert_ne!(first.label_positions, second.label_positions);
}

#[test]
fn evaluation_sees_every_document_once_with_the_same_masks() {
    let folder = tempfile::tempdir().unwrap();
    let set = shards(folder.path(), &[30, 10, 100]);
    let [all, again] = [(); 2].map(|()| -> Vec<Batch> {
        let masking = Masking::for_evaluation(PretrainTask::MaskedLm, &tokenizer()).unwrap();
        EvaluationBatches::new(&set, frame(16), masking, 4).unwrap().map(Result::unwrap).collect()
    });
    assert_eq!(all, again);
    assert_eq!(
        all.iter().map(|b| b.sample_ids.len()).sum::<usize>() as u64,
        rows_per_epoch(&set, &Order::Fixed, frame(16)).unwrap()
    );
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
    let refused = Loader::start(Arc::clone(&set), frame(16), masking(), options(1, 1, 1), beyond);
    assert!(
        refused
            .err()
            .expect("the cursor is beyond the shards")
            .to_string()
            .contains("beyond the 3 documents")
    );
    spoil(folder.path());
    let mut loader = loader(&set, 50, 1, Cursor::default());
    assert!(format!("{:#}", loader.next_step().unwrap_err()).contains("train-00000.safetensors"));
    assert!(loader.next_step().unwrap_err().to_string().contains("the loader has ended"));
}
