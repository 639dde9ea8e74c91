//! Mixes of sources that change during a run: the same steps for any number of ranks and after a resume.

use std::collections::BTreeMap;

use super::*;

const STEPS: u64 = 12;

/// A loader with mixes that begin after 3 and after 7 steps, the last one without the first source.
fn loader(frame: Frame, rank: usize, world_size: usize, first_step: u64, cursor: Cursor) -> Loader {
    let [first, second, third] = [[1.0, 1.0], [0.5, 2.0], [0.0, 1.0]]
        .map(|weights: [f64; 2]| Order::Weighted { seed: 3, weights: weights.into() });
    let shape = StepShape { max_seq_length: 16, rows_per_micro_batch: 2, micro_batches: 4 };
    let options = LoaderOptions {
        order: first,
        later_orders: vec![(3, second), (7, third)],
        first_step,
        rank,
        world_size,
        ..LoaderOptions::new(3, BatchPlan::constant(shape))
    };
    Loader::start(two_sources(), frame, masking(), options, cursor).unwrap()
}

/// Short documents: those of the first source have ids below 150, those of the second source ids from 150 on.
fn two_sources() -> Arc<ShardSet> {
    let [web, books] = [(20, 60), (150, 25)].map(|(first, count)| -> Vec<Vec<u32>> {
        (0..count).map(|number| vec![first + number; 3 + number as usize % 7]).collect()
    });
    Arc::new(ShardSet::in_memory_sources(&[("web", &web), ("books", &books)], 200))
}

/// The ids of the text of a step, before masking.
fn text(step: &StepBatches) -> Vec<u32> {
    let mut all = Vec::new();
    for batch in &step.micro {
        let mut ids = batch.ids.clone();
        for (&position, &label) in batch.label_positions.iter().zip(&batch.labels) {
            ids[position as usize] = label;
        }
        all.extend(ids.into_iter().filter(|id| *id >= 20));
    }
    all
}

#[test]
fn a_change_of_the_mix_gives_the_same_steps_to_any_number_of_ranks_and_after_a_resume() {
    for frame in frames(16) {
        // Documents are short but have chunks, since `chunk_row` is even shorter.
        let frame = Frame { chunk_row: frame.chunk_row.map(|_| 7), ..frame };
        let mut alone = loader(frame, 0, 1, 0, Cursor::default());
        let expected: Vec<StepBatches> = (0..STEPS).map(|_| alone.next_step().unwrap()).collect();
        let mut two = [0, 1].map(|rank| loader(frame, rank, 2, 0, Cursor::default()));
        for step in &expected {
            let parts: Vec<StepBatches> = two.iter_mut().map(|rank| rank.next_step().unwrap()).collect();
            assert_eq!([text(&parts[0]), text(&parts[1])].concat(), text(step), "{frame:?}");
            assert_eq!(parts[1].cursor_after, step.cursor_after);
        }
        for (done, step) in expected.iter().enumerate() {
            let bytes = serde_json::to_vec(&step.cursor_after).unwrap();
            let cursor: Cursor = serde_json::from_slice(&bytes).unwrap();
            let mut resumed = loader(frame, 0, 1, done as u64 + 1, cursor);
            for later in &expected[done + 1..] {
                assert_eq!(resumed.next_step().unwrap(), *later, "{frame:?} after step {}", done + 1);
            }
        }
        let ids: Vec<u64> =
            expected.iter().flat_map(|s| &s.micro).flat_map(|b| b.sample_ids.clone()).collect();
        let different: std::collections::BTreeSet<&u64> = ids.iter().collect();
        assert_eq!(different.len(), ids.len(), "each row has masks of its own");
    }
}

#[test]
fn a_step_reads_documents_of_its_mix() {
    // Documents are short: at most one of the previous mix is left when the next mix begins.
    let mut loader = loader(frame(16), 0, 1, 0, Cursor::default());
    let mut read: BTreeMap<u32, u32> = BTreeMap::new();
    let mut epochs = Vec::new();
    // The first row of the last mix may contain the rest of a document.
    let mut tokens = [[0; 2]; 3];
    for step in 1..=STEPS {
        let step_batches = loader.next_step().unwrap();
        let (web, books): (Vec<u32>, Vec<u32>) = text(&step_batches).into_iter().partition(|id| *id < 150);
        let phase = usize::from(step > 3) + usize::from(step > 8);
        tokens[phase][0] += web.len();
        tokens[phase][1] += books.len();
        for id in web.into_iter().chain(books) {
            *read.entry(id).or_default() += 1;
        }
        epochs.push(step_batches.epoch);
    }
    let [[web, books], [fewer_web, more_books], [no_web, _]] = tokens;
    assert!(web > books && fewer_web < more_books && no_web == 0, "{tokens:?}");
    assert!(epochs.is_sorted() && epochs[0] > 0.0, "{epochs:?}");
    // Each document of a source has been read as often as any other, with a difference of at most one for a
    // document that is partly read.
    for (first, count) in [(20, 60), (150, 25)] {
        let tokens = (0..count).map(|number| read.get(&(first + number)).copied().unwrap_or(0));
        let times: Vec<u32> = tokens.zip(0..).map(|(tokens, number)| tokens / (3 + number % 7)).collect();
        let least = times.iter().min().unwrap();
        let most = times.iter().max().unwrap();
        assert!(most - least <= 1, "{times:?}");
    }
}

#[test]
fn a_position_of_another_run_is_refused() {
    let set = two_sources();
    let orders = [Order::Weighted { seed: 3, weights: [1.0, 1.0].into() }];
    for (cursor, why) in [
        (
            Cursor { mix: 1, positions: vec![4, 4], ..Cursor::default() },
            "is of mix 1 of the sources, there are 1",
        ),
        (Cursor { positions: vec![4], ..Cursor::default() }, "beyond the 85 documents"),
    ] {
        let refused = Packer::with_mixes(Arc::clone(&set), &orders, frame(16), cursor);
        let message = refused.err().expect("is refused").to_string();
        assert!(message.contains(why), "{message}");
    }
}
